"""Opaque functions: their matrices by few evaluations, and errors where these do not tell."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndimage
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from scipy.spatial import Delaunay

from krylix import NonlinearError, UnsupportedOperation, matrix_from_function
from krylix.sparse.tracing import peeling, probing
from krylix.sparse.tracing.peeling import coloured, lattice

rng = np.random.default_rng(0)


class Counted:
    """A function that tracing cannot look into, with the number of calls."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        self.f, self.calls = f, 0

    def __call__(self, u: Any) -> Any:
        u = np.asarray(u)
        self.calls += 1
        return self.f(u)


def laplace(mode: str) -> Callable[[Any], Any]:
    return lambda u: ndimage.laplace(u, mode=mode)


def mesh(points: int) -> sp.csr_array:
    """A weighted graph Laplacian of a Delaunay mesh, in random order."""
    corners = Delaunay(rng.random((points, 2))).simplices
    i, j = corners.reshape(-1), np.roll(corners, 1, axis=1).reshape(-1)
    weights = sp.coo_array((rng.random(len(i)), (i, j)), shape=(points, points)).tocsr()
    weights = weights + weights.T
    return sp.csr_array(sp.diags_array(np.asarray(weights.sum(axis=1)).ravel() + 1) - weights)


STENCILS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], int]] = {  # with the most evaluations
    **{mode: (laplace(mode), (50, 64), 40) for mode in ("constant", "nearest", "wrap", "reflect", "mirror")},
    "three axes": (laplace("constant"), (20, 21, 22), 45),
    "one axis": (laplace("wrap"), (200,), 30),
    "wide": (lambda u: ndimage.gaussian_filter(u, 1.0, truncate=2), (40, 40), 60),
    "affine": (lambda u: ndimage.laplace(u) + 1.5, (50, 50), 40),
    "coefficients": (lambda u: ndimage.laplace(u) * np.arange(50)[:, None], (50, 50), 40),
    "one-sided": (lambda u: np.array(np.gradient(u, axis=0)), (50, 50), 45),
}


@pytest.mark.parametrize("name", STENCILS)
def test_stencils(name: str) -> None:
    f, shape, most = STENCILS[name]
    counted = Counted(f)
    matrix, bias = matrix_from_function(counted, np.empty(shape))
    assert counted.calls <= most
    x = rng.standard_normal(shape)
    np.testing.assert_allclose(matrix @ x.ravel() + bias.ravel(), f(x).ravel(), atol=1e-12 * np.abs(f(x)).max())
    e = np.zeros(shape)
    e[tuple(n // 2 for n in shape)] = 1
    np.testing.assert_allclose(matrix @ e.ravel() + bias.ravel(), f(e).ravel(), atol=1e-14)


@pytest.mark.slow
def test_a_large_stencil() -> None:
    counted = Counted(laplace("constant"))
    matrix, _ = matrix_from_function(counted, np.empty((1024, 1024)))
    assert counted.calls <= 40 and matrix.nnz == 5 * 1024**2 - 4 * 1024


@pytest.mark.parametrize("points", [3000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_a_mesh_in_random_order(points: int) -> None:
    A = mesh(points)
    counted = Counted(lambda u: A @ u)
    matrix, _ = matrix_from_function(counted, np.empty(points))
    assert counted.calls <= 500
    difference = matrix.to_scipy() - A
    assert abs(difference).max() == 0 and matrix.nnz == A.nnz


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "few": (lambda u: 2 * u[::-1], (5,)),
    "rectangular": (lambda u: np.diff(u, axis=0), (40, 50)),
    "dense": (lambda u: u + u.sum(), (30, 30)),
    "fft": (lambda u: np.fft.ifft2(np.fft.fft2(u)).real, (12, 12)),
    "sizes": (lambda u: 10.0 ** np.arange(-12, 12, 24 / 2000)[:2000] * u + 1e6 * np.roll(u, 7), (2000,)),
    "one entry off": (lambda u: u + np.where(np.arange(u.size).reshape(u.shape) == 873, np.roll(u, 103), 0), (50, 50)),
    "a flat grid": (lambda v: ndimage.laplace(v.reshape(60, 60)).ravel(), (3600,)),
    "wide": (lambda u: np.convolve(u, np.ones(31), "same"), (3000,)),
    "long": (lambda u: np.convolve(u, [1.0, -2.5, 1.0], "same"), (200_000,)),
    "permutation": (lambda u: u[np.random.default_rng(1).permutation(u.size)], (2000,)),
    "columns": (lambda u: u[:3], (2000,)),
    "zero": (lambda u: 0 * u + 3, (300,)),
    "empty": (lambda u: u, (0,)),
    "no axes": (lambda u: 2 * u, ()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_functions(name: str) -> None:
    f, shape = FUNCTIONS[name]
    matrix, bias = matrix_from_function(Counted(f), np.empty(shape))
    for _ in range(3):
        x = rng.standard_normal(shape)
        image = np.ravel(f(x))
        np.testing.assert_allclose(matrix @ x.ravel() + np.ravel(bias), image, atol=1e-9 * np.abs(image).max(initial=1))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_dtypes(dtype: Any) -> None:
    factor = dtype(2 - 1j) if np.dtype(dtype).kind == "c" else dtype(2)
    for shape in ((40, 40), (300,)):
        f = Counted(lambda u: factor * u - np.roll(u, 3))
        matrix, bias = matrix_from_function(f, np.empty(shape, dtype))
        assert matrix.dtype == bias.dtype == dtype
        x = rng.standard_normal(shape).astype(dtype)
        np.testing.assert_allclose(matrix @ x.ravel(), f(x).ravel(), atol=1e-5)


def test_containers() -> None:
    def pair(x: Any) -> Any:
        return {"a": np.asarray(x[1]) * 2, "b": np.asarray(x[0])[:1]}

    matrix, bias = matrix_from_function(pair, [np.empty((2, 2)), np.empty(3)])
    assert matrix.shape == (5, 7) and bias["b"].shape == (1, 2)
    expected = np.zeros((5, 7))
    expected[:3, 4:], expected[3:, :2] = 2 * np.eye(3), np.eye(2)
    np.testing.assert_array_equal(matrix.toarray(), expected)


def test_linear_operators() -> None:
    A = mesh(1000)
    calls = [0, 0]

    class Batched(LinearOperator):
        def _matvec(self, x: Any) -> Any:
            calls[0] += 1
            return A @ x

        def _matmat(self, x: Any) -> Any:
            calls[1] += 1
            return A @ x

    for operator in (Batched(float, A.shape), aslinearoperator(A), LinearOperator(A.shape, matvec=lambda x: A @ x)):
        matrix, bias = matrix_from_function(operator, np.empty(1000))
        assert abs(matrix.to_scipy() - A).max() == 0 and not bias.any()
    assert calls[0] < 60 and calls[1] > 0
    grid = LinearOperator((1600, 1600), matvec=lambda x: ndimage.laplace(x.reshape(40, 40)).ravel(), dtype=float)
    matrix, _ = matrix_from_function(grid, np.empty((40, 40)))
    assert matrix.in_shape == (40, 40) and matrix.format == "dia"
    with pytest.raises(ValueError, match=r"the shape \(1600, 1600\), and `like` 5 elements; expected 1600"):
        matrix_from_function(grid, np.empty(5))


NONLINEAR: dict[str, Callable[[Any], Any]] = {
    "absolute": lambda u: np.abs(u),
    "square": lambda u: u * u,
    "relu": lambda u: np.maximum(ndimage.laplace(u), 0),
    "norm": lambda u: u * np.linalg.norm(u),
    "median": lambda u: ndimage.median_filter(u, 3),
    "round": lambda u: np.round(u, 3),
    "integers": lambda u: u.astype(int).astype(float),
    "clip": lambda u: ndimage.laplace(u).clip(-5, 5),
    "one row": lambda u: u + (u[0, 0] ** 3) * (np.arange(u.size).reshape(u.shape) == 77),
    "conjugate": lambda u: u.real + 0j,
    "noise": lambda u: u + 1e-3 * rng.standard_normal(u.shape),
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_what_is_not_linear(name: str) -> None:
    like = np.empty((40, 40), complex if name == "conjugate" else float)
    with pytest.raises(NonlinearError, match="not linear"):
        matrix_from_function(Counted(NONLINEAR[name]), like)


def test_too_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_FEW", 400)
    for module in (probing, peeling):
        monkeypatch.setattr(module, "MOST_EVALUATIONS", 1000)
    f = Counted(lambda u: u + u.sum())
    with pytest.raises(UnsupportedOperation, match=r"evaluations of the function.*couples too many unknowns"):
        matrix_from_function(f, np.empty(500))
    assert f.calls < 1000


def test_what_else_is_refused() -> None:
    with pytest.raises(UnsupportedOperation, match="infinity or NaN"):
        matrix_from_function(Counted(lambda u: u + np.inf if u.any() else u), np.empty(50))
    with pytest.raises(TypeError, match="returned None"):
        matrix_from_function(Counted(lambda u: None), np.empty(50))
    sizes = iter(range(1, 99))
    with pytest.raises(UnsupportedOperation, match="same shapes"):
        matrix_from_function(Counted(lambda u: u[: next(sizes)]), np.empty(50))


def test_arguments_may_be_written_to() -> None:
    def f(u: Any) -> Any:
        u = np.asarray(u)
        u *= 2
        return u

    like = np.ones(4)
    matrix, _ = matrix_from_function(f, like)
    np.testing.assert_array_equal(matrix.toarray(), 2 * np.eye(4))
    np.testing.assert_array_equal(like, 1)


def test_colours() -> None:
    A = mesh(400).tocoo()
    colours = coloured(A.row, A.col, A.shape)
    for row in A.tocsr():
        own = colours[row.tocoo().coords[-1]]
        assert len(set(own.tolist())) == len(own)
    assert colours.max() < 30
    assert lattice([(0,), (1,), (-1,)], 1) == (3, (1,))
    assert lattice([(0, i) for i in range(500)], 2) is None
