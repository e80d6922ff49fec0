"""Evaluate a canonical program inside a trace, so that it becomes equations of JAX again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from ..sharding.varying import is_mapped
from .form import CALLS, CHECKPOINTS, Constant, CustomRule, Equation, Fixed, Program

Constants = Mapping[int, Any]


def run_program(program: Program, constants: Constants, operands: Sequence[Any]) -> list[Any]:
    """Evaluate a program.

    Args:
        constants: the arguments of the whole program, by their places.
        operands: the values of its inputs.
    """
    values: dict[int, Any] = dict(enumerate(operands))

    def read(one: Any) -> Any:
        if isinstance(one, Constant):
            return constants[one.place]
        return one.value if isinstance(one, Fixed) else values[one]

    for equation in program.equations:
        with _Surroundings(equation.origin):
            found = _run(equation, constants, [read(one) for one in equation.operands])
        values.update(zip(equation.outs, found, strict=True))
    return [read(one) for one in program.outputs]


def _run(equation: Equation, constants: Constants, operands: list[Any]) -> Sequence[Any]:
    origin = equation.origin
    if equation.rule is not None:
        return run_rule(equation.rule, constants, operands)
    run = _OF_PROGRAMS.get(origin.primitive.name) if equation.inner else None
    if run is not None:
        return run(equation, constants, operands)
    found = origin.primitive.bind(*operands, **origin.primitive.get_bind_params(origin.params))
    results: Sequence[Any] = found if origin.primitive.multiple_results else [found]
    return results


def _call(equation: Equation, constants: Constants, operands: list[Any]) -> Sequence[Any]:
    return run_program(equation.inner[0], constants, operands)


def _checkpoint(equation: Equation, constants: Constants, operands: list[Any]) -> Sequence[Any]:
    params = equation.origin.params
    run = _inner(equation, 0, constants)
    again = jax.checkpoint(lambda *x: run(x), prevent_cse=params["prevent_cse"], policy=params["policy"])
    results: Sequence[Any] = again(*operands)
    return results


def _scan(equation: Equation, constants: Constants, operands: list[Any]) -> Sequence[Any]:
    params, run = equation.origin.params, _inner(equation, 0, constants)
    fixed, carried = params["num_consts"], params["num_consts"] + params["num_carry"]

    def body(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        found = run([*operands[:fixed], *carry, *x])
        return found[: carried - fixed], found[carried - fixed :]

    how = {key: params[key] for key in ("length", "reverse", "unroll", "_split_transpose") if key in params}
    last, found = lax.scan(body, operands[fixed:carried], operands[carried:], **how)
    return [*last, *found]


def _while(equation: Equation, constants: Constants, operands: list[Any]) -> Sequence[Any]:
    params = equation.origin.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    goes_on, step = (_inner(equation, i, constants) for i in (0, 1))
    found: Sequence[Any] = lax.while_loop(
        lambda state: goes_on([*operands[:first], *state])[0],
        lambda state: step([*operands[first:second], *state]),
        operands[second:],
    )
    return found


def _cond(equation: Equation, constants: Constants, operands: list[Any]) -> Sequence[Any]:
    branches = [_inner(equation, i, constants) for i in range(len(equation.inner))]
    found: Sequence[Any] = lax.switch(operands[0], [_of_many(branch) for branch in branches], *operands[1:])
    return found


def _of_many(run: Callable[[Sequence[Any]], list[Any]]) -> Callable[..., list[Any]]:
    return lambda *operands: run(operands)


def _inner(equation: Equation, number: int, constants: Constants) -> Callable[[Sequence[Any]], list[Any]]:
    return lambda operands: run_program(equation.inner[number], constants, operands)


_OF_PROGRAMS: dict[str, Callable[[Equation, Constants, list[Any]], Sequence[Any]]] = {
    **dict.fromkeys(CALLS, _call),
    **dict.fromkeys(CHECKPOINTS, _checkpoint),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


class _Surroundings:
    """Source location and settings of a traced operation."""

    def __init__(self, origin: Any) -> None:
        self.origin = origin

    def __enter__(self) -> None:
        from jax._src import source_info_util  # as jax.core.eval_jaxpr does

        info = self.origin.source_info
        names = source_info_util.current_name_stack() + info.name_stack
        self.context = source_info_util.user_context(info.traceback, name_stack=names)
        self.manager = self.origin.ctx.manager
        here = jax.sharding.get_abstract_mesh() if is_mapped() else None
        self.context.__enter__()
        self.manager.__enter__()
        # recorded outside of `shard_map`, run on the blocks of one device
        self.blocks = jax.sharding.use_abstract_mesh(here) if here is not None and not is_mapped() else nullcontext()
        self.blocks.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.blocks.__exit__(*error)
        self.manager.__exit__(*error)
        self.context.__exit__(*error)


# --- A function with a custom derivative rule: a new rule from its recorded programs ----------------------------------


def run_rule(rule: CustomRule, constants: Mapping[int, Any], operands: Sequence[Any]) -> list[Any]:
    """Evaluate the function of a rule.

    The arguments of the whole program are handed over, as a rule runs when the trace that made them has ended.
    """
    used = {place: constants[place] for place in rule.used}
    make = _with_tangents if len(rule.programs) == 1 else _with_backward
    found: list[Any] = make(rule)(used, *operands)
    return found


def _with_tangents(rule: CustomRule) -> Callable[..., Any]:
    still, out_still = rule.facts

    @jax.custom_jvp
    def call(constants: Any, *operands: Any) -> Any:
        return run_program(rule.call, constants, operands)

    @call.defjvp
    def tangents(primals: Any, tangents: Any) -> Any:
        constants, *operands = primals
        moving = [t for t, at_rest in zip(tangents[1 + rule.closed_over :], still, strict=True) if not at_rest]
        found = run_program(rule.programs[0], constants, [*operands[rule.closed_over :], *moving])
        images, rest = found[: len(out_still)], iter(found[len(out_still) :])
        return images, [_zero(a) if at_rest else next(rest) for a, at_rest in zip(images, out_still, strict=True)]

    return call


def _with_backward(rule: CustomRule) -> Callable[..., Any]:
    saved, forwarded, none = rule.facts

    @jax.custom_vjp
    def call(constants: Any, *operands: Any) -> Any:
        return run_program(rule.call, constants, operands)

    def forward(constants: Any, *operands: Any) -> Any:
        if any(one.perturbed for one in operands[: rule.closed_over]):
            raise TypeError(
                "A jax.custom_vjp function closes over an array by which a derivative is asked for: its rule gives "
                "none. Expected all that has derivatives among its arguments."
            )
        constants = {place: one.value for place, one in constants.items()}
        values = [one.value for one in operands]
        found = run_program(rule.programs[0], constants, values[rule.closed_over :])
        rest = iter(found[:saved])
        residuals = [next(rest) if i is None else values[i] for i in forwarded]
        return found[saved:], (constants, residuals)

    def backward(kept: Any, cotangents: Any) -> Any:
        constants, residuals = kept
        given = [jnp.zeros(c.shape, c.dtype) if isinstance(c, SymbolicZero) else c for c in cotangents]
        found = iter(run_program(rule.programs[1], constants, [*residuals, *given]))
        return None, *(None for _ in range(rule.closed_over)), *(None if no else next(found) for no in none)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call


def _zero(x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.zeros(x.shape, x.dtype)
    return np.zeros(x.shape, jax.dtypes.float0)
