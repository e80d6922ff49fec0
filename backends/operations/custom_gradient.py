"""Functions with a derivative of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..interface.arrays import Array


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
        self._leaves, self._structure = bk.leaves(tree)
        self._is_array = [bk.is_array(x) for x in self._leaves]
        self.arrays = [x for x, known in zip(self._leaves, self._is_array, strict=True) if known]

    def rebuilt(self, arrays: Sequence[Array | None], *others: Any) -> Any:
        """The container with these arrays, and `others` in place of the rest, if it is given."""
        rest = iter(arrays)
        leaves = [
            next(rest) if known else (others or (leaf,))[0]
            for leaf, known in zip(self._leaves, self._is_array, strict=True)
        ]
        return self._bk.unleaves(self._structure, leaves)

    def cotangents_in(self, tree: Any) -> list[Any]:
        """The cotangents of its arrays in a container of the same form; one of None has none."""
        if tree is None:
            return [None] * len(self.arrays)
        leaves, _ = self._bk.leaves(tree)
        if len(leaves) == len(self._leaves):
            return [leaf for leaf, known in zip(leaves, self._is_array, strict=True) if known]
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
