"""The analysis of a matrix: each fact is found once, kept with it, and forgotten when numbers may have changed."""

from __future__ import annotations

import copy
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import linear_solve, preconditioner, prepare
from krylix.solvers import PRECONDITIONERS
from krylix.sparse import Matrix, Operator, SparseMatrix, as_operator
from krylix.sparse.analysis import analysis as module
from krylix.sparse.analysis.analysis import Analysis, analyse_anew, analysis_of, asymmetry, fact, on_its_grid, release
from krylix.sparse.formats.sparse_matrix import sparse_formats
from modes import array

N = 60
B = np.random.default_rng(0).standard_normal(N)


def line(n: int = N, middle: float = 2.5, above: float = -1.0) -> sp.csr_array:
    return sp.csr_array(sp.diags_array([-1.0, middle, above], offsets=[-1, 0, 1], shape=(n, n)))


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[Operator]:
    """The matrices that products were made with, to see how symmetric they are."""
    seen: list[Operator] = []
    found = module.asymmetry_of_products
    monkeypatch.setattr(module, "asymmetry_of_products", lambda A: seen.append(A) or found(A))
    return seen


class Counted(Analysis):
    """Facts that were found so many times."""

    times = 0

    @fact
    def known_later(self, A: Any) -> Any:
        self.times += 1
        return A.answer

    @fact
    def wrong(self, A: Any) -> Any:
        self.times += 1
        raise ValueError("no")


class Asked:
    answer: Any = None
    declared: tuple[Any, ...] = ()


def test_only_what_is_known_is_kept() -> None:
    it = Asked()
    found = Counted(it)  # type: ignore[arg-type]
    assert found.known_later is None and found.known_later is None and found.times == 2
    it.answer = False
    assert found.known_later is False
    it.answer = True
    assert found.known_later is False and found.times == 3
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            found.wrong  # noqa: B018
    assert found.times == 5
    del it
    with pytest.raises(ReferenceError, match="keep it as long"):
        found.wrong  # noqa: B018


@pytest.mark.parametrize("format", ["csr", "dia", "dense"])
def test_each_matrix_has_its_own(format: str, products: list[Operator]) -> None:
    A: Any = as_operator(line(above=-1 - 1e-12)).to(format)  # type: ignore[attr-defined]
    analyse_anew(A)
    assert analysis_of(A).asymmetry == analysis_of(A).asymmetry and len(products) == 1
    others = (copy.copy(A), copy.deepcopy(A), pickle.loads(pickle.dumps(A)), A.T, 2 * A)
    for k, other in enumerate(others, 2):
        assert analysis_of(other) is not analysis_of(A)
        assert analysis_of(other).seems_hermitian and len(products) == k
    assert asymmetry(A) == analysis_of(A).asymmetry and len(products) == 7  # anew
    analyse_anew(A)
    assert analysis_of(A).seems_hermitian and len(products) == 8


def test_no_matrix_waits_for_the_garbage_collector() -> None:
    A: Any = as_operator(sp.dia_array(line(900))).to("dia")  # type: ignore[attr-defined]
    found = analysis_of(A)
    assert found.asymmetry == 0 and found.maybe_definite and found.grid == () and found.known is not None
    gone = weakref.ref(A)
    del A
    assert gone() is None


def test_arrays_are_let_go(products: list[Operator]) -> None:
    A: Any = as_operator(line()).to("dia")  # type: ignore[attr-defined]
    analyse_anew(A)
    found = analysis_of(A)
    assert found.one_sign and found.dominates(1.2) and found.entries.shape == A.shape and found.hermitian
    release(A)
    assert all(isinstance(kept, bool | float) for kept in found.facts.values())
    for M in (preconditioner(A), preconditioner(A, "amg")):
        assert M.hermitian and analysis_of(A) is found and not set(found.facts) & {"known", "entries", "row_sums"}
    linear_solve(A, B)
    assert A.analysis is None


def matrices() -> dict[str, sp.csr_array]:
    weak = line(middle=2.0)
    far = weak.tolil()
    far[30, 30] = 1.2
    indefinite, both = weak.tolil(), weak.tolil()
    indefinite[30, 30], both[40, 40] = 0.1, -2.0
    found = {
        "definite": line(), "negative": -line(), "semi-definite": sp.csr_array(weak), "not dominant": far,
        "indefinite": indefinite, "both signs": both, "not symmetric": line(above=-0.5),
        "nearly": line(above=-1 - 1e-9), "complex": line() * (1 + 0j), "complex symmetric": line() * 1j,
        "single": line().astype(np.float32),
    }  # fmt: skip
    return {name: sp.csr_array(A) for name, A in found.items()}


@pytest.mark.parametrize("name", matrices())
def test_facts_do_not_depend_on_the_format(name: str) -> None:
    A = matrices()[name]
    dense = A.toarray()
    gap = np.linalg.norm(dense - dense.conj().T) / np.linalg.norm(dense)
    diagonal = np.diag(dense).real
    one_sign = bool(np.all(diagonal > 0) or np.all(diagonal < 0))
    others = np.abs(dense).sum(1) - np.abs(np.diag(dense))
    for format in ("csr", "csc", "coo", "dia", "ell", "dense"):
        found = analysis_of(M := as_operator(A).to(format))  # type: ignore[attr-defined]
        assert found.seems_hermitian == (gap < 1e-8), format
        assert found.hermitian == (True if gap == 0 else None if gap < 1e-8 else False), format
        assert found.has_equal_triangles == (gap == 0), format
        assert found.one_sign == one_sign, format
        assert M.analysis is None  # nobody said that it is to be kept
        if format == "dense":
            assert found.dominates(1.0) is None
            continue
        for factor in (0.5, 1.1, 1.2, 1.3):
            assert found.dominates(factor) == bool(np.all(np.abs(np.diag(dense)) >= factor * others)), format
        if gap == 0:
            eigenvalues = np.linalg.eigvalsh(dense)
            definite = eigenvalues[0] > -1e-12 or eigenvalues[-1] < 1e-12
            assert found.maybe_definite == (one_sign and bool(definite)), format


def test_which_formats_gather() -> None:
    for format in sparse_formats():
        A: Any = as_operator(line())
        structure = (A.to(format) if format != "stencil" else A).structure
        assert structure.gathers == bool(structure.indices), format


def test_a_matrix_and_itself_on_its_grid_have_one_analysis(products: list[Operator]) -> None:
    one = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(9, 9))
    A: Any = as_operator(sp.csr_array(sp.kron(one, sp.eye_array(9)) + sp.kron(sp.eye_array(9), one)))
    analyse_anew(A)
    placed = on_its_grid(A)
    assert placed is not A and placed.in_shape == (9, 9) and on_its_grid(placed) is placed
    assert analysis_of(placed).seems_hermitian and analysis_of(A).seems_hermitian and len(products) == 1


# --- solves ---


@pytest.mark.parametrize("format", ["csr", "dense", "dia"])
def test_a_prepared_solver_proves_nothing_again(format: str, products: list[Operator]) -> None:
    A: Any = as_operator(line(above=-1 - 1e-12)).to(format)  # type: ignore[attr-defined]
    solver = prepare(A, B, method="CG")
    count = len(products)
    assert count == 1
    for scale in (1, 2):
        assert solver.solve(scale * B).converged
    assert len(products) == count
    assert (
        pickle.loads(pickle.dumps(solver)).solve(B).converged and len(products) == count + 1
    )  # nor does it store that
    assert solver.update(2 * A).solve(B).converged and len(products) == count + 2


def test_repeated_solves_prove_nothing_again(products: list[Operator]) -> None:
    A = line()
    for _ in range(2):
        linear_solve(A, B, method="CG")
    count = len(products)
    assert linear_solve(A, B, method="CG").converged and len(products) == count


def written_to(A: Matrix) -> None:
    """Not symmetric any more, in the memory of A itself."""
    assert isinstance(A, SparseMatrix) and A.constant is not None
    values = A.constant[0]
    values.flags.writeable = True
    if A.format == "csr":
        rows = np.repeat(np.arange(N), np.diff(line().indptr))
        values[line().indices == rows + 1] = 3.5
    else:
        values[-1] = 3.5


@pytest.mark.parametrize("format", ["csr", "dia"])
@pytest.mark.parametrize("method", ["CG", "MINRES", "auto"])
def test_a_prepared_matrix_that_is_written_to_all_the_same(format: str, method: str) -> None:
    """The facts hold no longer: the true residual says what became of it."""
    A: Any = as_operator(line()).to(format)  # type: ignore[attr-defined]
    solver = prepare(A, B, method=method, on_failure="status")
    assert solver.solve(B).converged
    written_to(solver.A)  # type: ignore[arg-type]
    found = solver.solve(B)
    is_small = np.linalg.norm(line(above=3.5) @ found.x - B) <= 1e-10 * np.linalg.norm(B)
    assert is_small or not found.converged
    assert found.function_evaluations > 0


@pytest.mark.parametrize("format", ["csr", "dia"])
def test_a_matrix_may_be_written_to_between_solves(format: str) -> None:
    A: Any = as_operator(line()).to(format)  # type: ignore[attr-defined]
    assert linear_solve(A, B, method="CG").converged
    written_to(A)
    for call in (linear_solve, prepare):
        for method in ("CG", "MINRES"):
            with pytest.raises(ValueError, match="needs a symmetric matrix"):
                call(A, B, method=method)


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_a_dense_matrix_may_be_written_to_between_solves(mode: str) -> None:
    A: Any = as_operator(array(mode, line().toarray()))
    own, b = A.matrix, array(mode, B)
    assert linear_solve(A, b, method="CG").converged
    own[0, 1:] = 1.0
    with pytest.raises(ValueError, match="needs a symmetric matrix"):
        linear_solve(A, b, method="CG")


def test_a_matrix_may_be_written_to_between_preconditioners() -> None:
    A: Any = as_operator(line())
    assert preconditioner(A, "chebyshev").hermitian
    written_to(A)
    assert not preconditioner(A, "chebyshev").hermitian


def test_a_preconditioner_may_be_written_to_between_solves() -> None:
    A, M = line(), as_operator(line())
    assert linear_solve(A, B, method="CG", preconditioner=M, on_failure="status").iterations
    written_to(M)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a symmetric preconditioner"):
        linear_solve(A, B, method="CG", preconditioner=M)


def test_numbers_of_scipy_may_change_between_solves() -> None:
    """The same matrix, symmetric and definite first, and then far from that."""
    A = line(400, 4.0)
    b = np.random.default_rng(0).standard_normal(400)
    for _ in range(2):
        x = linear_solve(A, b, rtol=1e-10).x
        assert np.linalg.norm(A @ x - b) <= 1.01e-10 * np.linalg.norm(b)
        A.data[A.indices == np.repeat(np.arange(400), np.diff(A.indptr)) + 1] = 3.5


def test_a_batch_is_as_its_worst_matrix() -> None:
    own = np.stack([np.eye(4), np.eye(4) + np.eye(4, k=1)])
    A, twin = (as_operator(own), as_operator(np.stack([np.eye(4), 2 * np.eye(4)])))
    analysis = analysis_of(A)
    assert analysis.asymmetry is not None and analysis.asymmetry > 1e-3
    assert analysis.hermitian is False and not analysis.seems_hermitian
    assert analysis.dominates(1.0) is None
    assert analysis_of(twin).hermitian is True


def test_entries_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they differ by more than rounding, and less than is refused."""
    compared = []
    own = module.is_hermitian
    monkeypatch.setattr(module, "is_hermitian", lambda A: compared.append(A) or own(A))
    own_entries = line().toarray()
    own_entries[0, 1] += 1e-12
    A = as_operator(own_entries)
    analysis = analysis_of(A)
    assert [analysis.hermitian for _ in range(3)] == [None] * 3
    assert len(compared) == 1


@pytest.mark.needs("jax")
def test_values_that_are_known_outside_of_a_program_only() -> None:
    import jax
    import jax.numpy as jnp

    seen = []

    def inside(values: Any) -> Any:
        A = as_operator(values)
        seen.append((analysis_of(A).asymmetry, analysis_of(A).hermitian))
        return A @ jnp.ones(4)

    jax.jit(inside)(jnp.eye(4))
    inside(jnp.eye(4))
    assert seen[0] == (None, None) and seen[1][1] is True


@pytest.mark.parametrize("kind", ["chebyshev", "cluster"])
def test_facts_end_with_what_was_set_up(kind: str) -> None:
    """Of a matrix that its owner writes to, by whatever door it comes in."""
    A: Any = as_operator(line()).to("csr")  # type: ignore[attr-defined]
    doors = (lambda: preconditioner(A, kind), lambda: PRECONDITIONERS[kind](A))
    assert all(make().hermitian for make in doors) and linear_solve(A, B, method="CG").converged
    assert A.analysis is None
    written_to(A)
    assert not any(make().hermitian for make in doors)


@pytest.mark.parametrize("kind", ["chebyshev", "jacobi"])
def test_a_dense_batch(kind: str) -> None:
    A = np.stack([np.diag([2.0, 3, 4]), np.diag([3.0, 4, 5]) + 0.1])
    found = linear_solve(A, np.ones((2, 3)), method="CG", preconditioner=kind)
    np.testing.assert_allclose(found.x, np.linalg.solve(A, np.ones((2, 3, 1)))[..., 0])
