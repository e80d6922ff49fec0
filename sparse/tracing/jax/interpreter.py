"""Runs the program that JAX made of a function, with linear maps in place of the arrays that depend on the input.

Three kinds of values meet here: known ones (NumPy arrays), traced ones (tracers of a transformation that is running
outside) and `Linear`s. Equations of known values are evaluated by NumPy, those of traced ones are handed on to JAX as
if the user had called them, so that derivatives follow; the others have a rule each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jax.interpreters import ad

from ....backends import Backend
from ....backends.jax.derivatives import bilinear as jax_bilinear
from ....backends.jax.derivatives.solve import primitive
from ...errors import NonlinearError, UnsupportedOperation
from ..engine.coefficients import largest
from ..engine.limits import refuse_open_ended
from ..engine.linear import Linear
from ..engine.operands import MATRIX_FREE, NoRule, NotLinear, static, static_needed
from ..engine.positions import select
from ..engine.structural import element, stack
from ..interpreter import Interpreter
from ..messages import UNKNOWN, Operation, Reporter, kind_of, place_of
from .known import as_known, bind, evaluate_by_jax, evaluate_equation, is_known
from .rules import RULES
from .rules.structure import choose


class JaxprInterpreter(Interpreter):
    """One trace."""

    finfo = staticmethod(jnp.finfo)  # which knows bfloat16

    def __init__(self, bk: Backend, keep_zeros: bool = False, watch: bool = False) -> None:
        super().__init__(bk, keep_zeros, watch)
        self._folder = JaxprConstantFolder(self.known_results)

    def run(self, program: Any, values: Sequence[Any]) -> list[Any]:
        """The results of a closed program."""
        jaxpr, constants = program.jaxpr, program.consts
        scope: dict[Any, Any] = {}
        for variable, constant in zip(jaxpr.constvars, constants):
            scope[variable] = self.constant(constant, variable.aval)
        scope.update(zip(jaxpr.invars, values))
        dead = _last_uses(jaxpr)

        def read(atom: Any) -> Any:
            return as_known(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else scope[atom]

        for equation, unused in zip(jaxpr.eqns, dead):
            results = self._results(equation, [self.settled(read(atom)) for atom in equation.invars])
            scope.update(zip(equation.outvars, results))
            if self.watch:
                self.largest = max([self.largest, *(_size(result) for result in results)])
            for variable in unused:
                scope.pop(variable, None)
        return [self.settled(read(atom)) for atom in jaxpr.outvars]

    def constant(self, value: Any, aval: Any) -> Any:
        """A value that the function closes over, as NumPy wherever it can be known."""
        known = as_known(value)
        if not isinstance(known, np.ndarray) and not is_known(known):
            folded = self._folder.value(known)
            known = known if folded is None else folded
        return known.astype(aval.dtype, copy=False) if isinstance(known, np.ndarray) else known

    def _results(self, equation: Any, values: list[Any]) -> list[Any]:
        linear = [value for value in values if isinstance(value, Linear)]
        try:
            refuse_open_ended(is_open_ended, equation)
            if not linear:
                all_known = all(is_known(value) for value in values)
                return self.known_results(equation, values) if all_known else self._traced_results(equation, values)
            results = self._linear_results(equation, values)
            self.note((*linear, *results))
            return results
        except (NonlinearError, UnsupportedOperation) as error:
            raise REPORTER.located(error, equation, values) from None

    def _linear_results(self, equation: Any, values: list[Any]) -> list[Any]:
        program = program_of(equation, values)
        if program is not None:
            return self.run(program, values)
        name = equation.primitive.name
        if name in CONTROL:
            return CONTROL[name](self, equation, values)
        rule = RULES.get(name)
        if rule is None:
            raise no_rule(equation)
        results = rule(equation, values)
        return results if isinstance(results, list) else [results]

    def known_results(self, equation: Any, values: Sequence[Any]) -> list[Any]:
        """The results of an equation whose operands are all known."""
        name, program = equation.primitive.name, program_of(equation, values)
        if program is not None:
            return self.run(program, values)
        if any(type(effect).__name__ == "NamedAxisEffect" for effect in equation.effects):  # differs on each device
            return bind(equation, values)
        if name in CONTROL:
            return CONTROL[name](self, equation, values) if is_short(equation) else evaluate_by_jax(equation, values)
        return evaluate_equation(equation, values)

    def _traced_results(self, equation: Any, values: Sequence[Any]) -> list[Any]:
        """Calls are entered, so that what is known inside stays known; others keep their own derivative rules."""
        if is_call(equation):
            return self.run(program_of(equation, values), values)
        if equation.primitive.name == "cond" and is_known(values[0]):
            return CONTROL["cond"](self, equation, values)
        return bind(equation, values)


def _last_uses(jaxpr: Any) -> list[list[Any]]:
    """For each equation the variables that nobody reads after it."""
    seen = {atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal)}
    unused: list[list[Any]] = []
    for equation in reversed(jaxpr.eqns):
        atoms = (*equation.invars, *equation.outvars)
        new = {atom for atom in atoms if not isinstance(atom, core.Literal)} - seen
        seen |= new
        unused.append(list(new))
    return unused[::-1]


def _size(value: Any) -> float:
    return largest(value) if isinstance(value, np.ndarray) and value.dtype.kind in "fc" else 0.0


# --- loops and branches, unrolled as far as their course is known -----------------------------------------------------

OF_KRYLIX = primitive.name
SHORT = 300  # equations of a loop of known values that NumPy runs faster than XLA compiles it


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


def scan(runner: JaxprInterpreter, equation: Any, values: Sequence[Any]) -> list[Any]:
    """`lax.scan`, `lax.map` and loops of a fixed length."""
    params, body = equation.params, equation.params["jaxpr"]
    n_constants, n_carry, length = params["num_consts"], params["num_carry"], params["length"]
    constants, xs = values[:n_constants], values[n_constants + n_carry :]
    carry = list(values[n_constants : n_constants + n_carry])
    runner.spend(length * len(body.jaxpr.eqns))
    rows: list[list[Any]] = []
    for i in reversed(range(length)) if params["reverse"] else range(length):
        results = runner.run(
            body, [*constants, *carry, *(np.asarray(x[i]) if isinstance(x, np.ndarray) else element(x, i) for x in xs)]
        )
        carry = results[:n_carry]
        rows.append(results[n_carry:])
    rows = rows[::-1] if params["reverse"] else rows
    outputs = equation.outvars[n_carry:]
    return carry + [together([row[k] for row in rows], variable.aval) for k, variable in enumerate(outputs)]


def while_loop(runner: JaxprInterpreter, equation: Any, values: Sequence[Any]) -> list[Any]:
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


def linear_solve(runner: JaxprInterpreter, equation: Any, values: Sequence[Any]) -> list[Any]:
    """`lax.custom_linear_solve`, or krylix's, by the program of the solve: linear in b if it is a direct one."""
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


def cond(runner: JaxprInterpreter, equation: Any, values: Sequence[Any]) -> list[Any]:
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


def together(rows: Sequence[Any], aval: Any) -> Any:
    """The arrays stacked along a new first axis."""
    if not rows:
        return np.zeros(aval.shape, aval.dtype)
    if any(isinstance(row, Linear) for row in rows):
        return stack(rows, 0)
    if all(isinstance(row, np.ndarray) for row in rows):
        return np.stack(rows)
    return lax.concatenate([lax.expand_dims(row, [0]) for row in rows], 0)


Rule = Callable[[JaxprInterpreter, Any, Sequence[Any]], list[Any]]
CONTROL: dict[str, Rule] = {
    "scan": scan,
    "while": while_loop,
    "cond": cond,
    "custom_linear_solve": linear_solve,
    OF_KRYLIX: linear_solve,
}


# --- operations that are programs -------------------------------------------------------------------------------------

_CALLS = {"jit", "pjit", "closed_call", "core_call", "call", "core_closed_call", "xla_call"}
_WITH_RULES = {
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call", "linear_call"),
    *("remat", "remat2", "checkpoint", "composite"),
}
_OF_JAX = {  # not public
    "bcoo_dot_general": ("jax.experimental.sparse.bcoo", "_bcoo_dot_general_impl"),
    "bcsr_dot_general": ("jax.experimental.sparse.bcsr", "_bcsr_dot_general_impl"),
}
_PROGRAMS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call", "callee")


def is_call(equation: Any) -> bool:
    """Is it nothing but a program, which may be entered whatever its operands are?"""
    return equation.primitive.name in _CALLS


def program_of(equation: Any, values: Sequence[Any]) -> Any:
    """The closed program that computes the results of an equation from its operands; None if there is none."""
    name = equation.primitive.name
    if name in _CALLS or name in _WITH_RULES:
        found = next((equation.params[key] for key in _PROGRAMS if key in equation.params), None)
        return found if found is None or hasattr(found, "consts") else core.ClosedJaxpr(found, [])
    function = _implementation(equation)
    if function is None or not any(isinstance(value, Linear) for value in values):
        return None
    return jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars))


def _implementation(equation: Any) -> Any:
    """Products with sparse matrices: those of krylix and of jax.experimental.sparse."""
    if equation.primitive is jax_bilinear.primitive:
        return jax_bilinear.implementation(**equation.params)
    module, function = _OF_JAX.get(equation.primitive.name, ("", ""))
    product = getattr(import_module(module), function, None) if module else None
    return product and (lambda *operands: [product(*operands, **equation.params)])


# --- tracers computed from constants only -----------------------------------------------------------------------------
# Inside `jax.jit` even `jnp.linspace(0, 1, 8)` is a tracer. Where a coefficient is such a value, the matrix can be
# known while the program is compiled, and preconditioners are set up then. JAX remembers how each tracer was made, but
# does not publish it: whatever is not as expected here leaves the tracer as it is, which is right too, only later.

MAX_TRACERS = 2000
_UNKNOWN = object()


class JaxprConstantFolder:
    """Remembers the values found, for one trace.

    Args:
        evaluate: `(equation, known values) -> known results`.
    """

    def __init__(self, evaluate: Callable[[Any, Sequence[Any]], list[Any]]) -> None:
        self._evaluate = evaluate
        self._found: dict[int, tuple[Any, Any]] = {}  # the tracer is kept, so that its id stays its own

    def value(self, x: Any) -> np.ndarray | None:
        """The value of a tracer; None where it depends on an argument of the compiled function, or cannot be found."""
        try:
            value = self._search(_lowered(x))
        except Exception:  # private parts of JAX: anything may be different in another version
            return None
        return value if isinstance(value, np.ndarray) else None

    def _search(self, x: Any) -> Any:
        pending = [x]
        while pending:
            tracer = pending[-1]
            if self._get(tracer) is not None:
                pending.pop()
                continue
            if len(self._found) > MAX_TRACERS:
                return None
            equation = getattr(tracer, "parent", None)
            if equation is None or equation.effects:
                self._put(tracer, _UNKNOWN)
                continue
            sources = [_lowered(source) for source in equation.in_tracers]
            values = [self._get(source) for source in sources]
            if any(value is _UNKNOWN for value in values):
                self._put(tracer, _UNKNOWN)
            elif any(value is None for value in values):
                pending += [source for source, value in zip(sources, values) if value is None]
            else:
                results = self._evaluate(equation, values)
                index = next(i for i, v in enumerate(equation.outvars) if v is tracer.val)
                self._put(tracer, results[index])
        return self._get(x)

    def _get(self, x: Any) -> Any:
        if not isinstance(x, jax.core.Tracer):
            return as_known(x)
        return self._found.get(id(x), (None,))[0]

    def _put(self, tracer: Any, value: Any) -> None:
        self._found[id(tracer)] = (value, tracer)


def _lowered(x: Any) -> Any:
    """The constant, or the tracer of an outer transformation, that a tracer stands for."""
    while isinstance(x, jax.core.Tracer):
        lower = x.full_lower() if hasattr(x, "full_lower") else x
        if lower is x:
            return x
        x = lower
    return x


# --- errors -----------------------------------------------------------------------------------------------------------

_LINEAR = {  # in their input-dependent operand, but without a rule
    "reduce": "It combines elements by a function of its own",
}
_OPAQUE = {
    *("pure_callback", "krylix_by_host", "io_callback", "ffi_call", "custom_call", "pallas_call", "tpu_custom_call"),
    *("custom_partitioning", "shard_map", "run_state", "get", "swap", "addupdate", "call_exported", "composite"),
}


def no_rule(equation: Any) -> Exception:
    """The error for an equation that the tables do not know."""
    name = equation.primitive.name
    if name in _LINEAR:
        return UnsupportedOperation(f"{_LINEAR[name]}. {MATRIX_FREE}")
    if name in _OPAQUE:
        return UnsupportedOperation(f"tracing cannot look into it. {MATRIX_FREE}")
    if equation.primitive in getattr(ad, "primitive_transposes", {}) and name not in ("mul", "div", "pow"):
        return NoRule()
    return NotLinear()


def _operation(equation: Any, values: Sequence[Any], name: str | None = None) -> Operation:
    kinds = [kind_of(value, is_known(value)) for value in values]
    return Operation(name or equation.primitive.name, _place(equation), kinds)


def _place(equation: Any) -> str:
    try:
        from jax._src.source_info_util import user_frames  # not public; without it the message has no line

        frames = user_frames(equation.source_info.traceback)
        return place_of((frame.file_name, frame.start_line, frame.function_name) for frame in frames)
    except Exception:
        return UNKNOWN


REPORTER = Reporter(_operation, "Compute it with NumPy, or inside jax.ensure_compile_time_eval().")
