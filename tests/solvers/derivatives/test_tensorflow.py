"""Derivatives of a solve in TensorFlow, against the dense inverse: eager, in graphs, under XLA and vectorized_map."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from cells import METHOD_NAMES, in_turn
from frameworks import lazy
from gradients import gradient
from krylix import as_operator, linear_solve
from krylix.solvers import METHODS
from modes import compiled
from tiers import REPRESENTATIVE

tf = lazy("tensorflow")
N, REAL = 5, "float64"
ENTRIES = np.stack(np.nonzero(np.ones((N, N))), 1)
Solve = Callable[..., Any]


def point() -> tuple[Any, Any, Any]:
    """b, edge weights and a shift."""
    numbers = np.random.default_rng(0).standard_normal(2 * N)
    return tf.constant(numbers[:N]), tf.constant(1 + 0.3 * numbers[N:-1]), tf.constant(1.3, REAL)


def product(skew: float) -> Callable[..., Any]:
    def A(x: Any, w: Any, c: Any) -> Any:
        d = w * (x[1:] - x[:-1])
        zero = tf.zeros(1, REAL)
        image = c * x + tf.concat([-d, zero], 0) + tf.concat([zero, d], 0)
        return image + skew * tf.concat([w * x[1:], zero], 0)

    return A


def matrix(skew: float, w: Any, c: Any) -> Any:
    return tf.transpose(tf.stack([product(skew)(e, w, c) for e in tf.unstack(tf.eye(N, dtype=REAL))]))


def dense_inverse(skew: float) -> Solve:
    return lambda b, w, c: tf.linalg.matvec(tf.linalg.inv(matrix(skew, w, c)), b)


def skew_of(method: str) -> float:
    return 0.0 if METHODS[method].needs_symmetry else 0.4


def solver(method: str, kind: str) -> Solve:
    """x(b, w, c) by krylix."""
    skew, A = skew_of(method), product(skew_of(method))
    settings = {"method": method, "rtol": 1e-13, "on_failure": "status"}
    if METHODS[method].takes_preconditioner and kind in ("dense", "sparse"):
        settings["preconditioner"] = "jacobi"
    makers: dict[str, Solve] = {
        "function": lambda b, w, c: linear_solve(lambda x: A(x, w, c), b, **settings),
        "args": lambda b, w, c: linear_solve(A, b, args=(w, c), **settings),
        "dense": lambda b, w, c: linear_solve(matrix(skew, w, c), b, **settings),
        "sparse": lambda b, w, c: linear_solve(
            tf.SparseTensor(ENTRIES, tf.reshape(matrix(skew, w, c), [-1]), (N, N)), b, **settings
        ),
    }
    return lambda b, w, c: makers[kind](b, w, c).x


def by_each(solve: Solve, *p: Any) -> Any:
    return gradient("tf", lambda *p: tf.reduce_sum(solve(*p) ** 3), *p)


def twice_from_one_tape(solve: Solve, *p: Any) -> Any:
    """With a persistent tape TensorFlow differentiates every loop and branch of its graphs in advance."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(p)
        loss = tf.reduce_sum(solve(*p) ** 3)
    return [tape.gradient(loss, q) for q in p]


def second(solve: Solve, *p: Any) -> Any:
    return gradient("tf", lambda *p: tf.add_n([tf.reduce_sum(tf.sin(g)) for g in by_each(solve, *p)]), *p)


def jacobian(solve: Solve, *p: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(p)
        x = solve(*p)
    return tape.jacobian(x, p)


def vectorized(solve: Solve, b: Any, w: Any, c: Any) -> Any:
    return tf.vectorized_map(lambda v: solve(v, w, c), tf.stack([b, 1 - b, 2 * b]))


def graph(function: Callable[..., Any]) -> Callable[..., Any]:
    return compiled("tf-function", function)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "gradient": by_each,
    "gradient in a graph": lambda S, *p: graph(lambda *q: by_each(S, *q))(*p),
    "gradient of a graph": lambda S, *p: by_each(graph(S), *p),
    "persistent tape in a graph": lambda S, *p: graph(lambda *q: twice_from_one_tape(S, *q))(*p),
    "second order": second,
    "second order in a graph": lambda S, *p: graph(lambda *q: second(S, *q))(*p),
    "jacobian": jacobian,
    "vectorized_map": vectorized,
    "XLA": lambda S, *p: tf.function(lambda *q: by_each(S, *q), jit_compile=True, autograph=False)(*p),
}
QUICK = {
    ("CG", "sparse", "persistent tape in a graph")
} | {  # graphs of CG are the smallest, and not symmetric systems are seen eagerly
    *(("CG", "function", t) for t in TRANSFORMS),
    *(("biCG-stab(2)", "function", t) for t in ("gradient", "gradient in a graph", "second order")),
    *(("direct", "dense", t) for t in ("gradient in a graph", "second order", "vectorized_map")),
}
# much to compile; on demand, where another method or kind of matrix goes through the same before
DEAR = ("jacobian", "second order in a graph")
ON_DEMAND = {
    *(("CG", "function", t) for t in ("persistent tape in a graph", "vectorized_map")),
    *((m, "function", "gradient in a graph") for m in ("CG", "biCG-stab(2)")),  # as in `test_variables`
    ("direct", "dense", "gradient in a graph"),  # as in `test_complex`
}
BEFORE_A_MERGE = {
    *(("CG", t) for t in ("persistent tape in a graph", "XLA", "gradient of a graph")),
    ("direct", "vectorized_map"),
    ("biCG-stab(2)", "second order"),
}


def by_inverse(transform: str, skew: float) -> list[Any]:
    with_inverse = {"vectorized_map": vectorized, "jacobian": jacobian, "second": second}.get(transform, by_each)
    return _by_inverse(with_inverse, skew)


@cache
def _by_inverse(transform: Callable[..., Any], skew: float) -> list[Any]:
    return tf.nest.flatten(transform(dense_inverse(skew), *point()))  # type: ignore[no-any-return]


def check(method: str, kind: str, transform: str) -> None:
    found = tf.nest.flatten(TRANSFORMS[transform](solver(method, kind), *point()))
    wanted = by_inverse("second" if transform.startswith("second") else transform, skew_of(method))
    assert len(found) == len(wanted) > 0
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


def mark_of(method: str, kind: str, transform: str) -> Any:
    if (method, kind, transform) not in QUICK - ON_DEMAND or transform in DEAR:
        return pytest.mark.slow
    return pytest.mark.merge if (method, transform) in BEFORE_A_MERGE else ()


TABLE = [
    pytest.param(m, k, t, marks=mark_of(m, k, t))
    for m in ("biCG-stab(2)", "CG", "direct")
    for k in ("function", "args", "dense", "sparse")
    for t in TRANSFORMS
    if (k, t) != ("sparse", "XLA")  # which has no sparse tensors
]


@pytest.mark.parametrize(("method", "kind", "transform"), TABLE)
def test_every_transformation(method: str, kind: str, transform: str) -> None:
    check(method, kind, transform)


def tier_of(method: str, kind: str) -> Any:
    if method in REPRESENTATIVE:
        return ()
    return pytest.mark.merge if kind == "args" else pytest.mark.slow


@pytest.mark.parametrize(
    ("method", "kind"), [pytest.param(m, k, marks=tier_of(m, k)) for m in METHOD_NAMES for k in ("args", "sparse")]
)
def test_every_method(method: str, kind: str) -> None:
    check(method, kind, "gradient")


@pytest.mark.slow
@pytest.mark.parametrize("transform", [t for t in TRANSFORMS if t != "XLA"])
@pytest.mark.parametrize("kind", ["function", "dense"])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method_in_every_way(method: str, kind: str, transform: str) -> None:
    check(method, kind, transform)


@pytest.mark.compiled_by_default(modes=("tf-function",))
@pytest.mark.parametrize("mode", ["tf", "tf-function"])
@pytest.mark.parametrize("kind", ["function", pytest.param("dense", marks=pytest.mark.slow)])
def test_variables(kind: str, mode: str) -> None:
    """Closed over or stored in a matrix, they are found; also by a loss of a whole training step."""
    b, w, c = point()
    variable, method = tf.Variable(w), "CG" if kind == "function" else "biCG-stab(2)"
    found = compiled(mode, lambda: _by_variable(solver(method, kind), b, variable, c))()
    np.testing.assert_allclose(found, _by_variable(dense_inverse(skew_of(method)), b, variable, c), rtol=1e-9)


def _by_variable(solve: Solve, b: Any, variable: Any, c: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(solve(b, variable, c) ** 3)
    return tape.gradient(loss, variable)


def test_variables_that_are_read_where_tapes_stop() -> None:
    """`tf.stop_gradient(variable)` reads the variable while tapes are stopped; what is read later is another matter."""
    variable, b = tf.Variable([2.0, 3.0, 4.0], dtype=REAL), tf.constant([1.0, 2.0, 3.0], REAL)
    with tf.GradientTape() as tape:
        x = linear_solve(lambda u: tf.stop_gradient(variable) * u + variable * u, b, method="CG", rtol=1e-14).x
        loss = tf.reduce_sum(x)
    np.testing.assert_allclose(tape.gradient(loss, variable), -b / (4 * variable**2), rtol=1e-10)


@pytest.mark.parametrize("mode", ["tf", pytest.param("tf-function", marks=pytest.mark.slow)])
def test_what_was_computed_before(mode: str) -> None:
    """A closed-over tensor that was itself computed from what is watched; and an affine part."""
    b, w, c = point()

    def gradient_of(solve: Callable[..., Any]) -> Any:
        return by_each(lambda w, c: solve(w * w, c * tf.ones(N, REAL)), w, c)

    def found(w: Any, shift: Any) -> Any:
        return linear_solve(lambda x: product(0.4)(x, w, c) + shift, b, method="GMRES", rtol=1e-13).x

    def wanted(w: Any, shift: Any) -> Any:
        return dense_inverse(0.4)(b - shift, w, c)

    for a, expected in zip(compiled(mode, lambda: gradient_of(found))(), gradient_of(wanted), strict=True):
        np.testing.assert_allclose(a, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.compiled_by_default("direct", modes=("tf",))
@pytest.mark.parametrize("mode", ["tf", "tf-function"])
@pytest.mark.parametrize("method", ["biCG-stab(2)", "GMRES", "direct", "scipy-GMres"])
def test_complex(method: str, mode: str) -> None:
    rng = np.random.default_rng(1)
    m = tf.constant(rng.random((N, N)) + 1j * rng.random((N, N)) + 4 * np.eye(N))
    b = tf.constant(rng.random(N) + 1j * rng.random(N))

    def by_both(solve: Solve) -> Any:
        return gradient("tf", lambda m, b: tf.reduce_sum(tf.abs(solve(m, b)) ** 4), m, b)

    found = compiled(mode, lambda: by_both(lambda m, b: linear_solve(m, b, method=method, rtol=1e-13).x))()
    wanted = by_both(lambda m, b: tf.linalg.matvec(tf.linalg.inv(m), b))
    for a, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, w, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("method", "kind"), in_turn(["CG", "direct", "scipy-CG"], ["dense", "function"]))
def test_forward_mode_is_refused(method: str, kind: str) -> None:
    """TensorFlow would answer None."""
    p = point()
    for watched in p:
        with (
            tf.autodiff.ForwardAccumulator(watched, watched),
            pytest.raises(RuntimeError, match=r"Use tf\.GradientTape"),
        ):
            solver(method, kind)(*p)


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize("mode", ["tf", "tf-function"])
def test_a_failing_backward_solve_names_itself(mode: str) -> None:
    singular = tf.linalg.diag(tf.constant([1.0, 2, 0], REAL))

    def loss(b: Any) -> Any:
        A: Any = lambda x: tf.linalg.matvec(singular, x)  # noqa: E731
        return tf.reduce_sum(linear_solve(A, b, method="CG", max_iter=20, nullspace=None).x)

    with pytest.raises(Exception, match="the backward solve of CG"):
        compiled(mode, lambda b: gradient("tf", loss, b))(tf.constant([1.0, 1, 0], REAL))


@pytest.mark.parametrize("mode", ["tf", pytest.param("tf-function", marks=pytest.mark.slow)])
def test_tiny_and_huge_cotangents_in_single_precision(mode: str) -> None:
    m = tf.constant(np.diag([1.0, 2, 3]) + 0.5 * np.eye(3, k=1), tf.float32)
    b = tf.constant([1.0, 2, 3])

    def by_b(scale: Any) -> Any:
        return gradient(
            "tf", lambda b: scale * tf.reduce_sum(linear_solve(m, b, method="biCG-stab(2)", atol=1e-3).x), b
        )

    wanted, function = np.linalg.inv(m).T @ np.ones(3), compiled(mode, by_b)
    for scale in (1e-20, 1e20):
        found = function(tf.constant(scale, tf.float32))
        np.testing.assert_allclose(found / np.float32(scale), wanted, rtol=1e-2)


@pytest.mark.merge
def test_xla_without_the_host() -> None:
    """No error can leave XLA: failures are NaN, and what needs the host is refused when it is traced."""
    b, w, c = point()

    def solve(method: str) -> Any:
        return tf.function(
            lambda c: linear_solve(matrix(0.0, w, c), b, method=method, nullspace=None).x,
            jit_compile=True,
            autograph=False,
        )

    by_cg = solve("CG")
    np.testing.assert_allclose(by_cg(c), dense_inverse(0.0)(b, w, c), rtol=1e-8)
    assert np.isnan(by_cg(0 * c)).all()  # of a singular matrix
    with pytest.raises(TypeError, match="cannot call the host"):
        solve("scipy-CG")(c)


def test_checkpoints_have_no_derivatives() -> None:
    b, w, c = point()

    def several(w: Any) -> Any:
        return linear_solve(matrix(0.0, w, c), b, method="CG", max_iter=(2, 20), on_failure="status").x

    with pytest.raises(RuntimeError, match="several limits"):
        by_each(several, w)


def test_a_function_that_cannot_be_traced() -> None:
    b, w, c = point()

    def A(x: Any) -> Any:
        return product(0.0)(tf.constant(x.numpy()), w, c)

    assert linear_solve(A, b, method="CG").converged
    with tf.GradientTape() as tape:
        tape.watch(w)
        with pytest.raises(RuntimeError, match="could not trace it"):
            linear_solve(A, b, method="CG")


@pytest.mark.parametrize("what", ["product", pytest.param("solve", marks=pytest.mark.slow)])
def test_second_order_by_the_values_of_a_sparse_tensor_in_a_graph(what: str) -> None:
    """TensorFlow hands on the derivative of what it gathers as slices."""
    rows, cols = np.nonzero(np.abs(np.subtract.outer(np.arange(N), np.arange(N))) < 2)
    places, b = np.stack([rows, cols], 1), tf.constant(np.cos(np.arange(N)))
    start = tf.constant(np.where(rows == cols, 4.0, -1.0 + 0.1 * cols))

    def sparse(v: Any) -> Any:
        A = tf.SparseTensor(places, v, (N, N))
        x = as_operator(A, b) @ b if what == "product" else linear_solve(A, b, method="GMRES", rtol=1e-13).x
        return tf.reduce_sum(x**2)

    def dense(v: Any) -> Any:
        A = tf.scatter_nd(places, v, (N, N))
        return tf.reduce_sum((tf.linalg.matvec(A, b) if what == "product" else tf.linalg.solve(A, b[:, None])) ** 2)

    def second(f: Any) -> Any:
        square = lambda v: tf.reduce_sum(tf.convert_to_tensor(gradient("tf", f, v)) ** 2)  # noqa: E731
        return tf.convert_to_tensor(graph(lambda v: gradient("tf", square, v))(start))

    np.testing.assert_allclose(second(sparse), second(dense), rtol=1e-7, atol=1e-9)
