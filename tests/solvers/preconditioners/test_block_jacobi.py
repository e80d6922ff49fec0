"""Block Jacobi, against inverses of the blocks by NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

from cells import in_turn
from krylix import as_operator, linear_solve, preconditioner
from modes import EAGER, array, compiled, to_numpy

N = 23


def matrix(dtype: str = "float64", systems: tuple[int, ...] = (), seed: int = 0) -> np.ndarray:
    """Sparse, diagonally dominant, not symmetric."""
    rng, pattern = np.random.default_rng(seed), np.random.default_rng(7).random((N, N)) < 0.5
    m = rng.uniform(-1, 1, (*systems, N, N)) * pattern
    if np.dtype(dtype).kind == "c":
        m = m * np.exp(1j * rng.uniform(0, 6, m.shape))
    m[..., range(N), range(N)] = N + 10 * rng.random((*systems, N))
    return m.astype(dtype)


def labels(seed: int = 0) -> np.ndarray:
    """Blocks of 1 to about 8 unknowns, which are anywhere; numbers with gaps."""
    return np.random.default_rng(seed).choice([-3, 4, 10, 11, 50, 51], N, p=[0.35, 0.3, 0.1, 0.1, 0.1, 0.05])


def inverse_of_blocks(A: np.ndarray, which: np.ndarray) -> np.ndarray:
    found = np.zeros_like(A, np.result_type(A.dtype, np.float64))
    for label in np.unique(which):
        i = np.flatnonzero(which == label)
        found[..., i[:, None], i] = np.linalg.inv(A[..., i[:, None], i].astype(found.dtype))
    return found


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize(
    ("mode", "dtype"),
    [(m, d) for m in EAGER for d in ("float32", "float64", "complex128") if m in ("numpy", "torch") or d == "float32"],
)
def test_inverts_the_blocks(mode: str, dtype: str, form: str) -> None:
    A = matrix(dtype)
    given = array(mode, A) if form == "dense" else as_operator(sp.csr_array(A), array(mode, np.ones(N, dtype)))
    tolerance = 1e3 * float(np.finfo(dtype).eps)
    for settings, which in (
        ({"block_size": 4}, np.arange(N) // 4),
        ({"block_size": 1}, np.arange(N)),
        ({"block_size": 99}, np.zeros(N)),
        ({"blocks": labels()}, labels()),
        ({"blocks": list(map(int, labels(1)))}, labels(1)),
    ):
        M = preconditioner(given, "block-jacobi", **settings)
        expected = inverse_of_blocks(A, which)
        np.testing.assert_allclose(to_numpy(M.dense()), expected, rtol=0, atol=tolerance)
        assert M.memory == sum(np.unique(which, return_counts=True)[1] ** 2)
        assert M.hermitian is bool(np.abs(expected - expected.conj().T).max() < tolerance)


@pytest.mark.parametrize(
    ("mode", "systems", "sparse"),
    [
        pytest.param(mode, systems, sparse, marks=pytest.mark.slow if later or mode in ("jax", "tf-function") else ())
        for i, mode in enumerate(("jax", "jax-jit", "torch", "tf", "tf-function"))
        for systems in ((), (3,))
        for sparse in (True, False)
        for later in [mode != "torch" and (i + len(systems) + sparse) % 2]
    ],  # every two of the three together; all three on demand
)
def test_made_of_traced_values(mode: str, systems: tuple[int, ...], sparse: bool) -> None:
    A, which = matrix(systems=systems), labels()
    pattern = as_operator(sp.csr_array(matrix()), array(mode, np.ones(N)))
    values = np.array([sp.csr_array(a).data for a in A.reshape(-1, N, N)]).reshape(*systems, -1)

    def dense(v: Any) -> Any:
        M = preconditioner(pattern.to("csr").with_values(v) if sparse else v, "block-jacobi", blocks=which)
        return M.dense()

    found = compiled(mode, dense)(array(mode, values if sparse else A))
    np.testing.assert_allclose(to_numpy(found), inverse_of_blocks(A, which), rtol=0, atol=1e-12)


def discontinuous(elements: int = 12, size: int = 5) -> sp.csr_array:
    """Dense blocks on the diagonal and between neighbours."""
    rng = np.random.default_rng(0)
    chain = sp.kron(sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(elements, elements)), rng.random((size, size)))
    inner = rng.standard_normal((size, size))
    A = sp.kron(sp.eye_array(elements), 30 * (inner @ inner.T + 0.1 * np.eye(size))) - (chain + chain.T) / 2
    return sp.csr_array(A + 10 * sp.eye_array(elements * size))


def elasticity(side: int = 12) -> sp.csr_array:
    """Two components at each node; some of their couplings are zero."""
    A = sp.csr_array(pyamg.gallery.linear_elasticity((side, side))[0])
    A.eliminate_zeros()
    return A


def mixed() -> sp.csr_array:
    """Dense blocks of 3 and 2, and single unknowns, coupled in pairs far away."""
    blocks = [3 * np.eye(k) + 1 for k in (3, 2, 1, 2, 3, 1)]
    A = sp.block_diag(blocks).toarray()
    A[5, 11] = A[11, 5] = 0.5
    return sp.csr_array(A)


@pytest.mark.parametrize("known", [True, False], ids=["known", "traced"])
@pytest.mark.parametrize("mode", ["numpy", "jax-jit"])
@pytest.mark.parametrize(
    ("A", "expected"),
    [(discontinuous(), np.arange(60) // 5), (elasticity(), np.arange(288) // 2),
     (mixed(), np.array([0, 0, 0, 1, 1, 2, 3, 3, 4, 4, 4, 5])), (sp.csr_array(np.eye(150) + 1), np.arange(150) // 75),
     (sp.csr_array([[2.0]]), np.zeros(1))],
    ids=["elements", "components", "mixed", "full", "one unknown"],
)  # fmt: skip
def test_blocks_are_found(A: sp.csr_array, expected: np.ndarray, mode: str, known: bool) -> None:
    if mode == "numpy" and not known:
        pytest.skip("NumPy knows all values")
    pattern = as_operator(A, array(mode, np.ones(A.shape[0]))).to("csr")

    def dense(values: Any) -> Any:
        return preconditioner(pattern if known else pattern.with_values(values), "block-jacobi").dense()

    found = to_numpy(compiled(mode, dense)(pattern.values))
    np.testing.assert_allclose(found, inverse_of_blocks(A.toarray(), expected), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("A", [pyamg.gallery.poisson((8, 8)), pyamg.gallery.poisson((30,)), sp.eye_array(6)])
def test_none_are_found(A: Any) -> None:
    with pytest.raises(ValueError, match=r"No blocks were found.*block_size=k.*'jacobi'"):
        preconditioner(sp.csr_array(A), "block-jacobi")
    assert preconditioner(sp.csr_array(A), "block-jacobi", block_size=3).memory > 0


SINGULAR = {
    "ones": np.ones((3, 3)),
    "zeros": np.zeros((3, 3)),
    "rounding": np.array([[0.1, 0.2, 0], [0.2, 0.4, 0], [0, 0, 7]]),
    "not symmetric": np.array([[1.0, 2, 3], [0, 0, 1], [0, 0, 2]]),
    "units": np.diag([1e9, 1.0, 1e-9]) @ np.array([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]]) @ np.diag([1e9, 1.0, 1e-9]),
}


@pytest.mark.parametrize(
    ("name", "mode"), in_turn(SINGULAR, ["numpy", "jax", "jax-jit", "torch", "tf-function"], always=["numpy", "torch"])
)
def test_singular_blocks(name: str, mode: str) -> None:
    """Every direction keeps a finite correction; known values say so, those of a compiled function are divided by."""
    good = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
    block = SINGULAR[name]
    A = np.kron(np.diag([1.0, 0, 1]), good) + np.kron(np.diag([0, 1.0, 0]), block)
    notes: list[Any] = []

    def dense(v: Any) -> Any:
        M = preconditioner(v, "block-jacobi", block_size=3)
        notes.append((M.note, repr(M)))
        return M.dense()

    M = to_numpy(compiled(mode, dense)(array(mode, A)))
    np.testing.assert_allclose(M[:3, :3], np.linalg.inv(good), rtol=1e-12)
    np.testing.assert_allclose(M[6:, 6:], np.linalg.inv(good), rtol=1e-12)
    inner = M[3:6, 3:6]
    # units in which the block has entries of about 1
    scale = np.sqrt(np.diag(block) if np.diag(block).all() else np.abs(block).max(1))
    scale[scale == 0] = 1
    inner = scale[:, None] * inner * scale
    assert np.isfinite(M).all() and np.linalg.matrix_rank(inner, tol=1e-3) == 3 and np.abs(inner).max() < 100
    if np.array_equal(block, block.T):
        np.testing.assert_allclose(inner, inner.T, atol=1e-12)
        assert np.linalg.eigvalsh(inner).min() > 0
    if mode not in ("jax-jit", "tf-function"):
        assert notes[-1][0] == "1 of 3 blocks are singular" and notes[-1][0] in notes[-1][1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_units_make_nothing_singular(scale: float, dtype: str) -> None:
    block = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
    units = np.diag([1e3, 1.0, 1e-3])
    A = (scale * np.kron(np.eye(4), units @ block @ units)).astype(dtype)
    M = preconditioner(A, "block-jacobi", block_size=3)
    assert M.note is None
    exact = np.linalg.inv(units @ block @ units) / scale
    np.testing.assert_allclose(M.dense()[:3, :3], exact, rtol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_size": 0}, "block_size=0 was given; expected an integer of at least 1"),
        ({"block_size": 2, "blocks": np.zeros(N, int)}, "block_size and blocks were given"),
        ({"blocks": np.zeros(N - 1, int)}, f"blocks is an array of int64 of shape .*; expected {N} integers"),
        ({"blocks": np.zeros(N)}, "blocks is an array of float64"),
        ({"blocks": "all"}, "blocks='all' was given; expected 'auto'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preconditioner(matrix(), "block-jacobi", **settings)


def test_labels_of_a_grid() -> None:
    """Labels may have the shape of the grid; components that lie apart make blocks."""
    A, which = matrix()[:20, :20], np.broadcast_to(np.arange(10), (2, 10))
    M = preconditioner(A, "block-jacobi", blocks=which)
    np.testing.assert_allclose(M.dense(), inverse_of_blocks(A, which.reshape(-1)), atol=1e-14)


def test_functions_are_traced() -> None:
    A = discontinuous()
    M = preconditioner(lambda x: A @ x, "block-jacobi", like=np.ones(60))
    np.testing.assert_allclose(M.dense(), inverse_of_blocks(A.toarray(), np.arange(60) // 5), atol=1e-13)


def test_many_small_blocks_and_their_iterations() -> None:
    A = discontinuous(400, 5)
    b = np.random.default_rng(0).standard_normal(2000)
    steps = {}
    for kind in ("jacobi", "block-jacobi"):
        result = linear_solve(A, b, method="CG", preconditioner=kind, rtol=1e-10)
        assert np.linalg.norm(A @ result.x - b) <= 1.01e-10 * np.linalg.norm(b)
        steps[kind] = int(result.iterations)
    assert 2 * steps["block-jacobi"] < steps["jacobi"]
