"""Triangular systems: by levels of rows that do not depend on each other, on the host by SuperLU."""
