"""A prepared solver gives what `linear_solve` gives, sets up once, and serves the transposed system too."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

import krylix
from cells import METHOD_NAMES, in_turn
from krylix import linear_solve, prepare
from krylix.solvers import METHODS, PreparedSolver
from krylix.solvers.factors import sparse
from krylix.solvers.methods import direct
from matrices import in_random_order
from modes import EAGER, Numbers, array, compiled, library, to_numpy
from problems import SYSTEMS, make_operator

B = np.random.default_rng(20).standard_normal((2, 12))


def matrix_for(method: str) -> np.ndarray:
    return SYSTEMS["definite" if METHODS[method].needs_symmetry else "nonsymmetric"].matrix


# Every method where nothing has to be compiled; elsewhere those that are prepared differently, the rest on demand.
SAME = [
    pytest.param(m, mode, kind, marks=() if quick else pytest.mark.slow)
    for m in METHOD_NAMES
    for mode in EAGER
    for kind in ("dense", "scipy", "function")
    for quick in [mode in ("numpy", "torch") or (m in ("CG", "LSMR", "direct", "scipy-direct") and kind != "scipy")]
]


@pytest.mark.parametrize(("method", "mode", "kind"), SAME)
def test_same_as_linear_solve(method: str, mode: str, kind: str) -> None:
    A, b = make_operator(mode, kind, matrix_for(method)), array(mode, B[0])
    M = "jacobi" if METHODS[method].takes_preconditioner and kind != "function" else None
    solver = prepare(A, b, method=method, preconditioner=M)
    assert isinstance(solver, PreparedSolver) and method in repr(solver)
    assert (solver.preconditioner is not None) == (
        M is not None or method in ("direct", "scipy-direct", "sparse-direct")
    )
    for rhs in B:
        found = Numbers(solver.solve(array(mode, rhs)))
        wanted = Numbers(linear_solve(A, array(mode, rhs), method=method, preconditioner=M))
        assert found.iterations == wanted.iterations and found.converged
        np.testing.assert_allclose(found.x, wanted.x, rtol=1e-12, atol=1e-14)


IN_COMPILED = [
    *((method, mode) for method in ("CG", "GMRES", "direct", "scipy-direct", "auto") for mode in ("numpy", "torch")),
    *(("CG", "jax-jit"), ("direct", "jax-jit"), ("direct", "tf"), ("direct", "tf-function"), ("CG", "torch-compile")),
    *(pytest.param(method, "jax-jit", marks=pytest.mark.merge) for method in ("GMRES", "scipy-direct", "auto")),
    *(pytest.param("CG", mode, marks=pytest.mark.merge) for mode in ("tf", "tf-function")),
    *(pytest.param(method, "tf-function", marks=pytest.mark.slow) for method in ("GMRES", "scipy-direct", "auto")),
]


@pytest.mark.compiled_by_default("CG", "direct")
@pytest.mark.parametrize(("method", "mode"), IN_COMPILED)
def test_in_compiled_functions(method: str, mode: str) -> None:
    """Made outside, used inside; and made inside."""
    matrix = SYSTEMS["definite"].matrix
    A, exact = make_operator(mode, "scipy", matrix), np.linalg.solve(matrix, B.T).T
    solver = prepare(A, array(mode, B[0]), method=method)

    def both(m: Any, b: Any) -> tuple[Any, Any]:
        return solver.solve(b).x, prepare(2 * m, b, method=method).solve(b).x

    found, inside = compiled(mode, both)(array(mode, matrix), array(mode, B[1]))
    np.testing.assert_allclose(to_numpy(found), exact[1], rtol=1e-8)
    np.testing.assert_allclose(to_numpy(inside), exact[1] / 2, rtol=1e-8)


@pytest.mark.compiled_by_default("CG", "direct")
@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("method", ["CG", "direct", "scipy-direct", "auto"])
def test_update(method: str, mode: str) -> None:
    matrix = SYSTEMS["definite"].matrix
    solver = prepare(make_operator(mode, "scipy", matrix), array(mode, B[0]), method=method)
    other = solver.update(make_operator(mode, "scipy", matrix + np.diag(np.arange(12.0))))
    for s, m in ((solver, matrix), (other, matrix + np.diag(np.arange(12.0)))):
        np.testing.assert_allclose(to_numpy(s.solve(array(mode, B[0])).x), np.linalg.solve(m, B[0]), rtol=1e-8)
    assert other.method is solver.method


@pytest.mark.parametrize("method", ["direct", "scipy-direct"])
def test_factors_are_made_once(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for module, name in ((direct, "factorise"), (sparse, "examined_sparse")):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, f=original, n=name: (calls.append(n), f(*a))[1])
    with krylix.setup_cache(False):
        A = make_operator("numpy", "scipy" if method == "scipy-direct" else "dense", matrix_for(method))
        solver = prepare(A, B[0], method=method)
        assert len(calls) == 1
        for rhs in B:
            result = solver.solve(rhs)
            assert result.iterations == 1
        solver.solve(B)
        assert len(calls) == 1
        solver.update(A)
        assert len(calls) == 2


def test_a_function_is_tested_once() -> None:
    calls, matrix = [0], SYSTEMS["definite"].matrix

    def A(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return matrix @ x + 1.0

    solver = prepare(A, B[0], method="CG")
    for rhs in B:
        calls[0] = 0
        result = solver.solve(rhs)
        assert calls[0] == result.function_evaluations
        np.testing.assert_allclose(result.x, np.linalg.solve(matrix, rhs - 1.0), rtol=1e-8)


@pytest.mark.parametrize("offset", [None, 0.25])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize("method", ["direct", "scipy-direct"])
def test_factors_serve_transposed_and_conjugated_systems(method: str, mode: str, dtype: str, offset: Any) -> None:
    m = SYSTEMS["nonsymmetric" if dtype == "float64" else "complex"].matrix
    kind = "scipy" if method == "scipy-direct" else "dense"
    b = B.astype(dtype) * (1 if dtype == "float64" else 1 + 2j)
    solver = prepare(make_operator(mode, kind, m), array(mode, b[0]), method=method, matrix_offset=offset)
    factors = solver.preconditioner
    rows = b if method == "scipy-direct" else array(mode, b)
    full = m + (offset or 0)
    for operator, wanted in (
        (factors, full), (factors.T, full.T), (factors.H, full.conj().T), (factors.conj(), full.conj()),
        (factors.T.T, full),
    ):  # fmt: skip
        np.testing.assert_allclose(to_numpy(operator.apply(rows)), np.linalg.solve(wanted, b.T).T, rtol=1e-8)


@pytest.mark.merge
@pytest.mark.parametrize(
    "method", ["CG", *(pytest.param(m, marks=pytest.mark.slow) for m in ("direct", "scipy-direct"))]
)
def test_derivatives_and_vmap_in_jax(method: str) -> None:
    """With one factorisation for the solve and its derivatives; as an argument of a compiled function too."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    matrix, b = jnp.asarray(SYSTEMS["definite"].matrix), jnp.asarray(B)
    solver = prepare(matrix, b[0], method=method)
    inverse = jnp.linalg.inv(matrix)
    found = jax.jit(jax.grad(lambda b: jnp.sum(solver.solve(b).x ** 3)))(b[0])
    np.testing.assert_allclose(found, jax.grad(lambda b: jnp.sum((inverse @ b) ** 3))(b[0]), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(jax.vmap(lambda b: solver.solve(b).x)(b), b @ inverse.T, rtol=1e-8, atol=1e-9)
    if method != "scipy-direct":  # whose factors live on the host

        def through_matrix(m: Any) -> Any:
            return jnp.sum(prepare(m, b[0], method=method).solve(b[0]).x ** 3)

        wanted = jax.grad(lambda m: jnp.sum((jnp.linalg.inv(m) @ b[0]) ** 3))(matrix)
        np.testing.assert_allclose(jax.jit(jax.grad(through_matrix))(matrix), wanted, rtol=1e-8, atol=1e-9)
        argument = jax.jit(lambda s, b: s.solve(b).x)
        for s, scale in ((solver, 1), (solver.update(2 * matrix), 2)):
            np.testing.assert_allclose(argument(s, b[1]), inverse @ b[1] / scale, rtol=1e-8)
        assert argument._cache_size() == 1


@pytest.mark.parametrize("method", ["CG", "direct", "scipy-direct"])
def test_derivatives_in_torch(method: str) -> None:
    torch = pytest.importorskip("torch")
    matrix = torch.tensor(SYSTEMS["definite"].matrix).requires_grad_()
    b = torch.tensor(B[0]).requires_grad_()

    def gradients(x: Any) -> Any:
        return torch.autograd.grad((x**3).sum(), (matrix, b))

    found = gradients(prepare(matrix, b, method=method).solve(b).x)
    for a, w in zip(found, gradients(torch.linalg.inv(matrix) @ b), strict=True):
        torch.testing.assert_close(a, w, rtol=1e-8, atol=1e-9)
    solver = prepare(matrix.detach(), b.detach(), method=method)
    found = torch.func.vmap(lambda b: solver.solve(b).x)(torch.tensor(B))
    np.testing.assert_allclose(found, np.linalg.solve(SYSTEMS["definite"].matrix, B.T).T, rtol=1e-8)


@pytest.mark.needs("tensorflow")
@pytest.mark.compiled_by_default("CG", "direct")
@pytest.mark.parametrize(("method", "mode"), in_turn(["CG", "direct"], ["tf", "tf-function"]))
def test_derivatives_in_tensorflow(method: str, mode: str) -> None:
    import tensorflow as tf

    matrix, b = tf.Variable(SYSTEMS["definite"].matrix), tf.constant(B[0])

    def gradient() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(prepare(matrix, b, method=method).solve(b).x ** 3)
        return tape.gradient(loss, matrix)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.linalg.matvec(tf.linalg.inv(matrix), b) ** 3)
    np.testing.assert_allclose(compiled(mode, gradient)(), tape.gradient(loss, matrix), rtol=1e-8, atol=1e-9)


def test_least_squares_and_batches() -> None:
    rng = np.random.default_rng(0)
    tall, b = rng.standard_normal((9, 4)), rng.standard_normal(9)
    result = prepare(tall, b, method="LSMR").solve(b)
    np.testing.assert_allclose(result.x, np.linalg.lstsq(tall, b)[0], rtol=1e-8)
    batch = rng.standard_normal((3, 5, 5)) + 4 * np.eye(5)
    rhs = rng.standard_normal((3, 5))
    np.testing.assert_allclose(
        prepare(batch, rhs).solve(2 * rhs).x, np.linalg.solve(batch, 2 * rhs[..., None])[..., 0], rtol=1e-9
    )
    grid = prepare(lambda x: 3 * x + np.roll(x, 1, -1), np.ones((2, 3, 4)), batch_ndim=1, method="GMRES")
    assert grid.solve(np.ones((2, 3, 4))).converged.shape == (2,)


@pytest.mark.parametrize("mode", EAGER)
def test_bad_input(mode: str) -> None:
    A, b = make_operator(mode, "dense", SYSTEMS["definite"].matrix), array(mode, B[0])
    solver = prepare(A, b)
    with pytest.raises(ValueError, match="expected b of shape"):
        solver.solve(array(mode, np.ones(5)))
    with pytest.raises(ValueError, match="prepared for float64"):
        solver.solve(array(mode, B[0] + 1j))
    with pytest.raises(ValueError, match="No method is called"):
        prepare(A, b, method="CGG")
    with pytest.raises(ValueError, match="on_failure"):
        prepare(A, b, on_failure="ignore")
    with pytest.raises(ValueError, match="takes no preconditioner"):
        prepare(A, b, method="direct", preconditioner="jacobi")
    with pytest.raises(krylix.NotConverged):
        prepare(A, b, method="CG", preconditioner=None, max_iter=2).solve(b)
    assert library(mode) == solver.A.bk.name


def test_a_solver_is_freed() -> None:
    """Also one that was made by `update`: time loops make thousands."""
    gc.freeze()  # nothing that others have made is looked through
    try:
        solver = prepare(2 * np.eye(8), np.ones(8), method="direct")
        solver.solve(np.ones(8))
        old = weakref.ref(solver.A)
        solver = solver.update(3 * np.eye(8))
        solver.solve(np.ones(8))
        gc.collect()
        assert old() is None
    finally:
        gc.unfreeze()


@pytest.mark.needs("jax")
def test_a_solver_made_inside_jit_leaks_no_tracer() -> None:
    import jax
    import jax.numpy as jnp

    with jax.checking_leaks():
        x = jax.jit(lambda A, b: prepare(A, b, method="CG").solve(b).x)(2 * jnp.eye(5), jnp.ones(5))
    assert np.allclose(x, 0.5)


def test_a_named_method_takes_no_preconditioner_unless_asked() -> None:
    A, b = np.diag(np.arange(1.0, 21.0)), np.ones(20)
    assert prepare(A, b, method="CG").preconditioner is None
    assert prepare(A, b, method="CG").solve(b).iterations == linear_solve(A, b, method="CG").iterations
    assert prepare(A, b, method="CG", preconditioner="jacobi").solve(b).iterations == 1


def test_update_keeps_what_depends_on_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says of a preconditioner that is kept as it is that it is for other values."""
    import pyamg

    from krylix import preconditioner
    from krylix.solvers import preconditioners

    A = sp.csr_array(pyamg.gallery.poisson((40, 40), format="csr"))
    other, b = sp.csr_array(A + sp.diags_array(np.linspace(0, 1, 1600))), np.ones(1600)
    updated: list[Any] = []
    update = preconditioners.UPDATES["amg"]
    monkeypatch.setitem(preconditioners.UPDATES, "amg", lambda M, A: updated.append(A) or update(M, A))
    solver = prepare(A, b, method="CG", preconditioner="amg")
    again = solver.update(other)
    assert len(updated) == 1 and again.preconditioner is not solver.preconditioner
    result = again.solve(b)
    assert np.linalg.norm(other @ result.x - b) <= 1e-9 * np.linalg.norm(b) and result.iterations < 20
    stale = prepare(A, b, method="CG", preconditioner=preconditioner(A, "amg"))
    assert "other values" not in repr(stale) and "made for other values of A" in repr(stale.update(other))
    assert stale.update(other).solve(b).converged


@pytest.mark.parametrize("n", [20, 80])
def test_update_keeps_the_kind_that_auto_chose(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """CG with scaling, or with multigrid: for other numbers, too."""
    from krylix.solvers import choose as table

    monkeypatch.setattr(table, "MANY_SOLVES", 0)  # no factors
    monkeypatch.setattr(table, "ONE_SOLVE", 0)
    A, b = in_random_order(pyamg.gallery.poisson((n, n), format="csr")), np.ones(n * n)
    solver = prepare(A, b)
    updated = solver.update(3 * A).update(2 * A)
    assert solver.preconditioner.kind == updated.preconditioner.kind == ("amg" if n == 80 else "jacobi")
    assert updated.solve(b).iterations == solver.solve(b).iterations
    np.testing.assert_allclose(2 * updated.solve(b).x, solver.solve(b).x, rtol=1e-7)


def test_a_preconditioner_that_is_asked_for_is_chosen() -> None:
    """For a named method, too; by default a named method gets none, as in `linear_solve`."""
    A, b = sp.csr_array(pyamg.gallery.poisson((40, 40), format="csr")), np.ones(1600)
    for given in (None, "auto"):
        once = linear_solve(A, b, method="CG", preconditioner=given)
        solver = prepare(A, method="CG", preconditioner=given)
        assert solver.solve(b).iterations == once.iterations and (solver.preconditioner is None) == (given is None)
    assert prepare(A, method="CG").preconditioner is None


@pytest.mark.parametrize("solve", [linear_solve, prepare])
@pytest.mark.parametrize("args", [np.full(3, 2.0), 2.0, {"k": 2.0}])
def test_arguments_that_are_no_tuple(args: Any, solve: Any) -> None:
    with pytest.raises(TypeError, match=r"args must be a tuple: args=\(k,\)"):
        solve(lambda x, k: k * x, np.ones(3), args=args)
