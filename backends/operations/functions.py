"""Whole functions: compiled, on the host, without derivatives or with one of the user's; Jacobians, Hessians."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from itertools import compress
from operator import index
from typing import Any

import numpy as np

from ..interface.arrays import Array, Spec
from ..interface.containers import arrays_among
from ..interface.functions import Differentiated

_NO_DERIVATIVE = (
    "The derivative of numpy_call was asked for, whose function NumPy computes. Give it one by custom_gradient, or "
    "take the call out of derivatives by stop_gradient."
)


def stop_gradient(bk: Any, tree: Any) -> Any:
    """An array, or a container with all arrays in it, as constants to derivatives."""
    leaves, structure = bk.leaves(tree)
    return bk.unleaves(structure, [bk.constant(leaf) if bk.is_array(leaf) else leaf for leaf in leaves])


def block_until_ready(bk: Any, tree: Any) -> Any:
    """The container, once all its arrays are computed: libraries may return before that."""
    return tree


def compile(bk: Any, f: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
    """f, compiled by the library: `jax.jit`, `tf.function` without AutoGraph, `torch.compile`; in NumPy f itself.

    Args:
        f: of arrays and containers of them.
        static: names of arguments that are no arrays: f is compiled for each value.
    """
    return f


def numpy_call(bk: Any, f: Callable[..., Any], returns: Spec | Sequence[Spec], *arrays: Array, **constants: Any) -> Any:
    """What f returns, called with NumPy arrays; inside compiled functions each time that these run.

    It has no derivative: asking for one raises; in graphs of TensorFlow it is NaN. `custom_gradient` gives it one.

    Args:
        f: of arrays, which it cannot write to; returns an array, or several as a tuple.
        returns: `(shape, dtype)` of the array that f returns, or several of these.
        arrays: of the library.
        constants: more arguments of f, by name, as they are.
    """
    specs, one = _specs(returns)
    inputs = [bk.asarray(x) for x in arrays]
    found = list(bk.host_call(_with_own_memory(partial(f, **constants), one), specs, *map(bk.constant, inputs)))
    real = [i for i, x in enumerate(found) if not is_integer(bk, x)]
    sources = [x for x in inputs if not is_integer(bk, x)]
    if bk.has_derivatives and real and sources:
        marked = bk._with_no_derivative(sources, [found[i] for i in real], _NO_DERIVATIVE)
        for i, x in zip(real, marked, strict=True):
            found[i] = x
    return found[0] if one else tuple(found)


def _with_own_memory(f: Callable[..., Any], one: bool) -> Callable[..., Any]:
    """f of arrays that it cannot write to; its results are new ones, as a tuple.

    The arrays may lie in the memory of the caller's, and f may return the same buffer each time.
    """

    def function(*arrays: Any) -> Any:
        views = [np.asarray(x).view() for x in arrays]
        for x in views:
            x.flags.writeable = False
        found = f(*views)
        return tuple(np.array(x) for x in ((found,) if one else found))

    return function


def _specs(returns: Any) -> tuple[list[Spec], bool]:
    """The shapes and dtypes that a function declares, and whether there is only one array."""
    try:
        one = len(returns) == 2 and not isinstance(returns[1], (tuple, list))
        return [(tuple(map(index, shape)), np.dtype(dtype)) for shape, dtype in ([returns] if one else returns)], one
    except (TypeError, ValueError, IndexError) as error:
        raise TypeError(
            f"numpy_call got the argument returns={returns!r:.80}; expected (shape, dtype) of the array that the "
            "function returns, or a list of these."
        ) from error


# --- Functions with a derivative of the user's own --------------------------------------------------------------------


def custom_gradient(bk: Any, f: Callable[..., Any], gradient: Callable[..., Any]) -> Callable[..., Any]:
    """f, whose derivative by its arguments is what `gradient` computes.

    What f closes over keeps the derivative that it has. The library differentiates `gradient` for second derivatives.
    Derivatives are in reverse mode: forward mode raises in JAX and PyTorch. NumPy has none, and f stays as it is.

    Args:
        f: of arguments by position, arrays or containers of them.
        gradient: `gradient(inputs, outputs, *cotangents)` returns one cotangent for each of the `inputs`, which are the
            arguments as a tuple, or None for 0. `outputs` is what f has returned; of a tuple each part has a cotangent.
            The cotangent of a complex number is d/dRe + i d/dIm of the loss.
    """

    def differentiated(args: Sequence[Any], _: dict[str, Any]) -> Any:
        inputs = [_Container(bk, x) for x in args]
        output = _Container(bk, f(*(x.rebuilt([bk.constant(a) for a in x.arrays]) for x in inputs)))

        def rule(
            arrays: Sequence[Array], found: Sequence[Array], cotangents: Sequence[Array | None]
        ) -> list[Array | None]:
            parts = output.rebuilt(cotangents, None)
            parts = parts if isinstance(parts, (tuple, list)) else (parts,)
            rest, own = list(arrays), []
            for x in inputs:
                own.append(x.rebuilt(rest[: len(x.arrays)]))
                rest = rest[len(x.arrays) :]
            return _checked(bk, gradient(tuple(own), output.rebuilt(found), *parts), inputs)

        arrays = [a for x in inputs for a in x.arrays]
        return output.rebuilt(bk._with_rule(rule, arrays, output.arrays) if arrays else output.arrays)

    @wraps(f)
    def called(*args: Any) -> Any:
        return bk._outside_compilers(differentiated)(args, {}) if bk.has_derivatives else f(*args)

    return called


class _Container:
    """A container, and its arrays."""

    def __init__(self, bk: Any, tree: Any) -> None:
        self._bk = bk
        leaves, self._structure = bk.leaves(tree)
        self.arrays, self._filled = arrays_among(leaves, bk.is_array)

    def rebuilt(self, arrays: Sequence[Array | None], *other: Any) -> Any:
        """The container with these arrays, and `other` in place of each leaf that is none, if it is given."""
        return self._bk.unleaves(self._structure, self._filled(arrays, *other))

    def cotangents_in(self, tree: Any) -> list[Any]:
        """The cotangents of its arrays in a container of the same form; one of None has none."""
        if tree is None:
            return [None] * len(self.arrays)
        leaves, _ = self._bk.leaves(tree)
        are_arrays = self._filled([True] * len(self.arrays), False)
        if len(leaves) == len(are_arrays):
            return list(compress(leaves, are_arrays))
        if len(leaves) == len(self.arrays):
            return list(leaves)
        raise ValueError(
            f"A gradient returned {len(leaves)} arrays for an argument that holds {len(self.arrays)}; expected a "
            "container of the same form, or None where the derivative is 0."
        )


def is_integer(bk: Any, x: Array) -> bool:
    """Has it no derivative, as arrays of integers and booleans?"""
    return bool(bk.xp.isdtype(x.dtype, ("bool", "integral")))


def _checked(bk: Any, found: Any, inputs: Sequence[_Container]) -> list[Array | None]:
    """The cotangents of all arrays of the arguments, in their dtypes; None where they are 0."""
    found = found if isinstance(found, (tuple, list)) else (found,)
    if len(found) != len(inputs):
        raise ValueError(
            f"A gradient returned {len(found)} cotangents; expected a tuple of {len(inputs)}, one for each argument, "
            "with None where the derivative is 0."
        )
    pairs = [pair for x, tree in zip(inputs, found, strict=True) for pair in zip(x.arrays, x.cotangents_in(tree))]
    return [None if c is None or is_integer(bk, x) else _alike(bk, c, x) for x, c in pairs]


def _alike(bk: Any, cotangent: Any, x: Array) -> Array:
    """A cotangent in the dtype of x; the real part where x is real."""
    cotangent = bk.xp.asarray(cotangent)
    if tuple(cotangent.shape) != tuple(x.shape):
        raise ValueError(
            f"A gradient returned a cotangent of shape {tuple(cotangent.shape)} for an argument of shape "
            f"{tuple(x.shape)}; expected the same shape."
        )
    if cotangent.dtype == x.dtype:
        return cotangent
    is_real = bk.xp.isdtype(x.dtype, "real floating") and bk.xp.isdtype(cotangent.dtype, "complex floating")
    return bk.xp.astype(bk.xp.real(cotangent) if is_real else cotangent, x.dtype)


# --- Derivatives of whole functions: gradients and Jacobians, Hessians ------------------------------------------------


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
        beside: list[_Container] = []  # the outputs, if there are any

        def loss_and_arrays(*arrays: Array) -> tuple[Array, list[Array]]:
            loss, outputs = _split(bk, f(*parts.rebuilt(arrays), **constants))
            if not outputs:
                return loss, []
            beside[:] = [_Container(bk, outputs)]
            arrays_beside, beside[0].arrays = beside[0].arrays, []  # of a trace that ends
            return loss, arrays_beside

        found = bk._differentiated(loss_and_arrays, parts.arrays)
        derivatives = parts.grouped(_rows(bk, found))
        if get_output:
            outputs = beside[0].rebuilt(found.outputs) if beside else ()
            return (found.loss, *outputs, *derivatives)
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
