"""Runs the program that JAX made of a function, with linear maps in place of the arrays that depend on the input.

Three kinds of values meet here: known ones (NumPy arrays), traced ones (tracers of a transformation that is running
outside) and `Linear`s. Equations of known values are evaluated by NumPy, those of traced ones are handed on to JAX as
if the user had called them, so that derivatives follow; the others have a rule each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ....backends import Backend
from ...errors import NonlinearError, UnsupportedOperation
from ..engine.coefficients import largest
from ..engine.limits import Budget, refuse_open_ended
from ..engine.linear import Linear
from .control import CONTROL, is_open_ended, is_short
from .expand import is_call, program_of
from .fold import JaxprConstantFolder
from .known.table import as_known, bind, evaluate_by_jax, evaluate_equation, is_known
from .messages import REPORTER, no_rule
from .rules.table import RULES


class JaxprInterpreter:
    """One trace.

    Attributes:
        bk: the JAX backend.
        keep_zeros: does a product with a known zero still depend on the input, for the sake of a steady structure?
        precision: the coarsest rounding unit of any array that depended on the input.
        largest: the largest known number that came up, if `watch` was asked for.
    """

    def __init__(self, bk: Backend, keep_zeros: bool = False, watch: bool = False) -> None:
        self.bk, self.keep_zeros, self.watch, self.largest = bk, keep_zeros, watch, 0.0
        self.precision = 0.0
        self._budget = Budget()
        self._folder = JaxprConstantFolder(self.known_results)

    def run(self, program: Any, values: Sequence[Any]) -> list[Any]:
        """The results of a closed program.

        Raises:
            NonlinearError: it is not linear in the input.
            UnsupportedOperation: it has no sparse matrix that tracing could find.
        """
        jaxpr, constants = program.jaxpr, program.consts
        scope: dict[Any, Any] = {}
        for variable, constant in zip(jaxpr.constvars, constants):
            scope[variable] = self.constant(constant, variable.aval)
        scope.update(zip(jaxpr.invars, values))
        dead = _last_uses(jaxpr)

        def read(atom: Any) -> Any:
            return as_known(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else scope[atom]

        for equation, unused in zip(jaxpr.eqns, dead):
            results = self._results(equation, [self._settled(read(atom)) for atom in equation.invars])
            scope.update(zip(equation.outvars, results))
            if self.watch:
                self.largest = max([self.largest, *(_size(result) for result in results)])
            for variable in unused:
                scope.pop(variable, None)
        return [self._settled(read(atom)) for atom in jaxpr.outvars]

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
            for value in (*linear, *(result for result in results if isinstance(result, Linear))):
                self.precision = max(self.precision, float(jnp.finfo(value.dtype).eps))
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

    def _settled(self, value: Any) -> Any:
        """An array that does not depend on the input after all is an ordinary one."""
        if not isinstance(value, Linear) or (value.terms if self.keep_zeros else not value.is_zero):
            return value
        plain = value.plain()
        return plain if is_known(plain) or isinstance(plain, jax.core.Tracer) else np.asarray(plain, value.dtype)

    def spend(self, equations: int) -> None:
        """Count the equations of an unrolled loop.

        Raises:
            UnsupportedOperation: there were too many in this trace.
        """
        self._budget.spend(equations)


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
