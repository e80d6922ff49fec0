"""Evaluate a canonical program inside a trace, so that it becomes equations of JAX again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
from jax import lax

from ..sharding.varying import is_mapped
from .form import CALLS, CHECKPOINTS, Constant, Equation, Fixed, Program
from .rules import run_rule

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
        return run_rule(equation.rule, run_program, constants, operands)
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
