"""The one loop, and what it is made of: methods, status, progress."""
