"""strop: reinforcement-learning post-training of language models that proves every step."""
