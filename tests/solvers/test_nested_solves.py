"""A failing solve inside another one: its error comes through with its result as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import krylix
from krylix import NotConverged, Status, linear_solve

A = np.diag([1.0, 2.0, 3.0, 4.0])
b = np.ones(4)


def _fails(b: np.ndarray) -> np.ndarray:
    return linear_solve(A, b, method="CG", max_iter=1).x


def _in_callback(state: Any) -> bool:
    return bool(_fails(b).sum() < -1)


def _gmres() -> Any:
    return linear_solve(A, b, method="GMRES", preconditioner=lambda r: _fails(b))


def _scipy_like() -> Any:
    from krylix.scipy_like import LinearOperator, gmres

    return gmres(LinearOperator((4, 4), matvec=lambda v: A @ v + 0 * _fails(b), dtype=float), b)


SOLVES: dict[str, Callable[[], Any]] = {
    "in A": lambda: linear_solve(lambda v: A @ v + 0 * _fails(b), b, method="GMRES"),
    "in M": _gmres,
    "in a callback": lambda: linear_solve(A, b, method="CG", callback=_in_callback),
    "in the callback of a batch": lambda: linear_solve(A, np.ones((3, 4)), method="CG", callback=_in_callback),
    "of a prepared solver": lambda: krylix.prepare(A, method="CG").solve(b, callback=_in_callback),
    "in scipy_like": _scipy_like,
    "three deep": lambda: linear_solve(A, b, method="CG", callback=lambda _: bool(_gmres().x.sum() < -1)),
}


@pytest.mark.parametrize("solve", SOLVES.values(), ids=SOLVES)
def test_the_error_of_an_inner_solve_comes_through(solve: Callable[[], Any]) -> None:
    with pytest.raises(NotConverged) as caught:
        solve()
    result = caught.value.result
    assert result.status is Status.MAX_ITER
    assert result.iterations == 1
    np.testing.assert_allclose(result.residual, b - A @ result.x, atol=1e-12)
    np.testing.assert_allclose(result.residual_norm, np.linalg.norm(b - A @ result.x))


@pytest.mark.parametrize("rows", [(), (3,)], ids=["one", "batch"])
def test_a_caught_error_raised_again_keeps_its_times(rows: tuple[int, ...]) -> None:
    with pytest.raises(NotConverged) as first:
        linear_solve(A, np.ones((*rows, 4)), method="CG", max_iter=1)
    result = first.value.result
    times, status = (result.setup_time, result.solve_time), result.status

    def again(v: np.ndarray) -> np.ndarray:
        raise first.value

    for _ in range(2):
        with pytest.raises(NotConverged) as second:
            linear_solve(again, b, method="GMRES")
        assert second.value.result is result
        assert (result.setup_time, result.solve_time) == times
        np.testing.assert_array_equal(result.status, status)
