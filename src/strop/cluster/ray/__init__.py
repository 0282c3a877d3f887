"""Objects that live in Ray actors, driven by one controller."""
