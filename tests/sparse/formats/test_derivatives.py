"""Matrices in transformations: arguments of compiled functions, derivatives by values and vectors, vmap."""

from typing import Any

import numpy as np
import pytest

from krylix.sparse.formats import SparseMatrix, Stencil
from matrices import FORMATS, in_krylix, random_matrix
from modes import array, to_numpy

SHAPE = (7, 6)
KINDS = (*FORMATS, "stencil")
kinds = pytest.mark.parametrize("kind", KINDS)


def example(mode: str, kind: str) -> SparseMatrix:
    if kind == "stencil":
        shifts = [(0, 0), (0, 1), (-1, 0), (1, -1)]
        numbers: list[Any] = [array(mode, np.array(v)) for v in (-2.0, 0.5, 1.5)]
        return Stencil([*numbers, array(mode, random_matrix((3, 4)).toarray() + 1)], shifts, (3, 4)).to(kind)
    return in_krylix(mode, random_matrix(SHAPE), kind, known=False)


def dense_of(A: SparseMatrix, values: Any) -> np.ndarray:
    """By SciPy, on the host."""
    host = A.for_host()[1]([to_numpy(v) for v in values])
    return host.to_scipy().toarray()  # type: ignore[attr-defined]


def loss(M: np.ndarray, x: np.ndarray, w: np.ndarray) -> float:
    return float(w @ (M @ x) ** 2 + w[0] * (M.T @ w) @ (M.T @ w))


def by_differences(A: SparseMatrix, x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    """The gradient of `loss` by the values: it is quadratic, so central differences are exact."""
    arrays = [to_numpy(v).astype(np.float64) for v in A.arrays()]
    stored = A.structure.padding()
    found = []
    for k, values in enumerate(arrays):
        gradient = np.zeros(values.shape)
        mask = np.ones(values.shape, bool) if stored[k] is None else stored[k]
        for place in zip(*np.nonzero(np.atleast_1d(mask)), strict=True):
            at = place if values.ndim else ()
            both = []
            for step in (1.0, -1.0):
                moved = [v.copy() for v in arrays]
                moved[k][at] += step
                both.append(loss(dense_of(A, moved), x, w))
            gradient[at] = (both[0] - both[1]) / 2
        found.append(gradient)
    return found


def vectors(A: SparseMatrix) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.normal(size=A.shape[1]), rng.normal(size=A.shape[0])


MARKS = {"csr": (), **dict.fromkeys(("coo", "csc", "ell"), pytest.mark.slow)}


@pytest.mark.parametrize(  # the other formats share the products of these
    "kind", [pytest.param(k, marks=MARKS.get(k, pytest.mark.merge)) for k in KINDS]
)
@pytest.mark.needs("jax")
def test_jax(kind: str) -> None:
    import jax
    import jax.numpy as jnp

    A = example("jax", kind)
    x, w = vectors(A)

    def f(values: Any, x: Any) -> Any:
        B = A.with_values(values)
        return jnp.dot(w, (B @ x) ** 2) + w[0] * jnp.sum((B.T @ w) ** 2)

    arrays = A.arrays()
    expected = by_differences(A, x, w)
    tangent = tuple(jnp.ones_like(v) for v in arrays)

    @jax.jit
    def derivatives(v: Any, x: Any) -> tuple[Any, ...]:
        """In one program."""
        by_values, by_x = jax.grad(f, (0, 1))(v, x)
        return by_values, by_x, jax.hessian(f, 1)(v, x), jax.jvp(lambda v: f(v, x), (v,), (tangent,))[1]

    by_values, by_x, twice, moved = derivatives(arrays, x)
    for gradient in (by_values, jax.grad(f)(arrays, x)) if kind == "dia" else (by_values,):
        for got, want in zip(gradient, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
    M = A.toarray()
    np.testing.assert_allclose(by_x, 2 * M.T @ (w * (M @ x)), rtol=1e-10)
    np.testing.assert_allclose(twice, 2 * M.T @ np.diag(w) @ M, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(moved, sum(g.sum() for g in expected), rtol=1e-8)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in ("csr", "stencil") else pytest.mark.merge) for k in KINDS]
)
@pytest.mark.needs("jax")
def test_jax_containers(kind: str) -> None:
    """A matrix is a container: an argument and a result of jit, mapped over, closed over in vmap."""
    import jax
    import jax.numpy as jnp

    A = example("jax", kind)
    x, w = vectors(A)
    M = A.toarray()
    found = jax.jit(lambda A, x: (A @ x, A.T @ w, A.diagonal(), A.dense(), 2 * A))(A, x)
    for got, want in zip(found[:4], (M @ x, M.T @ w, np.diagonal(M), M), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert type(found[4]) is type(A) and found[4].structure == A.structure
    np.testing.assert_allclose(found[4].toarray(), 2 * M)
    leaves, structure = jax.tree.flatten(A)
    assert jax.tree.unflatten(structure, leaves).shape == A.shape
    assert jax.tree.structure(example("jax", kind)) == structure
    count = 0

    @jax.jit
    def traced(A: Any, x: Any) -> Any:
        nonlocal count
        count += 1
        return A @ x

    traced(A, x), traced(example("jax", kind), x)
    assert count == 1, "an equal structure was compiled again"

    many = tuple(jnp.stack([v, 2 * v, 0 * v]) for v in A.arrays())
    X = np.random.default_rng(1).normal(size=(3, len(x)))

    @jax.jit
    def mapped(many: Any, x: Any, X: Any) -> tuple[Any, ...]:
        return (
            jax.vmap(lambda v, x: A.with_values(v) @ x, (0, None))(many, x),
            jax.vmap(lambda v, x: A.with_values(v).T.T @ x)(many, X),
            jax.vmap(lambda x: A @ x)(X),
            jax.vmap(lambda k: (k * A) @ x)(jnp.arange(3.0)),
        )

    each, both, rows, multiples = mapped(many, x, X)
    np.testing.assert_allclose(each, [M @ x, 2 * M @ x, 0 * M @ x], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(both, [M @ X[0], 2 * M @ X[1], 0 * X[2, :1] + M @ (0 * X[2])], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(rows, X @ M.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(multiples, np.outer(np.arange(3), M @ x), atol=1e-12)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_jax_gradient_through_operations() -> None:
    """Sums, products, parts, assembly and changes of format of traced values, against jax's dense ones."""
    import jax
    import jax.numpy as jnp

    from krylix.sparse.formats import block, kron

    A, B = (in_krylix("jax", random_matrix((6, 6), seed=s), "csr", known=False) for s in (1, 2))
    C = in_krylix("jax", random_matrix((6, 6), seed=3), "csr")
    x = np.random.default_rng(0).normal(size=6)

    def sparse(a: Any, b: Any) -> Any:
        P, Q = A.with_values(a), B.with_values(b)
        R = (P + Q.to("dia")) @ C - 2 * Q.to("hyb").T
        big = block([[R, None], [None, kron(C[:2, :2], P[[0, 2, 4], 1:4])]])
        return jnp.sum((big @ jnp.concatenate([x, x])) ** 2) + P.sum() + R.diagonal().sum()

    def dense(a: Any, b: Any) -> Any:
        P, Q, K = A.with_values(a).dense(), B.with_values(b).dense(), C.dense()
        R = (P + Q) @ K - 2 * Q.T
        low = jnp.kron(K[:2, :2], P[np.array([0, 2, 4]), 1:4])
        return jnp.sum((R @ x) ** 2) + jnp.sum((low @ x) ** 2) + P.sum() + jnp.trace(R)

    found, wanted = (jax.jit(jax.value_and_grad(f, (0, 1)))(A.values, B.values) for f in (sparse, dense))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    for got, want in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.needs("jax")
def test_jax_known_values_stay_known_in_jit() -> None:
    import jax

    S = random_matrix((8, 8))
    A = in_krylix("jax", S, "ell")
    seen = []

    @jax.jit
    def f(x: Any) -> Any:
        derived = ((2 * A + A.T) @ A)[1:, 1:]
        seen.append(derived.known())
        return derived @ x

    x = np.ones(7)
    exact = ((2 * S + S.T) @ S)[1:, 1:]
    np.testing.assert_allclose(f(x), exact @ x, rtol=1e-12)
    assert abs(seen[0] - exact).max() < 1e-12
    again = jax.jit(lambda A: A @ np.ones(8))
    np.testing.assert_allclose(again(A), S @ np.ones(8), rtol=1e-12)
    np.testing.assert_allclose(A.T @ np.ones(8), S.T @ np.ones(8), rtol=1e-12)  # nothing traced was kept


@kinds
@pytest.mark.needs("torch")
def test_torch(kind: str) -> None:
    import torch

    A = example("torch", kind)
    x, w = (torch.as_tensor(v) for v in vectors(A))
    values = tuple(v.clone().requires_grad_() for v in A.arrays())

    def f(*values: Any) -> Any:
        B = A.with_values(values)
        return torch.dot(w, (B @ x) ** 2) + w[0] * ((B.T @ w) ** 2).sum()

    gradients = torch.autograd.grad(f(*values), values)
    for got, want in zip(gradients, by_differences(A, x.numpy(), w.numpy()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
    inside = torch.func.grad(f)(*[v.detach() for v in values])
    np.testing.assert_allclose(inside, gradients[0], rtol=1e-10, atol=1e-10)
    twice = torch.func.vmap(f)(*[torch.stack([v.detach(), 2 * v.detach()]) for v in values])
    np.testing.assert_allclose(twice, [f(*values).item(), f(*[2 * v for v in values]).item()], rtol=1e-10)


@pytest.mark.needs("torch")
def test_torch_training() -> None:
    """Values that an optimiser writes to: the transpose follows, and each step has its own graph."""
    import torch

    A = in_krylix("torch", random_matrix(SHAPE), "csr", known=False)
    values = tuple(v.clone().requires_grad_() for v in A.arrays())
    B = A.with_values(values)
    for _ in range(2):
        gradients = torch.autograd.grad((B.T @ torch.ones(7, dtype=torch.float64)).sum(), values)
        assert all(g is not None for g in gradients)
    C = in_krylix("torch", random_matrix(SHAPE), "csr", known=False)
    before = to_numpy(C.T @ torch.ones(7, dtype=torch.float64)).copy()
    C.values.mul_(2)
    np.testing.assert_allclose(to_numpy(C.T @ torch.ones(7, dtype=torch.float64)), 2 * before)
    np.testing.assert_allclose(C.toarray(), 2 * random_matrix(SHAPE).toarray())


@kinds
@pytest.mark.needs("tensorflow")
def test_tensorflow(kind: str) -> None:
    import tensorflow as tf

    A = example("tf", kind)
    x, w = vectors(A)
    X, W = tf.constant(x), tf.constant(w)
    values = [tf.Variable(v) for v in A.arrays()]

    def f() -> Any:
        with tf.GradientTape() as tape:
            B = A.with_values([tf.convert_to_tensor(v) for v in values])
            y = tf.reduce_sum(W * (B @ X) ** 2) + W[0] * tf.reduce_sum((B.T @ W) ** 2)
        return tape.gradient(y, values)

    for gradients in (f(), tf.function(f, autograph=False)()):
        for got, want in zip(gradients, by_differences(A, x, w), strict=True):
            np.testing.assert_allclose(tf.convert_to_tensor(got), want, rtol=1e-10, atol=1e-10)
