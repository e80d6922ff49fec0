"""Operators in files: what each is made of, as a description in JSON and arrays."""
