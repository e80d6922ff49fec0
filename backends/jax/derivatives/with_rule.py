"""Arrays with a derivative rule that is a function of the user, in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

Rule = Callable[..., Sequence[jax.Array | None]]
Arrays = tuple[jax.Array, ...]
Both = tuple[Arrays, Arrays]

_NO_FORWARD = (
    "The derivative that was asked for in forward mode (jvp, jacfwd, linearize) goes through a rule for reverse mode. "
    "Use jax.grad or jax.jacrev there."
)


def with_rule(
    rule: Rule,
    inputs: Sequence[jax.Array],
    outputs: Sequence[jax.Array],
    linear: bool = False,
    why: str = _NO_FORWARD,
) -> Sequence[jax.Array]:
    """See `Transformations._with_rule`; `why` there is no forward mode."""
    if linear:
        return _with_linear_rule(rule, tuple(inputs), tuple(outputs))

    @jax.custom_vjp
    def passed_on(inputs: Arrays, outputs: Arrays) -> Arrays:
        return outputs

    def forward(*both: Arrays) -> Any:
        outputs = passed_on(*both)  # with their rule: second derivatives go through them
        return outputs, (both[0], outputs)

    def backward(both: Both, cotangents: tuple[Any, ...]) -> Any:
        return _pulled(rule, *both, cotangents), cotangents

    passed_on.defvjp(forward, backward)
    with _told_of_forward_mode(why):
        return passed_on(tuple(inputs), tuple(outputs))


def with_no_derivative(inputs: Sequence[jax.Array], outputs: Sequence[jax.Array], why: str) -> Sequence[jax.Array]:
    """See `Transformations._with_no_derivative`."""

    def rule(*_: Any) -> Any:
        raise TypeError(why)

    return with_rule(rule, inputs, outputs, why=why)


@contextmanager
def _told_of_forward_mode(why: str) -> Iterator[None]:
    """Say why there is no forward mode in place of JAX, which names an internal function."""
    try:
        yield
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise TypeError(why) from error


def _with_linear_rule(rule: Rule, inputs: Arrays, outputs: Arrays) -> Sequence[jax.Array]:
    @jax.custom_jvp
    def passed_on(inputs: Arrays, outputs: Arrays) -> Arrays:
        return outputs

    @passed_on.defjvp
    def forward(both: Both, tangents: Both) -> tuple[Arrays, Arrays]:
        (inputs, _), (of_inputs, of_outputs) = both, tangents
        outputs = passed_on(*both)  # with their rule: second derivatives go through them

        def pull(cotangents: Arrays) -> Arrays:
            found = _pulled(rule, inputs, outputs, cotangents)
            return tuple(jnp.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))

        (pushed,) = jax.linear_transpose(pull, outputs)(of_inputs)
        return outputs, tuple(a + b for a, b in zip(pushed, of_outputs, strict=True))

    return passed_on(inputs, outputs)


def _pulled(rule: Rule, inputs: Arrays, outputs: Arrays, cotangents: tuple[Any, ...]) -> tuple[jax.Array | None, ...]:
    """The rule in the convention of JAX."""
    known = [None if c.dtype == jax.dtypes.float0 else jnp.conj(c) for c in cotangents]
    return tuple(None if g is None else jnp.conj(g) for g in rule(inputs, outputs, known))
