"""What a kind of preconditioner gets, and what becomes of what it returns."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix.solvers import PRECONDITIONERS, Preconditioner
from krylix.solvers.preconditioners import DiagonalOperator, of_operator
from krylix.sparse import UnsupportedOperation
from krylix.sparse.analysis.analysis import Analysis, analysis_of
from modes import EAGER, array, library, to_numpy

N = 6
A = sp.diags_array([np.full(N - 1, -1.0), np.arange(3.0, 3 + N), np.full(N - 1, -1.0)], offsets=[-1, 0, 1]).tocsr()


class Seen:
    """A kind, and what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: bool) -> None:
        @of_operator(**options)
        def kind(own: Any, target: Any, *, factor: float = 1.0) -> Preconditioner:
            self.own, self.facts = own.bk.name, analysis_of(own)
            self.shared = analysis_of(target.A).facts is self.facts.facts
            return Preconditioner(DiagonalOperator(own.bk, factor / own.diagonals()), "seen", self.facts.hermitian)

        self.kind = kind
        monkeypatch.setitem(PRECONDITIONERS, "seen", kind)


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("eagerly_on_host", [True, False])
def test_eager(mode: str, eagerly_on_host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's arrays, unless the kind wants those of the library; M is one of the library either way."""
    seen = Seen(monkeypatch, eagerly_on_host=eagerly_on_host)
    values = array(mode, A.toarray())
    M = krylix.preconditioner(values, "seen", factor=2.0)
    assert seen.own == ("numpy" if eagerly_on_host else library(mode)) and seen.shared
    assert (M.bk.name, M.entries, M.hermitian) == (library(mode), N * N, True)
    np.testing.assert_array_equal(to_numpy(M.diagonal()), 2 / A.diagonal())
    own = krylix.as_operator(values)
    own.analysis = before = Analysis(own)
    krylix.preconditioner(own, "seen", factor=2.0)
    assert own.analysis is before and not before.facts


@pytest.mark.needs("jax")
def test_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's where the values are known while the function is compiled, JAX's where they are its arguments."""
    import jax

    seen, names = Seen(monkeypatch, eagerly_on_host=False), []

    def diagonal(values: Any, like: Any) -> Any:
        M = krylix.preconditioner(values, "seen", like=like)
        names.append((seen.own, M.bk.name))
        return M @ like

    b = jax.numpy.ones(N)
    known = jax.jit(lambda b: diagonal(A, b))(b)
    traced = jax.jit(diagonal)(jax.numpy.asarray(A.toarray()), b)
    assert names == [("numpy", "jax"), ("jax", "jax")]
    for found in (known, traced):
        np.testing.assert_allclose(found, 1 / A.diagonal(), rtol=1e-6)


def test_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are traced, and have no stored entries to compare costs with."""
    seen = Seen(monkeypatch)
    M = krylix.preconditioner(lambda u: 2 * u + 1, "seen", like=np.ones((2, 3)))
    assert (M.entries, M.grid, seen.facts.hermitian) == (None, (2, 3), True)


def test_products_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, unless the kind says that it needs no entries."""
    opaque = sp.linalg.aslinearoperator(A)
    Seen(monkeypatch)
    with pytest.raises(UnsupportedOperation, match="made of entries"):
        krylix.preconditioner(opaque, "seen")
    Seen(monkeypatch, needs_entries=False)
    np.testing.assert_allclose(krylix.preconditioner(opaque, "seen").diagonal(), 1 / A.diagonal())


def test_settings_are_those_of_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    assert [*inspect.signature(seen.kind).parameters] == ["A", "factor"]
    with pytest.raises(ValueError, match=r"seen has no setting target; it has factor\."):
        krylix.preconditioner(A, "seen", target=1)


@pytest.mark.parametrize("kind", list(PRECONDITIONERS))
def test_rectangular_matrices(kind: str) -> None:
    """Also where a kind is called by itself."""
    with pytest.raises(ValueError, match=r"asked for a matrix of \(3, 4\); expected a square one"):
        PRECONDITIONERS[kind](krylix.as_operator(np.ones((3, 4))))


@pytest.mark.parametrize("kind", ["jacobi", "ilu", "amg", "multigrid"])
def test_update_keeps_the_grid(kind: str) -> None:
    def f(u: np.ndarray) -> np.ndarray:
        padded = np.pad(u, 1)
        return 4.5 * u - padded[:-2, 1:-1] - padded[2:, 1:-1] - padded[1:-1, :-2] - padded[1:-1, 2:]

    b = np.random.default_rng(0).standard_normal((20, 20))  # more unknowns than a coarsest level has
    A, _ = krylix.matrix_from_function(f, b)
    solver = krylix.prepare(A, b.reshape(-1), method="CG", preconditioner=kind, rtol=1e-10).update(A * 2)
    M = solver.preconditioner
    assert M.grid == (20, 20)
    np.testing.assert_allclose(M(b), krylix.preconditioner(A * 2, kind)(b), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(2 * f(solver.solve(b.reshape(-1)).x.reshape(b.shape)), b, atol=1e-8)
