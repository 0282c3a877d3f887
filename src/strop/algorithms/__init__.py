"""Algorithms are pure functions of tensors and records: no engine, no config look-up beyond their own settings."""
