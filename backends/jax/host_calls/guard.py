"""What happens when a compiled solve fails in JAX: callbacks before its arrays are returned, and a second attempt.

XLA turns the error of a callback into a `JaxRuntimeError` of its own whose text ends with ours, of a Python callback
below pages of traceback, and before that JAX logs the traceback too: neither keeps the class or `__cause__`. So the
message goes out by itself, before both, and JAX's copy in the log is left out.

The second attempt is one callback for all lanes of `jax.vmap`. A condition that differs from lane to lane would run
both of its branches, and call the host every time. So all lanes ask together, and the host looks which of them failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from ...interface.arrays import Array, nan_of
from ...interface.control import Kept, as_declared
from .by_host import by_host, unless_exported

_CHEAP = 2048  # operations: XLA counts those of a program, and runs it at once if they are fewer than 1000
_SMALL = 64  # numbers in x: solves with more have as many operations
_LOGS = ("jax._src.callback", "jax._src.debugging")  # of pure_callback, and of debug.callback


def guarded(
    failed: Array,
    handler: Callable[..., None],
    x: Any,
    arrays: Sequence[Array],
    kept: Kept | None,
    noted: Array | None = None,
) -> Any:
    """See `Control.guard`. `x` depends on the result of the call, or XLA would drop it."""
    report = reporting(handler)
    if kept is not None:  # one handler for each layout of what it gets
        kept = kept._replace(name=" ".join([kept.name, *(f"{a.dtype}{a.shape}" for a in arrays)]))
    given = [np.dtype(a.dtype) for a in arrays]
    arrays = [lax.convert_element_type(a, np.int32) if a.dtype == bool else a for a in arrays]
    pack, apart = _packing(arrays, [a.dtype for a in arrays])
    arrays = pack(jnp, arrays)
    small = sum(np.size(leaf) for leaf in jax.tree.leaves(x)) < _SMALL

    asides = 0 if noted is None else 1

    # It sees the conditions again: under vmap both branches run.
    def on_host(bad: Any, *values: Any) -> tuple[np.ndarray]:
        if np.any(bad) or any(map(np.any, values[:asides])):
            numbers = apart(list(map(np.asarray, values[asides:])))
            report(*(x.astype(dtype) for x, dtype in zip(numbers, given, strict=True)))
        return (np.zeros((), np.bool_),)

    def fail(bad: Array, *values: Array) -> Array:
        if small:
            bad = bad | _never()
        return by_host(on_host, [((), np.dtype(bool))], bad, *values, kept=kept)[0]

    def call(failed: Array, *values: Array) -> Array:
        calls = failed | values[0] if asides else failed
        if jax.device_count() == 1:
            return lax.cond(calls, fail, lambda bad, *values: jnp.zeros((), bool), failed, *values)

        # One device calls the host; if x waited for it, the others would wait in a collective for ever.
        # A loop of at most one step, as JAX cannot vectorise conditions inside of `shard_map`.
        def tell(bad: Array) -> Array:
            jax.debug.callback(on_host, bad, *values)
            return bad ^ bad  # False; a constant would not vary from device to device

        return lax.while_loop(lambda bad: bad, tell, calls)

    operands = lax.stop_gradient((failed, *(() if noted is None else (noted,)), *arrays))
    (flag,) = unless_exported(lambda *given: [call(*given)], lambda failed, *values: [failed], *operands)
    return jax.tree.map(lambda leaf: jnp.where(flag, jnp.asarray(nan_of(leaf.dtype), leaf.dtype), leaf), x)


def _never() -> Array:
    """False, by so many operations that XLA leaves the caller's thread, where JAX turns all errors into ValueError."""
    return jnp.sum(lax.optimization_barrier(jnp.zeros(_CHEAP, np.int32))) > 0


def reporting(handler: Callable[..., None]) -> Callable[..., None]:
    """`handler`, whose errors are logged by `logging.getLogger("krylix")` before they reach XLA."""

    def report(*arrays: Any) -> None:
        try:
            handler(*arrays)
        except Exception as error:
            _leave_out_copies()
            error.reported = True  # type: ignore[attr-defined]
            logging.getLogger("krylix").error("%s: %s", type(error).__name__, error)
            raise

    return report


@cache
def _leave_out_copies() -> None:
    for name in _LOGS:
        logging.getLogger(name).addFilter(_is_new)


def _is_new(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not getattr(error, "reported", False)


def rescued(
    failed: Array, function: Callable[..., Any], found: Sequence[Array], arrays: Sequence[Array], name: str | None
) -> list[Array]:
    """`found`, or where `failed` what `function(*arrays as NumPy)` finds; see `Control.rescued`.

    Numbers travel as one vector of each dtype: XLA compiles a kernel for each array that a condition hands on.
    """
    places = {id(x): k for k, x in enumerate(found)}
    among = [places.get(id(x)) for x in arrays]  # positions of arrays that are also in `found`
    others = [x for x, place in zip(arrays, among) if place is None]
    pack, unpack = _packing(found, [x.dtype if x.shape[-1:] == (1,) else k for k, x in enumerate(found)])
    own = pack(jnp, found)
    count, declared = len(own), [(x.shape, np.dtype(x.dtype)) for x in found]
    kept = None if name is None else Kept(f"{name} {declared}", "keep")

    def on_host(failed: Any, *operands: Any) -> tuple[np.ndarray, ...]:
        failed, operands = np.asarray(failed), tuple(map(np.asarray, operands))
        results = tuple(np.array(x) for x in operands[:count])
        for lane in np.argwhere(failed):
            at = tuple(lane)
            before, rest = unpack([x[at] for x in operands[:count]]), (x[at] for x in operands[count:])
            given = (next(rest) if place is None else before[place] for place in among)
            values = as_declared(function(*given), declared)
            for result, value in zip(results, pack(np, values), strict=True):
                result[at] = value
        return results

    def call(failed: Array, *operands: Array) -> list[Array]:
        returns = [(x.shape, np.dtype(x.dtype)) for x in operands[:count]]
        return by_host(on_host, returns, failed, *operands, kept=kept)

    @custom_vmap
    def here(failed: Array, *operands: Array) -> list[Array]:
        return lax.cond(jnp.any(failed), call, lambda _, *operands: list(operands[:count]), failed, *operands)

    @here.def_vmap
    def _(size: int, mapped: Sequence[bool], *given: Array) -> Any:
        lanes = [x if is_mapped else jnp.broadcast_to(x, (size, *x.shape)) for x, is_mapped in zip(given, mapped)]
        return here(*lanes), [True] * count

    return unpack(unless_exported(here, lambda _, *operands: list(operands[:count]), failed, *own, *others))


def _packing(
    arrays: Sequence[Array], keys: Sequence[Any]
) -> tuple[Callable[..., list[Any]], Callable[[Sequence[Any]], list[Any]]]:
    """Functions that join arrays like these whose keys are equal, with `xp.concatenate`, and part them."""
    shapes, groups = [x.shape for x in arrays], dict[Any, list[int]]()
    for k, key in enumerate(keys):
        groups.setdefault(key, []).append(k)

    def pack(xp: Any, arrays: Sequence[Any]) -> list[Any]:
        return [
            xp.concatenate([arrays[k].reshape(-1) for k in group]) if len(group) > 1 else arrays[group[0]]
            for group in groups.values()
        ]

    def unpack(values: Sequence[Any]) -> list[Any]:
        found: list[Any] = [None] * len(shapes)
        for group, value in zip(groups.values(), values, strict=True):
            ends = np.cumsum([0, *(int(np.prod(shapes[k])) for k in group)])
            for k, start, end in zip(group, ends, ends[1:]):
                found[k] = value[start:end].reshape(shapes[k]) if len(group) > 1 else value
        return found

    return pack, unpack
