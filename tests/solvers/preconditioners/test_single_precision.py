"""Cycles that compute in single precision for systems in double: the same preconditioner up to rounding."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from grid_problems import blocks, diffusion, obstacles
from krylix import linear_solve, preconditioner
from krylix.backends import get_backend
from krylix.solvers import METHODS, PRECONDITIONERS
from krylix.solvers.methods.method import precision_for
from krylix.solvers.preconditioners import to_preconditioner
from krylix.solvers.preconditioners.operators import DiagonallyScaled, Recast
from krylix.solvers.prepared import prepare_for_one
from krylix.sparse import Composed, Operator
from matrices import in_krylix, in_random_order
from modes import COMPILED, EAGER, MODES, array, compiled, library, product, to_numpy

KINDS = [name for name, make in PRECONDITIONERS.items() if "precision" in inspect.signature(make).parameters]
FEW = {
    "multigrid": {"direct": 200},
    "shifted-laplacian": {"direct": 200},
    "amg": {"max_coarse": 120},
}  # so that small systems have two levels, and those of `problems` more
SHAPE = (27, 24)
N = SHAPE[0] * SHAPE[1]
x, y = np.meshgrid(*(np.linspace(0, 1, n) for n in SHAPE), indexing="ij")
SMOOTH = diffusion(np.exp(np.sin(3 * x) * np.cos(2 * y)))
RHS = np.random.default_rng(0).standard_normal(N)
OF_JUMPS = "jumps", "cells", "closed", "periodic", "tiny"  # which `fast` is not made for
of_each_kind = pytest.mark.parametrize("kind", KINDS)


def made(A: Any, kind: str, precision: str | None = "single", **settings: Any) -> Any:
    grid = {} if kind == "amg" else {"grid": SHAPE}
    return preconditioner(A, kind, precision=precision, **FEW.get(kind, {}), **grid, **settings)


def parts_of(M: Operator) -> Iterator[Operator]:
    yield M
    for name in M.parts if isinstance(M, Composed) else ():
        part = getattr(M, name)
        if isinstance(part, Operator):
            yield from parts_of(part)


def close(found: Any, expected: Any, dtype: Any = np.float32) -> None:
    assert to_numpy(found).dtype == to_numpy(expected).dtype
    size = np.max(np.abs(to_numpy(expected)))
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=0, atol=30 * np.finfo(dtype).eps * size)


def test_there_are_kinds_that_can() -> None:
    assert {"multigrid", "amg", "fast"} <= set(KINDS)


@of_each_kind
def test_half_of_the_bytes(kind: str) -> None:
    """All that grows with the number of unknowns is in single precision, but for the scales on both sides."""
    wide, narrow = made(SMOOTH, kind, None), made(SMOOTH, kind)
    assert any(isinstance(part, Recast) for part in parts_of(narrow))
    assert not any(isinstance(part, Recast) for part in parts_of(wide))
    assert narrow.dtype == wide.dtype == np.float64 and narrow.hermitian == wide.hermitian
    assert "single precision inside" in repr(narrow) and "single" not in repr(wide)
    assert ("precision", "single") in narrow.settings
    # pickles hold the arrays, and for amg the tentative prolongations that updates need, in double
    assert len(pickle.dumps(narrow.inner)) < (0.85 if kind == "amg" else 0.8) * len(pickle.dumps(wide.inner))
    assert narrow.work == wide.work and narrow.memory == wide.memory


@of_each_kind
@pytest.mark.parametrize(
    ("mode", "phase"),
    [
        pytest.param(mode, phase, id=f"{mode}-{name}", marks=pytest.mark.slow if later else ())
        for mode in MODES
        if mode != "torch-compile"  # which takes solves, not M @ r
        for name, phase in (("real", 1.0), ("complex", np.exp(0.3j)))
        for later in [(name == "real") == (mode == "tf-function") and mode in ("jax", *COMPILED)]
    ],
)
def test_the_same_up_to_rounding(mode: str, phase: complex, kind: str) -> None:
    b = RHS if phase == 1 else RHS * (1 - 0.5j)
    A = (SMOOTH * phase if phase == 1 or kind == "fast" else SMOOTH + 0.1j * sp.eye_array(N)).astype(b.dtype)
    wide, own = made(A, kind, None), in_krylix(mode, A, "csr")

    def images(r: Any) -> tuple[Any, Any]:
        M = made(own, kind)
        return M @ r, M.T @ r

    found, turned = compiled(mode, images)(array(mode, b))
    close(found, wide @ b)
    close(turned, wide.T @ b)
    if phase == 1:
        close(turned, wide @ b)  # of a symmetric matrix


@of_each_kind
def test_non_symmetric_transposes(kind: str) -> None:
    wind = sp.kron(sp.diags_array([1.0, -1.0], offsets=[0, -1], shape=(SHAPE[0],) * 2), sp.eye_array(SHAPE[1]))
    A = sp.csr_array(SMOOTH + 0.5 * wind)
    M, wide, v = made(A, kind), made(A, kind, None), np.random.default_rng(1).standard_normal(N)
    close(M @ RHS, wide @ RHS)
    close(M.T @ RHS, wide.T @ RHS)
    assert v @ (M @ RHS) == pytest.approx((M.T @ v) @ RHS, rel=1e-5)


@of_each_kind
@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_numbers_of_any_size(mode: str, kind: str) -> None:
    """Far beyond the range of single precision, in the matrix and in vectors; powers of two change no digit."""
    expected = made(SMOOTH, kind) @ RHS
    M = made(in_krylix(mode, SMOOTH, "csr"), kind)
    apply = compiled(mode, lambda r: M @ r)
    plain = to_numpy(apply(array(mode, RHS)))
    for power in (-900, -150, 150, 900):
        np.testing.assert_array_equal(to_numpy(apply(array(mode, 2.0**power * RHS))), 2.0**power * plain)
    for size in (1e-200, 1e-60, 1e60, 1e200, -1.0):
        close(size * (made(size * SMOOTH, kind) @ RHS), expected)


@of_each_kind
@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf-function"])
def test_systems_of_a_batch_do_not_touch_each_other(mode: str, kind: str) -> None:
    """One of zeros, one of NaN, and some of very different size, each as if it were alone."""
    own = in_krylix(mode, SMOOTH, "csr")
    rows = np.stack([RHS, 0 * RHS, 1e30 * RHS[::-1], np.where(np.arange(N) == 5, np.nan, RHS), 1e-60 * RHS])
    apply = compiled(mode, lambda r: made(own, kind).apply(r))
    found, single = to_numpy(apply(array(mode, rows))), made(SMOOTH, kind)
    assert np.isfinite(np.delete(found, 3, 0)).all() and np.isnan(found[3]).any() and not found[1].any()
    for row in (0, 2, 4):
        close(found[row], single @ rows[row])


def problems() -> dict[str, tuple[sp.csr_array, tuple[int, ...]]]:
    rng = np.random.default_rng(2)
    cells = 10.0 ** rng.uniform(-6, 6, (40, 40))
    return {
        "smooth": (diffusion(1 + 0.5 * np.outer(np.sin(np.arange(60) / 9), np.cos(np.arange(50) / 9))), (60, 50)),
        "jumps of 1e4": (diffusion(blocks(64, 8)), (64, 64)),
        "jumps of 1e12": (diffusion(blocks(64, 8, contrast=1e12)), (64, 64)),
        "cells of 1e12": (diffusion(cells), (40, 40)),
        "closed": (diffusion(blocks(48, 6), "N"), (48, 48)),
        "obstacles": (diffusion(obstacles(48), "N"), (48, 48)),
        "periodic": (diffusion(blocks(48, 6), "P"), (48, 48)),
        "three axes": (diffusion(blocks(16, 4, axes=3)), (16, 16, 16)),
        "nearly singular": (sp.csr_array(diffusion(np.ones((50, 50)), "N") + 1e-11 * sp.eye_array(2500)), (50, 50)),
        "tiny": (1e-150 * diffusion(blocks(48, 6)), (48, 48)),
    }


@pytest.mark.parametrize(
    ("kind", "name"),
    [(k, name) for k in KINDS for name in problems() if k != "fast" or not name.startswith(OF_JUMPS)],
)
def test_as_many_iterations(name: str, kind: str) -> None:
    """To a small residual; half as many more where condition numbers are 1e12 to 1e16."""
    A, shape = problems()[name]
    b = A @ np.random.default_rng(3).standard_normal(A.shape[0])
    counts = []
    for precision in (None, "single"):
        grid = {} if kind == "amg" else {"grid": shape}
        M = preconditioner(A, kind, precision=precision, **FEW.get(kind, {}), **grid)
        result = linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-9, max_iter=2000, nullspace="auto")
        assert np.linalg.norm(A @ result.x - b) <= 1.01e-9 * np.linalg.norm(b)
        counts.append(int(result.iterations))
    assert counts[1] <= (
        1.1 * counts[0] + 1 if "1e12" not in name and name != "nearly singular" else 1.5 * counts[0] + 8
    )


@of_each_kind
def test_single_systems_stay_as_they_are(kind: str) -> None:
    A = SMOOTH.astype(np.float32)
    one, other = made(A, kind, None), made(A, kind)
    assert not any(isinstance(part, Recast) for part in parts_of(other)) and other.dtype == np.float32
    np.testing.assert_array_equal(one @ RHS.astype(np.float32), other @ RHS.astype(np.float32))


@of_each_kind
@pytest.mark.parametrize("precision", ["double", "half", 32, np.float32, "SINGLE "], ids=str)
def test_other_precisions_are_refused(precision: Any, kind: str) -> None:
    with pytest.raises(ValueError, match="expected 'single', or None"):
        made(SMOOTH, kind, precision)


@of_each_kind
@pytest.mark.parametrize("mode", EAGER)
def test_saved_moved_and_pickled(mode: str, kind: str, tmp_path: Path) -> None:
    M = made(SMOOTH, kind)
    expected = M @ RHS
    M.save(tmp_path / "m.npz")
    moved = M.to(library(mode))
    read = krylix.load_preconditioner(tmp_path / "m.npz", like=array(mode, RHS))
    for one in (moved, read):
        assert any(isinstance(part, Recast) for part in parts_of(one))
        close(one @ array(mode, RHS), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(M)) @ RHS, expected)


@of_each_kind
def test_inside_of_a_method_in_single_precision(kind: str) -> None:
    """`mixed-CG` takes the cycle as it is: nothing is cast to double and back."""
    M = made(SMOOTH, kind)
    narrow = krylix.sparse.in_precision(M, np.dtype(np.float32))
    close(narrow @ RHS.astype(np.float32), (made(SMOOTH, kind, None) @ RHS).astype(np.float32))
    result = linear_solve(SMOOTH, RHS, method="mixed-CG", preconditioner=M, rtol=1e-11)
    assert np.linalg.norm(SMOOTH @ result.x - RHS) <= 1.01e-11 * np.linalg.norm(RHS)


@cache
def derivatives(kind: str) -> Any:
    """Return the program of the gradient of v (M @ r) and of the tangent M @ v, as a function of r and v."""
    import jax

    M = made(in_krylix("jax", SMOOTH, "csr"), kind)

    def both(r: Any, v: Any) -> tuple[Any, Any]:
        gradient = jax.grad(lambda r: (v * (M @ r)).sum())(r)
        return gradient, jax.jvp(lambda r: M @ r, (r,), (v,))[1]

    return jax.jit(both)


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "kind",  # which compile for ten seconds, and `multigrid` for longer
    [pytest.param(k, marks=pytest.mark.slow if k == "multigrid" else pytest.mark.merge) for k in KINDS],
)
def test_derivatives_of_solves(kind: str) -> None:
    """To second order, and of M @ r, against finite differences."""
    import jax
    import jax.numpy as jnp

    own, b = in_krylix("jax", SMOOTH, "csr"), jnp.asarray(RHS)
    M = made(own, kind)

    def loss(size: Any) -> Any:
        u = linear_solve(own.with_values(own.values * size), b, method="CG", preconditioner=M, rtol=1e-12).x
        return jnp.sum(jnp.cos(u))

    u = np.linalg.solve(SMOOTH.toarray(), RHS)
    first, second = np.sum(np.sin(u) * u), np.sum(-np.cos(u) * u**2 - 2 * np.sin(u) * u)  # u / size at size = 1
    found = jax.jit(jax.value_and_grad(jax.grad(loss)))(1.0)
    assert found[0] == pytest.approx(first, rel=1e-8)
    assert found[1] == pytest.approx(second, rel=1e-6)
    v = jnp.asarray(np.random.default_rng(4).standard_normal(N))
    many = jax.jit(jax.vmap(lambda r: M @ r))(jnp.stack([b, v]))
    for image in (*derivatives(kind)(b, v), many[1]):
        close(image, made(SMOOTH, kind, None) @ np.asarray(v))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        pytest.param(mode, kind, marks=pytest.mark.slow if (mode, kind) == ("tf-function", "multigrid") else later)
        for mode, later in (("jax-jit", ()), ("tf-function", pytest.mark.merge))
        for kind in KINDS
        if kind != "fast"  # which needs values that are known
    ],
)
def test_values_that_a_program_computes(mode: str, kind: str) -> None:
    pattern = in_krylix(mode, SMOOTH, "csr", known=False)

    def apply(values: Any, r: Any) -> Any:
        return made(pattern.with_values(values), kind) @ r

    def wide(values: Any, r: Any) -> Any:
        return made(pattern.with_values(values), kind, None) @ r

    given = array(mode, 3.0 * np.asarray(SMOOTH.data)), array(mode, RHS)
    close(compiled(mode, apply)(*given), to_numpy(compiled(mode, wide)(*given)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fast"])  # which takes one matrix
def test_batches_of_matrices(kind: str) -> None:
    """Each as it would be alone, also where sizes differ by more than single precision holds."""
    other = diffusion(np.exp(np.cos(5 * x) * y))
    M = made([SMOOTH, 1e60 * other, -SMOOTH], kind)
    assert any(isinstance(part, Recast) for part in parts_of(M))
    found, wide = M.apply(np.stack([RHS] * 3)), made([SMOOTH, other, -SMOOTH], kind, None).apply(np.stack([RHS] * 3))
    for row, size in enumerate((1.0, 1e60, 1.0)):
        close(size * found[row], wide[row])


def test_new_numbers_stay_in_single_precision() -> None:
    A = in_random_order(diffusion(blocks(72, 8)))
    first = preconditioner(A, precision="single", kind="amg")
    again = preconditioner(sp.csr_array(2.0 * A), "amg", pattern=first)
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    for M, B in ((first, A), (again, 2 * A)):
        assert M.kind == "amg" and ("precision", "single") in M.settings
        assert any(isinstance(part, Recast) for part in parts_of(M))
        assert linear_solve(B, b, method="CG", preconditioner=M, rtol=1e-9).iterations <= 60


CHOSEN = {
    "jumps": (diffusion(blocks(136, 8)), "multigrid"),
    "shuffled": (in_random_order(diffusion(blocks(72, 8))), "amg"),
    "smooth": (diffusion(1 + 0.5 * np.outer(np.sin(np.arange(72) / 9), np.cos(np.arange(72) / 9))), "fast"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_for_methods_that_let_m_round(name: str) -> None:
    A, kind = CHOSEN[name]
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    for method in ("CG", "GMRES"):
        solver = prepare_for_one(A, b, method=method, preconditioner=None)
        M = to_preconditioner("auto", solver.A, solver.A.bk, None, b, precision=precision_for(METHODS[method]))
        narrow = any(isinstance(part, Recast) for part in parts_of(M))
        assert M.kind == kind and narrow == (method == "CG")
        result = linear_solve(A, b, method=method, preconditioner="auto", rtol=1e-10)
        assert np.linalg.norm(A @ result.x - b) <= 1.01e-10 * np.linalg.norm(b)
    assert not any(isinstance(part, Recast) for part in parts_of(preconditioner(A)))


@pytest.mark.parametrize("method", [name for name, one in METHODS.items() if one.combines_images])
@pytest.mark.parametrize("mode", ["numpy", "jax-jit"])
def test_methods_that_let_m_round(mode: str, method: str) -> None:
    """One round of iterations, though M returns numbers of single precision: x is made of what A was applied to."""
    wind = sp.kron(sp.diags_array([1.0, -1.0], offsets=[0, -1], shape=(SHAPE[0],) * 2), sp.eye_array(SHAPE[1]))
    A = SMOOTH if METHODS[method].needs_symmetry else sp.csr_array(SMOOTH + 0.2 * wind)
    inverse = np.linalg.inv(A.toarray() + 0.02 * np.eye(N) * np.abs(A).max())
    own = array(mode, inverse)

    def rough(r: Any) -> Any:
        z = product(mode, own)(r)
        return z.astype(np.float32).astype(np.float64)

    def solve(b: Any) -> Any:
        result = linear_solve(A, b, method=method, preconditioner=rough, rtol=1e-12)
        return result.x, result.iterations, result.function_evaluations

    x, steps, products = map(to_numpy, compiled(mode, solve)(array(mode, RHS)))
    assert np.linalg.norm(A @ x - RHS) <= 1.01e-12 * np.linalg.norm(RHS)
    settings = METHODS[method]
    if not settings.lower_precision:  # which corrects anew in each round
        assert products == settings.products_at_start + steps * settings.products_per_step + 1


@of_each_kind
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_real_cycles_for_complex_systems(dtype: str, kind: str) -> None:
    M, wide = made(SMOOTH, kind), made(SMOOTH, kind, None)
    b = (RHS + 1j * RHS[::-1]).astype(dtype)
    expected = (wide @ RHS + 1j * (wide @ RHS[::-1])).astype(dtype)
    close(krylix.sparse.in_precision(M, np.dtype(dtype)).apply(b[None])[0], expected)
    result = linear_solve(SMOOTH.astype(dtype), b, method="CG", preconditioner=M, rtol=1e-5)
    assert result.x.dtype == dtype and np.linalg.norm(SMOOTH @ result.x - b) <= 1.1e-5 * np.linalg.norm(b)


@pytest.mark.needs("jax")
@of_each_kind
@pytest.mark.parametrize("size, cotangent", [(1e10, 1e-20), (1e-10, 1e20), (1e14, 1.0), (1e-14, 1.0)])
def test_derivatives_do_not_depend_on_units(kind: str, size: float, cotangent: float) -> None:
    """Of M @ r, for an r between 1e-15 and 1e15."""
    v = np.random.default_rng(4).standard_normal(N)
    for image in derivatives(kind)(size * RHS, cotangent * v):
        close(image / cotangent, made(SMOOTH, kind, None) @ v)


@pytest.mark.parametrize("kind", ["multigrid", "fast"])
def test_a_prepared_solver_stays_in_single_precision(kind: str) -> None:
    """Of a kind that was chosen; one that was named stays as it was made."""
    A = CHOSEN[{"multigrid": "jumps", "fast": "smooth"}[kind]][0]
    n = A.shape[0]
    single = to_preconditioner("auto", krylix.as_operator(A), get_backend("numpy"), None, np.ones(n), None, "single")
    assert single.kind == kind
    for M, narrow in ((single, True), (preconditioner(A, kind), False)):
        again = to_preconditioner(kind, krylix.as_operator(2 * A), get_backend("numpy"), None, np.ones(n), M, "single")
        assert any(isinstance(part, Recast) for part in parts_of(again)) == narrow


def test_nearly_the_inverse_stays_in_double_precision() -> None:
    """`fast` of a sum of matrices along the axes, for which "auto" takes no direct solve as the method is named."""
    A = sp.csr_array(diffusion(np.ones((80, 80)), "N") + 1e-9 * sp.eye_array(6400))
    b = np.random.default_rng(0).standard_normal(6400)
    result = linear_solve(A, b, method="CG", preconditioner="auto", rtol=1e-9)
    assert result.preconditioner == "fast" and result.iterations <= 3


@pytest.mark.parametrize("method", [name for name, one in METHODS.items() if one.combines_images])
def test_functions_that_share_a_buffer(method: str) -> None:
    """A and M write what they return to the same memory: what M returned is needed after A was applied."""
    buffer, matrix = np.empty(N), SMOOTH
    inverse = 1 / matrix.diagonal()

    def A(x: Any) -> Any:
        buffer[:] = matrix @ np.array(x)
        return buffer

    def M(r: Any) -> Any:
        buffer[:] = inverse * np.array(r)
        return buffer

    result = linear_solve(A, RHS, method=method, preconditioner=M, rtol=1e-8, max_iter=4000)
    assert np.linalg.norm(matrix @ result.x - RHS) <= 1.01e-8 * np.linalg.norm(RHS)


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize("size", [1e60, 1e-60])
@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_derivatives_beyond_are_not_finite(mode: str, size: float) -> None:
    """And not zero, which nobody would see; M @ r is what it is."""
    M = made(in_krylix(mode, SMOOTH, "csr"), "multigrid")
    r = array(mode, size * RHS)
    close(to_numpy(M @ r) / size, made(SMOOTH, "multigrid") @ RHS)
    if mode == "jax":
        import jax

        found = jax.grad(lambda r: (M @ r).sum())(r)
        assert not np.isfinite(to_numpy(jax.jvp(lambda r: M @ r, (r,), (r / size,))[1])).any()
    elif mode == "torch":
        r.requires_grad_()
        (M @ r).sum().backward()
        found = r.grad
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(r)
            total = tf.reduce_sum(M @ r)
        found = tape.gradient(total, r)
    assert not np.isfinite(to_numpy(found)).all()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e-20, 1e20, 1e-300, 1e300])
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_scaled_and_cast_in_one_pass(dtype: str, size: float, factor: float) -> None:
    """Between two diagonals, for vectors of any size, as by both one after the other; nothing is overwritten."""
    rng = np.random.default_rng(5)
    m = rng.standard_normal((20, 20)).astype(np.complex64 if dtype == "complex128" else np.float32)
    left, right = (rng.uniform(0.5, 2, (1, 20)).astype(dtype) for _ in range(2))
    M = DiagonallyScaled(Recast(krylix.as_operator(m), dtype, factor), left, right)
    x = (size * rng.standard_normal((2, 20))).astype(dtype)
    kept = x.copy()
    found = M.apply(x)
    exact = factor * left * ((right * x) @ m.T.astype(dtype))
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * size)
    np.testing.assert_array_equal(x, kept)
