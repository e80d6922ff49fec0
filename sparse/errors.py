"""Errors about operators."""

from __future__ import annotations


class NonlinearError(ValueError):
    """A function that should be linear (or affine) is not."""


class UnsupportedOperation(TypeError):
    """An operator cannot do what a method or preconditioner needs of it; the message names a way out."""
