"""Text that is given instead of sampled: rows of conversations, pairs and labelled answers become token-exact rows.

columns --turns.py--> turns --columns.py--> Conversation --render.py--> TokenRow --examples.py--> ExampleTable
samples of a run --stored.py-----------------------------------------> TokenRow --/      \\--> stream.py --> Group
"""
