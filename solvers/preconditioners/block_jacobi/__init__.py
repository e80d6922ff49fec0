"""Inverses of blocks on the diagonal."""
