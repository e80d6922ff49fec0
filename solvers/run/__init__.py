"""The loop that all methods share, and when it stops."""
