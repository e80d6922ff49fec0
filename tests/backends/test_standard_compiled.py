"""`backend.xp` inside compiled functions: the same numbers, and in TensorFlow also where a shape is not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import jax, tf
from krylix.backends import get_backend
from modes import compiled, library
from standard import environment, operands

# One of each kind of function of ours.
EXPRESSIONS = (
    "xp.add(i, y)", "xp.where(x > 0, x, 1)", "xp.clip(x, 0.5, y)", "xp.asarray([s, 2])", "xp.full_like(x, s)",
    "xp.tril(m, k=1)", "xp.sqrt(i * i)", "xp.sum(i)", "xp.var(x, axis=0)", "xp.cumulative_sum(v, include_initial=True)",
    "xp.argsort(special)", "xp.argmax(special)", "xp.searchsorted(up, x)", "xp.broadcast_arrays(x, y)[1]",
    "xp.concat([x, v], axis=None)", "xp.flip(m, axis=(0, -1))", "xp.roll(x, 1)", "xp.tile(x, (2, 1, 2))",
    "xp.take(m, i, axis=-2)", "xp.take_along_axis(x, i2)", "xp.diff(x, prepend=x)", "xp.matmul(y, m)",
    "xp.vecdot(x, y)", "xp.linalg.solve(m, m[0])", "xp.linalg.vector_norm(x, axis=1)", "xp.linalg.cholesky(h)",
    "xp.linalg.matrix_power(m, 3)", "xp.linalg.trace(m)", "xp.hypot(x, y)", "xp.isnan(special)", "xp.round(x)",
)  # fmt: skip
STATIC = ("xp.linalg.pinv(x)", "xp.linalg.matrix_rank(m)", "xp.fft.rfftn(x)", "xp.fft.ifftshift(x)", "xp.unstack(x)[0]")


def function_of(backend: str, expressions: tuple[str, ...], names: list[str]) -> Any:
    """All of them in one program."""
    xp = get_backend(backend).xp

    def function(*arrays: Any) -> list[Any]:
        own = environment(xp, "float64", dict(zip(names, arrays, strict=True)))
        return [eval(expression, own) for expression in expressions]

    return function


def check(backend: str, expressions: tuple[str, ...], found: list[Any]) -> None:
    bk, arrays = get_backend(backend), operands("float64")
    for expression, x in zip(expressions, found, strict=True):
        expected = eval(expression, environment(get_backend("numpy").xp, "float64", arrays))
        np.testing.assert_allclose(bk.to_numpy(x), expected, rtol=1e-6, atol=1e-6, err_msg=expression)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("mode", ("jax-jit", "tf-function"))
def test_compiled(mode: str) -> None:
    backend, arrays = library(mode), operands("float64")
    expressions = EXPRESSIONS + STATIC
    program = compiled(mode, function_of(backend, expressions, list(arrays)))
    check(backend, expressions, program(*(krylix.convert(x, backend) for x in arrays.values())))


@pytest.mark.needs("tensorflow")
def test_unknown_shapes() -> None:
    arrays = operands("float64")
    specs = [tf.TensorSpec([None] * x.ndim, x.dtype) for x in arrays.values()]
    program = tf.function(
        function_of("tensorflow", EXPRESSIONS, list(arrays)), input_signature=specs, autograph=False
    )  # fmt: skip
    check("tensorflow", EXPRESSIONS, program(*map(tf.constant, arrays.values())))
    for expression in STATIC:  # refused, and not wrong
        with pytest.raises((TypeError, ValueError)):
            tf.function(function_of("tensorflow", (expression,), list(arrays)), input_signature=specs, autograph=False)(
                *map(tf.constant, arrays.values())
            )


@pytest.mark.needs("jax")
def test_programs_follow_the_precision() -> None:
    made = jax.jit(lambda x: get_backend("jax").xp.sqrt(x))
    counts = np.array([1, 2])
    assert made(counts).dtype == np.float64
    with krylix.precision(32):
        assert made(counts).dtype == np.float32
    assert made(counts).dtype == np.float64
