"""The NumPy rules for known operands against JAX itself, operation by operation."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix.backends import get_backend

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")
jax_known = lazy("krylix.sparse.tracing.jax.known")
interpreter = lazy("krylix.sparse.tracing.jax.interpreter")


rng = np.random.default_rng(3)
X = rng.standard_normal((4, 5))
Y = rng.standard_normal((4, 5))
P = np.abs(X) + 0.1
Z = X + 1j * Y
I32 = rng.integers(-50, 50, (4, 5)).astype(np.int32)
J32 = np.where(I32 == 0, 3, rng.integers(1, 9, (4, 5)) * rng.choice([-1, 1], (4, 5))).astype(np.int32)
U8 = rng.integers(0, 256, (4, 5)).astype(np.uint8)
B = X > 0
F32 = X.astype(np.float32)
IMAGE = rng.standard_normal((2, 4, 7, 6))
KERNEL = rng.standard_normal((6, 2, 3, 2))


def run(f: Callable[..., Any], *args: Any) -> list[Any]:
    """The outputs of f by the rules."""
    program = jax.make_jaxpr(f)(*args)
    return interpreter.JaxprInterpreter(get_backend("jax")).run(program, [np.asarray(a) for a in args])


def check(f: Callable[..., Any], *args: Any, by_jax: Any = None) -> None:
    expected = jax.tree.leaves(jax.jit(f)(*args) if by_jax is None else by_jax)
    found = run(f, *args)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert isinstance(a, np.ndarray)
        assert a.dtype == b.dtype and a.shape == b.shape
        b = np.asarray(b)
        if a.dtype.kind in "fc":
            unit = float(np.finfo(a.dtype).eps)
            np.testing.assert_allclose(a, b, rtol=200 * unit, atol=50 * unit)
        else:
            np.testing.assert_array_equal(a, b)


ELEMENTWISE = {
    "add": (lambda x, y: x + y, X, Y),
    "add-wraps": (lambda x: x + np.int32(2**31 - 1), I32),
    "uint8-wraps": (lambda x: x * x + x, U8),
    "mul-complex": (lambda z: z * z * 2j, Z),
    "div": (lambda x, y: x / y, X, Y),
    "div-zero": (lambda x: x / 0.0, X),
    "floor-div": (lambda i, j: i // j, I32, J32),
    "lax-div": (lambda i, j: lax.div(i, j), I32, J32),
    "lax-div-zero": (lambda i: lax.div(i, jnp.zeros_like(i)), I32),
    "lax-div-uint": (lambda i: lax.div(i, jnp.full_like(i, 7)), U8),
    "lax-rem": (lambda i, j: lax.rem(i, j), I32, J32),
    "mod": (lambda i, j: i % j, I32, J32),
    "mod-float": (lambda x, y: x % y, X, Y),
    "neg": (lambda x: -x, F32),
    "abs-complex": (lambda z: jnp.abs(z), Z),
    "sign": (lambda x: jnp.sign(x), X),
    "square": (lambda x: jnp.square(x), F32),
    "max-min": (lambda x, y: jnp.maximum(x, y) - jnp.minimum(x, y), X, Y),
    "max-nan": (lambda x: jnp.maximum(x, jnp.nan), X),
    "clamp": (lambda x: lax.clamp(-0.5, x, 0.5), X),
    "compare": (lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), X, Y),
    "logic": (lambda b, x: ((b & (x > 1)) | ~b) ^ b, B, X),
    "bits": (lambda i, j: ((i & j) | (i ^ j), ~i), I32, J32),
    "shifts": (lambda i: (i << 3, i >> 2, lax.shift_right_logical(i, jnp.full_like(i, 5))), I32),
    "shift-far": (lambda i: (i << 40, i >> 40), I32),
    "finite": (lambda x: jnp.isfinite(x / (x > 0)), X),
    "parts": (lambda z: (z.real, z.imag, jnp.conj(z), lax.complex(z.imag, z.real)), Z),
    "complex-inf": (lambda x: lax.complex(x, x / 0.0), X),
    "rounding": (lambda x: (jnp.floor(3 * x), jnp.ceil(3 * x), jnp.round(3 * x), jnp.trunc(3 * x)), X),
    "round-half": (
        lambda x: (jnp.round(x), lax.round(x)),
        np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994]),
    ),
    "roots": (lambda x: (jnp.sqrt(x), lax.rsqrt(x), jnp.cbrt(x)), P),
    "sqrt-complex": (lambda z: jnp.sqrt(z), Z),
    "exponentials": (lambda x: (jnp.exp(x), jnp.exp2(x), jnp.expm1(x), jnp.log(x), jnp.log1p(x)), P),
    "exp-complex": (lambda z: jnp.exp(z), Z),
    "trigonometry": (lambda x: (jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan2(x, 0.3), jnp.arctan(x)), X),
    "arcs": (lambda x: (jnp.arcsin(x), jnp.arccos(x)), np.tanh(X)),
    "hyperbolic": (lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.tanh(x), jax.nn.sigmoid(x)), F32),
    "special": (lambda x: (lax.erf(x), lax.erfc(x), lax.lgamma(x), lax.erf_inv(jnp.tanh(x))), P),
    "bessel-by-jax": (lambda x: lax.bessel_i0e(x), X),
    "pow": (lambda x, y: x**y, P, Y),
    "integer-pow": (lambda x: (x**2, x**3, x**5, x**-2, x**0), P),
    "integer-pow-int": (lambda i: i**4, I32),
    "nextafter": (lambda x: jnp.nextafter(x, 2.0), X),
    "to-float": (lambda i: i.astype(jnp.float32), I32),
    "to-int": (lambda x: (3 * x).astype(jnp.int32), X),
    "to-int-saturates": (lambda x: (x * 1e12).astype(jnp.int32), X),
    "to-uint": (lambda x: (jnp.abs(3 * x)).astype(jnp.uint8), X),
    "to-bool": (lambda i: i.astype(bool), I32),
    "to-complex": (lambda x: x.astype(jnp.complex64), X),
    "narrow": (lambda i: i.astype(jnp.int8), I32 * 7),
    "bool-to-float": (lambda b: b.astype(float) * 2, B),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.int64), X),
    "bitcast-narrow": (lambda x: lax.bitcast_convert_type(x, jnp.int32), X),
    "half": (lambda x: jnp.exp(x.astype(jnp.bfloat16)) + x.astype(jnp.bfloat16), X),
    "half-sum": (lambda x: x.astype(jnp.float16).sum(), X),
    "where": (lambda b, x, y: jnp.where(b, x, y), B, X, Y),
    "where-scalar": (lambda x, y: lax.select_n(x[0, 0] > 0, x, y), X, Y),
    "choose": (lambda i, x, y: lax.select_n(i % 3, x, y, x + y), I32, X, Y),
    "choose-many": (lambda i, x: lax.select_n(i % 70, *[k * x for k in range(70)]), I32 + 50, X),
    "sign-bit": (lambda x: jnp.signbit(x[0, 0]), X),
    "iota": (lambda: lax.broadcasted_iota(jnp.int32, (3, 4), 1)),
    "iota-float": (lambda: jnp.arange(5.0) * jnp.ones((3, 5))),
    "linspace": (lambda: jnp.linspace(0, 1, 7)),
    "constant-grid": (lambda x: jnp.full((4, 5), 0.5) * 2 / jnp.full((1, 1), 3.0) + x, X),
}


STRUCTURE = {
    "reshape": lambda x: (x.reshape(-1), x.reshape(5, 4), x.T.reshape(2, 10)),
    "reshape-order": lambda x: x.reshape(5, 4, order="F"),
    "slice": lambda x: (x[1:4:2, ::3], x[::-1, ::-2]),
    "pad": lambda x: lax.pad(x, 1.5, [(1, 2, 0), (0, 1, 2)]),
    "pad-cut": lambda x: lax.pad(x, 1.5, [(-1, 2, 1), (-3, -2, 2)]),
    "pad-cut-all": lambda x: lax.pad(x, 1.5, [(-6, 9, 0), (1, 1, 0)]),
    "pad-modes": lambda x: [
        jnp.pad(x, 2, mode=m) for m in ("edge", "wrap", "reflect", "symmetric", "linear_ramp", "mean")
    ],
    "join": lambda x: (jnp.concatenate([x, 2 * x], 1), jnp.stack([x, x], 2), jnp.tile(x, (2, 3)), jnp.repeat(x, 2, 1)),
    "split": lambda x: jnp.split(x, [1, 4], 1),
    "unstack": lambda x: jnp.unstack(x, axis=1),
    "roll": lambda x: jnp.roll(x, (1, -2), (0, 1)),
    "dynamic-slice": lambda x: lax.dynamic_slice(x, (2, 9), (3, 2)),
    "dynamic-update": lambda x: lax.dynamic_update_slice(x, 2 * x[:2, :3], (9, -1)),
    "take": lambda x: (
        x[np.array([2, 0, -1])],
        x[:, np.array([[1, 1], [4, 0]])],
        x[np.array([0, 3]), np.array([1, 4])],
    ),
    "take-fill": lambda x: x.at[np.array([2, 9, -9])].get(mode="fill", fill_value=7.0),
    "take-fill-default": lambda x: (
        jnp.take(x, np.array([2, 9]), axis=1),
        x.astype(int).at[np.array([0, 9])].get(mode="fill"),
    ),
    "take-clip": lambda x: x.at[np.array([2, 9, -9])].get(mode="clip"),
    "take-promise": lambda x: x.at[np.array([2, 9])].get(mode="promise_in_bounds"),
    "take-uint": lambda x: jnp.take(x, np.array([2, 200], np.uint8), axis=0, mode="clip"),
    "take-along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "take-window": lambda x: jax.vmap(lambda i: lax.dynamic_slice(x, (i, i), (2, 3)))(jnp.array([0, 1, 5])),
    "take-batched": lambda x: jax.vmap(lambda r, i: r[i])(x, jnp.array([1, 0, 4, 9])),
    "take-scalar": lambda x: x[1, jnp.array(2)],
    "take-none": lambda x: x[np.zeros(0, int)],
    "put": lambda x: (
        x.at[np.array([0, 2])].set(1.5),
        x.at[0].set(x[1]),
        x.at[:, -1].add(x[:, 0]),
        x.at[1:3, 2].mul(3.0),
    ),
    "put-drop": lambda x: x.at[np.array([0, 9, -9])].add(1.5),
    "put-clip": lambda x: x.at[np.array([0, 9])].set(1.5, mode="clip"),
    "put-promise": lambda x: x.at[np.array([0, 9])].set(1.5, mode="promise_in_bounds"),
    "put-duplicates": lambda x: (x.at[np.array([1, 1, 2])].add(x[:3]), x.at[np.array([1, 1])].multiply(2.0)),
    "put-extremes": lambda x: (x.at[np.array([1, 1])].max(x[:2]), x.at[np.array([1, 1])].min(x[:2])),
    "put-window": lambda x: jax.vmap(lambda r, i: lax.dynamic_update_slice(r, 2 * r[:2], (i,)))(
        x, jnp.array([0, 3, 9, 1])
    ),
    "segment-sum": lambda x: jax.ops.segment_sum(x, np.array([2, 0, 2, 7]), 3),
    "bool-put": lambda x: (x > 0).at[1].set(True),
}


def test_functions_applied_in_place() -> None:
    check(lambda x: (x.at[1:3].apply(lambda y: 3 * y), x.at[np.array([0, 0])].apply(jnp.sin)), X)


REDUCTIONS = {
    "sums": lambda x: (x.sum(), x.sum(0), x.mean(1), x.prod(1), x.max(0), x.min(), jnp.linalg.norm(x)),
    "sums-empty": lambda x: (x[:0].sum(0), x[:0].prod(), x[:, :0].sum(1)),
    "max-empty": lambda x: x[:0].max(0, initial=-3.0),
    "sums-int": lambda x: ((3 * x).astype(jnp.int32).sum(0), (90 * x).astype(jnp.int8).sum(0, dtype=jnp.int8)),
    "sums-single": lambda x: (x.astype(jnp.float32).sum(0), x.astype(jnp.float32).mean()),
    "any and all": lambda x: (jnp.any(x > 1, 0), jnp.all(x > -1, 1), lax.reduce_xor((9 * x).astype(int), (0,))),
    "which": lambda x: (jnp.argmax(x), jnp.argmin(x, 1), jnp.argmax(jnp.round(x), 0), jnp.argmax(x > 0, 1)),
    "which-nan": lambda x: jnp.argmax(jnp.where(x > 1, jnp.nan, x), 1),
    "running": lambda x: (
        jnp.cumsum(x, 0),
        lax.cumsum(x, 1, reverse=True),
        jnp.cumprod(x, 1),
        lax.cummax(x, 1),
        lax.cummin(x, 0),
    ),
    "running-int": lambda x: jnp.cumsum((x * 90).astype(jnp.int8), 1, dtype=jnp.int8),
    "sort": lambda x: (jnp.sort(x, 0), jnp.argsort(jnp.round(x), 1), jnp.lexsort((x[0], jnp.round(x[1])))),
    "sort-specials": lambda x: jnp.sort(jnp.where(x > 1, jnp.nan, jnp.where(x < -1, -0.0, jnp.round(x)))),
    "sort-carried": lambda x: lax.sort((jnp.round(x), x, -x), dimension=1, num_keys=2),
    "top": lambda x: lax.top_k(x, 2),
    "unique": lambda x: jnp.unique(jnp.round(x), size=6),
    "search": lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]),
    "products": lambda x: (
        x @ x.T,
        jnp.einsum("ij,kj->ki", x, x),
        jnp.tensordot(x, x, 2),
        jnp.outer(x[0], x[1]),
        x[0] @ x[1],
    ),
    "products-batched": lambda x: (
        jnp.einsum("bi,bj->bij", x, x),
        jnp.einsum("bij,bjk->bki", x[:, :, None], x[:, None]),
    ),
    "products-int": lambda x: (9 * x).astype(jnp.int32) @ (9 * x).astype(jnp.int32).T,
    "products-mixed": lambda x: lax.dot(
        x.astype(jnp.float32), x.T.astype(jnp.float32), preferred_element_type=jnp.float64
    ),
    "products-complex": lambda x: (x + 1j) @ (x.T * 2j),
    "windows": lambda x: (
        lax.reduce_window(x, 0.0, lax.add, (2, 3), (1, 2), "SAME"),
        lax.reduce_window(x, 0.0, lax.add, (2, 2), (2, 1), [(1, 0), (0, 2)], (2, 1), (1, 2)),
        lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID"),
    ),
    "convolve": lambda x: (jnp.convolve(x[0], x[1], "same"), jax.scipy.signal.convolve2d(x, x[:2, :2], "full")),
    "fft": lambda x: jnp.fft.fft(x).real,
    "random": lambda x: x + jax.random.normal(jax.random.key(1), x.shape),
    "loops": lambda x: (
        lax.fori_loop(0, 3, lambda i, c: c * 0.5 + i, x),
        lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1],
        lax.scan(lambda c, r: (c + r, c * 2), x[0], x, reverse=True),
        lax.cond(x[0, 0] > 0, lambda v: v, lambda v: 2 * v, x),
        lax.fori_loop(0, 400, lambda i, c: c * 0.99 + i, x),
    ),
    "wrapped": lambda x: (jax.nn.relu(x), jax.checkpoint(jnp.sin)(x), jax.jit(jnp.cos)(x), jax.nn.logsumexp(x, 0)),
    "solve": lambda x: jnp.linalg.solve(x[:4, :4], x),
    "interp": lambda x: jnp.interp(x[0], jnp.arange(3.0), x[1, :3]),
}


CASES: dict[str, tuple[Any, ...]] = {
    **{name: case if isinstance(case, tuple) else (case,) for name, case in ELEMENTWISE.items()},
    **{name: (f, X) for name, f in {**STRUCTURE, **REDUCTIONS}.items()},
}


@cache
def compiled_by_jax() -> dict[str, Any]:
    """The outputs of all cases, in one program."""
    program = jax.jit(lambda args: {name: CASES[name][0](*given) for name, given in args.items()})
    found: dict[str, Any] = program({name: case[1:] for name, case in CASES.items()})
    return found


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    check(*CASES[name], by_jax=compiled_by_jax()[name])


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "groups": {"feature_group_count": 2},
    "strides": {"feature_group_count": 2, "window_strides": (2, 3), "padding": [(1, 2), (0, 1)]},
    "dilation": {"feature_group_count": 2, "lhs_dilation": (2, 1), "rhs_dilation": (2, 2), "padding": [(2, 2), (1, 3)]},
    "cut": {"feature_group_count": 2, "padding": [(-1, 0), (2, -1)]},
    "batch-groups": {"batch_group_count": 2},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_convolution(name: str, layout: str) -> None:
    settings = {"window_strides": (1, 1), "padding": "SAME", **CONVOLUTIONS[name]}
    kernel = rng.standard_normal((6, 4, 3, 2)) if "batch_group_count" in settings else KERNEL
    image, numbers = IMAGE, ("NCHW", "OIHW", "NCHW")
    if layout == "NHWC":
        image, kernel, numbers = image.transpose(0, 2, 3, 1), kernel.transpose(2, 3, 1, 0), ("NHWC", "HWIO", "NHWC")
    check(lambda a, k: lax.conv_general_dilated(a, k, dimension_numbers=numbers, **settings), image, kernel)


SLOW_RULES = {
    *("lax-div-zero", "shift-far", "complex-inf", "bessel-by-jax", "to-int-saturates", "bitcast-narrow"),
    *("half", "half-sum"),
}


def test_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(equation: Any, values: Any) -> Any:
        raise AssertionError(f"{equation.primitive} was left to XLA")

    monkeypatch.setattr(jax_known, "evaluate_by_jax", refuse)
    reductions = ("sums", "which", "running", "sort", "top", "products", "products-batched", "convolve", "wrapped")
    for name in (*ELEMENTWISE, *STRUCTURE, *reductions):
        if name not in SLOW_RULES:
            run(*CASES[name])


def test_operands_are_not_changed() -> None:
    for functions in (STRUCTURE, REDUCTIONS):
        for function in functions.values():
            before = X.copy()
            run(function, X)
            np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (1,), ()])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    check(lambda x: (x + 1, x * x, jnp.where(x > 0, x, 0), x.sum(), x.reshape(-1), jnp.broadcast_to(x, (2, *shape))), x)


def test_positions_in_the_place_of_numbers_stay_integers() -> None:
    """Above 2^24 they are no numbers of single precision."""
    equation = jax.make_jaxpr(lambda x: x[::-1])(jnp.zeros(3, jnp.float32)).eqns[0]
    positions = np.array([2**24 + 1, 2**24 + 3, 2**24 + 5])
    (found,) = jax_known.evaluate_equation(equation, [positions])
    assert found.dtype == positions.dtype and np.array_equal(found, positions[::-1])
