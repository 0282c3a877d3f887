"""What is learned from given text instead of samples: supervised fine-tuning and preferences, a file a method."""
