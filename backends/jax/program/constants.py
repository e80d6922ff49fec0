"""Large known arrays in a program: XLA folds, sinks and copies what it sees to be constant.

That takes up to a fifth of the time in which a multigrid method is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ..sharding.varying import is_mapped
from ..tracing import is_tracing

_LARGE = 2**18  # numbers: fewer are folded in no time, and what is made of them is a kernel more


def hiding_constants(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, in which no large array that it closes over is a constant to XLA; as it is outside of programs.

    Those that are computed in the program cannot be told from constants, and gain and lose nothing.
    """

    def hiding(*arrays: Any) -> Any:
        if not _may_hide():
            return function(*arrays)
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
        return jax.tree.unflatten(jax.tree.structure(shapes), evaluated(program, *jax.tree.leaves(arrays)))

    return hiding


def evaluated(program: ClosedJaxpr, *leaves: Any) -> list[Any]:
    """What a program computes, none of whose large arrays is a constant to XLA."""
    consts = list(program.consts)
    large = [i for i, x in enumerate(consts) if np.size(x) > _LARGE] if _may_hide() else []
    if large:
        hidden = lax.optimization_barrier([jnp.asarray(consts[i]) for i in large])
        for i, x in zip(large, hidden, strict=True):
            consts[i] = x
    return list(jaxpr_as_fun(ClosedJaxpr(program.jaxpr, consts))(*leaves))


def _may_hide() -> bool:
    return is_tracing() and not is_mapped() and jax.device_count() == 1
