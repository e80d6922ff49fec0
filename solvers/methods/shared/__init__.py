"""Shared parts of methods."""
