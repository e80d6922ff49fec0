"""Rules for JAX's loops and branches: unrolled, as far as their course is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from jax import lax

from ....backends.jax.derivatives.solve import primitive
from ...errors import NonlinearError, UnsupportedOperation
from ..engine.linear import Linear, reshape
from ..engine.operands import static, static_needed
from ..engine.positions import select
from ..engine.structural import cut, stack
from .known import is_known

OF_KRYLIX = primitive.name
SHORT = 300  # equations of a loop of known values that NumPy runs faster than XLA compiles it


class JaxprRunner(Protocol):
    """What runs the programs of a loop or branch: the interpreter that met it."""

    def run(self, program: Any, values: Sequence[Any]) -> list[Any]:
        """The results of a closed program."""

    def spend(self, equations: int) -> None:
        """Count the equations of an unrolled loop, and refuse it where they are too many."""


def is_short(equation: Any) -> bool:
    """Should NumPy run this loop over known values?"""
    if equation.primitive.name == "scan":
        return equation.params["length"] * max(1, len(equation.params["jaxpr"].jaxpr.eqns)) <= SHORT
    return equation.primitive.name == "cond"


def is_open_ended(equation: Any) -> bool:
    """Does it, or an equation of a program in it, loop until a condition holds, solve a system, or call the host?"""
    name = equation.primitive.name
    if name in ("while", OF_KRYLIX, "krylix_by_host", "krylix_unless_exported") or "callback" in name:
        return True
    params = equation.params.values()
    programs = (one for value in params for one in (value if isinstance(value, tuple) else (value,)))
    return any(is_open_ended(inner) for one in programs for inner in getattr(one, "eqns", ()))


def scan(runner: JaxprRunner, equation: Any, values: Sequence[Any]) -> list[Any]:
    """`lax.scan`, `lax.map` and loops of a fixed length."""
    params, body = equation.params, equation.params["jaxpr"]
    n_constants, n_carry, length = params["num_consts"], params["num_carry"], params["length"]
    constants, xs = values[:n_constants], values[n_constants + n_carry :]
    carry = list(values[n_constants : n_constants + n_carry])
    runner.spend(length * len(body.jaxpr.eqns))
    rows: list[list[Any]] = []
    for i in reversed(range(length)) if params["reverse"] else range(length):
        results = runner.run(body, [*constants, *carry, *(element(x, i) for x in xs)])
        carry = results[:n_carry]
        rows.append(results[n_carry:])
    rows = rows[::-1] if params["reverse"] else rows
    outputs = equation.outvars[n_carry:]
    return carry + [together([row[k] for row in rows], variable.aval) for k, variable in enumerate(outputs)]


def while_loop(runner: JaxprRunner, equation: Any, values: Sequence[Any]) -> list[Any]:
    """`lax.while_loop` and `fori_loop` whose condition does not depend on the input."""
    params = equation.params
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    n_condition, n_body = params["cond_nconsts"], params["body_nconsts"]
    of_condition, of_body = values[:n_condition], values[n_condition : n_condition + n_body]
    carry = list(values[n_condition + n_body :])
    while True:
        (go_on,) = runner.run(condition, [*of_condition, *carry])
        goes_on = static("condition", go_on)  # under vmap, one for each element of the batch
        if not goes_on.any():
            return carry
        runner.spend(1 + len(body.jaxpr.eqns))
        new = runner.run(body, [*of_body, *carry])
        carry = new if goes_on.all() else [_where(goes_on, a, b) for a, b in zip(new, carry)]


def _where(condition: np.ndarray, new: Any, old: Any) -> Any:
    """`new` for the elements of a batch for which the known condition holds, else `old`."""
    shape = new.shape
    condition = np.broadcast_to(condition.reshape(condition.shape + (1,) * (len(shape) - condition.ndim)), shape)
    if isinstance(new, Linear) or isinstance(old, Linear):
        return select(condition, [old, new])
    if isinstance(new, np.ndarray) and isinstance(old, np.ndarray):
        return np.where(condition, new, old)
    return lax.select(condition, new, old)


def linear_solve(runner: JaxprRunner, equation: Any, values: Sequence[Any]) -> list[Any]:
    """`lax.custom_linear_solve`, or krylix's, by the program of the solve, which is linear in b if it is a direct one.

    Raises:
        UnsupportedOperation: it is iterative, or more than b depends on the input.
    """
    if equation.primitive.name == OF_KRYLIX:
        program, operands = equation.params["program"], list(values)
    else:
        lengths, program = equation.params["const_lengths"], equation.params["jaxprs"].solve
        first = lengths.matvec + lengths.vecmat
        operands = [*values[first : first + lengths.solve], *values[sum(lengths) :]]
    try:
        return runner.run(program, operands)
    except NonlinearError as error:
        why = "tracing follows no solve that is iterative. Leave it out of the traced function"
        raise UnsupportedOperation(f"{why}, or solve with the function itself.") from error


def cond(runner: JaxprRunner, equation: Any, values: Sequence[Any]) -> list[Any]:
    """`lax.cond` and `lax.switch`: one branch where the predicate is known, else all of them and a selection."""
    predicate, *operands = values
    branches = equation.params["branches"]
    if isinstance(predicate, Linear):
        raise static_needed("predicate", predicate)
    if is_known(predicate):
        index = min(max(int(np.asarray(predicate)), 0), len(branches) - 1)
        return runner.run(branches[index], operands)
    results = [runner.run(branch, operands) for branch in branches]
    return [choose(predicate, list(cases)) for cases in zip(*results)]


def choose(predicate: Any, cases: Sequence[Any]) -> Any:
    """One of some arrays of the same shape by a traced number."""
    if any(isinstance(case, Linear) for case in cases):
        return select(lax.broadcast(predicate, cases[0].shape), cases)
    return lax.select_n(predicate, *cases)


def element(x: Any, i: int) -> Any:
    """`x[i]`."""
    if not isinstance(x, Linear):
        return np.asarray(x[i]) if isinstance(x, np.ndarray) else x[i]
    return reshape(cut(x, 0, i, i + 1), x.shape[1:])


def together(rows: Sequence[Any], aval: Any) -> Any:
    """The arrays stacked along a new first axis."""
    if not rows:
        return np.zeros(aval.shape, aval.dtype)
    if any(isinstance(row, Linear) for row in rows):
        return stack(rows, 0)
    if all(isinstance(row, np.ndarray) for row in rows):
        return np.stack(rows)
    return lax.concatenate([lax.expand_dims(row, [0]) for row in rows], 0)


Rule = Callable[[JaxprRunner, Any, Sequence[Any]], list[Any]]
CONTROL: dict[str, Rule] = {
    "scan": scan,
    "while": while_loop,
    "cond": cond,
    "custom_linear_solve": linear_solve,
    OF_KRYLIX: linear_solve,
}
