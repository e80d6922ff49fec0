"""What each array library adds to tracing, and which libraries do.

A front end turns the operations of its library into those of `engine`. It is one folder beside this file, and one line
in `FRONT_ENDS`; everything else here is the same for all of them:

    matrix_from_function   the matrix from what a front end traced
    jacobian_matrix        the same of a derivative
    verify                 the test of the matrix by a random vector
    messages               what errors say
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from ...backends.registry import libraries_of
from ..errors import UnsupportedOperation
from .traced import Traced

Linearised: TypeAlias = tuple[Callable[[Any], Any], Any]  # a linear function, and something like its argument


class FrontEnd(Protocol):
    """How functions of one library are traced, run and differentiated."""

    def trace(
        self, function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
    ) -> Traced:
        """Follow `function(x, *args, **kwargs)` for an x like `like`: an array, its shape and dtype, or a container.

        With `keep_zeros` also what is multiplied by a known zero counts as dependent on x, except in comparisons and
        other non-linear operations, which then refuse it.

        Raises:
            TypeError: input or output are not floating or complex arrays (`traced.check_dtypes`).
            NonlinearError: the function is not linear or affine in x (`messages.nonlinear`).
            UnsupportedOperation: an operation that could be linear cannot be traced (`messages.unsupported`).
        """

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        """The outputs for a known input, as NumPy arrays where they are known, and the largest number that came up in
        between if `watch`: large ones that cancel leave large rounding errors. It should not compile anything.
        """

    def sample(
        self, traced: Traced, inputs: Callable[[int, np.ndarray | None], np.ndarray], wanted: Sequence[np.ndarray]
    ) -> list[np.ndarray] | None:
        """Some elements of each output, without computing all of it; None where that cannot be done.

        Args:
            traced: the function.
            inputs: `(number, positions or None for all)` -> those elements of an array of the input, flat.
            wanted: flat positions in each output.
        """

    def forward_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        """Tangents of x to tangents of `f(x)`."""

    def reverse_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        """Cotangents of `f(x)` to cotangents of x: the transpose, without conjugation."""

    def has_only_reverse_rule(self, error: Exception) -> bool:
        """Did the forward derivative fail with this error at a function that has a reverse rule only?"""


def sample_of_all(
    front_end: FrontEnd,
    traced: Traced,
    inputs: Callable[[int, np.ndarray | None], np.ndarray],
    wanted: Sequence[np.ndarray],
) -> list[np.ndarray] | None:
    """`FrontEnd.sample` where a call of the whole function costs less than its record did."""
    leaves = [inputs(k, None).reshape(leaf.shape) for k, leaf in enumerate(traced.inputs)]
    outputs, _ = front_end.evaluate(traced, leaves)
    if not all(isinstance(output, np.ndarray) for output in outputs):
        return None
    return [output.reshape(-1)[where] for output, where in zip(outputs, wanted)]


class Library(NamedTuple):
    """Where the front end of a library is, and how messages call its arrays.

    Attributes:
        module: which defines `FRONT_END`, imported when an array of the library is met first.
        title: of the library.
        specification: what makes something to trace with, of a shape and a dtype only.
    """

    module: str
    title: str
    specification: str


# By the name of the backend. Arrays of NumPy mix with those of any library, so it comes last.
FRONT_ENDS: dict[str, Library] = {
    "jax": Library(".jax.front_end", "JAX", "jax.ShapeDtypeStruct(shape, dtype)"),
    "torch": Library(".torch.front_end", "PyTorch", "torch.empty(shape, dtype=dtype, device='meta')"),
    "tensorflow": Library(".tensorflow.front_end", "TensorFlow", "tensorflow.TensorSpec(shape, dtype)"),
    "numpy": Library(".numpy.front_end", "NumPy", "numpy.empty(shape, dtype)"),
}


def front_end_of(library: str) -> FrontEnd:
    """The front end of a library, by the name of its backend.

    Raises:
        UnsupportedOperation: there is none.
    """
    if library not in FRONT_ENDS:
        titles = " or ".join(entry.title for entry in FRONT_ENDS.values())
        raise UnsupportedOperation(
            f"Functions of {library} cannot be traced; give the matrix, or a function of {titles}."
        )
    return _load(FRONT_ENDS[library].module)


def opaque_front_end() -> FrontEnd:
    """The one for functions on arrays of NumPy that cannot be looked into."""
    return _load(".probing.front_end")


def front_end_for(like: Any, *others: Any) -> FrontEnd:
    """The front end for functions of such arrays; `others` are further arguments, which may tell the library.

    Raises:
        UnsupportedOperation: there is none.
    """
    found = libraries_of(like, *others)
    library = next((name for name in FRONT_ENDS if name in found), None)
    if library is not None or found:
        return front_end_of(library or found[0])
    entries = FRONT_ENDS.values()
    raise UnsupportedOperation(
        f"like is a {type(like).__module__}.{type(like).__qualname__}; expected an array of "
        f"{' or '.join(entry.title for entry in entries)}, or a container of these. Functions of "
        f"{' and '.join(entry.title for entry in entries)} can be traced: give "
        f"{' or '.join(entry.specification for entry in entries)}."
    )


@cache
def _load(module: str) -> FrontEnd:
    front_end: FrontEnd = import_module(module, __package__).FRONT_END
    return front_end
