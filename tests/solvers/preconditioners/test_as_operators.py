"""Preconditioners as operators: the arrays that they take, their products, and real systems with complex ones."""

from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from krylix import linear_solve, preconditioner
from krylix.solvers import PRECONDITIONERS
from krylix.solvers.preconditioners import multiplicative
from krylix.sparse import Stencil
from modes import EAGER, array, library, to_numpy

GRID = (4, 6)
SHIFTS = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
PASS_ON = ("jacobi", "block-jacobi")  # NaN, to those unknowns of M only
SETTINGS: dict[str, dict[str, Any]] = {"block-jacobi": {"block_size": 2}}


def stencil(mode: str) -> Any:
    """Of coefficients that are arrays, and not symmetric."""
    rng = np.random.default_rng(0)
    c = [5 + rng.random(GRID), *(-1 - 0.1 * rng.random((4, *GRID)))]
    with krylix.choose_backend(library(mode)):
        return Stencil([array(mode, v) for v in c], SHIFTS, GRID)


def apply_stencil(u: Any) -> Any:
    """Of NumPy arrays, with any batch axes in front."""
    p = np.pad(u, [(0, 0)] * (u.ndim - 2) + [(1, 1), (1, 1)])
    return 5 * u - p[..., 2:, 1:-1] - p[..., :-2, 1:-1] - p[..., 1:-1, 2:] - p[..., 1:-1, :-2]


def cells() -> list[Any]:
    cheap = ("jacobi", "ilu")
    return [
        pytest.param(kind, mode, marks=() if mode in ("numpy", "torch") or kind in cheap else pytest.mark.slow)
        for kind in PRECONDITIONERS for mode in EAGER
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "mode"), cells())
def test_arrays_of_the_grid(kind: str, mode: str) -> None:
    """As vectors, batches too; also the transpose, sums, multiples, casts and what comes from a file."""
    A: Any = stencil(mode)
    A = A if kind not in ("ic", "multigrid") else (A + A.T).to("csr") if mode in ("numpy", "torch") else A + A.T
    if A.in_shape != GRID:
        A = A.on_grids(GRID, GRID)
    M = preconditioner(A, kind, **SETTINGS.get(kind, {}))
    u = np.random.default_rng(1).standard_normal((2, 3, *GRID))
    D = to_numpy(M.dense())
    for P, dense in ((M, D), (M.T, D.T), (M + M, 2 * D), (3 * M, 3 * D), (M.T + M, D + D.T)):
        assert P.in_shape == P.out_shape == GRID
        for given in (u, u[0, 0]):
            found = to_numpy(P(array(mode, given)))
            expected = (given.reshape(-1, 24) @ dense.T).reshape(given.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    with pytest.raises(ValueError, match=r"last axes are \(4, 6\); got the shape \(24,\)"):
        M(array(mode, u[0, 0].reshape(24)))
    np.testing.assert_allclose(to_numpy(M @ array(mode, u[0, 0].reshape(24))), D @ u[0, 0].reshape(24), atol=1e-10)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", PRECONDITIONERS)
def test_pytorch_differentiates_what_they_return(kind: str) -> None:
    """By r, on a grid large enough for several levels, and for lanes: nothing that the record needs is overwritten."""
    import torch

    grid = (12, 14)
    like, rng = torch.zeros(grid, dtype=torch.float64), np.random.default_rng(2)

    def f(u: Any) -> Any:
        p = torch.nn.functional.pad(u, (1, 1, 1, 1))
        return 5 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

    settings = {"multigrid": {"direct": 16}, "amg": {"max_coarse": 10}}.get(kind, SETTINGS.get(kind, {}))
    M = preconditioner(f, kind, like=like, **settings)
    with torch.no_grad():
        dense = to_numpy(M.dense())
    rows = torch.tensor(rng.standard_normal((2, 168)))
    r, w = rows[0].clone().requires_grad_(), torch.tensor(rng.standard_normal(168))
    (gradient,) = torch.autograd.grad(((M @ r) * w).sum(), r)
    np.testing.assert_allclose(gradient, dense.T @ w.numpy(), atol=1e-12)
    assert torch.equal(r.detach(), rows[0])
    lanes = torch.func.vmap(lambda r: M @ r)(rows)
    np.testing.assert_allclose(lanes, rows.numpy() @ dense.T, atol=1e-12)


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            k, marks={"jacobi": (), "amg": (), "fast": (), "multigrid": pytest.mark.slow}.get(k, pytest.mark.merge)
        )
        for k in PRECONDITIONERS
    ],
)
def test_jax_differentiates_what_they_return(kind: str) -> None:
    """By r, forward and backward, in a compiled function and as a sum of several products; loops too."""
    import jax

    settings = {"multigrid": {"direct": 16}, "amg": {"max_coarse": 10}}.get(kind, SETTINGS.get(kind, {}))
    A = sp.csr_array(pyamg.gallery.poisson((9, 8), format="csr"))
    M = preconditioner(A, kind, **settings)
    dense, M = M.dense(), M.to("jax")
    r, w = np.random.default_rng(2).standard_normal((2, 72))
    gradient = jax.jit(jax.grad(lambda r: w @ (M @ (M @ r))))(r)
    np.testing.assert_allclose(gradient, dense.T @ dense.T @ w, atol=1e-10)
    tangent = jax.jit(lambda r: jax.jvp(lambda r: M @ r, (r,), (w,))[1])(r)
    np.testing.assert_allclose(tangent, dense @ w, atol=1e-10)


def test_arrays_of_functions_and_of_files(tmp_path: Any) -> None:
    u = np.random.default_rng(1).standard_normal(GRID)
    M = preconditioner(apply_stencil, "jacobi", like=u)
    both = multiplicative(apply_stencil, M, M, like=u)
    M.save(tmp_path / "M.npz")
    for P in (M, krylix.load_preconditioner(tmp_path / "M.npz")):
        np.testing.assert_allclose(P(u), u / 5)
    np.testing.assert_allclose(both(u), u / 5 + (u - apply_stencil(u / 5)) / 5)
    flat = preconditioner(sp.eye_array(24).tocsr() * 2, "jacobi")
    np.testing.assert_allclose(flat(u.reshape(24)), u.reshape(24) / 2)
    with pytest.raises(ValueError, match=r"last axes are \(24,\); got the shape \(4, 6\)"):
        flat(u)


def test_products_of_preconditioners_are_refused() -> None:
    A = sp.eye_array(6).tocsr() * 2
    M = preconditioner(A, "jacobi")
    for other in (M, A, krylix.as_operator(A), lambda r: r):
        with pytest.raises(TypeError, match=r"(?s)was multiplied by .*expected an array \(6,\).*multiplicative"):
            M @ other
    r = np.arange(6.0)
    for advice in M.product_advice.split(", or "):
        names = {"krylix": krylix, "as_operator": krylix.as_operator, "A": A, "M1": M, "M2": M, "b": r}
        product = eval(advice, names)
        np.testing.assert_allclose(product(r), r / 2 if "multiplicative" in advice else r / 4)
    with pytest.raises(TypeError, match=r"(?s)matrix .* was multiplied by .*expected an array \(6,\).*as_operator"):
        krylix.as_operator(A) @ M


@pytest.mark.parametrize(
    ("form", "mode"), in_turn(["preconditioner", "matrix", "dense", "function", "factors"], EAGER, always=["numpy"])
)
def test_complex_preconditioners(mode: str, form: str) -> None:
    """Refused for a real system, whose x is real; right for a complex right-hand side."""
    if form == "factors" and mode != "numpy":
        pytest.skip("SciPy's, on NumPy arrays")
    A = sp.csr_array(np.diag(np.arange(2.0, 8)) + 0.5 * np.eye(6, k=1))
    C = sp.csr_array(np.diag(1 / np.arange(2.0, 8)) * (1 + 0.1j))
    wide, c = sp.csr_array(A * (1 - 0.1j)), array(mode, C.diagonal())
    M: Any = {
        "preconditioner": lambda: preconditioner(wide, "jacobi", like=c), "matrix": lambda: C, "dense": C.toarray,
        "function": lambda: lambda r: c * krylix.choose_backend(r).astype(r, np.dtype(complex)),
        "factors": lambda: sp.linalg.splu(sp.csc_array(wide)),
    }[form]()  # fmt: skip
    b = array(mode, np.ones(6))
    with pytest.raises(TypeError, match=r"complex.*real|real.*complex"):
        linear_solve(A, b, method="GMRES(6)", preconditioner=M)
    result = linear_solve(A, array(mode, np.ones(6) + 0j), method="GMRES(6)", preconditioner=M)
    np.testing.assert_allclose(to_numpy(result.x), np.linalg.solve(A.toarray(), np.ones(6)), rtol=1e-4)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(7, 7), (7, 8)])
@pytest.mark.parametrize("kind", [kind for kind in PRECONDITIONERS if kind not in PASS_ON])
def test_entries_that_are_not_finite_are_refused(kind: str, place: tuple[int, int], number: float) -> None:
    line = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(12, 12))
    A = sp.csr_array(sp.kron(line, sp.eye_array(12)) + sp.kron(sp.eye_array(12), line))
    A[place] = number
    with pytest.raises(ValueError, match="finite"):
        preconditioner(A, kind, **SETTINGS.get(kind, {}))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["amg", "multigrid", "shifted-laplacian"])
def test_inverses_that_overflow_are_refused(kind: str, dtype: str) -> None:
    line = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(12, 12))
    A = sp.csr_array(sp.kron(line, sp.eye_array(12)) + sp.kron(sp.eye_array(12), line))
    tiny = float(np.finfo(dtype).tiny)
    for size in (tiny / 1000, tiny):
        with pytest.raises(ValueError, match="power of two"):
            preconditioner((A * size).astype(dtype), kind)
    assert np.isfinite(preconditioner((A * (1000 * tiny)).astype(dtype), kind) @ np.ones(144, dtype)).all()


@pytest.mark.parametrize("shape", [(3,), (1, 3), (24, 1)])
def test_rows_of_another_size(shape: tuple[int, ...]) -> None:
    """A diagonal would be broadcast over them."""
    M = krylix.preconditioner(np.diag(np.arange(1.0, 25)), "jacobi")
    with pytest.raises(
        ValueError, match=rf"M.apply got an array of shape \({shape[0]},.*; expected rows \(systems, 24\)"
    ):
        M.apply(np.ones(shape))
