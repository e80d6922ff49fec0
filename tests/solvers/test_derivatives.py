"""Derivatives of a solve: exact in JAX to every order, refused elsewhere; never silently missing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spl

from krylix import linear_solve
from modes import compiled

N = 6
MATRIX = np.diag(np.full(N, 3.0)) + 0.7 * np.eye(N, k=1) - 0.3 * np.eye(N, k=-1)
WEIGHTS, B = np.linspace(-1, 2, N), np.cos(np.arange(N))
METHODS = ("biCG-stab", "biCG-stab(2)", "direct", "scipy-GMres", "scipy-direct")

jax = pytest.importorskip("jax")
jnp = jax.numpy

TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": lambda f: jax.grad(f, (0, 1, 2)),
    "grad in jit": lambda f: jax.jit(jax.grad(f, (0, 1, 2))),
    "jvp": lambda f: lambda *p: jax.jvp(f, p, (1.0, jnp.ones((N, N)), jnp.arange(1.0, N + 1)))[1],
    "hessian": lambda f: jax.hessian(f, (0, 2)),
    "grad of grad": lambda f: jax.grad(jax.grad(f)),
    "grad of vmap": lambda f: (
        lambda t, S, b: jax.grad(lambda t: jax.vmap(f, (None, None, 0))(t, S, jnp.stack([b, 2 * b])).sum())(t)
    ),
    "vmap of grad": lambda f: lambda t, S, b: jax.vmap(jax.grad(f, 2), (None, None, 0))(t, S, jnp.stack([b, 1 - b])),
    "third order": lambda f: jax.grad(jax.grad(jax.grad(f))),
}


def as_function(method: str, preconditioner: bool) -> Callable[..., Any]:
    """Parameters closed over: t and S in a function."""
    M = (lambda r: r / 3.0) if preconditioner else None

    def loss(t: Any, S: Any, b: Any) -> Any:
        x = linear_solve(lambda x: t * (S @ x) + t**2 * x, b, method=method, preconditioner=M, rtol=1e-13, atol=1e-30).x
        return jnp.sum(jnp.asarray(WEIGHTS) * x**2)

    return loss


def as_matrix(method: str, preconditioner: bool) -> Callable[..., Any]:
    M = "jacobi" if preconditioner else None

    def loss(t: Any, S: Any, b: Any) -> Any:
        x = linear_solve(t * S + t**2 * jnp.eye(N), b, method=method, preconditioner=M, rtol=1e-13).x
        return jnp.sum(jnp.asarray(WEIGHTS) * x**2)

    return loss


def exact(t: Any, S: Any, b: Any) -> Any:
    return jnp.sum(jnp.asarray(WEIGHTS) * (jnp.linalg.inv(t * S + t**2 * jnp.eye(N)) @ b) ** 2)


# every transformation for one method; the rest of the table on demand
QUICK = {("biCG-stab(2)", t, as_function) for t in TRANSFORMS} | {
    (m, "hessian", as_matrix) for m in ("direct", "scipy-GMres")
}
CASES = [
    pytest.param(m, t, make, marks=() if (m, t, make) in QUICK else pytest.mark.slow)
    for m in METHODS
    for t in TRANSFORMS
    for make in (as_function, as_matrix)
]


@pytest.mark.parametrize(("method", "transform", "make"), CASES)
def test_jax(method: str, transform: str, make: Callable[..., Any]) -> None:
    preconditioner = "direct" not in method and method != "biCG-stab"
    point = (1.3, jnp.asarray(MATRIX), jnp.asarray(B))
    found = TRANSFORMS[transform](make(method, preconditioner))(*point)
    wanted = TRANSFORMS[transform](exact)(*point)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


def test_jax_complex_and_tiny_cotangents() -> None:
    S, b = jnp.asarray(MATRIX + 0.2j * np.eye(N, k=2)), jnp.asarray(B + 1j)

    def loss(S: Any, scale: float = 1.0) -> Any:
        return scale * jnp.sum(jnp.abs(linear_solve(S, b, method="biCG-stab(2)", rtol=1e-12).x) ** 2)

    wanted = jax.grad(lambda S: jnp.sum(jnp.abs(jnp.linalg.inv(S) @ b) ** 2))(S)
    np.testing.assert_allclose(jax.grad(loss)(S), wanted, rtol=1e-8)
    for scale in (1e-25, 1e25):
        single = jax.grad(lambda S, s=scale: loss(S, jnp.float32(s)))(S.astype(jnp.complex64))
        np.testing.assert_allclose(single, scale * wanted, rtol=1e-3, atol=1e-4 * scale)


def test_jax_backward_failure_names_itself() -> None:
    singular = jnp.asarray(np.diag([1.0, 2, 0]))

    def loss(b: Any) -> Any:
        return jnp.sum(linear_solve(lambda x: singular @ x, b, method="biCG-stab(2)", max_iter=20).x)

    with pytest.raises(Exception, match="the backward solve of biCG-stab"):
        np.asarray(jax.jit(jax.grad(loss))(jnp.array([1.0, 1.0, 0.0])))


def test_jax_without_a_transpose() -> None:
    """Nothing is missed before somebody asks for a reverse derivative."""
    only_forward = spl.LinearOperator((N, N), matvec=lambda v: MATRIX @ v, dtype=np.float64)

    def host_jacobi(r: Any) -> Any:
        return jax.pure_callback(lambda r: np.asarray(r) / 3, jax.ShapeDtypeStruct(r.shape, r.dtype), r)

    for A, M in ((only_forward, None), (jnp.asarray(MATRIX), host_jacobi)):

        def loss(b: Any, A: Any = A, M: Any = M) -> Any:
            return jnp.sum(linear_solve(A, b, method="biCG-stab(2)", preconditioner=M).x)

        found = jax.jit(loss)(jnp.asarray(B))
        np.testing.assert_allclose(found, np.linalg.solve(MATRIX, B).sum(), rtol=1e-8)
        with pytest.raises(Exception, match="transpose"):
            jax.grad(loss)(jnp.asarray(B))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("method", ["CG", "direct", "scipy-CG"])
@pytest.mark.parametrize("of", ["b", "matrix", "closure", "args"])
def test_torch_refuses(method: str, of: str) -> None:
    import torch

    matrix = torch.tensor(MATRIX + MATRIX.T, requires_grad=of == "matrix")
    b = torch.tensor(B, requires_grad=of == "b")
    factor = torch.tensor(2.0, dtype=torch.float64, requires_grad=of in ("closure", "args"))
    if of == "closure":
        x = linear_solve(lambda x: factor * (matrix @ x), b, method=method).x
    elif of == "args":
        x = linear_solve(lambda x, c: c * (matrix @ x), b, method=method, args=(factor,)).x
    else:
        x = linear_solve(matrix, b, method=method).x
    assert x.requires_grad
    with pytest.raises(RuntimeError, match="no derivatives on PyTorch"):
        x.sum().backward()
    with torch.no_grad():
        assert not linear_solve(matrix, b, method=method).x.requires_grad
    with pytest.raises(RuntimeError):
        torch.func.grad(lambda b: linear_solve(matrix.detach(), b, method=method).x.sum())(b.detach())
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError):
        linear_solve(matrix.detach(), torch.autograd.forward_ad.make_dual(b.detach(), b.detach()), method=method)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("mode", ["tf", "tf-function"])
@pytest.mark.parametrize("method", ["CG", "direct", "scipy-CG"])
def test_tensorflow_refuses(method: str, mode: str) -> None:
    import tensorflow as tf

    matrix = tf.Variable(MATRIX + MATRIX.T)

    def gradient(b: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(b)
            loss = tf.reduce_sum(linear_solve(matrix, b, method=method).x)
        return tape.gradient(loss, b)

    with pytest.raises(RuntimeError, match="no derivatives on TensorFlow"):
        compiled(mode, gradient)(tf.constant(B))
