"""Answers about a matrix are kept while one system is set up, and no longer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import linear_solve
from krylix.sparse.once import answers_kept, once


class Asked:
    """Something that a question was asked of so many times."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.times = answer, 0


@once
def answer(it: Asked) -> Any:
    it.times += 1
    if isinstance(it.answer, Exception):
        raise it.answer
    return it.answer


def test_kept_inside_only() -> None:
    it = Asked(0.5)
    assert [answer(it), answer(it)] == [0.5, 0.5] and it.times == 2
    with answers_kept():
        assert [answer(it), answer(it)] == [0.5, 0.5] and it.times == 3
        other = Asked(0.25)
        assert answer(other) == 0.25 and answer(it) == 0.5
    it.answer = 0.75
    assert answer(it) == 0.75 and it.times == 4


@pytest.mark.parametrize("left_open", [None, False])
def test_what_may_be_known_later_is_asked_again(left_open: Any) -> None:
    it = Asked(left_open)
    with answers_kept():
        assert answer(it) is left_open
        it.answer = True
        assert answer(it) is True and answer(it) is True and it.times == 2


def test_solves_within_keep_their_own() -> None:
    it = Asked(1.0)
    with answers_kept():
        answer(it)
        it.answer = 2.0
        with answers_kept():
            assert answer(it) == 2.0
        assert answer(it) == 1.0


def test_errors_are_not_kept() -> None:
    it = Asked(ValueError("no"))
    with answers_kept():
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                answer(it)
    assert it.times == 2
    answers = answer(Asked(3))
    assert answers == 3


def test_no_object_gets_the_answer_of_one_before() -> None:
    with answers_kept():
        assert [answer(Asked(k)) for k in range(1, 50)] == [*range(1, 50)]


def test_numbers_may_change_between_solves() -> None:
    """The same matrix, symmetric and definite first, and then far from that."""
    n = 400
    A = sp.csr_array(sp.diags_array([-np.ones(n - 1), 4 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1]))
    b = np.random.default_rng(0).standard_normal(n)
    for _ in range(2):
        x = linear_solve(A, b, rtol=1e-10).x
        assert np.linalg.norm(A @ x - b) <= 1.01e-10 * np.linalg.norm(b)
        A.data[A.indices == np.repeat(np.arange(n), np.diff(A.indptr)) + 1] = 3.5
