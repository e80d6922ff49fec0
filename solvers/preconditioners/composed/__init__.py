"""Preconditioners that are made of others."""
