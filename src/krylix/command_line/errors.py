"""What ends a command without a result."""

from __future__ import annotations


class UsageError(Exception):
    """Something that was given cannot be used: exit code 2, and this text in one line."""


class SolveFailed(Exception):
    """The input was fine, but there is no result, or it could not be written: exit code 1."""
