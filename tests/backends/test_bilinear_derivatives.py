"""The derivatives of products by `bilinear`, against those of the dense matrix, by each library's own means."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from bilinear_forms import (
    COLS,
    FORMS,
    OFFSETS,
    ROWS,
    Coordinates,
    Diagonals,
    M,
    N,
    arguments,
    close,
    dense,
    dense_function,
    dtypes,
    form_function,
    native,
    values_of,
)
from contract import backend, rows
from frameworks import jax, jnp, tf, torch
from krylix.backends.interface.containers import tree_map

# The sum of both covers each form; the single ones run on demand.
few_forms = pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.slow) for n in FORMS if n != "both"), "both"]
)
both_ways = pytest.mark.parametrize("transposed", [False, True])
AXES = [(None, 0), (None, 1), (None, 2), (0, None), (1, None), (0, 0), (1, 2)]
IN_JAX = {(None, 0): (), (1, 2): (), (None, 2): pytest.mark.merge, (0, None): pytest.mark.merge}  # else on demand


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, list | tuple) else [tree]


def compare(mode: str, every: Callable[[Callable[..., Any]], Any], name: str, transposed: bool, *given: Any) -> None:
    """What `every` makes of the product, and of the dense one: in JAX in one program."""
    functions = [make(mode, name, transposed) for make in (form_function, dense_function)]

    def both(*given: Any) -> list[Any]:
        return [leaves(every(function)(*given)) for function in functions]

    found, want = (import_module("jax").jit(both) if mode == "jax" else both)(*given)
    for one, other in zip(found, want, strict=True):
        close(detached(one), detached(other), 1e-12 if mode == "jax" else 1e-11)


def detached(x: Any) -> Any:
    return x.detach() if hasattr(x, "detach") else x


def transformations(mode: str) -> Any:
    """The module of `grad`, `jvp` and `vmap`, and that of `sin`."""
    return (import_module("jax"), import_module("jax.numpy")) if mode == "jax" else (
        import_module("torch.func"), import_module("torch")
    )  # fmt: skip


# ---- JAX and torch.func


@few_forms
@pytest.mark.parametrize(
    ("backend", "dtype", "transposed"),
    [
        *(("torch", dtype, transposed) for dtype in ("float64", "complex128") for transposed in (False, True)),
        ("jax", "float64", False),
        ("jax", "complex128", True),
        pytest.param("jax", "float64", True, marks=pytest.mark.merge),
        pytest.param("jax", "complex128", False, marks=pytest.mark.merge),
    ],
)
def test_nested_transformations(backend: str, name: str, dtype: str, transposed: bool) -> None:
    t, own = transformations(backend)
    given, tangents = (arguments(backend, name, dtype, transposed, seed) for seed in (0, 1))
    (cotangent,) = native(backend, rows(dtype, (2, M if transposed else N), 3))
    every = tuple(range(len(given)))

    def size(parts: Any) -> Any:
        return sum(own.sum(own.abs(part) ** 2) for part in parts)

    def scalar(f: Any) -> Any:
        return lambda *a: own.sum(own.sin(own.abs(f(*a)) ** 2))

    def push(f: Any) -> Any:
        return lambda *a: t.jvp(f, tuple(a), tuple(tangents))[1]

    def pull(f: Any) -> Any:
        return lambda *a: t.vjp(f, *a)[1](cotangent)

    def of_one(f: Any) -> Any:
        """Tangents for the vectors only."""
        return lambda *a: t.jvp(lambda x: f(*a[:-1], x), (a[-1],), (tangents[-1],))[1]

    def all_of(f: Any) -> Any:
        pulled_pull = lambda *a: t.vjp(pull(f), *a)[1](tuple(tangents))  # noqa: E731
        thrice = push(t.grad(lambda *a: size(t.grad(scalar(f), every)(*a)), every))
        found = [push(f), pull(f), of_one(f), thrice]
        if backend == "torch":
            found += [push(push(f)), push(push(push(scalar(f)))), pulled_pull]
        ways = (t.jacfwd, t.jacrev) if backend == "torch" else (t.jacfwd,)
        for by in every if dtype == "float64" else ():
            found += [t.hessian(scalar(f), by), *(way(way(scalar(f), by), by) for way in ways)]
        return lambda *a: [g(*a) for g in found]

    compare(backend, all_of, name, transposed, *given)


@few_forms
@pytest.mark.parametrize(
    ("backend", "axes"),
    [*(("torch", axes) for axes in AXES),
     *(pytest.param("jax", axes, marks=IN_JAX.get(axes, pytest.mark.slow)) for axes in AXES)],
)  # fmt: skip
@pytest.mark.parametrize("transposed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_vmap(backend: str, name: str, axes: tuple[int | None, int | None], transposed: bool) -> None:
    """Of the vectors, the values and both; its derivatives, and derivatives inside."""
    t, own = transformations(backend)
    several = [*zip(*(arguments(backend, name, "float64", transposed, seed) for seed in range(4)), strict=True)]
    dims = (axes[0],) * (len(several) - 1) + (axes[1],)
    given = [a[0] if axis is None else own.stack(a, axis) for a, axis in zip(several, dims, strict=True)]
    every = tuple(range(len(given)))

    def total(parts: Any) -> Any:
        return sum(own.sum(own.sin(part)) for part in leaves(parts))

    def all_of(f: Any) -> Any:
        mapped = t.vmap(f, dims)
        outside = t.grad(lambda *a: total(mapped(*a)), every)
        inside = t.vmap(t.grad(lambda *a: total(f(*a)), every), dims)
        twice = t.grad(lambda *a: total(inside(*a)), every)
        basis = lambda *a: t.vmap(lambda x: mapped(*a[:-1], x))(own.stack([a[-1], 2 * a[-1]]))  # noqa: E731
        return lambda *a: [g(*a) for g in (mapped, outside, inside, twice, basis)]

    compare(backend, all_of, name, transposed, *given)


# ---- JAX


@pytest.mark.needs("jax")
def test_jax_runs_eagerly() -> None:
    given, tangents = (arguments("jax", "both", "float64", seed=seed) for seed in (0, 1))
    images = [jax.jvp(make("jax", "both"), given, tangents) for make in (form_function, dense_function)]
    tree_map(close, *images)


@pytest.mark.needs("jax")
@dtypes
def test_linear_transposes(dtype: str) -> None:
    *values, x = arguments("jax", "both", dtype)
    (cotangent,) = native("jax", rows(dtype, (2, N), 3))

    def all_of(f: Any) -> Any:
        return lambda *a: [
            jax.linear_transpose(lambda x: f(*a[:-1], x), x)(cotangent),
            jax.linear_transpose(lambda *v: f(*v, a[-1]), *values)(cotangent),
        ]

    compare("jax", all_of, "both", False, *values, x)


@pytest.mark.needs("jax")
@few_forms
def test_nested_vmaps(name: str) -> None:
    *values, _ = (
        np.stack(a) for a in zip(*(arguments("numpy", name, "float64", seed=s) for s in range(3)), strict=True)
    )
    x = rows("float64", (2, 4, 2, M))

    def all_of(f: Any) -> Any:
        some = jax.grad(lambda v, x: jnp.sum(jnp.sin(f(*v, x))), (0, 1))
        over_both = jax.vmap(jax.vmap(jax.vmap(some, (None, 0)), (None, 0)), (0, None))

        def tables(v: Any, x: Any) -> Any:
            """Values by x by x, where the middle map has x only."""
            return jax.vmap(lambda v: jax.vmap(lambda x: jax.vmap(lambda x: f(*v, x))(x))(x))(v)

        def basis(v: Any, x: Any) -> Any:
            return jax.vmap(lambda x: jax.vmap(lambda v: f(*v, x))(v))(x[0])

        return lambda v, x: [g(v, x) for g in (tables, over_both, basis)]

    compare("jax", all_of, name, False, values, x)


@pytest.mark.needs("jax")
def test_mapped_indices() -> None:
    bk, values, x = backend("jax"), values_of("coordinates", "float64"), rows("float64", (2, M))
    several = np.stack([ROWS, (ROWS + 1) % N])
    found = jax.jit(jax.vmap(lambda i: bk.bilinear(Coordinates(), values, (i, COLS), x)))(several)
    alone = [backend("numpy").bilinear(Coordinates(), values, (i, COLS), x) for i in several]
    close(found, np.stack(alone))


@pytest.mark.needs("jax")
def test_in_loops_checkpoints_and_custom_linear_solve() -> None:
    bk, x, b = backend("jax"), rows("float64", (1, N)), rows("float64", (1, N), 4)

    @dataclass(frozen=True)
    class Square(Diagonals):
        def product_transposed(self, bk: Any, values: Any, indices: Any, y: Any) -> Any:
            return bk.dia_product(values[0], OFFSETS, y, N, transposed=True)

    d = 0.1 * rows("float64", (len(OFFSETS), N)) + 3 * (np.array(OFFSETS) == 0)[:, None]
    matrix = dense("diagonals", [d])[:, :N]

    def product(d: Any, x: Any) -> Any:
        return bk.bilinear(Square(), (d,), (), x)

    def powers(d: Any, x: Any) -> Any:
        return jax.lax.scan(lambda y, _: (jax.checkpoint(product)(d, y), None), x, None, 3)[0].sum()

    def exact(d: Any, x: Any) -> Any:
        matrix = sum(jnp.diag(d[i, max(0, -o) : min(N, N - o)], o) for i, o in enumerate(OFFSETS) if abs(o) < N)
        return (x @ matrix.T @ matrix.T @ matrix.T).sum()

    def solve(f: Any, b: Any) -> Any:
        return jnp.linalg.solve(jax.jacfwd(lambda x: f(x[None])[0])(b[0]), b[0])[None]

    def all_of(d: Any, x: Any, b: Any) -> Any:
        solved = jax.vjp(lambda b: jax.lax.custom_linear_solve(lambda x: product(d, x), b, solve, solve), b)
        return jax.grad(powers, (0, 1))(d, x), jax.grad(exact, (0, 1))(d, x), solved[0], solved[1](x)[0]

    found, want, forward, backward = jax.jit(all_of)(d, x, b)
    tree_map(close, found, want)
    close(forward, np.linalg.solve(matrix, b[0])[None])
    close(backward, np.linalg.solve(matrix.T, x[0])[None])


# ---- PyTorch


@pytest.mark.needs("torch")
@few_forms
@dtypes
@both_ways
def test_torch_gradients_by_finite_differences(name: str, dtype: str, transposed: bool) -> None:
    """Complex ones along random directions, and real ones in each."""
    given = [a.requires_grad_() for a in arguments("torch", name, dtype, transposed)]
    f, fast = form_function("torch", name, transposed), dtype == "complex128"
    assert torch.autograd.gradcheck(f, given, check_forward_ad=True, check_batched_grad=True, fast_mode=fast)
    assert torch.autograd.gradgradcheck(f, given, check_fwd_over_rev=True, fast_mode=fast)


@pytest.mark.needs("torch")
def test_forward_mode_of_autograd() -> None:
    """Dual numbers, and a tangent for one array only."""
    from torch.autograd import forward_ad

    entries, diagonals, x = arguments("torch", "both", "float64")
    f = form_function("torch", "both")
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(f(entries, forward_ad.make_dual(diagonals, 2 * diagonals), x)).tangent
    torch.testing.assert_close(tangent, f(0 * entries, 2 * diagonals, x))


# ---- TensorFlow


def tensorflow_gradient(f: Any) -> Any:
    """The gradient of the sum of squares of what f gives."""

    def gradient(*given: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(given)
            value = sum(tf.reduce_sum(tf.math.real(p * tf.math.conj(p))) for p in leaves(f(*given)))
        return tape.gradient(value, given)

    return gradient


def orders(f: Any, count: int) -> Any:
    def all_of(*given: Any) -> list[Any]:
        own, found = f, []
        for _ in range(count):
            own = tensorflow_gradient(own)
            found += own(*given)
        return found

    return all_of


@pytest.mark.needs("tensorflow")
@few_forms
@pytest.mark.parametrize(
    ("dtype", "transposed", "how"),
    [
        ("float64", False, "eager"),
        ("complex128", True, "eager"),
        ("complex128", False, "function"),
        pytest.param("float64", True, "function", marks=pytest.mark.merge),
        ("float64", False, "xla"),
        pytest.param("complex128", True, "xla", marks=pytest.mark.merge),
    ],
)
def test_tapes_in_tapes(name: str, dtype: str, transposed: bool, how: str) -> None:
    """Three orders; two of them in programs."""
    given, count = arguments("tf", name, dtype, transposed), 3 if how == "eager" else 2
    found = orders(form_function("tf", name, transposed), count)
    if how != "eager":
        found = tf.function(found, autograph=False, jit_compile=how == "xla")
    want = orders(dense_function("tf", name, transposed), count)(*given)
    for f, w in zip(found(*given), want, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-11, atol=1e-11 * np.abs(w).max())


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
@few_forms
def test_jacobians_and_forward_mode(name: str) -> None:
    given, tangents = (arguments("tf", name, "float64", seed=seed) for seed in (0, 1))
    outcome = []
    for make in (form_function, dense_function):
        f = make("tf", name)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(given)
            image = f(*given)
        jacobians = tape.jacobian(image, given)
        with tf.autodiff.ForwardAccumulator(given, tangents) as accumulator:
            image = f(*given)
        with tf.autodiff.ForwardAccumulator(given, tangents) as hessian:
            with tf.GradientTape() as tape:
                tape.watch(given)
                value = tf.reduce_sum(tf.sin(f(*given)))
            gradients = tape.gradient(value, given)
        outcome.append([*jacobians, accumulator.jvp(image), *(hessian.jvp(g) for g in gradients)])
    for found, want in zip(*outcome, strict=True):
        close(found, want, 1e-11)


@pytest.mark.needs("tensorflow")
def test_variables_and_maps() -> None:
    entries, diagonals = (tf.Variable(v) for v in values_of("both", "float64"))
    x, found = tf.constant(rows("float64", (4, 2, M))), []
    for make in (form_function, dense_function):
        f = make("tf", "both")
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(tf.vectorized_map(lambda x: f(entries, diagonals, x), x) ** 2)  # noqa: B023
        found.append(tape.gradient(value, [entries, diagonals]))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)
