"""A reward model: a sequence classification model of transformers judges samples.

prompt, completion --conversation.py--> token row --batches.py--> padded batches --model--> scores
                                          ^
                          loading.py: what must fit before the weights are there
"""
