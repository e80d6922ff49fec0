"""Sparse factors of every library: right or reported, renewed for other numbers, kept by pattern."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import linear_solve, prepare
from krylix.solvers import SparseDirect
from krylix.solvers.factors import protocol, sparse
from krylix.solvers.factors.protocol import EntryPattern, Factors, FactorsRefused, Kind, Provider, SymbolicAnalysis
from krylix.solvers.factors.sparse import PROVIDERS, SUPERLU

LINE = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(24, 24))
GRID = sp.csr_array(sp.kron(LINE, sp.eye_array(24)) + sp.kron(sp.eye_array(24), LINE))
N = GRID.shape[0]
ONE = sp.eye_array(N)
SKEW = sp.csr_array(sp.kron(sp.diags_array([-1.0, 1.0], offsets=[-1, 1], shape=(24, 24)), sp.eye_array(24)))
RNG = np.random.default_rng(0)
SCALES = [sp.diags_array(10.0 ** RNG.uniform(-8, 8, N)) for _ in range(2)]
B = sp.random_array((60, N), density=0.02, rng=np.random.default_rng(1)) + sp.eye_array(60, N)


@pytest.fixture(params=list(PROVIDERS))
def library(request: pytest.FixtureRequest) -> str:
    if not PROVIDERS[request.param].is_installed():
        pytest.skip(f"{request.param} is not installed")
    name: str = request.param
    return name


def rounded() -> Any:
    """Symmetric up to rounding."""
    noisy = GRID.copy()
    noisy.data *= 1 + 2e-16 * RNG.choice([-1, 0, 1], noisy.nnz)
    return noisy


def unsymmetric(seed: int) -> Any:
    """A random matrix with a diagonal of all sizes; some need every row exchange."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(50, 1500))
    entries = sp.random_array((n, n), density=rng.uniform(0.002, 0.01), rng=rng)
    return sp.csr_array(entries + sp.diags_array(10.0 ** rng.uniform(-4, 0, n) * rng.normal(size=n)))


REGULAR: dict[str, Callable[[], Any]] = {
    "definite": lambda: GRID,
    "negative": lambda: -GRID,
    "indefinite": lambda: GRID - 0.5 * ONE,
    "convection": lambda: GRID + 0.8 * SKEW,
    "nearly symmetric": rounded,
    "scaled on both sides": lambda: SCALES[0] @ GRID @ SCALES[1],
    "scaled alike": lambda: SCALES[0] @ GRID @ SCALES[0],
    "scaled rows": lambda: SCALES[0] @ (GRID + SKEW),
    "saddle point": lambda: sp.block_array([[GRID, B.T], [B, None]]),
    "zeros on the diagonal": lambda: sp.csr_array(GRID + 0.3 * SKEW)[RNG.permutation(N)],
    "permutation": lambda: sp.csr_array(ONE)[RNG.permutation(N)],
    "Hermitian": lambda: GRID + 0.3j * SKEW,
    "Hermitian, indefinite": lambda: GRID + 0.3j * SKEW - 0.7 * ONE,
    "complex symmetric": lambda: GRID - (0.3 - 0.05j) * ONE,
    "complex": lambda: GRID + (0.2 + 0.3j) * SKEW + 0.1j * ONE,
    "huge": lambda: 1e150 * GRID,
    "tiny": lambda: 1e-150 * (GRID + SKEW),
}
SINGULAR: dict[str, Callable[[], Any]] = {
    "closed": lambda: GRID - sp.diags_array(GRID.sum(axis=1)),
    "closed flow": lambda: sp.csr_array(closed_flow()),
    "zero row": lambda: sp.diags_array(np.where(np.arange(N) == 5, 0.0, 1.0)) @ (GRID + SKEW),
    "structurally": lambda: sp.csr_array(sp.csr_array(GRID + SKEW)[:, [0] * 3 + list(range(3, N))]),
    "zero": lambda: sp.csr_array((N, N)),
}


def closed_flow() -> Any:
    """Rows of a singular M-matrix that is not symmetric."""
    off = -(abs(GRID + 0.4 * SKEW) - sp.diags_array(abs((GRID + 0.4 * SKEW).diagonal())))
    return off - sp.diags_array(off.sum(axis=1))


def residual(A: Any, x: np.ndarray, b: np.ndarray) -> float:
    """Relative, in double precision."""
    wide = A.astype(np.result_type(A.dtype, np.float64))
    return float(np.linalg.norm(wide @ x - b) / np.linalg.norm(b)) if np.isfinite(x).all() else np.inf


def solved(A: Any, library: str | None, dtype: Any = None) -> float:
    """The residual of both systems, which are solved."""
    A = sp.csr_array(A if dtype is None else A.astype(dtype))
    solver = prepare(A, method=SparseDirect(library))
    worst = 0.0
    for side, own in ((A, solver), (A.T, solver.T)):
        b = side @ np.random.default_rng(3).normal(size=A.shape[0]).astype(A.dtype)
        result = own.solve(b)
        assert result.converged and not result.singular and result.x.dtype == A.dtype
        worst = max(worst, residual(side, result.x, b))
    return worst


@pytest.mark.parametrize("name", REGULAR)
def test_regular_matrices(library: str, name: str) -> None:
    """All are solved, by this library or by SuperLU in its place, and the transposed ones."""
    assert solved(REGULAR[name](), library) < 1e-6


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision(library: str, dtype: str) -> None:
    complex_ = dtype == "complex64"
    for A in (GRID + ONE, GRID + 0.5 * ONE + 0.5 * SKEW, *([GRID + 1j * ONE] if complex_ else [])):
        assert solved(A, library, dtype) < 1e-5


@pytest.mark.filterwarnings("ignore::krylix.solvers.SingularMatrixWarning")
@pytest.mark.parametrize("name", SINGULAR)
def test_singular_matrices(library: str, name: str) -> None:
    """As SuperLU alone: a system with a solution has that of least norm, another one is no success."""
    A = sp.csr_array(SINGULAR[name]())
    rng = np.random.default_rng(4)
    for b in (A @ rng.normal(size=N), rng.normal(size=N)):
        found, expected = (
            linear_solve(A, b, method=method, on_failure="status", nullspace=None)
            for method in (SparseDirect(library), "scipy-direct")
        )
        assert (found.converged, found.singular) == (expected.converged, expected.singular)
        if found.converged and b.any():
            assert residual(A, found.x, b) < 1e-6
            np.testing.assert_allclose(found.x, expected.x, atol=1e-6 * np.abs(expected.x).max())


def test_a_matching_beside_pivots_of_two_by_two() -> None:
    """A Hermitian matrix with empty rows, for which Pardiso with both of them ends the process."""
    rng = np.random.default_rng(40)
    half = sp.random_array((91, 91), density=0.02, rng=rng).astype(complex)
    half.data *= np.exp(6j * rng.random(half.nnz))
    A = sp.csr_array(half + half.conj().T)
    b = A @ rng.normal(size=91)
    with pytest.warns(krylix.solvers.SingularMatrixWarning):
        result = linear_solve(A, b, method=SparseDirect(None if not has("Pardiso") else "Pardiso"), nullspace=None)
    assert residual(A, result.x, b) < 1e-8
    assert not pattern_of(A).has_full_structural_rank
    assert pattern_of(A[:, ::-1] + sp.eye_array(91)).has_full_structural_rank


def pattern_of(A: Any) -> EntryPattern:
    matrix = sp.csc_array(A)
    return EntryPattern(matrix.indices, matrix.indptr)


def has(library: str) -> bool:
    return PROVIDERS[library].is_installed()


def check_unsymmetric(seed: int, library: str) -> None:
    A = unsymmetric(seed)
    b = A @ np.random.default_rng(seed + 100).normal(size=A.shape[0])
    solver = prepare(A, method=SparseDirect(library), on_failure="status")
    for side, own, given in ((A, solver, b), (A.T, solver.T, A.T @ b)):
        result = own.solve(given)
        assert not result.converged or residual(side, result.x, given) < 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_matrices_that_need_pivots(library: str, seed: int) -> None:
    check_unsymmetric(seed, library)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 60))
def test_more_matrices_that_need_pivots(library: str, seed: int) -> None:
    check_unsymmetric(seed, library)


def test_matrices_without_numbers(library: str) -> None:
    nothing = linear_solve(GRID * np.nan, np.ones(N), method=SparseDirect(library), on_failure="status")
    assert not nothing.converged
    one = linear_solve(sp.csr_array([[4.0]]), np.array([8.0]), method=SparseDirect(library))
    assert one.converged and one.x == 2
    assert linear_solve(sp.csr_array((0, 0)), np.zeros(0), method=SparseDirect(library)).x.shape == (0,)


def test_many_right_hand_sides_and_matrices(library: str) -> None:
    given = np.random.default_rng(1).normal(size=(3, N))
    for A in (GRID + ONE, GRID + SKEW, GRID + 0.2j * SKEW):
        x = linear_solve(A, given, method=SparseDirect(library)).x
        assert residual(A, x.T, given.T) < 1e-10
    batch = [sp.csr_array(GRID + k * ONE) for k in range(3)]
    x = linear_solve(batch, given, method=SparseDirect(library)).x
    assert max(residual(A, *pair) for A, *pair in zip(batch, x, given)) < 1e-10


# --- other numbers


class Spy(Provider):
    """SuperLU, counted, with an error to order."""

    name, package = "spy", "spy"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.wrong: Callable[[np.ndarray], np.ndarray] | None = None
        self.refuses = False

    def is_installed(self) -> bool:
        return True

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        self.calls.append("analyse")
        if self.refuses:
            raise FactorsRefused("it was told so")
        return SpiedAnalysis(self, SUPERLU.analyse(pattern, A))


class SpiedAnalysis(SymbolicAnalysis):
    def __init__(self, spy: Spy, inner: SymbolicAnalysis) -> None:
        self.spy, self.inner = spy, inner

    def factor(self, A: Any) -> Factors:
        self.spy.calls.append("factor")
        return SpiedFactors(self.spy, self.inner.factor(A))

    def refactor(self, A: Any) -> Factors:
        self.spy.calls.append("refactor")
        return SpiedFactors(self.spy, self.inner.refactor(A))


class SpiedFactors(Factors):
    def __init__(self, spy: Spy, inner: Factors) -> None:
        self.spy, self.inner, self.nnz, self.dtype = spy, inner, inner.nnz, inner.dtype

    def solve(self, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        x = self.inner.solve(b, transposed)
        return x if self.spy.wrong is None else self.spy.wrong(x)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Spy()
    krylix.clear_setup_cache()
    monkeypatch.setitem(sparse.PROVIDERS, found.name, found)
    yield found
    krylix.clear_setup_cache()


def test_update_refactors(library: str) -> None:
    """With other numbers, with the first ones again, and the older solvers stay as they are."""
    for A, other in ((GRID, GRID + 0.5 * ONE), (GRID + SKEW, GRID + 2 * SKEW), (GRID, GRID - 0.5 * ONE)):
        b = np.random.default_rng(5).normal(size=N)
        solvers = [prepare(A, method=SparseDirect(library))]
        for numbers in (other, A, other):
            solvers.append(solvers[-1].update(numbers))
        for matrix, solver in zip((A, other, A, other), solvers):
            for side, own in ((matrix, solver), (matrix.T, solver.T)):
                assert residual(side, own.solve(b).x, b) < 1e-10


def test_one_analysis_serves(spy: Spy) -> None:
    solver = prepare(GRID, method=SparseDirect("spy"))
    assert spy.calls == ["analyse", "factor"]
    for k in range(3):
        solver = solver.update(GRID + (k + 1) * ONE)
    assert spy.calls == ["analyse", "factor", *3 * ["refactor"]]
    solver.T.solve(np.ones(N))
    assert len(spy.calls) == 5
    linear_solve(GRID + 9 * ONE, np.ones(N), method=SparseDirect("spy"))  # a plain call, too
    assert spy.calls[5:] == ["refactor"]
    solver.update(sp.csr_array(GRID @ GRID))  # another pattern
    assert spy.calls[6:] == ["analyse", "factor"]
    linear_solve([GRID, GRID + ONE, GRID + 2 * ONE], np.ones((3, N)), method=SparseDirect("spy"))
    assert spy.calls[8:] == 3 * ["refactor"]


def test_unknown_sizes_are_not_told(spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpiedFactors, "nnz", property(lambda self: None, lambda self, _: None), raising=False)
    solver = prepare(GRID, method=SparseDirect("spy"))
    assert solver.memory is None and "0 numbers" not in solver.explain()


def test_wrong_factors_are_seen(spy: Spy) -> None:
    first = prepare(GRID, method=SparseDirect("spy"))
    spy.wrong = lambda x: x * (1 + 1e-7)
    b = np.ones(N)
    for solver in (first.update(GRID + ONE), prepare(2.0 * GRID, method=SparseDirect("spy"))):
        result = solver.solve(b)
        assert result.converged and "SuperLU, after spy: a solve left more" in result.to_dict()["why"]
        assert "SuperLU, after spy" in solver.explain()
    spy.wrong = lambda x: x * np.nan
    assert prepare(3.0 * GRID, method=SparseDirect("spy")).solve(b).converged
    spy.wrong, spy.refuses = None, True
    assert "it was told so" in prepare(4.0 * GRID, method=SparseDirect("spy")).explain()
    spy.refuses = False
    assert prepare(5.0 * GRID, method=SparseDirect("spy")).explain().endswith("factors by spy")


def test_numbers_that_move_far_are_analysed_anew(library: str) -> None:
    """From definite to indefinite, to general, and back; pivots that vanish."""
    weak = sp.diags_array(np.where(np.arange(N) % 2 == 0, 1e-13, 1.0))
    matrices = [GRID, GRID - 0.5 * ONE, sp.csr_array(weak @ GRID), GRID + 1e-3 * SKEW * 0, sp.csr_array(GRID @ weak)]
    solver = prepare(matrices[0], method=SparseDirect(library))
    for A in matrices[1:]:
        A = sp.csr_array(A)
        solver = solver.update(A)
        b = A @ np.ones(N)
        assert residual(A, solver.solve(b).x, b) < 1e-8


def test_the_same_numbers_again(spy: Spy) -> None:
    """Without `prepare`, and transposed or conjugated, as backward solves need it; none where nothing is to be kept."""
    rng = np.random.default_rng(2)
    for A in (GRID + SKEW, GRID + 0.2j * SKEW + 0.1j * ONE, GRID + sp.csr_array(ONE)[:, ::-1]):
        A, count = sp.csr_array(A), len(spy.calls)
        for same in (A, A.T, A.conj(), A.conj().T, A.copy()):
            b = rng.normal(size=N)
            assert residual(same, linear_solve(same, b, method=SparseDirect("spy")).x, b) < 1e-10
        assert len(spy.calls) == count + 2
        with krylix.setup_cache(False):
            linear_solve(A, np.ones(N), method=SparseDirect("spy"))
        assert len(spy.calls) > count + 2


@pytest.mark.parametrize("first", ["A", "transpose", "conjugate", "adjoint"])
@pytest.mark.parametrize("hermitian", [True, False])
def test_a_cached_solver_of_a_conjugate_or_transpose_has_the_offset_of_its_own(first: str, hermitian: bool) -> None:
    """The offset of a conjugate or a transpose that has been solved before does not serve in its place."""
    entries = GRID + (0.2j * SKEW if hermitian else 0.2j * abs(SKEW) + 0.1 * SKEW)
    forms = {"A": entries, "transpose": entries.T, "conjugate": entries.conj(), "adjoint": entries.conj().T}
    b, offset, method = np.random.default_rng(2).normal(size=N), 0.5 + 0.25j, SparseDirect("SuperLU")
    krylix.clear_setup_cache()
    linear_solve(sp.csr_array(forms[first]), b, method=method, matrix_offset=offset)
    for form in map(sp.csr_array, forms.values()):
        for c in (offset, offset.conjugate()):
            expected = np.linalg.solve(form.toarray() + c, b)
            solver = prepare(form, method=method, matrix_offset=c)
            solved = linear_solve(form, b, method=method, matrix_offset=c)
            np.testing.assert_allclose(solved.x, expected, rtol=1e-8, atol=1e-10)
            assert solved.iterations == 1
            np.testing.assert_allclose(solver.solve(b).x, expected, rtol=1e-8, atol=1e-10)
            transposed = pickle.loads(pickle.dumps(solver.T)).solve(b).x
            np.testing.assert_allclose(transposed, np.linalg.solve(form.toarray().T + c, b), rtol=1e-8, atol=1e-10)


def test_a_conjugate_with_the_conjugate_offset_is_solved_by_the_cached_factors(spy: Spy) -> None:
    A, b, method = sp.csr_array(GRID + 0.2j * abs(SKEW)), np.ones(N), SparseDirect("spy")
    linear_solve(A, b, method=method, matrix_offset=0.5j)
    count = len(spy.calls)
    for form, offset in ((A.conj(), -0.5j), (A.T, 0.5j), (A.conj().T, -0.5j)):
        solved = linear_solve(sp.csr_array(form), b, method=method, matrix_offset=offset)
        np.testing.assert_allclose(solved.x, np.linalg.solve(form.toarray() + offset, b), rtol=1e-8, atol=1e-10)
    assert len(spy.calls) == count


@pytest.mark.needs("jax")
def test_in_compiled_functions(spy: Spy) -> None:
    """Of values that change: one analysis for all runs, and the backward solve has the factors of the solve."""
    import jax
    from jax import numpy as jnp
    from jax.experimental import sparse

    A = sp.coo_array(GRID + 0.5 * SKEW)
    places = jnp.asarray(np.stack(A.coords, axis=1))
    method = SparseDirect("spy")

    def solve(factor: Any, b: Any) -> Any:
        return linear_solve(sparse.BCOO((factor * A.data, places), shape=(N, N)), b, method=method).x

    def last(factors: Any, b: Any) -> Any:
        return jax.lax.scan(lambda u, factor: (solve(factor, u), None), b, factors)[0].sum()

    run = jax.jit(jax.value_and_grad(last))
    for factors in (np.array([1.0, 1.5]), np.array([1.2, 0.9])):
        spy.calls.clear()
        value, slope = run(jnp.asarray(factors), jnp.ones(N))
        inverse = np.linalg.inv(A.toarray())
        expected = (inverse @ inverse @ np.ones(N)).sum() / factors.prod()
        np.testing.assert_allclose([value, *slope], [expected, *(-expected / factors)], rtol=1e-9)
        assert "analyse" not in spy.calls[1:] and len(spy.calls) <= 4


def test_the_matrix_is_not_looked_at_later(library: str) -> None:
    """Factors that have to be made again, or transposed, are those of the numbers that were given."""
    A, b = sp.csc_array(GRID + 0.5 * SKEW), np.random.default_rng(1).normal(size=N)
    given = A.copy()
    linear_solve(given, b, method=SparseDirect(library))
    given.data *= 3  # those of the first solve are kept
    for same in (A, A.T, 2 * A, A.T):
        assert residual(same, linear_solve(same, b, method=SparseDirect(library)).x, b) < 1e-10


def test_factors_of_one_analysis_pardiso(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many live at a time, each with its transpose; more than there are slots get an analysis of their own."""
    if not PROVIDERS["Pardiso"].is_installed():
        pytest.skip("Pardiso is not installed")
    from krylix.solvers.factors import libraries

    made: list[int] = []
    init = libraries.Handle.__init__
    monkeypatch.setattr(libraries.Handle, "__init__", lambda self, *given: made.append(1) or init(self, *given))
    monkeypatch.setattr(libraries, "_SLOTS", 3)
    for skew in (0.5 * SKEW, 0.3j * SKEW, 0.5 * SKEW + 0.2j * ONE):
        krylix.clear_setup_cache()
        made.clear()
        A, b = sp.csr_array(GRID + skew), np.random.default_rng(1).normal(size=(2, N))
        solvers = [prepare(A, method=SparseDirect("Pardiso"))]
        for k in range(2, 8):
            solvers.append(solvers[-1].update(k * A))
        count = len(made)
        assert count >= 3
        for k, solver in enumerate(solvers, start=1):
            for side, own in ((k * A, solver), (k * A.T, solver.T)):
                assert residual(side, own.solve(b).x.T, b.T) < 1e-12
        assert len(made) == count
        del solvers, solver, own
        krylix.clear_setup_cache()


def test_threads(library: str) -> None:
    """Of one pattern, each with its own numbers."""
    worst: list[float] = []

    def work(k: int) -> None:
        A = sp.csr_array(GRID + k * SKEW)
        for _ in range(4):
            b = np.random.default_rng(k).normal(size=N)
            worst.append(residual(A, linear_solve(A, b, method=SparseDirect(library)).x, b))

    workers = [Thread(target=work, args=(k,)) for k in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(worst) == 16 and max(worst) < 1e-10


def test_what_is_kept_is_bounded(spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    """By count and bytes; the last ones stay, and nothing stays where nothing is to be kept."""

    def solve(A: Any) -> None:
        linear_solve(A, np.ones(N), method=SparseDirect("spy"))

    patterns, solvers = sparse.PATTERNS, sparse.SOLVERS
    monkeypatch.setattr(solvers, "count", 5)
    for k in range(patterns.count + 3):
        solve(GRID + sp.diags_array(np.ones(N - 30 - k), offsets=30 + k, shape=(N, N)))
    assert len(patterns) == patterns.count and len(solvers) == 5
    krylix.clear_setup_cache()
    assert not patterns and not solvers and not sparse._alive
    with krylix.setup_cache(False):
        solve(GRID)
    assert not patterns and not solvers
    solve(GRID)
    (size,) = (one.nbytes for one in solvers)
    monkeypatch.setattr(solvers, "nbytes", int(2.5 * size))
    for k in range(4):
        solve(GRID + (k + 1) * ONE)
    assert len(solvers) == 2
    for memory in (patterns, solvers):
        monkeypatch.setattr(memory, "nbytes", 100)
    solve(2 * GRID)
    assert not patterns and not solvers


def test_superlu_orders_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.sparse.linalg as spl

    orders: list[str | None] = []
    splu = spl.splu
    monkeypatch.setattr(spl, "splu", lambda A, **k: orders.append(k.get("permc_spec")) or splu(A, **k))
    for A, first in ((GRID, "MMD_AT_PLUS_A"), (GRID - 0.5 * ONE, "COLAMD")):
        krylix.clear_setup_cache()
        orders.clear()
        solver = prepare(A, method="scipy-direct")
        again = solver.update(2 * A)
        assert orders == [first, "NATURAL"]
        assert again.memory == solver.memory
        b = np.random.default_rng(0).normal(size=N)
        for one in (again, again.T):
            assert residual(2 * A, one.solve(b).x, b) < 1e-11
        del solver, again, one


def test_pickled_solvers_are_made_again(library: str) -> None:
    solver = pickle.loads(pickle.dumps(prepare(GRID + SKEW, method=SparseDirect(library))))
    b = np.ones(N)
    assert residual(GRID + SKEW, solver.solve(b).x, b) < 1e-12 and library in solver.explain()


# --- what is symmetric


def kind_of(A: Any) -> Kind:
    return pattern_of(A).kind(sp.csc_array(A))


def test_kinds() -> None:
    assert kind_of(GRID) is kind_of(rounded()) is kind_of(GRID + 0.3j * SKEW) is Kind.HERMITIAN
    assert kind_of(GRID + 1j * ONE) is Kind.SYMMETRIC
    for A in (GRID + 1e-12 * SKEW, sp.triu(GRID), GRID + 1j * SKEW + 1j * ONE):
        assert kind_of(A) is Kind.GENERAL
    assert kind_of(rounded().astype(np.float32)) is Kind.HERMITIAN
    assert kind_of(SCALES[0] @ GRID @ SCALES[0]) is Kind.HERMITIAN


# --- CHOLMOD, without its library


@pytest.fixture
def cholmod(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What of scikit-sparse 0.4 is called, on dense factors of NumPy."""

    class CholmodError(Exception):
        pass

    class CholmodFactor:
        def __init__(self, L: np.ndarray | None = None) -> None:
            self.lower = L

        def cholesky(self, A: Any) -> CholmodFactor:
            module.calls.append("cholesky")
            try:
                return CholmodFactor(np.linalg.cholesky(np.tril(A.toarray())))
            except np.linalg.LinAlgError as error:
                raise CholmodError("not definite") from error

        def L(self) -> Any:
            return sp.csc_matrix(self.lower)

        def __call__(self, b: np.ndarray) -> np.ndarray:
            assert self.lower is not None
            return np.linalg.solve(self.lower.conj().T, np.linalg.solve(self.lower, b))

    def analyze(A: Any) -> CholmodFactor:
        module.calls.append("analyze")
        return CholmodFactor()

    module: Any = ModuleType("sksparse.cholmod")
    module.__dict__.update(calls=[], analyze=analyze, CholmodError=CholmodError)
    package: Any = ModuleType("sksparse")
    package.cholmod = module
    monkeypatch.setitem(sys.modules, "sksparse", package)
    monkeypatch.setitem(sys.modules, "sksparse.cholmod", module)
    monkeypatch.setattr(type(PROVIDERS["CHOLMOD"]), "is_installed", lambda self: True)
    krylix.clear_setup_cache()
    yield module
    krylix.clear_setup_cache()


def test_cholmod(cholmod: Any) -> None:
    for A in (GRID, GRID + 0.3j * SKEW, (GRID + ONE).astype(np.float32)):
        assert solved(A, "CHOLMOD") < 1e-5
    cholmod.calls.clear()
    krylix.clear_setup_cache()
    solver = prepare(GRID + 7 * ONE, method=SparseDirect("CHOLMOD"))
    assert solver.update(GRID + 8 * ONE).explain().endswith("factors by CHOLMOD")
    assert cholmod.calls == ["analyze", "cholesky", "cholesky"]
    for A in (GRID - ONE, -GRID, GRID + 0.1 * SKEW):
        assert "SuperLU, after CHOLMOD" in prepare(A, method=SparseDirect("CHOLMOD")).explain()
        assert solved(A, "CHOLMOD") < 1e-6
    del cholmod.analyze
    explained = prepare(sp.csr_array(GRID @ GRID), method=SparseDirect("CHOLMOD")).explain()
    assert "SuperLU, after CHOLMOD: this version of scikit-sparse" in explained


def test_names_of_libraries() -> None:
    with pytest.raises(ValueError, match=r"There are .*SuperLU"):
        linear_solve(GRID, np.ones(N), method=SparseDirect("MUMPS"))
    assert SparseDirect("superlu").name == "sparse-direct(superlu)"


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        if provider is not SUPERLU:
            monkeypatch.setattr(type(provider), "is_installed", lambda self: False)
    with pytest.raises(ValueError, match="Install py-mkl-pardiso"):
        linear_solve(GRID, np.ones(N), method=SparseDirect("Pardiso"))
    assert prepare(GRID, method="sparse-direct").explain().endswith("factors by SuperLU")


# --- where a library cannot serve


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_rslab_in_a_forked_process() -> None:
    """Its threads are those of the parent: SuperLU serves, where a factorisation would never end."""
    if not has("rslab"):
        pytest.skip("rslab is not installed")
    program = """
import os, signal, sys
import numpy as np, scipy.sparse as sp, krylix
line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(30, 30))
A = sp.csr_array(sp.kron(line, sp.eye_array(30)) + sp.kron(sp.eye_array(30), line) - 1.3 * sp.eye_array(900))
method, b = krylix.solvers.SparseDirect("rslab"), np.ones(900)
assert krylix.prepare(A, method=method).explain().endswith("factors by rslab")
child = os.fork()
if not child:
    signal.alarm(60)
    solver = krylix.prepare(2 * A, method=method)
    good = np.allclose(2 * A @ solver.solve(b).x, b) and "SuperLU, after rslab: this process" in solver.explain()
    other = sp.csr_array(A @ A)
    os._exit(0 if good and np.allclose(other @ krylix.linear_solve(other, b, method=method).x, b) else 1)
sys.exit(os.waitpid(child, 0)[1])
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_libraries_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Installed, but without what they need: the others serve, after one warning."""
    packages = {"Pardiso": "pymklpardiso", "rslab": "rslab"}
    for package in packages.values():
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ImportError('libmkl_rt.so.2: cannot open it')\n")
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(protocol, "_unusable", {})
    for one in ("Pardiso", "rslab"):
        monkeypatch.setattr(type(PROVIDERS[one]), "is_installed", lambda self: True)
    A, b = sp.csr_array(GRID + 0.5 * SKEW), np.ones(N)
    for method in ("sparse-direct", "auto", SparseDirect("Pardiso"), SparseDirect("rslab")):
        krylix.clear_setup_cache()
        assert residual(A, linear_solve(A, b, method=method).x, b) < 1e-6
    explained = prepare(A, method="sparse-direct").explain()
    assert "SuperLU, after" in explained and "libmkl_rt.so.2" in explained
    assert all(
        caplog.text.count(f"{package} is installed, but cannot be imported") == 1 for package in packages.values()
    )
    krylix.clear_setup_cache()


@pytest.mark.parametrize("n", [30, 700])
def test_structurally_singular_matrices_reach_no_factorisation(n: int) -> None:
    """Two rows have their only entry in one column: solved by shifted factors, without a call that may crash."""
    from krylix.solvers.factors import superlu

    rng = np.random.default_rng(0)
    A = sp.lil_array(sp.random_array((n, n), density=6 / n, rng=rng) + sp.eye_array(n))
    A[0, :] = A[1, :] = 0
    A[0, 3], A[1, 3] = 1, 2
    matrix = sp.csr_array(A)
    matrix.eliminate_zeros()
    b = matrix @ rng.standard_normal(n)
    for method in ("scipy-direct", "sparse-direct"):
        with pytest.warns(krylix.SingularMatrixWarning, match="a pivot is zero"):
            result = linear_solve(matrix, b, method=method)
        assert result.singular and np.linalg.norm(matrix @ result.x - b) <= 1e-9 * np.linalg.norm(b)
    with pytest.raises(RuntimeError, match="no order of the rows fills the diagonal"):
        superlu.factors_of(sp.csc_array(matrix))
