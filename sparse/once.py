"""What is asked of one matrix more than once while a system is set up is found out once.

Only for that long: numbers of a matrix may be changed by whoever owns them before the next solve.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")

_answers: ContextVar[dict[Any, tuple[Any, Any]] | None] = ContextVar("answers", default=None)


class answers_kept:  # as a function that makes a context, which is what it is used as
    """Functions with `once` keep their answers in here; solves within, as of a user's function, keep their own."""

    def __enter__(self) -> None:
        self.token = _answers.set({})

    def __exit__(self, *exc: object) -> None:
        _answers.reset(self.token)


def once(question: Callable[[Any], T]) -> Callable[[Any], T]:
    """For a function of one object, whose answer depends on nothing else and is not changed by who gets it.

    None and False are not kept, as what is not known now, in a program, may be known where it is asked again.
    """

    @wraps(question)
    def asked(it: Any) -> T:
        answers = _answers.get()
        if answers is None:
            return question(it)
        key = question, id(it)
        if key in answers:
            kept: T = answers[key][1]
            return kept
        answer = question(it)
        if answer is not None and answer is not False:
            answers[key] = it, answer  # with the object, so that no other one gets its id
        return answer

    return asked
