"""What a function closes over may change between a solve and its derivative, which is of the function as it was.

Every kind of closure, on every library with derivatives, by every kind of method; against dense NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from gradients import gradient
from krylix import choose_backend, linear_solve
from modes import array, library, product, to_numpy

N = 5
METHODS = ("GMRES", "direct", "scipy-direct")  # by products, by a dense matrix, on the host
RNG = np.random.default_rng(3)
MATRIX, W, B = 4 * np.eye(N) + 0.4 * RNG.standard_normal((N, N)), RNG.random(N) + 0.5, RNG.standard_normal(N)
NUMBER, OTHER = 1.5, 40.0

Function = Callable[..., Any]
Changed = tuple[Function, Callable[[], Any]]  # a function of u, and what changes it later


class Library(NamedTuple):
    mode: str

    def array(self, x: np.ndarray) -> Any:
        return array(self.mode, x)

    def product(self, u: Any, w: Any, s: Any) -> Any:
        return s * (w * u) + self.times_matrix(u)

    def times_matrix(self, u: Any) -> Any:
        return product(self.mode, self.array(MATRIX))(u)

    def other(self) -> Any:
        """What w is bound to later, which has to do with no derivative."""
        return self.array(OTHER * W)


# --- kinds of closures: the tracked w and the number s are both bound anew


def cell(of: Library, w: Any, s: Any) -> Changed:
    def A(u: Any) -> Any:
        return of.product(u, w, s)

    def change() -> None:
        nonlocal w, s
        w, s = of.other(), OTHER

    return A, change


_global: Any = None


def global_name(of: Library, w: Any, s: Any) -> Changed:
    global _global
    _global = (w, s)

    def change() -> None:
        global _global
        _global = (of.other(), OTHER)

    return lambda u: of.product(u, *_global), change


def default(of: Library, w: Any, s: Any) -> Changed:
    def A(u: Any, w: Any = w, s: Any = s) -> Any:
        return of.product(u, w, s)

    return A, lambda: setattr(A, "__defaults__", (of.other(), OTHER))


def keyword_default(of: Library, w: Any, s: Any) -> Changed:
    def A(u: Any, *, w: Any = w, s: Any = s) -> Any:
        return of.product(u, w, s)

    return A, lambda: A.__kwdefaults__.update(w=of.other(), s=OTHER)  # type: ignore[attr-defined]


def attribute(of: Library, w: Any, s: Any) -> Changed:
    model = SimpleNamespace(w=w, s=s)

    def change() -> None:
        model.w, model.s = of.other(), OTHER

    return lambda u: of.product(u, model.w, model.s), change


def bound_method(of: Library, w: Any, s: Any) -> Changed:
    class Model:
        def __init__(self) -> None:
            self.w, self.s = w, s

        def __call__(self, u: Any) -> Any:
            return of.product(u, self.w, self.s)

    model = Model()
    return model.__call__, lambda: vars(model).update(w=of.other(), s=OTHER)


def partial(of: Library, w: Any, s: Any) -> Changed:
    A = functools.partial(of.product, w=w, s=s)
    return A, lambda: A.keywords.update(w=of.other(), s=OTHER)


def item(of: Library, w: Any, s: Any) -> Changed:
    held = [{"w": w}, s]

    def change() -> None:
        held[:] = [{"w": of.other()}, OTHER]

    return lambda u: of.product(u, held[0]["w"], held[1]), change


def array_in_place(of: Library, w: Any, s: Any) -> Changed:
    """A NumPy array, which the library reads when the function runs."""
    known = np.full(N, s)
    return lambda u: of.product(u, w, of.array(known.copy())), lambda: known.fill(OTHER)


def wrapped(of: Library, w: Any, s: Any) -> Changed:
    """By a function that is bound anew."""

    def scale(v: Any) -> Any:
        return s * (w * v)

    def change() -> None:
        nonlocal scale
        scale = lambda v: OTHER * v  # noqa: E731

    return lambda u: scale(u) + of.times_matrix(u), change


KINDS = (cell, global_name, default, keyword_default, attribute, bound_method, partial, item, array_in_place, wrapped)
CELLS = [
    pytest.param(mode, method, marks=() if mode == "torch" or method == "direct" else pytest.mark.merge)
    for mode in ("jax", "torch", "tf")
    for method in METHODS
]


@pytest.mark.compiled_by_default("direct")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("mode", "method"), CELLS)
def test_the_function_as_it_was(kind: Callable[..., Changed], mode: str, method: str) -> None:
    of, xp = Library(mode), choose_backend(library(mode)).xp

    def loss(w: Any) -> Any:
        A, change = kind(of, w, NUMBER)
        x = linear_solve(A, of.array(B), method=method, rtol=1e-13).x
        change()  # before the way back
        return xp.sum(x**3)

    found = to_numpy(gradient(mode, loss, of.array(W)))
    dense = np.diag(NUMBER * W) + MATRIX
    x = np.linalg.solve(dense, B)
    wanted = -NUMBER * x * np.linalg.solve(dense.T, 3 * x**2)
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
