"""Shapes, containers and dtypes of inputs and outputs, options, and what is refused."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from frameworks import lazy
from krylix.sparse.errors import NonlinearError, UnsupportedOperation
from krylix.sparse.tracing.engine import limits
from krylix.sparse.tracing.matrix_from_function import matrix_from_function

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")
jax_sparse = lazy("jax.experimental.sparse")
jax_rules = lazy("krylix.sparse.tracing.jax.rules")


rng = np.random.default_rng(2)


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Collecting tests imports no framework."""
    global U
    U = jax.ShapeDtypeStruct((5, 5), np.dtype(float))


class Fields(NamedTuple):
    velocity: Any
    pressure: Any


def saddle_point(x: Fields) -> Fields:
    gradient = jnp.concatenate([x.pressure, jnp.zeros(1)]) - jnp.concatenate([jnp.zeros(1), x.pressure])
    return Fields(2 * x.velocity + gradient, jnp.diff(x.velocity) + 1)


def test_containers() -> None:
    like = Fields(jax.ShapeDtypeStruct((4,), np.dtype(float)), jax.ShapeDtypeStruct((3,), np.dtype(float)))
    matrix, bias = matrix_from_function(saddle_point, like)
    x = Fields(rng.standard_normal(4), rng.standard_normal(3))
    image = saddle_point(x)
    assert isinstance(bias, Fields) and bias.pressure.shape == (3,)
    found = matrix.toarray() @ np.concatenate(x) + np.concatenate(bias)
    np.testing.assert_allclose(found, np.concatenate(image), rtol=1e-13)
    np.testing.assert_array_equal(matrix.toarray()[:4, 4:], -matrix.toarray()[4:, :4].T)


def test_rectangular_dictionary() -> None:
    like = {"a": jnp.zeros((2, 3)), "b": jnp.zeros(())}
    matrix, bias = matrix_from_function(lambda x: [x["a"].sum(0) * x["a"].shape[0], 3 * x["b"] + 1], like)
    assert matrix.shape == (4, 7)
    np.testing.assert_array_equal(
        matrix.toarray(), np.vstack([np.hstack([2 * np.eye(3)] * 2 + [np.zeros((3, 1))]), np.eye(7)[6:] * 3])
    )
    assert [np.asarray(b).tolist() for b in bias] == [[0, 0, 0], 1]


def test_mixed_precision_containers() -> None:
    like = [jnp.zeros(3, jnp.float32), jnp.zeros(2, jnp.float64)]
    matrix, bias = matrix_from_function(lambda x: (2 * x[0], 3 * x[1]), like)
    assert matrix.dtype == np.float64 and [b.dtype for b in bias] == [np.float32, np.float64]
    np.testing.assert_array_equal(matrix.toarray(), np.diag([2, 2, 2, 3, 3]))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (1, 1, 1)])
def test_small_inputs(shape: tuple[int, ...]) -> None:
    x = jnp.ones(shape)
    functions: tuple[Callable[[Any], Any], ...] = (
        lambda u: 2 * u + 1,
        lambda u: u.reshape(-1),
        lambda u: jnp.concatenate([u.ravel(), u.ravel()]),
        lambda u: u.sum(),
        lambda u: u[None] * jnp.ones((3, *shape)),
        lambda u: jnp.pad(u.ravel(), 2),
    )
    for f, image in zip(functions, jax.jit(lambda u: [g(u) for g in functions])(x), strict=True):
        matrix, bias = matrix_from_function(f, x)
        assert matrix.shape == (image.size, x.size)
        found = matrix.toarray() @ np.ones(x.size) + np.ravel(bias)
        np.testing.assert_array_equal(found, np.ravel(image))


def test_shapes_are_remembered() -> None:
    matrix, _ = matrix_from_function(lambda u: u[:, :2].sum(1), jnp.zeros((4, 3)))
    assert matrix.in_shape == (4, 3) and matrix.out_shape == (4,)
    np.testing.assert_array_equal(matrix(jnp.ones((4, 3))), [2, 2, 2, 2])


def test_arguments_and_keywords() -> None:
    matrix, bias = matrix_from_function(lambda u, a, *, b: a * u + b, U, 3.0, b=jnp.ones((5, 5)))
    np.testing.assert_array_equal(matrix.toarray(), 3 * np.eye(25))
    np.testing.assert_array_equal(bias, np.ones((5, 5)))


@pytest.mark.parametrize("format", ["csr", "coo", "dia", "ell", "dense"])
def test_formats(format: str) -> None:
    matrix, _ = matrix_from_function(lambda u: jnp.roll(u, 1, 0) - u, U, format=format)
    expected = np.stack([np.ravel(np.roll(e.reshape(5, 5), 1, 0) - e.reshape(5, 5)) for e in np.eye(25)], 1)
    assert matrix.format == format
    np.testing.assert_array_equal(matrix.toarray(), expected)


def test_prune() -> None:
    zeros = np.zeros((5, 5))

    def f(u: Any) -> Any:
        return jnp.roll(u, 1, 0) * zeros + u

    assert matrix_from_function(f, U)[0].nnz == 25
    kept = matrix_from_function(f, U, prune=False)[0]
    assert kept.nnz == 50
    np.testing.assert_array_equal(kept.toarray(), np.eye(25))


def test_zeros_are_kept_within_the_matrix() -> None:
    """Boxes around others reach beyond the columns."""
    left, right = rng.standard_normal((3, 4)), rng.standard_normal((2, 3))

    def f(u: Any) -> Any:
        return jnp.einsum("ij,jk,kl->li", left, u, right)

    x = jnp.zeros((4, 2))
    expected = matrix_from_function(f, x)[0].toarray()
    for format in (None, "csr", "dia"):
        np.testing.assert_allclose(matrix_from_function(f, x, prune=False, format=format)[0].toarray(), expected)


def test_complex() -> None:
    x = jnp.asarray(rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)))
    c = rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4))

    def f(u: Any) -> Any:
        return jnp.fft.fft(c * u) + (1 + 2j) * jnp.roll(u, 1) + c

    matrix, bias = matrix_from_function(f, x)
    np.testing.assert_allclose(matrix.toarray() @ np.ravel(x) + np.ravel(bias), np.ravel(f(x)), rtol=1e-12)
    for part in (jnp.real, jnp.imag, jnp.conj):
        with pytest.raises(UnsupportedOperation, match="complex input"):
            matrix_from_function(lambda u, part=part: part(2 * u), x)


def test_nan_and_infinite_coefficients() -> None:
    c = np.array([1.0, np.nan, np.inf, 0.0])
    matrix, bias = matrix_from_function(lambda u: c * u + c, jnp.zeros(4))
    np.testing.assert_array_equal(matrix.toarray().diagonal(), c)
    np.testing.assert_array_equal(bias, c)
    matrix, bias = matrix_from_function(lambda u: jnp.where(c > 0.5, u, u / c), jnp.zeros(4))
    assert np.isinf(matrix.toarray()[3, 3]) and np.isnan(matrix.toarray()[1, 1])
    matrix, bias = matrix_from_function(lambda u: jnp.where(c == 1, u, 0), jnp.zeros(4))
    assert matrix.nnz == 1
    matrix, bias = matrix_from_function(lambda u: jnp.take(u, np.array([1, 9])), jnp.zeros(4))
    np.testing.assert_array_equal(bias, [0, np.nan])


def test_half_precision() -> None:
    matrix, _ = matrix_from_function(lambda u: (2 * u + 1).astype(jnp.float32), jnp.zeros(3, jnp.float16))
    np.testing.assert_array_equal(matrix.toarray(), 2 * np.eye(3))
    matrix, bias = matrix_from_function(lambda u: 2 * u + 1, jnp.zeros(3, jnp.float16))
    np.testing.assert_array_equal(matrix.toarray(), 2 * np.eye(3))
    assert matrix.dtype == np.float32 and bias.dtype == np.float16
    full = matrix_from_function(lambda u: lax.reduce_precision(u, 11, 52), jnp.zeros(3))[0]
    np.testing.assert_array_equal(full.toarray(), np.eye(3))


def test_rounding_is_no_error() -> None:
    """Large numbers that cancel, and low precision inside."""
    matrix_from_function(lambda u: (1e14 * u + u) - 1e14 * u, jnp.zeros(40))
    matrix_from_function(lambda u: (u.astype(jnp.float32) * 0.1).astype(jnp.float64), jnp.zeros(1000))
    matrix_from_function(lambda u: u.sum() * 1e-9 + u, jnp.zeros(600, jnp.float32))


@pytest.mark.parametrize("size", [20, 60_000])
def test_complex_matrices_are_verified(size: int) -> None:
    for x in (jnp.zeros(size), jnp.zeros(size, complex), [jnp.zeros(size), jnp.zeros(3, complex)]):
        for format in (None, "csr", "dia"):
            matrix, _ = matrix_from_function(
                lambda u: jax.tree.map(lambda leaf: (1 + 2j) * jnp.roll(leaf, 1) - leaf, u), x, format=format
            )
            assert matrix.dtype == np.complex128


def test_a_wrong_matrix_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(jax_rules.RULES, "rev", lambda equation, values: list(values))
    for size in (6, 30_000):
        with pytest.raises(UnsupportedOperation, match="does not reproduce the function"):
            matrix_from_function(lambda u: u[::-1], jnp.zeros(size))
        assert matrix_from_function(lambda u: u[::-1], jnp.zeros(size), verify=False)[0].nnz == size


def test_products_with_sparse_matrices() -> None:
    """Those of krylix and of jax.experimental.sparse."""
    inner, _ = matrix_from_function(lambda u: jnp.roll(u, 1) - 2 * u, jnp.zeros(6))
    d = inner.toarray()
    matrix, _ = matrix_from_function(lambda u: inner @ (inner @ u) + 1, jnp.zeros(6))
    np.testing.assert_allclose(matrix.toarray(), d @ d)
    stored = jax_sparse.BCOO.fromdense(jnp.asarray(d))
    matrix, _ = matrix_from_function(lambda u: stored @ (2 * u), jnp.zeros(6))
    np.testing.assert_allclose(matrix.toarray(), 2 * d)
    assert matrix.nnz == np.count_nonzero(d)


def test_single_precision_by_default() -> None:
    with jax.enable_x64(False):
        matrix, bias = matrix_from_function(lambda u: np.arange(3.0) * u + np.ones(3), np.zeros(3) + jnp.zeros(3))
    assert matrix.dtype == np.float32 and bias.dtype == np.float32
    np.testing.assert_array_equal(matrix.toarray(), np.diag([0, 1, 2]))


NONLINEAR: dict[str, tuple[Callable[[Any], Any], str]] = {
    "mul": (lambda u: u * u, "'mul'.*both factors"),
    "div": (lambda u: 1 / (u + 1), "'div'.*the divisor"),
    "sin": (lambda u: jnp.sin(u) + u, "'sin'"),
    "copysign": (lambda u: jnp.copysign(u, -1.0), "'abs'"),
    "rounds": (lambda u: lax.reduce_precision(u, 5, 2), "'reduce_precision'.*rounds"),
    "where": (lambda u: jnp.where(u > 0, u, 2 * u), "'gt'"),
    "max": (lambda u: jnp.max(u, 0), "'reduce_max'"),
    "abs": (lambda u: jnp.abs(u), "'abs'"),
    "sort": (lambda u: jnp.sort(u), "'sort'"),
    "relu": (lambda u: jax.nn.relu(u), "'max'"),
    "dot": (lambda u: u @ u, "'dot_general'.*both factors"),
    "power": (lambda u: u**2, "'(integer_pow|square)'"),
    "norm": (lambda u: u / jnp.linalg.norm(u), "'(mul|square|sqrt|div)'"),
    "argmax": (lambda u: u[jnp.argmax(u[:, 0])], "'argmax'"),
    "int": (lambda u: u.astype(int) * 1.0, "'convert_element_type'.*no fractions"),
    "convolve": (lambda u: jnp.convolve(u[0], u[1]), "'conv_general_dilated'.*both factors"),
    "scatter-mul": (lambda u: jnp.ones(5).at[np.array([0, 1])].mul(u[0, :2]), "'scatter-mul'.*factors depend"),
    "cond": (lambda u: lax.cond(u[0, 0] > 0, lambda v: v, lambda v: 2 * v, u), "'gt'"),
    "while": (lambda u: lax.while_loop(lambda v: v[0, 0] < 9, lambda v: 2 * v, u), "'lt'"),
    "cumprod": (lambda u: jnp.cumprod(u), "'cumprod'"),
    "round": (lambda u: jnp.round(u), "'round'"),
    "inside-scan": (lambda u: lax.scan(lambda c, x: (c, jnp.exp(x)), 0.0, u)[1], "'exp'"),
    "inside-jit": (lambda u: jax.jit(lambda v: jnp.tanh(v))(u), "'tanh'"),
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_nonlinear(name: str) -> None:
    """The message names the operation, this file with the line, and the way out."""
    f, text = NONLINEAR[name]
    line = f.__code__.co_firstlineno
    with pytest.raises(NonlinearError, match=f"(?s){text}.*jacobian_matrix") as info:
        matrix_from_function(f, U)
    assert f"test_jax_inputs.py:{line} " in str(info.value)
    with pytest.raises(NonlinearError):
        jax.jit(lambda: matrix_from_function(f, U)[1])()


def test_a_function_of_a_library_is_named() -> None:
    """It has no line of the user's."""
    for f in (jnp.abs, functools.partial(jnp.abs), jax.jit(jnp.abs)):
        with pytest.raises(NonlinearError, match=r"^'abs' in jax\.numpy\.abs \("):
            matrix_from_function(f, U)


UNSUPPORTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "solve": (lambda u: jax.scipy.sparse.linalg.cg(lambda v: 2 * v, u)[0], "'custom_linear_solve'.*iterative"),
    "triangular": (
        lambda u: lax.linalg.triangular_solve(jnp.eye(2100), u.sum() * jnp.ones((2100, 1)), left_side=True),
        "'triangular_solve'.*too large",
    ),
    "sort": (lambda u: lax.sort((jnp.zeros(5), u[0]), num_keys=1, is_stable=False)[1], "'sort'.*equal keys"),
    "sort-specials": (lambda u: lax.sort((jnp.full(5, jnp.nan), u[0]), num_keys=1)[1], "'sort'.*NaN"),
    "callback": (lambda u: jax.pure_callback(lambda v: v, U, u), "'pure_callback'.*look into"),
    "apply": (lambda u: u.at[1:3].apply(lambda v: 3 * v), "'scatter'.*set"),
    "windows": (lambda u: lax.reduce_window(u, 0.0, lambda a, b: a + 2 * b, (2, 2), (1, 1), "VALID"), "reduce_window"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported(name: str) -> None:
    f, text = UNSUPPORTED[name]
    with pytest.raises(UnsupportedOperation, match=f"(?s){text}") as info:
        matrix_from_function(f, U)
    assert f"test_jax_inputs.py:{f.__code__.co_firstlineno} " in str(info.value)


def test_the_place_of_an_infinite_element_is_refused() -> None:
    def pool(v: Any) -> Any:
        return lax.reduce_window(v, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID")

    with pytest.raises(UnsupportedOperation, match=r"'select_and_gather_add'.*finite"):
        matrix_from_function(lambda u: jax.jvp(pool, (jnp.full((5, 5), jnp.inf),), (u,))[1], U)


def test_traced_structure_is_refused() -> None:
    cases: list[Callable[[Any, Any], Any]] = [
        lambda u, i: u[i],
        lambda u, i: lax.dynamic_slice(u, (i, 0), (2, 2)),
        lambda u, i: u.at[i].add(1.0),
        lambda u, i: u.at[jnp.stack([i, i])].set(0.0),
        lambda u, i: lax.while_loop(lambda c: c[0] < i, lambda c: (c[0] + 1, 2 * c[1]), (0, u))[1],
    ]
    for f in cases:
        with pytest.raises(UnsupportedOperation, match="not known while the function is traced"):
            jax.jit(lambda i, f=f: matrix_from_function(f, U, i)[1])(1)
        matrix_from_function(f, U, 1)


def test_too_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ENTRIES", 1000)
    with pytest.raises(UnsupportedOperation, match=r"test_jax_inputs\.py"):
        matrix_from_function(lambda u: u - jnp.cumsum(u), jnp.zeros(200))


def test_long_transforms() -> None:
    """Refused before anything of that size is made."""
    for function in (jnp.fft.rfft, jnp.fft.fft, jnp.fft.irfft):
        with pytest.raises(UnsupportedOperation, match=r"'fft'.*stored entries"):
            matrix_from_function(function, jax.ShapeDtypeStruct((1 << 20,), float))


def test_long_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OPERATIONS", 50)
    with pytest.raises(UnsupportedOperation, match="more than 50 operations"):
        matrix_from_function(lambda u: lax.fori_loop(0, 200, lambda i, x: x + u, u), U)
    with pytest.raises(UnsupportedOperation, match="more than 50 operations"):
        matrix_from_function(
            lambda u: lax.while_loop(lambda c: c[0] < 1e9, lambda c: (c[0] + 1, c[1] * 1.0), (0.0, u))[1], U
        )


@pytest.mark.parametrize("dtype", ["int32", "bool", "bfloat16"])
def test_integers_are_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match=r"the input.*expected a floating or complex"):
        matrix_from_function(lambda u: 2 * u, jnp.zeros(3, dtype))
    with pytest.raises(TypeError, match=r"an output.*expected a floating or complex"):
        matrix_from_function(lambda u: jnp.zeros(3, dtype), jnp.zeros(3))


def test_other_arrays_are_refused() -> None:
    for like in ([1.0, 2.0], (3, 4), None):
        with pytest.raises(UnsupportedOperation, match=r"expected an array of JAX.*ShapeDtypeStruct"):
            matrix_from_function(lambda u: 2 * u, like)


def test_nothing_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    k = rng.random((9, 9))

    def f(u: Any) -> Any:
        p = jnp.pad(u, 1, mode="edge")
        m = jnp.asarray(k) > 0.5
        r = jnp.where(m, p[2:, 1:-1] + k * p[:-2, 1:-1], u[::-1]) + jnp.cumsum(u, 0)
        return (r @ k).at[0].set(jnp.linspace(0, 1, 9)) + jnp.sqrt(k)

    x = jnp.zeros((9, 9))
    matrix_from_function(f, x)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        matrix_from_function(lambda u: f(u) * 1.0, x)
    assert not [record for record in caplog.records if "ompil" in record.getMessage()]


def test_the_first_power_is_linear_and_others_are_not() -> None:
    matrix, _ = matrix_from_function(lambda u: 3 * u**1.0, jnp.ones(4))
    np.testing.assert_array_equal(matrix.toarray(), 3 * np.eye(4))
    for function in (lambda u: u**1.5, lambda u: 1.0**u, lambda u: u ** np.array([1.0, 1, 2, 1])):
        with pytest.raises(NonlinearError, match="pow"):
            matrix_from_function(function, jnp.ones(4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2"])
def test_less_than_single_precision_is_refused_by_name(dtype: str) -> None:
    """One rule for all: what rounds to a few digits is no matrix of single precision."""
    with pytest.raises(NonlinearError, match=f"{dtype}.*less than single precision"):
        matrix_from_function(lambda u: u.astype(dtype).astype(u.dtype), jnp.zeros(3, jnp.float32))
