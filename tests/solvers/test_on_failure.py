"""`on_failure="nan"`, and the default that a user sets once."""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import NotConverged, get_on_failure, linear_solve, on_failure, prepare, set_global_on_failure
from modes import COMPILED, EAGER, MODES, array, compiled, solve, to_numpy
from problems import make_operator

N = 6
WEIGHTS = np.logspace(0, 3, N)
MATRIX = WEIGHTS[:, None] * (3 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)) * WEIGHTS
B = np.stack([np.ones(N), np.full(N, np.nan), np.cos(np.arange(N))])  # of which the second has no solution
GOOD = [0, 2]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = get_on_failure()
    yield
    set_global_on_failure(before)


# --- x is NaN -------------------------------------------------------------------------------------------------------


@pytest.mark.compiled_by_default("CG", eagerly=True)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "GMRES", "direct", "scipy-direct", "scipy-CG", "auto"])
def test_only_x_of_failed_systems_differs(method: str, mode: str) -> None:
    A = make_operator(mode, "dense", MATRIX)
    plain, found = (solve(mode, A, B, method=method, on_failure=policy) for policy in ("status", "nan"))
    assert np.isnan(found.x[1]).all() and found.converged.tolist() == [True, False, True]
    # A dense program that may not call the host examines its factors by itself: the same numbers up to rounding.
    rounding = 1e-13 if method in ("direct", "auto") and mode in ("jax-jit", "tf-function") else 0
    np.testing.assert_allclose(found.x[GOOD], plain.x[GOOD], rtol=rounding, atol=rounding)
    for name in ("residual", "residual_norm"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=rounding, atol=rounding)
    for name in ("iterations", "status"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
    assert found.message == plain.message


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_dtypes_and_zeros_stay(dtype: str, mode: str) -> None:
    b = np.where(np.isnan(B), np.nan, B * [[1], [1], [0]]).astype(dtype)
    found = solve(mode, make_operator(mode, "dense", MATRIX.astype(dtype)), b, method="biCG-stab(2)", on_failure="nan")
    assert found.x.dtype == dtype and np.isnan(found.x[1].real).all()
    assert dtype == "float32" or np.isnan(found.x[1].imag).all()  # a part that is a number would be believed
    assert np.isfinite(found.x[0]).all() and (found.x[2] == 0).all()


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", MODES)
def test_the_last_of_several_limits_decides(mode: str) -> None:
    A, b = make_operator(mode, "dense", MATRIX), B[GOOD]
    plain, found = (solve(mode, A, b, method="CG", max_iter=(2, 3), on_failure=policy) for policy in ("status", "nan"))
    np.testing.assert_array_equal(found.x[0], plain.x[0])
    assert np.isfinite(found.x[0]).all() and np.isnan(found.x[1]).all()


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize("mode", EAGER)
def test_containers_axes_and_least_squares(mode: str) -> None:
    b = {"a": array(mode, B[:, :2]), "c": array(mode, B[:, 2:])}
    x = linear_solve(
        lambda x: {name: 2 * leaf for name, leaf in x.items()}, b, method="CG", batch_ndim=1, on_failure="nan"
    ).x
    for name, leaf in b.items():
        np.testing.assert_array_equal(to_numpy(x[name]), to_numpy(leaf) / 2)
    x = to_numpy(linear_solve(array(mode, MATRIX), array(mode, B.T), axis=0, method="direct", on_failure="nan").x)
    assert np.isnan(x[:, 1]).all() and np.isfinite(x[:, GOOD]).all()
    if mode != "jax":
        tall = array(mode, np.concatenate([MATRIX, np.eye(N)]))
        rows = np.concatenate([B, B], axis=1)
        result = linear_solve(tall, array(mode, rows), method="LSMR", max_iter=200, on_failure="nan")
        x, converged = to_numpy(result.x), to_numpy(result.converged)
        assert np.isnan(x[~converged]).all() and np.isfinite(x[converged]).all()


@pytest.mark.parametrize("mode", EAGER)
def test_prepared_solvers(mode: str) -> None:
    """They keep what held when they were prepared."""
    with on_failure("nan"):
        solver = prepare(array(mode, MATRIX), array(mode, B), method="CG")
    for again in (solver, solver.update(array(mode, 2 * MATRIX))):
        x = to_numpy(again.solve(array(mode, B)).x)
        assert np.isnan(x[1]).all() and np.isfinite(x[GOOD]).all()
    with on_failure("nan"), pytest.raises(NotConverged):
        prepare(array(mode, MATRIX), array(mode, B), method="CG", max_iter=1, on_failure="raise").solve(
            array(mode, B[0])
        )


@pytest.mark.parametrize("mode", EAGER)
def test_another_method_may_help_first(mode: str) -> None:
    """Eagerly, where no program is needed for it."""
    A = sp.diags_array([np.full(3000, -1.0), np.linspace(2, 3, 3001), np.full(3000, -1.0)], offsets=[-1, 0, 1]).tocsr()
    order = np.random.default_rng(0).permutation(3001)
    result = linear_solve(A[order][:, order], array(mode, np.ones(3001)), max_iter=1, on_failure="nan")
    assert np.isfinite(to_numpy(result.x)).all() and bool(result.converged)


# --- no program calls the host --------------------------------------------------------------------------------------


def star(u: Any, k: Any, roll: Any) -> Any:
    return (4 + k) * u - roll(u, 1, 0) - roll(u, -1, 0) - roll(u, 1, 1) - roll(u, -1, 1)


def lowered(method: str, policy: str, transform: str, known: bool) -> str:
    """A program of JAX, as text; `auto` with values that are arguments on a grid where the host sets multigrid up."""
    import jax

    jnp = jax.numpy
    n = 330 if method == "auto" and not known else 12
    k = jnp.exp(jnp.cos(jnp.arange(float(n * n)))).reshape(n, n)

    def value(b: Any, given: Any) -> Any:
        return linear_solve(
            lambda u: star(u, k if known else given, jnp.roll), b, method=method, on_failure=policy
        ).x.sum()

    function = {"one": value, "mapped": jax.vmap(value, (0, None)), "gradient": jax.grad(value)}[transform]
    b = jnp.ones((2, n, n) if transform == "mapped" else (n, n))
    text: str = jax.jit(function).lower(b, k).as_text()
    return text


PROGRAMS = [
    ("auto", "one", True),
    ("auto", "mapped", True),
    ("auto", "gradient", True),
    ("CG", "gradient", False),
    ("GMRES", "mapped", False),
    pytest.param("direct", "gradient", False, marks=pytest.mark.merge),
    pytest.param("auto", "one", False, marks=pytest.mark.slow),
    pytest.param("auto", "gradient", False, marks=pytest.mark.merge),
]


@pytest.mark.needs("jax")
@pytest.mark.parametrize(("method", "transform", "known"), PROGRAMS)
def test_programs_of_jax_hold_no_callback(method: str, transform: str, known: bool) -> None:
    text = lowered(method, "nan", transform, known)
    assert "callback" not in text and "krylix_by_host" not in text


@pytest.mark.needs("jax")
def test_which_others_do() -> None:
    assert "krylix_by_host" in lowered("auto", "raise", "one", True)


def operations(method: str, policy: str) -> set[str]:
    """The kinds in a graph of TensorFlow."""
    import tensorflow as tf

    def function(b: Any, k: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(b)
            x = linear_solve(lambda u: star(u, k, tf.roll), b, method=method, on_failure=policy).x
            loss = tf.reduce_sum(x)
        return tape.gradient(loss, b)

    spec = tf.TensorSpec((8, 8), tf.float64)
    graph = tf.function(function, autograph=False).get_concrete_function(spec, spec).graph.as_graph_def()
    inner = (node for function in graph.library.function for node in function.node_def)
    return {node.op for node in (*graph.node, *inner)}


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("method", ["CG", *(pytest.param(m, marks=pytest.mark.merge) for m in ("auto", "direct"))])
def test_graphs_of_tensorflow_call_no_python(method: str) -> None:
    assert not [kind for kind in operations(method, "nan") if "PyFunc" in kind]
    if method == "auto":
        assert [kind for kind in operations(method, "raise") if "PyFunc" in kind]


# --- the default ----------------------------------------------------------------------------------------------------


def test_contexts_nest() -> None:
    assert get_on_failure() == "raise"
    with on_failure("nan"):
        with on_failure("warn"):
            assert get_on_failure() == "warn"
        with pytest.raises(KeyError), on_failure("status"):
            raise KeyError
        set_global_on_failure("warn")
        assert get_on_failure() == "nan"
    assert get_on_failure() == "warn"


def test_threads() -> None:
    """A context belongs to its thread, the global default to all."""
    barrier = Barrier(3)

    def work(policy: str) -> tuple[str, str]:
        with on_failure(policy):
            barrier.wait(10)
            inside = get_on_failure()
            barrier.wait(10)
        return inside, get_on_failure()

    set_global_on_failure("status")
    with on_failure("nan"), ThreadPoolExecutor(3) as pool:
        policies = ("raise", "warn", "nan")
        assert list(pool.map(work, policies)) == [(policy, "status") for policy in policies]


@pytest.mark.parametrize("call", [set_global_on_failure, lambda policy: on_failure(policy).__enter__()])
def test_unknown_policies(call: Any) -> None:
    with pytest.raises(ValueError, match="'raise', 'warn', 'status', 'nan'; got 'ignore'"):
        call("ignore")


def test_the_default_of_solves() -> None:
    def solved(**settings: Any) -> Any:
        return linear_solve(MATRIX, B, method="CG", **settings).x

    with pytest.raises(NotConverged.__base__):
        solved()
    set_global_on_failure("nan")
    assert np.isnan(solved()[1]).all()
    with on_failure("status"):
        assert not np.isnan(solved()[0]).any()
        with pytest.raises(RuntimeError):
            solved(on_failure="raise")
    with warnings.catch_warnings(record=True) as caught, on_failure("warn"):
        warnings.simplefilter("always")
        solved()
    assert len(caught) == 1


def test_a_solve_inside_of_another_one_has_its_own() -> None:
    """The argument of a solve is no default for those that its function makes."""
    inner = np.diag(np.arange(1.0, 5))

    def f(u: np.ndarray) -> np.ndarray:
        assert get_on_failure() == "raise"
        with pytest.raises(RuntimeError):
            linear_solve(inner, np.ones(4), method="CG", max_iter=1)
        return 2 * u

    assert krylix.linear_solve(f, np.ones(4), method="CG", on_failure="nan").converged


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", COMPILED)
def test_what_a_compiled_function_keeps(mode: str) -> None:
    """TensorFlow's what held when it was traced; JAX's and PyTorch's follow what holds where they are called."""
    A = make_operator(mode, "dense", MATRIX)
    function = compiled(mode, lambda b: linear_solve(A, b, method="CG").x)
    with on_failure("nan"):
        assert np.isnan(to_numpy(function(array(mode, B)))[1]).all()
    if mode == "tf-function":
        assert np.isnan(to_numpy(function(array(mode, B)))[1]).all()
    else:
        with pytest.raises(RuntimeError, match=r"converged|diverged|NaN"):
            to_numpy(function(array(mode, B)))


# --- warnings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", EAGER)
def test_warnings_name_the_line_of_the_caller(mode: str) -> None:
    A, b = make_operator(mode, "dense", MATRIX), array(mode, B[0])
    with pytest.warns(RuntimeWarning, match="CG reached the limit") as caught:
        linear_solve(A, b, method="CG", max_iter=1, on_failure="warn")
    assert [warning.filename for warning in caught] == [__file__]
