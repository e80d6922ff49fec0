"""Which cells of the conformance matrix exist, and the checks that they share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from krylix.solvers import METHODS
from modes import MODES
from problems import SYSTEMS, System
from tiers import REPRESENTATIVE

METHOD_NAMES = tuple(name for name, method in METHODS.items() if not (method.needs_grid or method.needs_band))
"""Methods for matrices of any pattern; tests/solvers/methods/test_special_matrices.py has the others."""
DTYPES = ("float32", "float64", "complex64", "complex128")
# Where each cell compiles a program, every method in one dtype, real in one way to compile and complex in the other;
# in the others on demand.
_QUICK = {
    "jax": ("complex128",),
    "jax-jit": ("float32",),
    "torch-compile": ("float64",),
    "tf": ("float64",),
    "tf-function": ("complex64",),
}


# In the tests of contracts that give each method one system: they run one program (conftest.py).
ONE_SYSTEM: dict[str, Any] = {"max_iter": 200, "on_failure": "status"}

# For tests that are not about compiling, each method compiles in one library's graphs; these few do in every mode.
_EVERYWHERE = (*REPRESENTATIVE, "scipy-direct")
_ON_DEMAND = ("jax", "torch-compile", "tf-function")


def cells(*, real: bool = False) -> list[Any]:
    """Every (method, dtype, mode) that exists, with the marker slow on those that run on demand.

    Those are most of what compiles: each method runs in JAX's `jit`, eagerly in TensorFlow, and in NumPy and PyTorch in
    every dtype; the methods of `_EVERYWHERE` in all modes.
    """
    found = []
    for method in METHOD_NAMES:
        dtypes = DTYPES[:2] if real or not METHODS[method].takes_complex else DTYPES
        on_demand = _ON_DEMAND if method not in _EVERYWHERE else ()
        for mode in MODES:
            quick = [d for d in _QUICK.get(mode, DTYPES) if d in dtypes] or ["float64"]
            for dtype in dtypes:
                slow = dtype not in quick or mode in on_demand
                found.append(pytest.param(method, dtype, mode, marks=pytest.mark.slow if slow else ()))
    return found


def methods_and_modes(methods: Iterable[str], modes: Iterable[str] = MODES) -> list[Any]:
    """(method, mode); where programs are compiled, some methods in all modes and the others in JAX's `jit` and eagerly
    in TensorFlow, the rest on demand.
    """
    modes, found = tuple(modes), []
    for method in methods:
        on_demand = () if method in _EVERYWHERE else _ON_DEMAND
        for mode in modes:
            found.append(pytest.param(method, mode, marks=pytest.mark.slow if mode in on_demand else ()))
    return found


def in_turn(
    first: Iterable[Any], second: Iterable[Any], always: Iterable[Any] = (), tier: str = "slow", shift: int = 0
) -> list[Any]:
    """Every pair; by default only so many that each value is in one of them, and those of the second in `always`.

    The other pairs wait for `tier`. For tests whose parts do not depend on each other: what a kind of preconditioner
    is made of, and the library that compiles it. With another `shift`, other pairs come first.
    """
    first, second, always = list(first), list(second), tuple(always)
    turns = [s for s in second if s not in always]
    count = max(len(first), len(turns))
    chosen = {(k % len(first), k % len(turns)) for k in range(count)} if turns else set()
    found = []
    for i, one in enumerate(first):
        for other in second:
            now = other in always or ((i + shift) % len(first), turns.index(other)) in chosen
            found.append(pytest.param(one, other, marks=() if now else getattr(pytest.mark, tier)))
    return found


def later_where_compiled(method: str) -> list[Any]:
    """(method, mode), on demand where a program is compiled."""
    return [pytest.param(method, m, marks=() if m in ("numpy", "torch") else pytest.mark.slow) for m in MODES]


def others_before_a_merge(methods: Iterable[str]) -> list[Any]:
    """The methods; those that do not stand for others are in the tier `merge`."""
    return [pytest.param(m, marks=() if m in REPRESENTATIVE else pytest.mark.merge) for m in methods]


def two_dtypes() -> list[Any]:
    """(dtype, mode) with one real and one complex dtype; where programs are compiled, the real one on demand."""
    return [
        pytest.param(dtype, mode, marks=pytest.mark.slow if mode in _QUICK and dtype == "float32" else ())
        for mode in MODES
        for dtype in ("float32", "complex128")
    ]


def methods_and_two_dtypes(methods: Iterable[str]) -> list[Any]:
    """(method, dtype, mode): `two_dtypes`, and as for `methods_and_modes` some methods in all modes."""
    found = []
    for method in methods:
        for cell in two_dtypes():
            on_demand = method not in _EVERYWHERE and cell.values[1] in _ON_DEMAND
            marks = pytest.mark.slow if on_demand else cell.marks
            found.append(pytest.param(method, *cell.values, marks=marks))
    return found


def cast(x: np.ndarray, dtype: str) -> np.ndarray:
    """Into a dtype of the same kind."""
    return x.astype(dtype)


def suits(method: str, system: System, dtype: str) -> bool:
    """Is the method made for this system?"""
    settings = METHODS[method]
    is_complex = dtype.startswith("complex")
    if system.complex != is_complex or (is_complex and not settings.takes_complex):
        return False
    if (settings.needs_hermitian and not system.hermitian) or (settings.needs_symmetric and not system.symmetric):
        return False
    return system.definite or not settings.needs_definite


def complex_system_of(method: str) -> System:
    """A complex system with the symmetry that the method asks for; a Hermitian one where it asks for none."""
    return SYSTEMS["complex symmetric" if METHODS[method].needs_symmetric else "complex Hermitian"]


def check_true_residual(result: Any, matrix: np.ndarray, b: np.ndarray) -> None:
    """Where `result` says converged, b - A x computed here in double precision is within the tolerance.

    The library computes it in the working precision, whose rounding of A x is allowed for.
    """
    x = result.x.astype(np.complex128)
    residual = np.linalg.norm(b.astype(np.complex128) - x @ matrix.T, axis=-1)
    rounding = 8 * np.finfo(result.x.dtype).eps * np.linalg.norm(np.abs(x) @ np.abs(matrix).T, axis=-1)
    assert np.all((residual <= result.tolerance * (1 + 1e-6) + rounding) | ~result.converged)
    assert np.all(
        (np.abs(residual - result.residual_norm) <= rounding + 1e-5 * residual) | ~np.isfinite(result.residual_norm)
    )


def fewer_in_torch(cells: Iterable[Any]) -> list[Any]:
    """Of (method, dtype, mode) all but two dtypes of PyTorch, which computes as NumPy does."""
    return [c for c in cells if c.values[2] != "torch" or c.values[1] in ("float64", "complex64")]
