"""What a program of JAX is made of, counted: no timing, so that a busy machine counts the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

# the tests compile with other settings, in which XLA fuses other operations; the rest of these change no count
AS_USERS = {"xla_cpu_use_fusion_emitters": True}


class Counts(NamedTuple):
    """Of a program before and after XLA."""

    equations: int  # of its jaxpr and those inside
    constants: int  # bytes
    fusions: int
    kernels: int  # fusions that differ: XLA compiles those that are alike once, 10 to 20 ms for each on a CPU


def traced_counts(function: Callable[..., Any], *arrays: Any) -> tuple[int, int]:
    """Equations, and bytes of constants."""
    import jax

    program = jax.jit(function).trace(*arrays).jaxpr
    return _equations(program.jaxpr), sum(np.asarray(c).nbytes for c in _constants(program))


def compiled_counts(function: Callable[..., Any], *arrays: Any) -> Counts:
    """All of it."""
    import jax

    text = jax.jit(function).lower(*arrays).compile(compiler_options=AS_USERS).as_text()
    return Counts(*traced_counts(function, *arrays), text.count(" fusion("), len(set(_kernels(text))))


def _equations(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inside = [getattr(p, "jaxpr", p) for p in _programs(list(equation.params.values()))]
        total += sum(map(_equations, inside)) if inside else 1
    return total


def _constants(program: Any) -> Iterator[Any]:
    yield from getattr(program, "consts", ())
    for equation in getattr(program, "jaxpr", program).eqns:
        for inside in _programs(list(equation.params.values())):
            yield from _constants(inside)


def _programs(value: Any) -> Iterator[Any]:
    """Those in the parameters of an equation."""
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from _programs(one)
    elif hasattr(value, "jaxpr") or hasattr(value, "eqns"):
        yield value


def _kernels(text: str) -> Iterator[str]:
    """The text of each fused computation, with numbers for names."""
    for found in re.finditer(r"^%?[\w.\-]*fused[\w.\-]* (\(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        names: dict[str, str] = {}
        body = re.sub(r", metadata=\{[^}]*\}", "", found[1])
        yield re.sub(
            r"%?[A-Za-z_][\w\-]*(\.[\w\-]+)+|%[\w.\-]+|param[\w.\-]*",
            lambda name: names.setdefault(name[0].lstrip("%"), f"v{len(names)}"),  # noqa: B023
            body,
        )
