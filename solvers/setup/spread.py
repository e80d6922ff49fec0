"""How right-hand sides are distributed over several devices, where that is known."""

from __future__ import annotations

from typing import Any

from ...backends import Backend, Cut
from ...sparse import Layout
from .problem import Request


def known_cut(bk: Backend, request: Request, b: Any, layout: Layout) -> Cut | None:
    """The distribution of `(systems, *shape of one system)`.

    Args:
        b: the right-hand side, with the vectors of a matrix on its last axis.

    Raises:
        TypeError, ValueError: `sharding` was given and does not fit.
    """
    if layout.structure is not None:
        if request.sharding is not None:
            raise TypeError(
                f"sharding={request.sharding!r} was given for a container of arrays; expected one array. Spread its "
                "arrays by jax.device_put, and leave it out."
            )
        return None
    if request.sharding is not None and request.axis not in (None, -1):
        raise ValueError(
            f"sharding was given together with axis={request.axis}; expected vectors on the last axis. Give b.T."
        )
    sharding = request.sharding
    if sharding is None and tuple(b.shape) == tuple(getattr(request.b, "shape", ())) and request.axis in (None, -1):
        sharding = request.seen_sharding
    return bk.cut_of(b, len(layout.batch), sharding) if bk.spreads_arrays() or sharding is not None else None
