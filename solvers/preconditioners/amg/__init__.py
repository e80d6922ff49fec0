"""Algebraic multigrid: set-up by pyamg or on a known pattern, cycles of the library's own matrices."""
