"""What each array library adds to tracing, which libraries do, and what they find out about a function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from ...backends import Backend
from ...backends.registry import libraries_of
from ..errors import UnsupportedOperation
from .engine.coefficients import Coefficient
from .engine.linear import Linear, identity


class Specification(Protocol):
    """The shape and dtype of an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of its axes."""

    @property
    def dtype(self) -> Any:
        """Of NumPy, or an extension of it."""

    @property
    def size(self) -> int:
        """Number of elements."""


class Shaped(NamedTuple):
    """A shape and a dtype, and no values."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Traced:
    """What a function does to arrays of given shapes.

    Attributes:
        bk: the backend of the function's library.
        program: the recorded function, which only the front end reads.
        outputs: `Linear`s, or plain arrays where the output does not depend on the input.
        inputs: shapes and dtypes of the input's arrays.
        constants: arrays of the user's that the function closes over.
        pack: puts arrays into the container that the function returns.
        in_shape, out_shape: of input and output; None for a container of arrays.
        dtype: of the matrix.
        precision: the coarsest rounding unit of the arrays that depend on the input.
        like: array on whose device the entries go.
    """

    bk: Backend
    program: Any
    outputs: tuple[Linear | Coefficient, ...]
    inputs: tuple[Specification, ...]
    constants: tuple[np.ndarray, ...]
    pack: Callable[[Sequence[Any]], Any]
    in_shape: tuple[int, ...] | None
    out_shape: tuple[int, ...] | None
    dtype: np.dtype
    precision: float
    like: Any = None

    @property
    def columns(self) -> int:
        """Number of unknowns."""
        return sum(int(leaf.size) for leaf in self.inputs)

    def own(self, bias: Any) -> Any:
        """A copy of a bias that is an array of the user's, who may write into it."""
        if not isinstance(bias, np.ndarray):
            return bias
        return bias.copy() if any(np.may_share_memory(bias, c) for c in self.constants) else bias


def arguments(bk: Backend, inputs: Iterable[Specification]) -> list[Linear]:
    """What to call the function with: the columns are counted through all arrays of the input."""
    found: list[Linear] = []
    first = 0
    for leaf in inputs:
        found.append(identity(bk, leaf.shape, leaf.dtype, first))
        first += leaf.size
    return found


def matrix_dtype(arrays: Iterable[Specification]) -> np.dtype:
    """The dtype of a matrix between such arrays: single precision at least, as SciPy has no half sparse matrices."""
    return np.result_type(np.float32, *(array.dtype for array in arrays))


def check_dtypes(arrays: Iterable[Specification], what: str) -> None:
    """
    Args:
        arrays: of the input or output.
        what: they are, "the input" or "an output".
    """
    for array in arrays:
        if array.dtype.kind not in "fc":
            raise TypeError(
                f"{what} of the traced function has the dtype {array.dtype}; expected a floating or complex one of "
                "NumPy, since linear maps act on real or complex numbers. Convert it, or leave it out."
            )


# --- the protocol of a front end --------------------------------------------------------------------------------------
# A front end turns the operations of its library into those of `engine`. It is one folder beside this file, and one
# line in `FRONT_ENDS`; everything else here is the same for all of them:
#
#     matrix_from_function   the matrix from what a front end traced
#     jacobian_matrix        the same of a derivative
#     verify                 the test of the matrix by a random vector
#     messages               what errors say

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
            TypeError: input or output are not floating or complex arrays (`check_dtypes`).
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
        return None

    def forward_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        """Tangents of x to tangents of `f(x)`."""

    def reverse_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        """Cotangents of `f(x)` to cotangents of x: the transpose, without conjugation."""
        return self.forward_derivative(f, x, args, kwargs)

    def has_only_reverse_rule(self, error: Exception) -> bool:
        """Did the forward derivative fail with this error at a function that has a reverse rule only?"""
        return False


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
    """The front end of a library, by the name of its backend."""
    if library not in FRONT_ENDS:
        titles = " or ".join(entry.title for entry in FRONT_ENDS.values())
        raise UnsupportedOperation(
            f"Functions of {library} cannot be traced; give the matrix, or a function of {titles}."
        )
    return _load(FRONT_ENDS[library].module)


def opaque_front_end() -> FrontEnd:
    """The one for functions on arrays of NumPy that cannot be looked into."""
    return _load(".probing")


def front_end_for(like: Any, *others: Any) -> FrontEnd:
    """The front end for functions of such arrays; `others` are further arguments, which may tell the library."""
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
