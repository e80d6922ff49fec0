"""Iterations of NumPy on the memory of another library, whose own small operations take longer.

A step of CG is about 35 operations on one number for each system: 1 to 9 us each in PyTorch, 10 to 35 in TensorFlow,
0.3 in NumPy. Rows are in the memory of the library; A, M and projections get its own arrays.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...backends import Array, get_backend
from ...sparse import OnHost, Operator
from .driver import Iteration
from .limits import Limits
from .outcome import Outcome


def iterated(
    this: Iteration, x0: Array | None, rtol: Array, atol: Array, limits: Limits, history: bool
) -> Outcome:  # fmt: skip
    """Run the iteration, in NumPy where its method and library allow that."""
    bk, b = this.bk, this.bk.rows_on_host(this.b) if this.method.applies_only else None
    if b is None:
        return _run(this, x0, rtol, atol, limits, history)
    host = get_backend("numpy")

    def numbers(a: Array | None) -> np.ndarray | None:
        return None if a is None else bk.to_numpy(a)

    def operator(A: Operator | None) -> Operator | None:
        return None if A is None else OnHost(A)

    A, M, null, singular = OnHost(this.A), operator(this.M), operator(this.null), numbers(this.singular)
    there = replace(this, bk=host, A=A, M=M, null=null, b=b, singular=singular)
    with host.errstate():
        found = _run(there, numbers(x0), bk.to_numpy(rtol), bk.to_numpy(atol), limits, history)
    return Outcome(*(() if isinstance(a, tuple) else bk.from_host(np.ascontiguousarray(a)) for a in found))


def _run(this: Iteration, x0: Array | None, rtol: Array, atol: Array, limits: Limits, history: bool) -> Outcome:
    solve = this.run if len(limits) == 1 or this.method.can_pause else this.run_each
    return solve(x0, rtol, atol, limits, history)
