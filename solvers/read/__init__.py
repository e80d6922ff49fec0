"""Arguments to a checked system."""
