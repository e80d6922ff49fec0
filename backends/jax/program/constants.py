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
        if not is_tracing() or is_mapped() or jax.device_count() > 1:
            return function(*arrays)
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
        consts = list(program.consts)
        large = [i for i, x in enumerate(consts) if np.size(x) > _LARGE]
        if large:
            hidden = lax.optimization_barrier([jnp.asarray(consts[i]) for i in large])
            for i, x in zip(large, hidden, strict=True):
                consts[i] = x
        results = jaxpr_as_fun(ClosedJaxpr(program.jaxpr, consts))(*jax.tree.leaves(arrays))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return hiding
