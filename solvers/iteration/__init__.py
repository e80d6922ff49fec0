"""The iteration: its loop, methods, status, progress."""
