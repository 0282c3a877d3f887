"""A language model judges by a rubric.

    row, completion --rubric.py--> question --engine.py--> answer --verdict.py--> value
                                     |
                                     +-- server.py: over the network, or the sampler of this process (trainers)

What goes wrong on the way is a `JudgeError`; `reward.py` makes an invalid part of it, with the reason.
"""
