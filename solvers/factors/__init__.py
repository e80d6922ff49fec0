"""Factors of matrices, which solve with them and with their transposes."""
