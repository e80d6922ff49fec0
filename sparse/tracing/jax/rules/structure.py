"""Rules for operations that move whole blocks of elements.

`jnp.pad(u, (2, 0))` of 4 elements: the box lies two rows further on.

>>> import jax
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u = identity(get_backend("jax"), (4,), float)
>>> (equation,) = jax.make_jaxpr(lambda u: lax.pad(u, 0.0, [(2, 0, 0)]))(np.zeros(4)).eqns
>>> STRUCTURE["pad"](equation, [u, np.asarray(0.0)]).terms
(Box(lo=(2,), shape=(4,), offset=0, strides=(1,), factor=1, values=None, mask=None),)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from ...engine.arithmetic import add, scale
from ...engine.coefficients import pad_known
from ...engine.linear import Linear, reshape
from ...engine.operations.replace import cut
from ...engine.positions import select
from ...engine.refusals import static_needed
from ...engine.structural import broadcast_in_dim, concatenate, pad, reverse, slice_, stack, tile, transpose
from ..control import choose
from ..known.table import is_known

Values = Sequence[Any]


def _reshape(equation: Any, values: Values) -> Any:
    x, dimensions = values[0], equation.params.get("dimensions")
    return reshape(x if dimensions is None else transpose(x, dimensions), equation.outvars[0].aval.shape)


def _broadcast_in_dim(equation: Any, values: Values) -> Any:
    return broadcast_in_dim(values[0], equation.params["shape"], equation.params["broadcast_dimensions"])


def _slice(equation: Any, values: Values) -> Any:
    p = equation.params
    return slice_(values[0], p["start_indices"], p["limit_indices"], p["strides"])


def _pad(equation: Any, values: Values) -> Any:
    (x, fill), config = values, equation.params["padding_config"]
    if not isinstance(fill, Linear):
        return pad(x, config, fill)
    around = pad_known(np.zeros(x.shape, bool), config, True)
    filled = scale(fill, around.astype(fill.dtype))
    if isinstance(x, Linear):
        return add(pad(x, config), filled)
    return add(
        filled, lax.pad(x, np.zeros((), x.dtype), config) if not is_known(x) else pad_known(np.asarray(x), config, 0)
    )


def _split(equation: Any, values: Values) -> Any:
    x, axis = values[0], equation.params["axis"]
    ends = list(itertools.accumulate(int(size) for size in equation.params["sizes"]))
    return [cut(x, axis, start, end) for start, end in zip([0, *ends], ends)]


def _unstack(equation: Any, values: Values) -> Any:
    x, axis = values[0], equation.params["axis"]
    shape = equation.outvars[0].aval.shape
    return [reshape(cut(x, axis, i, i + 1), shape) for i in range(x.shape[axis])]


def _select(equation: Any, values: Values) -> Any:
    which, *cases = values
    if isinstance(which, Linear):
        raise static_needed("predicate", which)
    if which.ndim:
        return select(which, cases)
    if is_known(which):
        return cases[int(which)]
    return choose(which, cases)


STRUCTURE: dict[str, Callable[[Any, Values], Any]] = {
    "reshape": _reshape,
    "squeeze": lambda equation, values: reshape(values[0], equation.outvars[0].aval.shape),
    "expand_dims": lambda equation, values: reshape(values[0], equation.outvars[0].aval.shape),
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": _slice,
    "pad": _pad,
    "transpose": lambda equation, values: transpose(values[0], equation.params["permutation"]),
    "rev": lambda equation, values: reverse(values[0], equation.params["dimensions"]),
    "concatenate": lambda equation, values: concatenate(values, equation.params["dimension"]),
    "stack": lambda equation, values: stack(values, equation.params["axis"]),
    "split": _split,
    "unstack": _unstack,
    "tile": lambda equation, values: tile(values[0], equation.params["reps"]),
    "select_n": _select,
}
