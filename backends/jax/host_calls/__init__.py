"""Calls of the host from programs of JAX: failures that are told, second attempts, set-up by NumPy."""
