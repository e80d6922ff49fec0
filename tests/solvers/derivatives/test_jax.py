"""Derivatives of a solve in JAX, against the dense inverse: every transformation, method and kind of operator."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spl

from cells import METHOD_NAMES, others_before_a_merge
from frameworks import lazy
from krylix import linear_solve
from krylix.solvers import METHODS
from modes import compiled

N = 6
MATRIX = np.diag(np.full(N, 3.0)) + 0.7 * np.eye(N, k=1) - 0.3 * np.eye(N, k=-1)
WEIGHTS, B = np.linspace(-1, 2, N), np.cos(np.arange(N))
SYMMETRIC = MATRIX + MATRIX.T

jax = lazy("jax")
jnp = lazy("jax.numpy")
sparse = lazy("jax.experimental.sparse")

TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": lambda f: jax.grad(f, (0, 1, 2)),
    "jvp": lambda f: lambda *p: jax.jvp(f, p, tangents(*p))[1],
    "jvp of jvp": lambda f: lambda *p: jax.jvp(lambda *q: jax.jvp(f, q, tangents(*p))[1], p, tangents(*p))[1],
    "vjp": lambda f: lambda *p: jax.vjp(f, *p)[1](2.0),
    "linearize": lambda f: lambda *p: jax.linearize(f, *p)[1](*tangents(*p)),
    "hessian": lambda f: jax.hessian(f, (0, 2)),
    "jacfwd of jacrev of b": lambda f: jax.jacfwd(jax.jacrev(f, 2), 2),
    "jacrev of jacfwd": lambda f: jax.jacrev(jax.jacfwd(f)),
    "grad of grad": lambda f: jax.grad(jax.grad(f)),
    "third order": lambda f: jax.grad(jax.grad(jax.grad(f))),
    "vmap over b": lambda f: lambda t, S, b: jax.vmap(f, (None, None, 0))(t, S, batched(b)),
    "vmap over A": lambda f: lambda t, S, b: jax.vmap(f, (None, 0, None))(t, batched(S), b),
    "vmap of vmap": lambda f: lambda t, S, b: jax.vmap(jax.vmap(f, (None, None, 0)), (None, 0, None))(
        t, batched(S), batched(b)
    ),
    "vmap of jvp": lambda f: lambda t, S, b: jax.vmap(
        lambda v: jax.jvp(lambda b: f(t, S, b), (b,), (v,))[1]
    )(batched(b)),
    "grad of vmap": lambda f: lambda t, S, b: jax.grad(
        lambda t: jax.vmap(f, (None, None, 0))(t, S, batched(b)).sum()
    )(t),
    "vmap of grad": lambda f: lambda t, S, b: jax.vmap(jax.grad(f, 2), (None, None, 0))(t, S, batched(b)),
    "grad of scan": lambda f: jax.grad(
        lambda t, S, b: jax.lax.scan(lambda c, _: (c + 0.1 * f(c, S, b), None), t, None, length=3)[0]
    ),
}  # fmt: skip


def tangents(t: Any, S: Any, b: Any) -> tuple[Any, Any, Any]:
    return 1.0, jnp.ones_like(S), jnp.arange(1.0, N + 1)


def batched(v: Any) -> Any:
    return jnp.stack([v, 1.1 * v, v * v + v])


PLACES = np.stack(np.nonzero(np.ones((N, N))), 1)
MATRICES: dict[str, Callable[[Any, Any], Any]] = {
    "function": lambda t, S: lambda x: t * (S @ x) + t**2 * x,  # which closes over t and S
    "dense": lambda t, S: t * S + t**2 * jnp.eye(N),
    "sparse": lambda t, S: sparse.BCOO(((t * S + t**2 * jnp.eye(N)).reshape(-1), jnp.asarray(PLACES)), shape=(N, N)),
}


def loss_of(method: str, kind: str) -> Callable[..., Any]:
    M = (lambda r: r / 3.0) if kind == "function" else "jacobi"
    settings: dict[str, Any] = {"method": method, "preconditioner": M if METHODS[method].takes_preconditioner else None}

    def loss(t: Any, S: Any, b: Any) -> Any:
        x = linear_solve(MATRICES[kind](t, S), b, rtol=1e-13, atol=1e-30, **settings).x
        return jnp.sum(jnp.asarray(WEIGHTS) * x**2)

    return loss


def exact(t: Any, S: Any, b: Any) -> Any:
    return jnp.sum(jnp.asarray(WEIGHTS) * (jnp.linalg.inv(t * S + t**2 * jnp.eye(N)) @ b) ** 2)


@cache
def exactly(transform: str) -> Callable[..., Any]:
    """Compiled once for all methods."""
    return compiled("jax-jit", TRANSFORMS[transform](exact))


def check(method: str, transform: str, kind: str, mode: str = "jax-jit") -> None:
    point = (1.3, jnp.asarray(SYMMETRIC if METHODS[method].needs_symmetry else MATRIX), jnp.asarray(B))
    found = compiled(mode, TRANSFORMS[transform](loss_of(method, kind)))(*point)
    wanted = exactly(transform)(*point)
    leaves = jax.tree.leaves(found)
    assert leaves
    for a, b in zip(leaves, jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


# One method in every way, and every method in one way; the rest of the table on demand.
ONE = "CG"
LONG = (
    "jacrev of jacfwd", "jacfwd of jacrev of b", "grad of grad", "vmap of jvp", "linearize", "vmap over b", "vjp",
    "grad of vmap",
    "third order",  # as in `test_nested_reverse_derivatives`
)  # fmt: skip
BEFORE_A_MERGE = (
    "jvp of jvp", "vmap of vmap", "grad of scan", "vmap of grad", "vmap over A", "hessian",
)  # fmt: skip


def mark_of(method: str, transform: str, kind: str) -> Any:
    if method != ONE or kind != "function" or transform in LONG:
        return pytest.mark.slow
    return pytest.mark.merge if transform in BEFORE_A_MERGE else ()


CASES = [
    pytest.param(m, t, kind, marks=mark_of(m, t, kind)) for m in METHOD_NAMES for t in TRANSFORMS for kind in MATRICES
]


@pytest.mark.parametrize("mode", ["jax-jit"])
@pytest.mark.parametrize(("method", "transform", "kind"), CASES)
def test_every_transformation(method: str, transform: str, kind: str, mode: str) -> None:
    check(method, transform, kind, mode)


EAGERLY = [
    pytest.param(t, marks=() if t == "grad" else pytest.mark.merge if t == "jvp" else pytest.mark.slow)
    for t in TRANSFORMS
]


@pytest.mark.parametrize("mode", ["jax"])
@pytest.mark.parametrize("transform", EAGERLY)
def test_every_transformation_eagerly(transform: str, mode: str) -> None:
    """Outside of `jit` each operation is a program of its own, but a solve is one, with its derivatives."""
    check(ONE, transform, "function", mode)


def test_eager_derivatives_are_compiled_once(compilations: list[str]) -> None:
    """Other numbers and new functions with the same operations run the program of the first call."""

    def gradient(shift: float) -> np.ndarray:
        S = jnp.asarray(SYMMETRIC)

        def loss(t: Any, b: Any) -> Any:
            return jnp.sum(linear_solve(lambda x: t * (S @ x) + shift * x, b, method="CG", rtol=1e-12).x ** 2)

        return np.concatenate([np.ravel(g) for g in jax.grad(loss, (0, 1))(1.3 + shift, jnp.asarray(B))])

    def wanted(shift: float) -> np.ndarray:
        inverse = np.linalg.inv((1.3 + shift) * SYMMETRIC + shift * np.eye(N))
        x = inverse @ B
        y = 2 * inverse @ x
        return np.concatenate([[-y @ SYMMETRIC @ x], y])

    gradient(0.5), gradient(0.5)
    assert compilations
    compilations.clear()
    found = gradient(0.5)
    assert not compilations
    np.testing.assert_allclose(found, wanted(0.5), rtol=1e-9)
    np.testing.assert_allclose(gradient(0.7), wanted(0.7), rtol=1e-9)


@pytest.mark.parametrize("mode", ["jax-jit"])
@pytest.mark.parametrize("method", others_before_a_merge(METHOD_NAMES))
def test_every_method(method: str, mode: str) -> None:
    check(method, "grad", "function", mode)


@pytest.mark.parametrize(
    ("method", "mode", "order"),
    [
        ("CG", "jax-jit", 2),
        pytest.param("CG", "jax-jit", 3, marks=pytest.mark.merge),
        *(pytest.param(m, "jax-jit", 3, marks=pytest.mark.slow) for m in ("direct", "scipy-GMres")),
        pytest.param("CG", "jax", 3, marks=pytest.mark.slow),
    ],
)
def test_nested_reverse_derivatives(method: str, mode: str, order: int) -> None:
    """Also of what is linear in x, whose cotangent depends on nothing."""

    def loss(s: Any) -> Any:
        A = s * jnp.asarray(MATRIX @ MATRIX.T) + s**2 * jnp.eye(len(B))
        return jnp.arange(1.0, len(B) + 1) @ linear_solve(A, jnp.asarray(B), method=method, rtol=1e-13).x

    def wanted(s: Any) -> Any:
        A = s * jnp.asarray(MATRIX @ MATRIX.T) + s**2 * jnp.eye(len(B))
        return jnp.arange(1.0, len(B) + 1) @ (jnp.linalg.inv(A) @ jnp.asarray(B))

    def nested(f: Any, order: int) -> Any:
        return nested(jax.grad(f), order - 1) if order else f

    found, expected = (compiled(mode, nested(f, order)) for f in (loss, wanted))
    for s in (1.3, 0.7):
        np.testing.assert_allclose(found(s), expected(s), rtol=1e-7)


@pytest.mark.parametrize("method", ["direct", pytest.param("scipy-GMres", marks=pytest.mark.merge)])
@pytest.mark.parametrize("kind", [pytest.param("dense", marks=pytest.mark.slow), "sparse"])
def test_other_operators(method: str, kind: str) -> None:
    check(method, "grad", kind)


@pytest.mark.merge
def test_unknowns_in_a_container() -> None:
    """Pytrees, with a gradient for each leaf of b and of what the function closes over."""
    b = {"u": jnp.asarray(B[:4]), "p": jnp.asarray(B[4:])}

    def system(weight: Any) -> Callable[[Any], Any]:
        S = jnp.asarray(MATRIX) * weight
        return lambda x: dict(zip(("u", "p"), jnp.split(S @ jnp.concatenate([x["u"], x["p"]]), [4]), strict=True))

    def loss(weight: Any, b: Any) -> Any:
        x = linear_solve(system(weight), b, method="biCG-stab(2)", rtol=1e-13).x
        return jnp.sum(x["u"] ** 3) + jnp.sum(x["p"])

    def wanted(weight: Any, b: Any) -> Any:
        x = jnp.linalg.inv(jnp.asarray(MATRIX) * weight) @ jnp.concatenate([b["u"], b["p"]])
        return jnp.sum(x[:4] ** 3) + jnp.sum(x[4:])

    pairs = zip(*(jax.tree.leaves(jax.jit(jax.grad(f, (0, 1)))(1.5, b)) for f in (loss, wanted)), strict=True)
    for a, w in pairs:
        np.testing.assert_allclose(a, w, rtol=1e-8)


@pytest.mark.merge
def test_a_start_and_an_absolute_tolerance_are_for_the_given_right_hand_side_only() -> None:
    """A tangent of 1e-20 is not below atol, and does not start at x0."""
    S, b = jnp.asarray(MATRIX, jnp.float32), jnp.asarray(B, jnp.float32)

    def solve(b: Any) -> Any:
        return linear_solve(S, b, x0=jnp.full(N, 3.0, jnp.float32), method="biCG-stab(2)", atol=1e-3).x

    push = jax.jit(lambda b, v: jax.jvp(solve, (b,), (v,))[1])
    pull = jax.jit(lambda b, v: jax.vjp(solve, b)[1](v))
    for scale in (1e-20, 1e20):
        v = np.float32(scale) * jnp.arange(1, N + 1, dtype=jnp.float32)
        wanted = np.linalg.solve(MATRIX, np.arange(1.0, N + 1))
        tangent = push(b, v)
        np.testing.assert_allclose(tangent / np.float32(scale), wanted, rtol=2e-2, atol=1e-2)
        (cotangent,) = pull(b, v)
        wanted = np.linalg.solve(MATRIX.T, np.arange(1.0, N + 1))
        np.testing.assert_allclose(cotangent / np.float32(scale), wanted, rtol=2e-2, atol=1e-2)


@pytest.mark.merge
def test_starts_preconditioners_and_histories_have_no_derivatives() -> None:
    S, b, w = jnp.asarray(MATRIX), jnp.asarray(B), jnp.linspace(0.2, 0.5, N)

    def loss(b: Any, w: Any) -> Any:
        result = linear_solve(S, b, x0=w, preconditioner=lambda r: w * r, method="GMRES", rtol=1e-12, history=True)
        return jnp.sum(result.x)

    for_b, for_w = jax.jit(jax.grad(loss, (0, 1)))(b, w)
    np.testing.assert_allclose(for_b, np.linalg.inv(MATRIX).T @ np.ones(N), rtol=1e-9)
    assert not for_w.any()


@pytest.mark.parametrize("method", ["CG", pytest.param("MINRES", marks=pytest.mark.merge)])
def test_singular_with_null_vectors(method: str) -> None:
    """x = A^+ b, complex Hermitian with a complex null vector."""
    phases = np.exp(1j * np.arange(N))
    path = np.diag([1.0, 2, 2, 2, 2, 1]) - np.eye(N, k=1) - np.eye(N, k=-1)
    A = phases[:, None] * path * phases.conj()
    inverse, b = jnp.asarray(np.linalg.pinv(A)), jnp.asarray(A @ np.arange(N))

    def solve(b: Any) -> Any:
        return linear_solve(jnp.asarray(A), b, method=method, nullspace=phases[None], rtol=1e-12).x

    def numbers(solve: Any) -> Any:
        value, gradient = jax.value_and_grad(lambda b: jnp.sum(jnp.abs(solve(b)) ** 4))(b)
        return value, gradient, jax.jvp(solve, (b,), (jnp.asarray(A @ phases**2),))[1]

    both = jax.jit(lambda: (numbers(solve), numbers(lambda b: inverse @ b)))()
    for found, wanted in zip(*both, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.merge
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


@pytest.mark.merge
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
