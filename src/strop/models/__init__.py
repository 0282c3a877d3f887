"""Models: how they are named, loaded, adapted, attended with and written; nothing here knows of training."""
