"""Every registered preconditioner on every library: what it promises as an operator, and what a solve makes of it.

One that is registered here and nowhere else goes through the same tests: a new one needs no change of this file.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import check_true_residual, in_turn, two_dtypes
from gradients import gradients
from krylix.solvers import METHODS, PRECONDITIONERS, Preconditioner
from krylix.solvers.preconditioners import UPDATES
from krylix.sparse import DenseOperator, Operator, asymmetry
from modes import COMPILED, EAGER, Numbers, array, compiled, library, to_numpy

N = 9
OWN = "two sweeps"
KINDS = (*PRECONDITIONERS, OWN)
HERMITIAN_METHODS = tuple(m for m, found in METHODS.items() if found.needs_hermitian and found.takes_preconditioner)

every_kind = pytest.mark.parametrize("kind", KINDS)
DTYPES = ("float32", "float64", "complex64", "complex128")
every_dtype = pytest.mark.parametrize(
    ("mode", "dtype"),  # all dtypes where no operation is compiled
    [(m, d) for m in EAGER for d in (DTYPES if m in ("numpy", "torch") else ("float32", "complex128"))],
)
every_library = pytest.mark.parametrize("mode", EAGER)


def two_sweeps(A: Operator) -> Preconditioner:
    """Two sweeps of Jacobi's method, `2 / D - A / D^2`, as a dense matrix: symmetric only where A is."""
    bk, inverse = A.bk, 1 / A.diagonals()
    identity = bk.asarray(np.eye(A.shape[0]), A.dtype, like=inverse)
    entries = inverse[:, :, None] * (2 * identity - A.dense() * inverse[:, None, :])
    relative = asymmetry(A)
    hermitian = None if relative is None else relative < 1e-4
    return Preconditioner(DenseOperator(bk, entries if A.systems else entries[0]), OWN, hermitian, A.shape[0] ** 2)


@pytest.fixture(autouse=True)
def _own_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(PRECONDITIONERS, OWN, two_sweeps)
    yield


def matrix_of(dtype: str, hermitian: bool = False, systems: tuple[int, ...] = (), seed: int = 0) -> np.ndarray:
    """Random and diagonally dominant, with a diagonal that varies; Hermitian ones are positive definite."""
    rng = np.random.default_rng(seed)
    m = rng.uniform(-1, 1, (*systems, N, N))
    if np.dtype(dtype).kind == "c":
        m = m + 1j * rng.uniform(-1, 1, m.shape)
    if hermitian:
        m = (m + np.conj(np.swapaxes(m, -1, -2))) / 2
    m[..., range(N), range(N)] = 2 * N + 10 * rng.random((*systems, N))
    return m.astype(dtype)


@cache
def needs_hermitian(kind: str) -> bool:
    """Does it refuse others, and say so?"""
    if kind == OWN:
        return False
    try:
        krylix.preconditioner(matrix_of("float64"), kind)
    except ValueError as error:
        assert "Hermitian" in str(error)
        return True
    return False


def suited(kind: str, dtype: str, systems: tuple[int, ...] = ()) -> np.ndarray:
    """A general matrix, or a Hermitian one for a kind that is made for these only."""
    return matrix_of(dtype, needs_hermitian(kind), systems)


def vectors(dtype: str, count: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((count, N))
    return (v + 1j * rng.standard_normal(v.shape) if np.dtype(dtype).kind == "c" else v).astype(dtype)


def eps(dtype: str) -> float:
    return float(np.finfo(dtype).eps)


@every_dtype
@every_kind
def test_applied_and_transposed(kind: str, mode: str, dtype: str) -> None:
    """`M @ r`, columns, the adjoint and the transpose belong to one matrix: <y, M x> = <M^H y, x>."""
    M = krylix.preconditioner(array(mode, suited(kind, dtype)), kind)
    x, y = vectors(dtype, 2)
    image = M @ array(mode, x)
    assert krylix.choose_backend(image).name == library(mode) and to_numpy(image).dtype == np.dtype(dtype)
    close = {"rtol": 0, "atol": 50 * eps(dtype)}
    dense = to_numpy(M.dense())
    assert dense.shape == M.shape == (N, N) and np.linalg.matrix_rank(dense) == N
    np.testing.assert_allclose(to_numpy(image), dense @ x, **close)
    np.testing.assert_allclose(to_numpy(M @ array(mode, np.stack([x, y], 1))), dense @ np.stack([x, y], 1), **close)
    np.testing.assert_allclose(to_numpy(M.diagonal()), np.diag(dense), **close)
    np.testing.assert_allclose(y @ dense @ x, to_numpy(M.T @ array(mode, y)) @ x, rtol=0, atol=500 * eps(dtype))
    adjoint = np.vdot(to_numpy(M.H @ array(mode, y)), x)
    np.testing.assert_allclose(np.vdot(y, to_numpy(image)), adjoint, rtol=0, atol=500 * eps(dtype))
    np.testing.assert_allclose(to_numpy(M.T.T @ array(mode, x)), to_numpy(image), **close)
    assert M.T.kind == M.H.kind == kind


@pytest.mark.parametrize("hermitian", [True, False], ids=["Hermitian", "general"])
@every_dtype
@every_kind
def test_facts_hold(kind: str, mode: str, dtype: str, hermitian: bool) -> None:
    """What M says of its symmetry is so, and M of a positive definite A is positive definite, as CG needs it."""
    hermitian = hermitian or needs_hermitian(kind)
    M = krylix.preconditioner(array(mode, matrix_of(dtype, hermitian)), kind)
    dense = to_numpy(M.dense())
    difference = np.abs(dense - dense.conj().T).max() / np.abs(dense).max()
    if M.hermitian is not None:
        assert M.hermitian == (difference < 50 * eps(dtype))
    if hermitian:
        assert difference < 50 * eps(dtype) and M.hermitian is not False
        assert np.linalg.eigvalsh(dense).min() > 0
    for other in (M.T, M.H, M.conj()):
        assert other.hermitian == M.hermitian


@pytest.mark.parametrize("method", HERMITIAN_METHODS)
@every_kind
def test_methods_for_symmetric_matrices_refuse_others(kind: str, method: str) -> None:
    A, M = matrix_of("float64", hermitian=True), krylix.preconditioner(suited(kind, "float64"), kind)
    b = np.ones(N)
    if M.hermitian is False:
        with pytest.raises(ValueError, match=f"needs a symmetric preconditioner; .*{kind}"):
            krylix.linear_solve(A, b, method=method, preconditioner=M)
    result = krylix.linear_solve(A, b, method=method, preconditioner=krylix.preconditioner(A, kind))
    check_true_residual(Numbers(result), A, b)
    assert result.converged


def test_the_own_kind_is_known_not_to_be_symmetric() -> None:
    """Without it, nothing above would be refused."""
    assert krylix.preconditioner(matrix_of("float64"), OWN).hermitian is False


@every_library
@every_kind
def test_repr_tells_the_cost(kind: str, mode: str) -> None:
    M = krylix.preconditioner(array(mode, suited(kind, "float32")), kind)
    assert M.memory is not None and M.memory > 0
    for word in (kind, f"{N} unknowns", "float32", library(mode), f"{M.memory / N:.3g} numbers per unknown"):
        assert word in repr(M)


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize(("kind", "mode"), in_turn(KINDS, EAGER, always=["numpy", "torch"]))
def test_batch_is_its_systems(kind: str, mode: str) -> None:
    """M of a batch of matrices holds one for each, and a solve treats each system as if it were alone.

    `test_mapped_over_systems` and `test_made_in_vmap` have batches of every kind in JAX.
    """
    A, b = suited(kind, "float64", (3,)), vectors("float64", 3)
    settings: dict[str, Any] = {"method": "biCG-stab", "preconditioner": kind}
    M = krylix.preconditioner(array(mode, A), kind)
    assert M.systems == 3 and tuple(M.dense().shape) == (3, N, N)
    together = Numbers(krylix.linear_solve(array(mode, A), array(mode, b), batch_ndim=1, **settings))
    images = to_numpy(M(array(mode, b)))
    for i in range(3) if mode in ("numpy", "torch") else (1,):
        single = krylix.preconditioner(array(mode, A[i]), kind)
        np.testing.assert_allclose(images[i], to_numpy(single @ array(mode, b[i])), rtol=1e-13, atol=1e-15)
        alone = Numbers(krylix.linear_solve(array(mode, A[i]), array(mode, b[i]), **settings))
        assert together.iterations[i] == alone.iterations
        np.testing.assert_allclose(together.x[i], alone.x, rtol=1e-9)


@pytest.mark.parametrize(("dtype", "mode"), two_dtypes())
@every_kind
def test_solve_with_it(kind: str, mode: str, dtype: str) -> None:
    """The x of a solve without it, by name and as an object; made inside the function where that is compiled."""
    A, b = suited(kind, dtype), vectors(dtype, 1)[0]

    def solve(A: Any, b: Any, p: Any) -> tuple[Any, Any]:
        M = krylix.preconditioner(A, kind) if p is None else p
        result = krylix.linear_solve(A, b, method="biCG-stab", preconditioner=M, on_failure="status")
        assert result.preconditioner == kind
        return result.x, result.converged

    forms = (None,) if mode in COMPILED else (kind, None)
    exact = np.linalg.solve(A.astype(np.complex128), b)
    for form in forms:
        x, converged = compiled(mode, lambda A, b, p=form: solve(A, b, p))(array(mode, A), array(mode, b))
        assert bool(to_numpy(converged)) and to_numpy(x).dtype == np.dtype(dtype)
        np.testing.assert_allclose(to_numpy(x), exact, rtol=2e-4 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("method", [m for m, found in METHODS.items() if found.takes_preconditioner])
@every_kind
def test_every_method_takes_it(kind: str, method: str) -> None:
    A, b = sp.csr_array(matrix_of("float64", hermitian=True)), vectors("float64", 2)
    result = krylix.linear_solve(A, b, method=method, preconditioner=kind)
    assert result.converged.all() and result.preconditioner == kind
    check_true_residual(Numbers(result), A.toarray(), b)


@pytest.mark.parametrize(("kind", "mode"), in_turn(KINDS, EAGER, always=["numpy", "torch"]))
def test_made_once_by_prepare(kind: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepared solver makes M once, and anew for other numbers."""
    made: list[Operator] = []
    A, b = suited(kind, "float64"), vectors("float64", 1)[0]
    build, update = PRECONDITIONERS[kind], UPDATES.get(kind)
    monkeypatch.setitem(PRECONDITIONERS, kind, lambda A: made.append(A) or build(A))
    if update is not None:
        monkeypatch.setitem(UPDATES, kind, lambda M, A: made.append(A) or update(M, A))
    solver = krylix.prepare(array(mode, A), array(mode, b), method="biCG-stab", preconditioner=kind)
    for factor in (1.0, 2.0):
        x = to_numpy(solver.solve(array(mode, factor * b)).x)
        np.testing.assert_allclose(x, factor * np.linalg.solve(A, b), rtol=1e-8)
    assert len(made) == 1 and isinstance(solver.preconditioner, Preconditioner)
    updated = solver.update(array(mode, 2 * A))
    np.testing.assert_allclose(to_numpy(updated.solve(array(mode, b)).x), np.linalg.solve(2 * A, b), rtol=1e-8)
    assert len(made) == 2 and isinstance(updated.preconditioner, Preconditioner)
    half = to_numpy(solver.preconditioner.dense()) / 2
    np.testing.assert_allclose(to_numpy(updated.preconditioner.dense()), half, rtol=1e-13)


@pytest.mark.parametrize("form", ["sparse", "dense"])
@every_kind
def test_made_of_values_of_its_own(kind: str, form: str) -> None:
    """A time loop writes to the matrix that it made M of."""
    A = suited(kind, "float64")
    given: Any = sp.csr_array(A) if form == "sparse" else A.copy()
    M = krylix.preconditioner(given, kind)
    before = M.dense()
    (given.data if form == "sparse" else given)[...] *= 2
    np.testing.assert_array_equal(M.dense(), before)


MADE_IN_VMAP = ("jacobi", "ssor", "ilu", "ic", "chebyshev", "amg")


@pytest.mark.needs("jax")
@pytest.mark.parametrize("kind", MADE_IN_VMAP)
def test_made_in_vmap(kind: str) -> None:
    """One for each lane, handed out of it and in again."""
    import jax

    A, r = suited(kind, "float64"), vectors("float64", 3)
    scales = array("jax", np.array([1.0, 2.0, 4.0]))
    made = jax.jit(jax.vmap(lambda s: krylix.preconditioner(s * array("jax", A), kind)))(scales)
    found = jax.jit(jax.vmap(lambda M, r: M @ r))(made, array("jax", r))
    alone = krylix.preconditioner(A, kind)
    close = 1e-4 if kind in ("ilu", "ic") else 1e-8  # sweeps make their factors where values are traced
    for i, scale in enumerate((1.0, 2.0, 4.0)):
        np.testing.assert_allclose(to_numpy(found[i]), alone @ r[i] / scale, rtol=close)


@pytest.mark.needs("jax")
@every_kind
def test_container_of_arrays(kind: str) -> None:
    """JAX takes it apart and puts it together with its facts; what NumPy made is an argument of compiled functions."""
    import jax

    A, r = suited(kind, "float64"), vectors("float64", 1)[0]
    M = krylix.preconditioner(array("jax", A), kind)
    leaves, structure = jax.tree.flatten(M)
    again = jax.tree.unflatten(structure, leaves)
    assert (again.kind, again.hermitian, again.memory) == (M.kind, M.hermitian, M.memory)
    M = krylix.preconditioner(A, kind)
    np.testing.assert_allclose(jax.jit(lambda M, r: M @ r)(M, array("jax", r)), M @ r, rtol=1e-12, atol=1e-15)


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize(("kind", "mode"), in_turn(KINDS, ["jax", "torch", "tf"], always=["torch"]))
def test_made_by_numpy_for_another_library(kind: str, mode: str) -> None:
    """M of a SciPy matrix serves arrays of any library."""
    A, b = sp.csr_array(suited(kind, "float64")), vectors("float64", 1)[0]
    M = krylix.preconditioner(A, kind)
    result = Numbers(krylix.linear_solve(A, array(mode, b), method="biCG-stab", preconditioner=M))
    np.testing.assert_allclose(result.x, np.linalg.solve(A.toarray(), b), rtol=1e-8)


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@every_kind
def test_batch_of_one(kind: str, mode: str) -> None:
    A, r = suited(kind, "float64")[None], vectors("float64", 1)
    M = krylix.preconditioner(array(mode, A), kind)
    assert M.systems == 1 and tuple(M.dense().shape) == (1, N, N)
    alone = krylix.preconditioner(array(mode, A[0]), kind)
    np.testing.assert_allclose(to_numpy(M(array(mode, r))), to_numpy(alone(array(mode, r))), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", list(PRECONDITIONERS))
def test_without_unknowns_and_without_systems(kind: str) -> None:
    assert krylix.preconditioner(np.zeros((0, 0)), kind).kind == kind
    assert krylix.preconditioner(np.zeros((0, 4, 4)), kind).systems == 0


@every_kind
def test_what_it_hands_out_is_no_part_of_it(kind: str) -> None:
    M = krylix.preconditioner(suited(kind, "float64"), kind)
    before = M.dense().copy()
    M.dense()[...] = 0
    found = M.diagonal()
    if found.flags.writeable:
        found[...] = 0
    np.testing.assert_array_equal(M.dense(), before)


@every_kind
def test_affine_functions(kind: str) -> None:
    """M is made of their linear part, and so is linear."""
    A = suited(kind, "float64")
    M = krylix.preconditioner(lambda u: A @ u + 3.0, kind, like=np.ones(N))
    np.testing.assert_array_equal(M @ np.zeros(N), 0)
    np.testing.assert_allclose(M.dense(), krylix.preconditioner(A, kind).dense(), rtol=1e-10, atol=1e-14)


@every_kind
def test_functions_that_are_not_linear(kind: str) -> None:
    with pytest.raises(krylix.sparse.NonlinearError):
        krylix.preconditioner(lambda x: x**2, kind, like=np.ones(N))


def test_symmetry_is_told_entry_by_entry() -> None:
    """A block of large entries does not hide another one, which scaling brings out."""
    rng = np.random.default_rng(0)
    B, Z = rng.standard_normal((8, 8)), np.zeros((8, 8))
    large, skewed = 1e14 * (B @ B.T + 8 * np.eye(8)), np.triu(rng.uniform(0.5, 1, (8, 8))) + 2 * np.eye(8)
    A = np.block([[large, Z], [Z, skewed]])
    for kind in PRECONDITIONERS:
        if kind != OWN and not needs_hermitian(kind):
            M = krylix.preconditioner(A, kind)
            entries = M.dense()
            if M.hermitian:
                assert np.abs(entries - entries.T).max() <= 1e-10 * np.abs(entries).max()


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        pytest.param(kind, how, marks=() if how == "jit" or kind == "jacobi" else pytest.mark.merge)
        for kind in PRECONDITIONERS
        for how in ("jit", "eager")
    ],
)
def test_m_has_no_derivative(kind: str, transform: str) -> None:
    """One rule for all kinds, forward and reverse, eager and compiled: M is a constant."""
    import jax

    A, r = suited(kind, "float64"), vectors("float64", 1)[0]
    D = array("jax", np.diag(np.arange(1.0, N + 1)))

    def value(s: Any) -> Any:
        return (krylix.preconditioner(array("jax", A) + s * D, kind) @ array("jax", r)).sum()

    assert jax.jvp(jax.jit(value) if transform == "jit" else value, (0.5,), (1.0,))[1] == 0


@pytest.mark.parametrize("kind", [None, 3, max])
def test_kinds_that_are_no_names(kind: Any) -> None:
    with pytest.raises(TypeError, match="expected a name: auto, jacobi"):
        krylix.preconditioner(np.eye(3), kind)


def test_of_a_preconditioner() -> None:
    """It is one already."""
    M = krylix.preconditioner(np.eye(3), "jacobi")
    assert krylix.preconditioner(M) is M
    with pytest.raises(ValueError, match="is a preconditioner by itself; got degree too"):
        krylix.preconditioner(M, degree=3)


# --- saved, copied, transformed, differentiated ---


def facts(M: Preconditioner) -> tuple[Any, ...]:
    return M.kind, M.hermitian, M.memory, M.work, M.entries, M.settings, M.note, M.shape, M.dtype, M.systems


@pytest.mark.compiled_by_default(modes=("jax", "tf"))
@every_library
@every_kind
def test_saved_and_loaded(kind: str, mode: str, tmp_path: Path) -> None:
    """By any library and for any other: bit by bit, with its facts. So all that kinds are made of can be stored."""
    cells: tuple[tuple[str, tuple[int, ...]], ...] = (("float64", ()), ("complex64", (2,)), ("float32", ()))
    for dtype, systems in cells if mode in ("numpy", "torch") else cells[1:2]:
        A, r = suited(kind, dtype, systems), vectors(dtype, 2)
        M = krylix.preconditioner(array(mode, A), kind)
        M.save(tmp_path / "first.npz")
        for other in dict.fromkeys(("numpy", "torch", mode)):
            loaded = krylix.load_preconditioner(tmp_path / "first.npz", like=array(other, r))
            assert loaded.bk.name == library(other) and facts(loaded) == facts(M)
            images = to_numpy(loaded(array(other, r))), to_numpy(M(array(mode, r)))
            np.testing.assert_allclose(*images, rtol=500 * eps(dtype), atol=500 * eps(dtype))
        krylix.load_preconditioner(tmp_path / "first.npz").save(tmp_path / "second.npz")
        with np.load(tmp_path / "first.npz") as first, np.load(tmp_path / "second.npz") as second:
            assert {k: first[k].tobytes() for k in first} == {k: second[k].tobytes() for k in second}


@every_library
@every_kind
def test_pickled_and_copied(kind: str, mode: str) -> None:
    M = krylix.preconditioner(array(mode, suited(kind, "float64")), kind)
    r = array(mode, vectors("float64", 1)[0])
    for other in (pickle.loads(pickle.dumps(M)), copy.copy(M), copy.deepcopy(M)):
        assert facts(other) == facts(M) and repr(other) == repr(M)
        assert to_numpy(other @ r).tobytes() == to_numpy(M @ r).tobytes()
        np.testing.assert_array_equal(to_numpy(other.T @ r), to_numpy(M.T @ r))


def mapped(mode: str, function: Any, *arrays: Any) -> Any:
    """Over the first axis of each, by the library's own `vmap`."""
    if mode == "jax":
        import jax

        return jax.jit(jax.vmap(function))(*arrays)
    import torch

    return torch.func.vmap(function)(*arrays)


@pytest.mark.compiled_by_default(modes=("jax",))
@pytest.mark.parametrize(
    ("kind", "mode"),  # `test_made_in_vmap` has the others
    [
        pytest.param(kind, mode, marks=pytest.mark.slow if mode == "jax" and kind in MADE_IN_VMAP[1:] else ())
        for kind in KINDS
        for mode in ("jax", "torch")
    ],
)
def test_mapped_over_systems(kind: str, mode: str) -> None:
    """`vmap` of a solve: in PyTorch over right-hand sides, in JAX over matrices too, each with its own M."""
    matrices, b = matrix_of("float64", mode == "jax" or needs_hermitian(kind), (3,)), vectors("float64", 3)
    method = "CG" if mode == "jax" else "biCG-stab"  # the smallest program
    A, rows = array(mode, matrices), array(mode, b)

    def solve(A: Any, b: Any, M: Any = kind) -> Any:
        return krylix.linear_solve(A, b, method=method, preconditioner=M, rtol=1e-11).x

    if mode == "torch":
        one = np.linalg.solve(matrices[0], b.T).T
        for M in (kind, krylix.preconditioner(A[0], kind)):
            np.testing.assert_allclose(to_numpy(mapped(mode, lambda b, M=M: solve(A[0], b, M), rows)), one, rtol=1e-9)
    else:
        each = np.linalg.solve(matrices, b[..., None])[..., 0]
        np.testing.assert_allclose(to_numpy(mapped(mode, solve, A, rows)), each, rtol=1e-9)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf"))
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, "torch") for kind in KINDS),
        *(("jacobi", "jax-jit"), ("ilu", "jax-jit"), ("ssor", "tf")),
        *(pytest.param(kind, "jax-jit", marks=pytest.mark.slow) for kind in KINDS if kind not in ("jacobi", "ilu")),
        *(pytest.param(kind, "tf", marks=pytest.mark.slow) for kind in KINDS if kind != "ssor"),
    ],
)
def test_gradients_do_not_depend_on_it(kind: str, mode: str) -> None:
    """Those of the solution, by the dense adjoint: M is made of the same A, but is a constant to derivatives."""
    A, (b, w) = suited(kind, "float64"), vectors("float64", 2)

    def loss(A: Any, b: Any) -> Any:
        x = krylix.linear_solve(A, b, method="biCG-stab", preconditioner=kind, rtol=1e-12).x
        return krylix.choose_backend(x).sum(array(mode, w) * x, 0)

    adjoint, x = np.linalg.solve(A.T, w), np.linalg.solve(A, b)
    by_A, by_b = gradients(mode, loss, A, b)
    np.testing.assert_allclose(by_b, adjoint, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_A, -np.outer(adjoint, x), rtol=1e-8, atol=1e-12)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, "jax-traced") for kind in PRECONDITIONERS),
        *(("ic", "jax-jit"), ("jacobi", "tf-function")),
        *(pytest.param(kind, "tf-function", marks=pytest.mark.slow) for kind in PRECONDITIONERS if kind != "jacobi"),
    ],
)
def test_made_once_for_a_compiled_function(kind: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a matrix that does not depend on an argument, while the function is traced; its numbers are known then."""
    A = matrix_of("float64", hermitian=True)  # for CG, whose programs are the smallest
    made: list[Preconditioner] = []
    known: list[bool] = []
    build = PRECONDITIONERS[kind]

    def counted(A: Operator) -> Preconditioner:
        made.append(build(A))
        known.append(made[-1].known() is not None)
        return made[-1]

    monkeypatch.setitem(PRECONDITIONERS, kind, counted)
    matrix = sp.csr_array(A)
    solve = compiled(
        mode.replace("traced", "jit"),
        lambda b: krylix.linear_solve(matrix, b, method="CG", preconditioner=kind).x,
    )
    if mode == "jax-traced":
        solve.trace(array(mode, vectors("float64", 1)[0]))
    else:
        for b in vectors("float64", 3):
            np.testing.assert_allclose(to_numpy(solve(array(mode, b))), np.linalg.solve(A, b), rtol=1e-8)
    assert len(made) == 1 and known == [True]


@pytest.mark.compiled_by_default(modes=("tf",))
@every_library
@every_kind
def test_moved_to_another_library(kind: str, mode: str) -> None:
    """There and back: the same numbers, kind and facts."""
    r = vectors("float64", 1)[0]
    M = krylix.preconditioner(suited(kind, "float64"), kind)
    there = M.to(library(mode))
    assert there.bk.name == library(mode) and (there.kind, there.hermitian, there.memory) == (
        M.kind,
        M.hermitian,
        M.memory,
    )
    np.testing.assert_allclose(to_numpy(there @ array(mode, r)), M @ r, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(there.to("numpy") @ r, M @ r, rtol=1e-12, atol=1e-15)


def test_cg_applies_its_preconditioner_once_per_iteration() -> None:
    """And not to the residual that ends the solve."""
    A, calls = matrix_of("float64", hermitian=True), []

    def halved(r: Any) -> Any:
        calls.append(1)
        return r / A.diagonal()

    found = krylix.linear_solve(A, np.ones(N), method="CG", preconditioner=halved, rtol=1e-10)
    assert np.linalg.norm(A @ found.x - 1) <= 1e-9 and found.iterations > 1
    assert len(calls) == found.iterations, (len(calls), found.iterations)
