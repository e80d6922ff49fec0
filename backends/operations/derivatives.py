"""Derivatives of whole functions: gradients and Jacobians, Hessians."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any

import numpy as np

from ..interface.arrays import Array
from ..interface.transformations import Differentiated


def jacobian(
    bk: Any, f: Callable[..., Any], wrt: int | Sequence[int] = 0, get_output: bool = True
) -> Callable[..., Any]:
    """A function of the same arguments that returns what f does, then its derivatives.

    f returns a loss, or a tuple `(loss, *outputs)`. The loss is real; where it has axes, they come first in each
    derivative. The derivative by a complex number is d/dRe + i d/dIm. Arguments may be containers of arrays; integers
    become real numbers; an argument without influence has the derivative 0.

    Args:
        f: of any arguments; those by name are constants.
        wrt: position of the argument, or of several.
        get_output: False returns the derivatives only: of one position itself, of several as a tuple.
    """
    places = _places(wrt)

    def differentiated(args: Sequence[Any], constants: dict[str, Any]) -> Any:
        parts = _Parts(bk, args, places)
        beside: list[Callable[[Sequence[Array]], tuple[Any, ...]]] = []

        def loss_and_arrays(*arrays: Array) -> tuple[Array, list[Array]]:
            loss, outputs = _split(bk, f(*parts.rebuilt(arrays), **constants))
            found, rebuild = _arrays_in(bk, outputs)
            beside.append(rebuild)
            return loss, found

        found = bk._differentiated(loss_and_arrays, parts.arrays)
        derivatives = parts.grouped(_rows(bk, found))
        if get_output:
            return (found.loss, *beside[-1](found.outputs), *derivatives)
        return derivatives if isinstance(wrt, Sequence) else derivatives[0]

    return _called_like(bk, f, differentiated)


def _called_like(
    bk: Any, f: Callable[..., Any], function: Callable[[Sequence[Any], dict[str, Any]], Any]
) -> Callable[..., Any]:
    """`function(args, constants)` as a function that is called, and named, like f."""

    @wraps(f)
    def called(*args: Any, **constants: Any) -> Any:
        return bk._outside_compilers(function)(args, constants)

    return called


def _places(wrt: int | Sequence[int]) -> tuple[int, ...]:
    places = tuple(index(i) for i in (wrt if isinstance(wrt, Sequence) else (wrt,)))
    if not places or min(places) < 0 or len(set(places)) < len(places):
        raise ValueError(
            f"wrt={wrt!r}; expected the position of an argument, counted from 0, or of several different ones."
        )
    return places


class _Parts:
    """The arrays of the arguments at `places`, and how to put others in their places."""

    def __init__(self, bk: Any, args: Sequence[Any], places: Sequence[int]) -> None:
        if max(places) >= len(args):
            raise ValueError(
                f"wrt names argument {max(places)}, counted from 0; got {len(args)} arguments by position."
            )
        self._bk, self._args, self._places = bk, args, places
        opened = [bk.leaves(args[place]) for place in places]
        self.arrays = [_real_or_complex(bk, leaf) for leaves, _ in opened for leaf in leaves]
        self._counts, self._structures = [len(leaves) for leaves, _ in opened], [structure for _, structure in opened]

    def grouped(self, arrays: Sequence[Array]) -> tuple[Any, ...]:
        """Arrays in the containers of the arguments at `places`."""
        rest, made = list(arrays), []
        for count, structure in zip(self._counts, self._structures, strict=True):
            made.append(self._bk.unleaves(structure, rest[:count]))
            rest = rest[count:]
        return tuple(made)

    def rebuilt(self, arrays: Sequence[Array]) -> list[Any]:
        """All arguments, with these arrays at `places`."""
        args = list(self._args)
        for place, value in zip(self._places, self.grouped(arrays), strict=True):
            args[place] = value
        return args


def _real_or_complex(bk: Any, x: Any) -> Array:
    x = bk.xp.asarray(x)
    return bk.xp.divide(x, 1) if bk.xp.isdtype(x.dtype, ("bool", "integral")) else x


def _split(bk: Any, found: Any) -> tuple[Array, tuple[Any, ...]]:
    """What the function has returned as its loss and the rest."""
    loss, *outputs = found if isinstance(found, (tuple, list)) else (found,)
    if not bk.is_array(loss):
        raise TypeError(
            f"The function returned a loss of type {type(loss).__name__}; expected an array of {bk.name}. Numbers that "
            "were taken out of the library, as by float(x), have no derivatives."
        )
    if not bk.xp.isdtype(loss.dtype, "real floating"):
        raise TypeError(
            f"The function returned a loss of dtype {loss.dtype}; expected real numbers. Take the derivative of the "
            "real part, the imaginary part or the absolute value."
        )
    return loss, tuple(outputs)


def _arrays_in(bk: Any, outputs: tuple[Any, ...]) -> tuple[list[Array], Callable[[Sequence[Array]], tuple[Any, ...]]]:
    """The arrays in what a function returns beside its loss, and how to put others in their places."""
    leaves, structure = bk.leaves(outputs) if outputs else ([], None)
    is_array = [bk.is_array(leaf) for leaf in leaves]
    others = [None if known else leaf for leaf, known in zip(leaves, is_array, strict=True)]

    def rebuild(arrays: Sequence[Array]) -> tuple[Any, ...]:
        rest = iter(arrays)
        filled = [next(rest) if known else leaf for leaf, known in zip(others, is_array, strict=True)]
        return tuple(bk.unleaves(structure, filled)) if outputs else ()

    return [leaf for leaf, known in zip(leaves, is_array, strict=True) if known], rebuild


def _rows(bk: Any, found: Differentiated) -> list[Array]:
    """The derivatives of each element of the loss, whose axes come first."""
    xp, loss = bk.xp, found.loss
    shape = tuple(loss.shape)
    if None in shape:
        raise ValueError(
            f"The loss has the shape {shape}, of which only a run of the program knows all; a derivative needs it. "
            "Reduce the loss to one number, or give the compiled function the shapes of its arguments."
        )
    size = math.prod(shape)
    if size == 1:
        return [
            xp.expand_dims(g, axis=tuple(range(len(shape)))) if shape else g for g in found.pull(xp.ones_like(loss))
        ]
    if size == 0:
        return [xp.zeros((*shape, *g.shape), dtype=g.dtype) for g in found.pull(xp.ones_like(loss))]
    units = xp.astype(bk.asarray(np.eye(size, dtype=np.float32).reshape(size, *shape), like=loss), loss.dtype)
    return [g if len(shape) == 1 else bk.reshape(g, (*shape, *g.shape[1:])) for g in found.pull_each(units)]


def hessian(
    bk: Any,
    f: Callable[..., Any],
    wrt: int | Sequence[int] = 0,
    get_output: bool = True,
    get_gradient: bool = True,
) -> Callable[..., Any]:
    """A function of the same arguments that returns a tuple: what f does, its gradients, its second derivatives.

    f returns a loss, or a tuple `(loss, *outputs)`. A loss `(batch,)` is one of each system, which depends on that
    system's part of the arguments, along their first axis, and on no other: then each Hessian has the shape
    `(batch, *shape of one, *shape of one)`. A loss without axes is one of all.

    Args:
        f: of any arguments; those by name are constants.
        wrt: position of the argument, a real array, or of several: then gradients are a tuple, Hessians one of tuples.
        get_output: False leaves out what f returns.
        get_gradient: False leaves out the gradients.
    """
    places = _places(wrt)
    several = isinstance(wrt, Sequence)

    def differentiated(args: Sequence[Any], constants: dict[str, Any]) -> tuple[Any, ...]:
        def total(*args: Any) -> tuple[Any, ...]:
            found = f(*args, **constants)
            loss, _ = _split(bk, found)
            _check_systems(bk, loss, args, places)
            return bk.xp.sum(loss), loss, found

        def gradients(*args: Any) -> tuple[Any, ...]:
            _, loss, found, *gradients = jacobian(bk, total, places)(*args)
            batched = len(loss.shape) > 0
            sums = [bk.xp.sum(g, axis=0) if batched else g for g in gradients]
            return bk.xp.concat([bk.reshape(g, (-1,)) for g in sums]), batched, found, gradients

        _, batched, output, first, *rows = jacobian(bk, gradients, places)(*args)
        second = tuple(zip(*(_blocks(bk, part, first, batched) for part in rows), strict=True))
        parts = [output] if get_output else []
        parts += [tuple(first) if several else first[0]] if get_gradient else []
        return (*parts, second if several else second[0][0])

    return _called_like(bk, f, differentiated)


def _check_systems(bk: Any, loss: Array, args: Sequence[Any], places: Sequence[int]) -> None:
    if len(loss.shape) > 1:
        raise ValueError(
            f"The function returned a loss of shape {tuple(loss.shape)}; a Hessian is of one number, or of one for "
            "each system (batch,)."
        )
    for place in places:
        x = args[place]
        if not bk.is_array(x) or bk.xp.isdtype(x.dtype, "complex floating"):
            what = f"complex numbers ({x.dtype})" if bk.is_array(x) else f"a {type(x).__name__}"
            raise TypeError(f"Argument {place} holds {what}; a Hessian is by real numbers. Give parts as arguments.")
        if len(loss.shape) and (not len(x.shape) or x.shape[0] != loss.shape[0]):
            raise ValueError(
                f"Argument {place} has the shape {tuple(x.shape)}, the loss {tuple(loss.shape)}; expected the same "
                "first axis, of systems that do not depend on each other. Return a loss without axes where there is "
                "but one."
            )


def _blocks(bk: Any, rows: Array, gradients: Sequence[Array], batched: bool) -> list[Array]:
    """Cut the derivative of all gradients by one argument `(all, *shape)` into one of each gradient."""
    found, start = [], 0
    for gradient in gradients:
        shape = tuple(gradient.shape[1:] if batched else gradient.shape)
        size = math.prod(shape)
        block = bk.reshape(rows[start : start + size], (*shape, *rows.shape[1:]))
        found.append(bk.xp.moveaxis(block, len(shape), 0) if batched else block)
        start += size
    return found
