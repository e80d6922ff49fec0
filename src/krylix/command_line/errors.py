"""What ends a command before its report."""

from __future__ import annotations


class UsageError(Exception):
    """Something that was given cannot be used: exit code 2, and this text in one line."""


class SolveFailed(Exception):
    """The input was fine but the solve ended without a result: exit code 1."""
