"""Derivatives in TensorFlow are those of the function as it was, in loops and branches too; by the dense inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from gradients import gradient
from krylix import linear_solve

tf = lazy("tensorflow")
N, REAL = 5, "float64"
Solve = Callable[[Any, Any], Any]


def given() -> tuple[Any, Any]:
    """A matrix, not symmetric, and a right-hand side."""
    rng = np.random.default_rng(1)
    return tf.constant(4 * np.eye(N) + 0.4 * rng.standard_normal((N, N))), tf.constant(rng.standard_normal(N))


def by_krylix(M: Any, b: Any) -> Any:
    return linear_solve(lambda x: tf.linalg.matvec(M, x), b, method="direct", rtol=1e-13).x


def by_inverse(M: Any, b: Any) -> Any:
    return tf.linalg.matvec(tf.linalg.inv(M), b)


def derivative(order: int, of: Callable[[Any], Any], at: Any) -> Any:
    """Of the sum of cubes; of second order that of the sum of squares of the first."""
    if order == 1:
        return gradient("tf", lambda at: tf.reduce_sum(of(at) ** 3), at)
    return gradient("tf", lambda at: tf.reduce_sum(derivative(1, of, at) ** 2), at)


def check(found: Any, wanted: Any) -> None:
    assert found is not None and np.abs(wanted).max() > 0
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9 * np.abs(wanted).max())


# --- what changes between the solve and its gradient; other closures in `test_closure_kinds.py` ---


def changed_variable(M: Any, b: Any) -> tuple[Any, Callable[[], Any]]:
    variable = tf.Variable(1.0, dtype=REAL)
    x = linear_solve(lambda v: variable * tf.linalg.matvec(M, v), b, method="GMRES", rtol=1e-13).x
    return x, lambda: variable.assign(3.0)


def changed_variable_in_a_branch(M: Any, b: Any) -> tuple[Any, Callable[[], Any]]:
    variable = tf.Variable(tf.ones((), REAL))

    def A(v: Any) -> Any:
        return tf.cond(tf.constant(True), lambda: variable * tf.linalg.matvec(M, v), lambda: v)

    return linear_solve(A, b, method="GMRES", rtol=1e-13).x, lambda: variable.assign(3.0)


@pytest.mark.parametrize("case", [changed_variable, changed_variable_in_a_branch])
def test_variables_as_they_were(case: Callable[..., Any]) -> None:
    M, b = given()
    with tf.GradientTape() as tape:
        tape.watch((M, b))
        x, change = case(M, b)
        loss = tf.reduce_sum(x**3)
    change()
    found = tape.gradient(loss, (M, b))
    exact = gradient("tf", lambda M, b: tf.reduce_sum(by_inverse(M, b) ** 3), M, b)
    for a, wanted in zip(found, exact, strict=True):
        check(a, wanted)


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.merge)])
def test_time_loop(order: int) -> None:
    """The function of each step reads a name that the next step binds anew."""
    _, b = given()

    def steps(kappa: Any, krylix: bool) -> Any:
        u = b
        for _ in range(3):
            d = kappa * (1 + u**2)

            def A(x: Any) -> Any:
                padded = tf.pad(x, [[1, 1]])
                return x - d * (padded[2:] - 2 * x + padded[:-2])  # noqa: B023

            if krylix:
                u = linear_solve(A, u, method="GMRES", rtol=1e-13).x
            else:
                u = by_inverse(tf.stack([A(e) for e in tf.unstack(tf.eye(N, dtype=REAL))], 1), u)
        return u

    kappa = tf.constant(0.3, REAL)
    check(derivative(order, lambda k: steps(k, True), kappa), derivative(order, lambda k: steps(k, False), kappa))


@pytest.mark.merge
def test_variable_that_a_graph_assigns() -> None:
    M, b = given()
    variable = tf.Variable(M)

    @tf.function(autograph=False)
    def run() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(by_krylix(variable, b) ** 3)
        with tf.control_dependencies([loss]):
            variable.assign(3 * M)
        return tape.gradient(loss, variable)

    check(run(), derivative(1, lambda m: by_inverse(m, b), M))


# --- loops and branches of TensorFlow ---


def in_while_loop(solve: Solve, M: Any, b: Any) -> Any:
    return tf.while_loop(lambda i, u: i < 3, lambda i, u: (i + 1, solve(M, u)), (0, b))[1]


def as_loop_variable(solve: Solve, M: Any, b: Any) -> Any:
    return tf.while_loop(lambda i, u, m: i < 3, lambda i, u, m: (i + 1, solve(m, u), 1.1 * m), (0, b, M))[1]


def in_range(solve: Solve, M: Any, b: Any) -> Any:
    def run(M: Any, u: Any) -> Any:
        for _ in tf.range(3):
            u = solve(M, u)
        return u

    return tf.function(run)(M, b)


def in_map_fn(solve: Solve, M: Any, b: Any) -> Any:
    return tf.map_fn(lambda c: solve(c * M, b), tf.constant([1.0, 2, 3], REAL))


def in_scan(solve: Solve, M: Any, b: Any) -> Any:
    return tf.scan(lambda u, c: solve(c * M, u), tf.constant([1.0, 2, 3], REAL), b)


def in_cond(solve: Solve, M: Any, b: Any) -> Any:
    return tf.cond(M[0, 0] > 0, lambda: solve(M, b), lambda: b)


def in_switch_case(solve: Solve, M: Any, b: Any) -> Any:
    return tf.switch_case(tf.cast(M[0, 0] > 0, tf.int32), [lambda: b, lambda: solve(M, b)])


FLOWS = [in_while_loop, as_loop_variable, in_range, in_map_fn, in_scan, in_cond, in_switch_case]
BY_DEFAULT = ((in_while_loop, 1),)  # and a branch in `test_control_flow_with_an_eager_constant`
# Second order takes up to a minute each; the others on demand differ from one of these in a detail.
BEFORE_A_MERGE = tuple((flow, 1) for flow in (in_while_loop, in_range, in_scan, in_cond))


def tier_of(flow: Callable[..., Any], order: int) -> Any:
    if (flow, order) in BY_DEFAULT:
        return ()
    return pytest.mark.merge if (flow, order) in BEFORE_A_MERGE else pytest.mark.slow


FLOW_CASES = [pytest.param(flow, order, marks=tier_of(flow, order)) for flow in FLOWS for order in (1, 2)]


@pytest.mark.merge
@pytest.mark.parametrize(("flow", "order"), FLOW_CASES)
def test_control_flow(flow: Callable[..., Any], order: int) -> None:
    M, b = given()

    def by(solve: Solve) -> Callable[[Any], Any]:
        return tf.function(lambda m: flow(solve, m, b), autograph=False)

    check(derivative(order, by(by_krylix), M), derivative(order, by(by_inverse), M))


@pytest.mark.merge
@pytest.mark.parametrize("flow", [in_cond, pytest.param(in_while_loop, marks=pytest.mark.slow)])
def test_control_flow_with_an_eager_constant(flow: Callable[..., Any]) -> None:
    """The graph captures the matrix; what it was computed from outside is watched."""
    M, b = given()

    def by(solve: Solve) -> Callable[[Any], Any]:
        return lambda m: tf.function(lambda: flow(solve, m, b), autograph=False)()

    check(derivative(1, by(by_krylix), M), derivative(1, by(by_inverse), M))


# --- what the function does ---


def test_closed_over_and_in_args() -> None:
    M, b = given()

    def solve(m: Any) -> Any:
        return linear_solve(
            lambda v, w: tf.linalg.matvec(m, v) + 0.5 * tf.linalg.matvec(w, v), b, args=(m,), method="GMRES", rtol=1e-13
        ).x

    check(derivative(1, solve, M), derivative(1, lambda m: by_inverse(1.5 * m, b), M))


@pytest.mark.merge
def test_derivatives_inside_of_the_function() -> None:
    """A is the Hessian of an energy, times its argument."""
    M, b = given()

    def A(v: Any, weight: Any) -> Any:
        u = tf.ones(N, REAL)
        with tf.GradientTape() as outer:
            outer.watch(u)
            with tf.GradientTape() as tape:
                tape.watch(u)
                energy = tf.reduce_sum(tf.exp(weight * u) + u * u) + tf.tanh(tf.reduce_sum(weight * u)) ** 2
            first = tape.gradient(energy, u)
        return outer.gradient(first, u, v)

    weight = 1 + tf.abs(M[0])
    found = derivative(1, lambda w: linear_solve(lambda v: A(v, w), b, method="GMRES", rtol=1e-13).x, weight)
    rows = tf.eye(N, dtype=REAL)
    wanted = derivative(1, lambda w: by_inverse(tf.stack([A(e, w) for e in tf.unstack(rows)], 1), b), weight)
    check(found, wanted)


def test_variable_by_its_handle_is_refused() -> None:
    variable, b = tf.Variable(tf.fill([N], tf.constant(2.0, REAL))), given()[1]
    order = tf.constant([0, 1, 2, 3, 4])
    with tf.GradientTape(), pytest.raises(RuntimeError, match=r"by its handle.*args=\(tf.identity"):
        linear_solve(lambda v: tf.gather(variable, order) * v, b, method="GMRES")


@pytest.mark.parametrize("kind", ["eagerly", "numpy", "counter"])
def test_a_function_whose_trace_differs_is_refused(kind: str) -> None:
    M, b = given()
    calls, rng = [0], np.random.default_rng()

    def factor() -> Any:
        calls[0] += 1
        return {"eagerly": 2 if tf.executing_eagerly() else 3, "numpy": rng.random(), "counter": calls[0]}[kind]

    with (
        tf.GradientTape() as tape,
        pytest.raises((RuntimeError, ValueError), match=r"TensorFlow traces it|linear|different values for"),
    ):
        tape.watch(M)
        linear_solve(lambda v: tf.cast(factor(), REAL) * tf.linalg.matvec(M, v), b, method="GMRES")


def test_evaluations_of_the_function() -> None:
    """Eagerly: 1 at zero, 1 at ones, 1 trace that everything else runs, and 1 that shows that the trace is right."""
    M, b = given()
    calls = [0]

    def A(v: Any) -> Any:
        calls[0] += 1
        return tf.linalg.matvec(M, v)

    linear_solve(A, b, method="GMRES")  # seen once: the test of linearity is done
    calls[0] = 0
    with tf.GradientTape() as tape:
        tape.watch(M)
        x = linear_solve(A, b, method="GMRES").x
    tape.gradient(x, M)
    assert calls == [4]


@pytest.mark.merge
@pytest.mark.parametrize(
    "method", ["scipy-direct", *(pytest.param(m, marks=pytest.mark.slow) for m in ("direct", "GMRES"))]
)
def test_a_tape_outside_of_vectorized_map_is_refused(method: str) -> None:
    """TensorFlow drops custom gradients there: it would be zero."""
    M, b = given()
    systems = tf.stack([b, 2 * b])

    def solve(b: Any) -> Any:
        return linear_solve(lambda v: tf.linalg.matvec(M, v), b, method=method, rtol=1e-13).x

    with pytest.raises(RuntimeError, match=r"vectorized_map.*tape outside.*tf.map_fn"), tf.GradientTape() as tape:
        tape.watch(M)
        tape.gradient(tf.reduce_sum(tf.vectorized_map(solve, systems)), M)
    np.testing.assert_allclose(tf.vectorized_map(solve, systems), [by_inverse(M, b), 2 * by_inverse(M, b)], rtol=1e-9)

    @tf.custom_gradient
    def of_others(v: Any) -> Any:
        return v**2, lambda c: 2 * v * c

    by_systems = gradient("tf", lambda v: tf.reduce_sum(tf.vectorized_map(of_others, v)), systems)
    np.testing.assert_allclose(by_systems, 2 * systems)  # which are dropped as ever


@pytest.mark.merge
def test_a_tape_around_a_jacobian() -> None:
    """Exact without TensorFlow's vectorisation, and refused with it."""
    M, b = given()

    def penalty(solve: Solve, **settings: Any) -> Any:
        def value(b: Any) -> Any:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(b)
                squares = solve(M, b) ** 2
            return tf.reduce_sum(tape.jacobian(squares, b, **settings) ** 2)

        return gradient("tf", value, b)

    check(penalty(by_krylix, experimental_use_pfor=False), penalty(by_inverse))
    with pytest.raises(RuntimeError, match="experimental_use_pfor=False"):
        penalty(by_krylix)
