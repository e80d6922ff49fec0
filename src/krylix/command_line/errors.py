"""Errors that end a command without a result."""

from __future__ import annotations

import re

_ARGUMENT = re.compile(r"\b(method|preconditioner)='([^']+)'")


class UsageError(Exception):
    """Something that was given cannot be used: exit code 2, and this text in one line."""


class SolveFailed(Exception):
    """The input was fine, but there is no result, or it could not be written: exit code 1."""


def as_options(message: str) -> str:
    """Advice for Python, for whoever has options.

    >>> as_options("for none give preconditioner=None, or preconditioner='ilu', with method='CG'.")
    'for none leave out --preconditioner, or --preconditioner ilu, with --method CG.'
    """
    return _ARGUMENT.sub(r"--\1 \2", message.replace("give preconditioner=None", "leave out --preconditioner"))
