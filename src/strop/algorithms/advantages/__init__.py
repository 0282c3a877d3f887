"""Advantages: how much better a sample is than what it is compared with."""
