"""Programs of JAX in canonical form: functions that compute the same share one, and no others do.

Whatever shares a program is run with the other one's arguments, and compared with the function itself: its values, its
derivatives and those of these.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from frameworks import lazy

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")
program_of = lazy("krylix.backends.jax.program.function")

Function = Callable[[Any], Any]
N = 4
POINT = np.linspace(0.3, 1.7, N)
K = np.linspace(1.0, 2.0, N)


def custom_jvp(forward: Function, slope: Function) -> Function:
    """With any rule for its derivative, right or wrong."""
    function = jax.custom_jvp(forward)
    function.defjvp(lambda p, t: (function(p[0]), slope(p[0]) * t[0]))
    return function


def custom_vjp(forward: Function, slope: Function) -> Function:
    function = jax.custom_vjp(forward)
    function.defvjp(lambda x: (function(x), x), lambda x, g: (slope(x) * g,))
    return function


def ordered(*slopes: Function) -> Function:
    """A function whose derivatives are these, one after the other."""
    return slopes[0] if len(slopes) == 1 else custom_jvp(slopes[0], ordered(*slopes[1:]))


def slopes() -> list[Function]:
    return [jnp.cos, jnp.sin, lambda v: 2 * jnp.cos(v), lambda v: v]


def wide(x: Any) -> Any:
    return jnp.outer(x, jnp.cos(x))


# Functions of one family differ in one parameter. Where only numbers differ, they are to share their program.
NUMBERS: dict[str, Callable[[float, Any], Function]] = {
    "number": lambda s, k: lambda x: s * x + k,
    "added": lambda s, k: lambda x: (x + s) / (k - s),
    "NumPy number": lambda s, k: lambda x: np.float64(s) * x * np.asarray(k),
    "full array": lambda s, k: lambda x: jnp.full(N, s) * x,
    "inner jit": lambda s, k: lambda x: jax.jit(lambda v: s * v * k)(x),
    "jit in jit": lambda s, k: lambda x: jax.jit(lambda v: jax.jit(lambda w: s * w - k)(v) * v)(x),
    "scan": lambda s, k: lambda x: lax.scan(lambda c, a: (c + s * a[0], c * a[1]), s, (x, k))[1],
    "fori_loop": lambda s, k: lambda x: lax.fori_loop(0, 3, lambda i, v: v * (1 + s * k), x),
    "while_loop": lambda s, k: lambda x: lax.while_loop(
        lambda c: c[0] < 5 * s, lambda c: (c[0] + s, c[1] * k), (s, x)
    )[1],
    "cond": lambda s, k: lambda x: lax.cond(jnp.sum(x) > 9 * s, lambda v: v * k, lambda v: s * v, x),
    "switch": lambda s, k: lambda x: lax.switch(1, [lambda v: v * k, lambda v: v * s], x),
    "checkpoint": lambda s, k: lambda x: jax.checkpoint(lambda v: jnp.sin(v * s) * k)(x),
    "relu": lambda s, k: lambda x: jax.nn.relu(k * x - s) * x,
    "custom_jvp": lambda s, k: lambda x: custom_jvp(lambda v: s * v, lambda v: 2 * s * v)(x) * k,
    "custom_vjp": lambda s, k: lambda x: custom_vjp(lambda v: s * v, lambda v: 2 * s * v)(x) * k,
    "rule in jit": lambda s, k: lambda x: jax.jit(custom_jvp(lambda v: s * v, lambda v: s * s * v))(x),
    "rule in scan": lambda s, k: lambda x: lax.scan(
        lambda c, a: (c, custom_jvp(jnp.sin, lambda v: s * v)(a)), 0.0, x
    )[1],
    "array of a rule": lambda s, k: lambda x: custom_jvp(jnp.sin, lambda v: k * v)(x),
    "vmap": lambda s, k: lambda x: jax.vmap(lambda a, c: s * a * c)(x, k),
    "grad": lambda s, k: jax.grad(lambda v: jnp.sum(s * k * v**3)),
    "comparison": lambda s, k: lambda x: jnp.where(jnp.arange(N) < int(5 * s), x, k),
    "rules of all orders": lambda s, k: lambda x: ordered(*(lambda v, i=i: s * v + i for i in range(4)))(x),
}  # fmt: skip

# Each list: functions of which no two compute the same, or have the same derivatives.
STRUCTURES: dict[str, Callable[[], list[Function]]] = {
    "axis": lambda: [lambda x, a=a: jnp.cumsum(wide(x), a)[0] for a in (0, 1)],
    "reverse": lambda: [lambda x, r=r: lax.cumsum(x, reverse=r) for r in (False, True)],
    "shift": lambda: [lambda x, i=i: jnp.roll(x, i) for i in (1, 2, 3)],
    "place": lambda: [lambda x, i=i: x[i] * jnp.ones(N) for i in range(N)],
    "dynamic place": lambda: [lambda x, i=i: lax.dynamic_slice(jnp.concatenate([x, x]), (i,), (N,)) for i in (0, 1, 2)],
    "scatter": lambda: [lambda x, i=i: jnp.zeros(N).at[np.array([i])].add(x[:1]) for i in (0, 1)],
    "dimension numbers": lambda: [
        lambda x, d=d: lax.dot_general(wide(x), x, (((d,), (0,)), ((), ()))) for d in (0, 1)
    ],
    "exponent": lambda: [lambda x, p=p: x**p for p in (2, 3, 2.5, 3.5)],
    "dtype": lambda: [
        lambda x, d=d: (x * 1.00001).astype(d).astype(x.dtype) for d in ("float64", "float32", "float16", "int32")
    ],
    "primitive": lambda: [jnp.sin, jnp.cos, jnp.exp],
    "operands": lambda: [lambda x: x - K, lambda x: K - x, lambda x: x - x * K],
    "branches": lambda: [
        lambda x, f=f, g=g: lax.cond(x[0] > 0, f, g, x) for f, g in ((jnp.sin, jnp.cos), (jnp.cos, jnp.sin))
    ],
    "branch number": lambda: [lambda x, i=i: lax.switch(i, [jnp.sin, jnp.cos, jnp.exp], x) for i in range(3)],
    "length": lambda: [lambda x, m=m: lax.fori_loop(0, m, lambda i, v: v * K, x) for m in (1, 2, 3)],
    "body": lambda: [lambda x, f=f: lax.scan(lambda c, a: (f(c), c * a), x[0], x)[1] for f in (jnp.sin, jnp.cos)],
    "direction": lambda: [
        lambda x, r=r: lax.scan(lambda c, a: (c + a, c), 0.0, x, reverse=r)[1] for r in (False, True)
    ],
    "condition": lambda: [
        lambda x, f=f: lax.while_loop(lambda c: f(c[0], 3), lambda c: (c[0] + 1, c[1] * K), (0, x))[1]
        for f in (jnp.less, jnp.less_equal)
    ],
    "derivative of a jvp": lambda: [custom_jvp(jnp.sin, f) for f in slopes()],
    "derivative of a vjp": lambda: [custom_vjp(jnp.sin, f) for f in slopes()],
    "second derivative": lambda: [ordered(jnp.sin, jnp.cos, f) for f in (jnp.sin, jnp.cos, jnp.exp)],
    "with and without a rule": lambda: [jnp.sin, custom_jvp(jnp.sin, jnp.exp)],
    "rule in jit": lambda: [lambda x, f=f: jax.jit(custom_jvp(jnp.sin, f))(x) for f in (jnp.cos, jnp.exp)],
    "rule in a branch": lambda: [
        lambda x, f=f: lax.cond(x[0] > 0, custom_jvp(jnp.sin, f), jnp.tanh, x) for f in (jnp.cos, jnp.exp)
    ],
    "rule under checkpoint": lambda: [
        lambda x, f=f: jax.checkpoint(custom_jvp(jnp.sin, f))(x) for f in (jnp.cos, jnp.exp)
    ],
    "one array or two": lambda: [lambda x, k=k: x * K + k for k in (K, 2 * K, np.array([1.0, 2, 3, 5]))],
}  # fmt: skip


DEFAULT = (
    *("number", "inner jit", "scan", "switch", "custom_jvp", "custom_vjp", "axis", "branches", "dynamic place"),
    *("derivative of a jvp", "derivative of a vjp", "second derivative", "with and without a rule", "dtype"),
)


def some(names: Iterable[str], by_default: Sequence[str]) -> list[Any]:
    """The others before a merge."""
    return [name if name in by_default else pytest.param(name, marks=pytest.mark.merge) for name in names]


def results(name: str, f: Function, x: Any) -> list[Any]:
    """Values, derivatives, and those of these where JAX has them."""
    if "while" in name or name == "condition":  # which JAX does not differentiate in reverse
        return [*jax.jvp(f, (x,), (x,))]

    def gradient(x: Any) -> Any:
        return jax.grad(lambda v: jnp.sum(K * f(v)))(x)

    return [f(x), *(jax.jvp(gradient, (x,), (K,)) if "vjp" not in name else (gradient(x),))]


def check_same(name: str, cases: Sequence[tuple[Any, Any, Function]]) -> None:
    """Each program with its constants computes what the function does; all of them in one program of XLA."""

    def both(x: Any) -> list[Any]:
        programs = [results(name, lambda x, p=p, c=c: p(x, *c), x) for p, c, _ in cases]
        return [programs, [results(name, function, x) for *_, function in cases]]

    for found, want in zip(*jax.jit(both)(POINT), strict=True):
        for got, expected in zip(found, want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12, err_msg=name)


def trace(f: Function) -> Any:
    found = program_of.trace(f, jnp.asarray(POINT))
    assert found is not None
    return found


@pytest.mark.parametrize("name", some(NUMBERS, DEFAULT))
def test_numbers_are_arguments(name: str) -> None:
    """Other numbers and arrays, in a function made anew: the same program, which computes what each function does."""
    functions = [NUMBERS[name](s, jnp.asarray(k)) for s, k in ((0.7, K), (0.4, np.sqrt(K)), (1.0, K + 1))]
    (first, _), *others = [trace(f) for f in functions]
    for program, _ in others:
        assert program == first and hash(program) == hash(first)
    check_same(name, [(first, constants, f) for f, (_, constants) in zip(functions[1:], others, strict=True)])


@pytest.mark.parametrize("name", some(STRUCTURES, DEFAULT))
def test_structure_is_not(name: str) -> None:
    """What differs in anything else is another program, and each computes what its function does."""
    functions = STRUCTURES[name]()
    found = [trace(f) for f in functions]
    cases = [(*one, f) for one, f in zip(found, functions, strict=True)]
    for i, (program, constants) in enumerate(found):
        assert trace(functions[i])[0] == program
        for other, arguments in found[:i]:
            if name not in ("scatter", "one array or two"):  # which differ in arrays, too
                assert other != program
            elif other == program:
                cases.append((other, constants, functions[i]))
                assert len(arguments) == len(constants)
    check_same(name, cases)
