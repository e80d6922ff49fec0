"""Programs for one system, whose loop holds no masks: the same in each field as where residual norms are recorded.

Nothing that is asked for changes an answer; the matrices and right-hand sides are of any magnitude, singular or NaN.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import linear_solve
from krylix.solvers import Status

jax = lazy("jax")
jnp = lazy("jax.numpy")

N = 24
RNG = np.random.default_rng(0)
S = RNG.normal(size=(N, N))
MATRICES = {
    "definite": S @ S.T + N * np.eye(N),
    "negative": -(S @ S.T + N * np.eye(N)),
    "general": S + 7 * np.eye(N),
    "skew": S - S.T,
    "hard": np.diag(10.0 ** np.linspace(0, -13, N)),
    "singular": np.diag([0.0] + [1.0] * (N - 1)),
    "zero": np.zeros((N, N)),
    "NaN": np.full((N, N), np.nan),
    "one infinity": np.diag([np.inf] + [1.0] * (N - 1)),
    "large": 1e300 * np.eye(N) + 1e299 * np.ones((N, N)),
}
B = RNG.normal(size=N)
SIDES = {"b": B, "small": 1e-180 * B, "large": 1e180 * B, "zero": 0 * B, "NaN": np.where(np.arange(N) == 3, np.nan, B)}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "rtol": {"rtol": 1e-6},
    "unreachable": {"rtol": 1e-15},
    "atol": {"rtol": 0.0, "atol": 1e-3},
    "three steps": {"max_iter": 3},
    "no step": {"max_iter": 0},
    "start": {"x0": 0.1 * B},
}
FIELDS = ("x", "residual", "residual_norm", "tolerance", "attainable", "iterations", "function_evaluations", "status")
METHODS = ("CG", "biCG-stab", "biCG-stab(2)", "GMRES", "MINRES", "IDR(4)")


@cache
def program(method: str, settings: str, history: bool) -> Callable[[Any, Any], Any]:
    given = {"nullspace": None, "on_failure": "status", **SETTINGS[settings]}

    def solve(A: Any, b: Any) -> tuple[Any, ...]:
        result = linear_solve(lambda u: A @ u, b, method=method, history=history, **given)
        return tuple(getattr(result, name) for name in FIELDS)

    return jax.jit(solve)


BY_DEFAULT = (("CG", "default"), ("CG", "unreachable"), ("CG", "start"), ("biCG-stab", "default"))


def cell(method: str, settings: str) -> Any:
    """The others before a merge."""
    return pytest.param(method, settings, marks=() if (method, settings) in BY_DEFAULT else pytest.mark.merge)


@pytest.mark.parametrize(("method", "settings"), [cell(m, s) for m in METHODS for s in SETTINGS])
def test_the_same_in_each_field(method: str, settings: str) -> None:
    lean, general = (program(method, settings, history) for history in (False, True))
    seen = set()
    for matrix in MATRICES:
        for side in SIDES if matrix in ("definite", "hard") else ("b",):
            A, b = jnp.asarray(MATRICES[matrix]), jnp.asarray(SIDES[side])
            one, other = lean(A, b), general(A, b)
            for name, found, expected in zip(FIELDS, one, other, strict=True):
                np.testing.assert_array_equal(found, expected, err_msg=f"{name} of {matrix}, {side}")
            seen.add(int(one[-1]))
    assert int(Status.CONVERGED) in seen or settings == "no step"
    assert len(seen) > 1


@pytest.mark.parametrize("method", ["CG", pytest.param("GMRES", marks=pytest.mark.merge)])
def test_lanes_end_where_each_system_ends_alone(method: str) -> None:
    """In `jax.vmap` the loops go on until all lanes have ended, each for another reason."""
    alone = program(method, "default", False)
    A = jnp.stack([jnp.asarray(A) for A in MATRICES.values()])
    lanes = jax.jit(jax.vmap(lambda A, b: alone(A, b), (0, None)))(A, jnp.asarray(B))
    for k, matrix in enumerate(A):
        found = dict(zip(FIELDS, (field[k] for field in lanes), strict=True))
        expected = dict(zip(FIELDS, alone(matrix, jnp.asarray(B)), strict=True))
        assert found["status"] == expected["status"], list(MATRICES)[k]
        if expected["status"] == Status.CONVERGED:
            assert found["iterations"] == expected["iterations"]
            np.testing.assert_allclose(found["x"], expected["x"], rtol=1e-6)
