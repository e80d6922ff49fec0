"""Primitives for arrays of users: what is refused, kept, marked and spread; and exponents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contract import CELLS, backend, covers, run
from frameworks import torch
from gradients import derivatives
from modes import array, to_numpy

EAGER = pytest.mark.parametrize("mode", ["numpy", "jax", "torch", "tf"])


@covers("unit_in_first_place")
@pytest.mark.parametrize(("mode", "dtype"), [cell for cell in CELLS if not cell[1].startswith("complex")])
def test_unit_in_first_place(mode: str, dtype: str) -> None:
    x = np.array([[0, 1, 1.5, 1.9999, 2, 3e-20, 7e20, np.inf]], dtype)
    expected = [0, 1, 1, 1, 2, 2.0 ** np.floor(np.log2(3e-20)), 2.0 ** np.floor(np.log2(7e20)), np.inf]
    np.testing.assert_array_equal(run(mode, lambda bk, x: bk.unit_in_first_place(x), x)[0], expected)


@covers("check_numbers")
@EAGER
def test_arrays_without_numbers_are_refused(mode: str) -> None:
    bk = backend(mode)
    bk.check_numbers(array(mode, np.ones(3)), "b")
    if mode == "torch":
        with pytest.raises(ValueError, match="the name"):
            bk.check_numbers(torch.ones(3, device="meta"), "the name")


@covers("owned", "with_auto_axes")
@EAGER
def test_owned_arrays_do_not_change_and_those_that_are_not_spread_are_handed_on(mode: str) -> None:
    bk, x = backend(mode), array(mode, np.arange(3.0))
    own = bk.owned(x)
    if mode in ("numpy", "torch"):
        x[1] = 7
    np.testing.assert_array_equal(to_numpy(own), np.arange(3.0))
    found: Any = bk.with_auto_axes(lambda tree: (tree[0] * 2, tree[1]), (own, "text"), own)
    np.testing.assert_array_equal(to_numpy(found[0]), 2 * np.arange(3.0))
    assert found[1] == "text"


@covers("without_derivatives")
@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_derivatives_of_failed_rows_are_not_a_number(mode: str) -> None:
    bk, x, failed = backend(mode), np.arange(6.0).reshape(3, 2), np.array([[False], [True], [True]])
    weights = np.array([[1.0, 2], [3, 4], [0, 0]])  # the last row is left out of the sum

    def loss(x: Any) -> Any:
        found = bk.without_derivatives(x, bk.asarray(failed, like=x))
        return bk.sum(found * bk.asarray(weights, like=found), (0, 1))

    (found,) = derivatives(loss, array(mode, x))
    np.testing.assert_array_equal(to_numpy(found), [[1, 2], [np.nan, np.nan], [0, 0]])
