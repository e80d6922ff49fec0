"""Linear NumPy functions as matrices: against the functions themselves, one unit vector after the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import linear_solve, matrix_from_function, preconditioner, prepare
from krylix.sparse import as_operator
from krylix.sparse.tracing.front_end import front_end_of
from krylix.sparse.tracing.matrix_from_function import traced_matrix
from unit_vectors import matrix_of

N = 7
rng = np.random.default_rng(0)
C, M = rng.random((N, N)), rng.random((N, N)) + np.eye(N)
MASK = rng.random((N, N)) > 0.4
INDEX = rng.integers(0, N, N)
S = sp.random_array((N, N), density=0.4, rng=rng).tocsr()


def in_place(u: Any) -> Any:
    y = 4 * u
    y[1:] -= u[:-1]
    y[:-1] -= u[1:]
    y[:, 1:] -= u[:, :-1]
    y[:, :-1] -= u[:, 1:]
    return y


def boundary(u: Any) -> Any:
    y = in_place(u)
    y[0], y[-1], y[:, 0] = u[0], 3.0, 0
    y[1, 2], y[(2, 3), (3, 3)] = u[0, 0], 2 * u[1, 1]
    return y


def into_zeros(u: Any) -> Any:
    y = np.zeros_like(u)
    y[1:-1, 1:-1] = u[2:, 1:-1] - u[1:-1, 1:-1]
    y[::2] += C[::2] * u[::2]
    y.T[2:] -= u[2:].T.T
    y[::-1, 1] = u[0]
    y[MASK] = 2 * u[~MASK][: MASK.sum()].sum()
    return y


def through_views(u: Any) -> Any:
    y = u.copy()
    v = y[1:4]
    w = v.T[::-1]
    w *= 2.0
    v[0] += u[5]
    y.reshape(-1)[3:12:2] = u.ravel()[:5]
    flat = y.ravel()
    flat[0] = 0
    y.swapaxes(0, 1)[2] = u[3]
    return y + v.sum()


def with_out(u: Any) -> Any:
    y = np.empty_like(u)
    np.subtract(u, 2 * u[::-1], out=y)
    np.add(y, 1, out=y, where=MASK)
    np.multiply(y[1:], 3, out=y[1:])
    np.sum(u, axis=1, out=y[0])
    y += y[:, ::-1]
    return y


def at(u: Any) -> Any:
    y = np.zeros_like(u)
    np.add.at(y, INDEX, u)
    np.subtract.at(y, (INDEX, INDEX[::-1]), u[0])
    y[INDEX] += u  # of rows that are given twice the last one counts
    return y


def writers(u: Any) -> Any:
    y = np.zeros((N, N), like=u)
    np.copyto(y, u, where=MASK)
    np.fill_diagonal(y, u[0])
    np.put(y, [3, 5], u[1, :2])
    np.putmask(y, ~MASK, 2 * u)
    y[0].fill(2.0)
    return y


def workspace(u: Any) -> Any:
    c = np.empty((N, N))
    c[:] = C
    y = c * u
    c[:] = M
    return y + c * u[::-1] + c


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "in-place": in_place,
    "boundary": boundary,
    "into zeros": into_zeros,
    "through views": through_views,
    "out": with_out,
    "at": at,
    "writers": writers,
    "workspace": workspace,
    "overlap": lambda u: (lambda y: (y.__setitem__(slice(1, None), y[:-1]), y)[1])(u.copy()),
    "roll": lambda u: np.roll(u, (1, -2), (0, 1)) - np.roll(u, 5) + np.roll(u, -1, 1),
    **{
        f"pad-{mode}": lambda u, mode=mode: np.pad(u, ((2, 1), (0, 3)), mode=mode)
        for mode in ("constant", "edge", "wrap", "reflect", "symmetric")
    },
    "pad-value": lambda u: np.pad(u, 1, constant_values=3.0)[1:, :-1],
    "gradient": lambda u: np.gradient(u, axis=0) + np.gradient(u, 0.5, 2.0, edge_order=2)[1],
    "gradient-uneven": lambda u: np.gradient(u, np.cumsum(C[0]), axis=1),
    "diff": lambda u: np.diff(u, 2, axis=0)[:, 1:] + np.diff(u)[2:],
    "concatenate": lambda u: np.concatenate([u[1:] - u[:-1], u[:1], C]),
    "stack": lambda u: np.stack([u, 2 * u.T, C], axis=1).sum((1, 2)),
    "stacks": lambda u: np.vstack([u, C[0]]) @ np.hstack([C, C])[:, :3] + np.column_stack([u[0], u[1], C[2]])[0].sum(),
    "block": lambda u: np.block([[u, u.T], [0 * u, C]]),
    "where": lambda u: np.where(MASK, C * u, -u.T) + np.where(MASK[0], u, 0),
    "take": lambda u: np.take(u, INDEX, axis=1) + u[INDEX] + u[:, INDEX[::-1]],
    "points": lambda u: u[INDEX, INDEX[::-1]] + u[MASK][:N] + u[np.ix_([1], range(N))][0],
    "elements": lambda u: u[0, 0] * C + u[1, -1] + sum(u[i] * i for i in range(N)),
    "moves": lambda u: np.tile(u, 2)[:, 3:10] + np.repeat(u, 2, 0)[1:8] + np.delete(np.append(u, u[:1], 0), 2, 0),
    "insert": lambda u: np.insert(u, 2, 7.0, axis=0),
    "select": lambda u: np.select([MASK, C > 0.5], [u, 2 * u.T], 0.0),
    "triangles": lambda u: np.tril(u) + 3 * np.triu(u, 1) + np.diag(np.diag(u)) + np.trace(u),
    "axes": lambda u: np.moveaxis(u[None], 0, -1).squeeze() + np.swapaxes(u, 0, 1)[::-1] + np.rot90(u) + np.fliplr(u),
    "splits": lambda u: np.array_split(u, 3)[1] + np.hsplit(u, [3])[0][:2, :1] + u[:2],
    "broadcast": lambda u: np.broadcast_to(u[0], (N, N)) + u[:, None, 0] + np.expand_dims(u[:, 1], 1),
    "windows": lambda u: np.lib.stride_tricks.sliding_window_view(u, 3, 0).sum(-1),
    "sums": lambda u: u - u.mean(0) + np.sum(u, axis=1, keepdims=True) + np.average(u, weights=C) + u.sum(),
    "cumsum": lambda u: np.cumsum(u, axis=0) + np.add.accumulate(u, 1) + np.cumsum(u)[:N],
    "reduce": lambda u: np.add.reduce(u, 1, initial=2.0) + np.sum(u, 0, where=MASK) + np.trapezoid(u, C[0], axis=1),
    "matmul": lambda u: M @ u + u @ M + (M[0] @ u) + np.dot(u, M[1]) + np.inner(u, M) + np.stack([M, C])[1] @ u,
    "einsum": lambda u: np.einsum("ij,jk->ik", M, u) + np.einsum("ii->i", u) + np.einsum("ij,kj,l->kl", u, M, C[0]),
    "products": lambda u: np.tensordot(M, u, 1) + np.outer(u[0], C[1]) + np.vdot(C, u) + np.kron(u[:1, :1], C),
    "outer": lambda u: np.multiply.outer(u[0], C[0]) + np.subtract.outer(u[1], u[2]),
    "convolve": lambda u: np.stack([np.convolve(row, [1.0, 2, 4], "same") for row in u]),
    "convolve kernel": lambda u: np.convolve(u[0, :3], C[0]) + np.convolve(C[0], u[0, :3], "full"),
    "scipy sparse": lambda u: S @ u + u @ S + S.dot(u) + S.T @ u[:, 0] + sp.csr_matrix(S) * u,
    "solve": lambda u: np.linalg.solve(M, u),
    "angles": lambda u: np.deg2rad(u) + np.radians(u) + np.rad2deg(u.T) - np.degrees(u),
    **(
        {
            "of NumPy 2": lambda u: (
                np.cumulative_sum(u, axis=1)
                + np.linalg.trace(u, offset=1)
                + np.linalg.vecdot(M, u)
                + np.linalg.matmul(M, u)
            ),
            "outer of NumPy 2": lambda u: np.linalg.outer(u[0], M[1]) + np.linalg.tensordot(u, M, axes=1),
        }
        if hasattr(np, "cumulative_sum")
        else {}
    ),
    "rfft": lambda u: np.fft.irfft(np.fft.rfft(u) * np.arange(4), N),
    "fft2": lambda u: np.fft.ifft2(np.fft.fft2(u) * C).real,
    "rfftn": lambda u: np.fft.irfftn(np.fft.rfftn(u), (N, N), (0, 1)) + np.fft.fftshift(u),
    "complex": lambda u: (1j * u).conj() + (u * (1 + 2j)).imag,
    "same": lambda u: u,
    "constant": lambda u: C,
    "affine": lambda u: (u + C) / 3 - 1,
    "zero": lambda u: 0 * u,
    "number": lambda u: u.mean(),
    "container": lambda u: {"a": u[0], "b": (2 * u[1], C[0])}["b"],
    "library": lambda u: u.real + u.astype(float) - np.real(u) + np.copy(u) * np.float64(2),
    "mesh": lambda u: np.meshgrid(u[0], C[0])[0] + np.resize(u, (N, N)) + np.atleast_2d(u[0]),
    "power": lambda u: u**1 + +u - (-u) + 2 / (1 / C) * u,
    "iteration": lambda u: np.stack([row / (k + 1) for k, row in enumerate(u)]),
    "known branch": lambda u: 2 * u if np.zeros_like(u).sum() == 0 else u,
}


def traced(f: Callable[[Any], Any], like: Any, **settings: Any) -> tuple[Any, Any]:
    """By the stand-in: never by evaluations."""
    return traced_matrix(front_end_of("numpy"), f, like, **settings)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrices(name: str) -> None:
    f = FUNCTIONS[name]
    matrix, bias = traced(f, np.empty((N, N)))
    expected, constant = matrix_of(f, (N, N))
    assert matrix.dtype == expected.dtype
    np.testing.assert_allclose(matrix.toarray(), expected, atol=1e-13)
    flat = np.concatenate([np.ravel(b) for b in (bias if isinstance(bias, tuple) else (bias,))])
    np.testing.assert_allclose(flat, np.ravel(constant), atol=1e-13)


@pytest.mark.parametrize("name", ["in-place", "into zeros", "where", "einsum"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_dtypes(name: str, dtype: Any) -> None:
    f = FUNCTIONS[name]
    matrix, bias = traced(f, np.empty((N, N), dtype))
    assert bias.dtype == f(np.zeros((N, N), dtype)).dtype
    np.testing.assert_allclose(matrix.toarray(), matrix_of(f, (N, N), dtype)[0], atol=1e-5)


@pytest.mark.parametrize(("width", "dtype"), [(4, "float32"), (8, "float64"), (8, "complex64")])
def test_strides_of_a_vector_register(width: int, dtype: str) -> None:
    """On which NumPy's `negative` into another array takes wrong elements."""
    k = np.arange(1, 3 * width + 1).reshape(3, width).astype(dtype)

    def upwind(u: Any) -> Any:
        return k * (u - np.roll(u, 1, 1))

    A, _ = matrix_from_function(upwind, np.ones((3, width), dtype))
    columns = [upwind(e.reshape(3, width)).ravel() for e in np.eye(3 * width, dtype=dtype)]
    np.testing.assert_array_equal(A.toarray(), np.stack(columns, 1))


def test_numbers_of_python_are_weak() -> None:
    like = np.empty(3, np.float32)
    for f in (lambda u: 2.0 * u + 1, lambda u: u * np.float64(2), lambda u: u / np.ones(3), lambda u: u * np.arange(3)):
        matrix, bias = traced(f, like)
        assert bias.dtype == matrix.dtype == f(np.zeros(3, np.float32)).dtype


def test_structure_of_zeros_is_kept_on_demand() -> None:
    matrix, _ = traced(lambda u: np.array([0.0, 1, 2]) * u, np.empty(3), prune=False)
    assert matrix.nnz == 3


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (1, 1, 2)])
def test_small_inputs(shape: tuple[int, ...]) -> None:
    for f in (
        lambda u: 2 * u + 1,
        lambda u: u.reshape(-1),
        lambda u: np.concatenate([u.ravel(), u.ravel()[::-1]]),
        lambda u: u.sum(),
        lambda u: u[None] * np.ones((3, *shape)),
        lambda u: np.zeros_like(u),
        lambda u: (lambda y: (y.__setitem__(Ellipsis, 2 * u), y)[1])(np.empty_like(u)),
    ):
        matrix, bias = traced(f, np.empty(shape))
        x = rng.standard_normal(shape)
        np.testing.assert_allclose(matrix.toarray() @ x.ravel() + np.ravel(bias), np.ravel(f(x)), atol=1e-14)


def test_containers() -> None:
    def saddle(x: Any) -> Any:
        return {"v": 2 * x["v"] + np.pad(np.diff(x["p"]), 1), "p": (np.diff(x["v"]), x["p"][0])}

    like = {"v": np.empty(4), "p": np.empty(3)}
    matrix, bias = traced(saddle, like)
    x = {"v": rng.standard_normal(4), "p": rng.standard_normal(3)}
    image = saddle(x)
    found = matrix.toarray() @ np.concatenate([x["p"], x["v"]])  # keys in order
    assert matrix.shape == (8, 7) and bias["p"][0].shape == (3,)
    np.testing.assert_allclose(found, np.concatenate([image["p"][0], [image["p"][1]], image["v"]]), atol=1e-14)


def test_formats_and_evaluations() -> None:
    calls = []

    def f(u: Any) -> Any:
        calls.append(type(u))
        return in_place(u)

    matrix, _ = matrix_from_function(f, np.empty((64, 64)))
    assert matrix.format == "dia" and matrix.nnz == 5 * 64**2 - 4 * 64 and matrix.in_shape == (64, 64)
    assert calls.count(np.ndarray) == 1 and len(calls) == 2
    flat, _ = matrix_from_function(lambda v: in_place(v.reshape(64, 64)).ravel(), np.empty(64**2))
    assert flat.format == "dia" and abs(flat.to_scipy() - matrix.to_scipy()).max() == 0


def test_solvers_trace_by_themselves() -> None:
    calls = []

    def f(u: Any) -> Any:
        calls.append(1)
        return in_place(u)

    b = rng.standard_normal((48, 48))
    solver = prepare(f, b, method="CG", preconditioner="jacobi")
    assert len(calls) < 20 and solver.solve(b).converged
    operator = as_operator(f, b)
    assert (operator.diagonal() == 4).all() and preconditioner(operator, "jacobi").shape == (48**2, 48**2)


def test_a_sparse_factorisation_of_a_function() -> None:
    b = rng.standard_normal((300, 300))  # its dense matrix would have 64 GB
    result = linear_solve(in_place, b, method="scipy-direct")
    np.testing.assert_allclose(in_place(result.x), b, atol=1e-10)


def test_a_bias_and_a_matrix_have_memory_of_their_own() -> None:
    c, w = np.ones(3), np.full(3, 2.0)
    matrix, bias = traced(lambda u: w * u + c, np.empty(3))
    c[:], w[:] = 7, 7
    np.testing.assert_array_equal(bias, np.ones(3))
    np.testing.assert_array_equal(matrix.toarray(), 2 * np.eye(3))


def test_a_sparse_matrix_times_what_does_not_depend_on_the_input() -> None:
    S = sp.csr_array(np.array([[1.0, 0, 2], [0, 3, 0], [4, 0, 5]]))

    def f(u: np.ndarray) -> np.ndarray:
        known = np.where(np.bool_(False), u, 2.0)  # an array of no axes
        return u + S @ (known * np.arange(3.0))

    matrix, bias = traced_matrix(front_end_of("numpy"), f, np.array(1.0), verify=False)
    np.testing.assert_array_equal(matrix.toarray(), np.ones((3, 1)))
    np.testing.assert_array_equal(np.ravel(bias), 2 * S @ np.arange(3.0))


@pytest.mark.parametrize("function", [np.atleast_1d, np.atleast_2d, np.atleast_3d])
def test_axes_added_to_each_array_by_itself(function: Any) -> None:
    w = np.array([1.0, 2.0, 4.0])

    def f(u: Any) -> Any:
        first, second, third = function(u, w, 2 * u)
        return first + second * third

    matrix, bias = matrix_from_function(f, np.zeros(3), verify=False)
    u = np.array([0.5, -1.0, 3.0])
    np.testing.assert_allclose((matrix @ u + np.ravel(bias)), np.ravel(f(u)))
