"""Canonical forms of traced JAX programs: equal where they compute the same, with numbers as arguments."""
