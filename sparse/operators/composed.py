"""Base classes of matrix-free operators, composite operators among them, and their form for the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from ...backends import Array, Backend, get_backend
from ...backends.registry import register_container
from ..errors import UnsupportedOperation
from ..formats import Dense
from ..operator import Operator

_DENSE_LIMIT = 4096  # columns that are worth finding one by one


class Products(Operator):
    """Matrix-free operator: entries are found column by column, and SciPy gets a LinearOperator."""

    def dense(self) -> Array:
        """One product per column."""
        n = self.shape[1]
        if n > _DENSE_LIMIT:
            raise UnsupportedOperation(
                f"This needs the entries of a function of {n} unknowns, which takes {n} evaluations and {n}x{n} "
                f"numbers; krylix does so up to n = {_DENSE_LIMIT}. Give a sparse matrix, or choose a matrix-free "
                "method such as CG or biCG-stab(2)."
            )
        images = self._images(self.bk.asarray(np.eye(n, dtype=self.dtype), like=getattr(self, "like", None)))
        return images[0, ...] if self.systems is None else images

    def diagonals(self) -> Array:
        diagonal = self.bk.diagonal(self.dense())
        return diagonal[None, :] if self.systems is None else diagonal

    def per_system(self, i: int) -> Any:
        """A SciPy LinearOperator, which multiplies one system per call, the rest zero."""
        from scipy.sparse.linalg import LinearOperator

        transposed: list[Operator] = []

        def product(of: Operator, v: np.ndarray) -> np.ndarray:
            rows = np.zeros((of.systems or 1, of.shape[1]), of.dtype)
            rows[i if of.systems is not None else 0] = v.reshape(-1)
            return of.apply(rows)[i if of.systems is not None else 0].copy()  # SciPy's methods write to what they get

        def adjoint(v: np.ndarray) -> np.ndarray:
            if not transposed:  # made once, as that may cost evaluations
                transposed.append(self.transpose())
            return np.conj(product(transposed[0], np.conj(v)))

        return LinearOperator(self.shape, matvec=lambda v: product(self, v), rmatvec=adjoint, dtype=self.dtype)


class Turned(Products):
    """Operator in one of four forms: A, its transpose, its conjugate or both.

    Attributes:
        transposed, conjugated: which of them.
    """

    transposed: bool
    conjugated: bool

    @abstractmethod
    def product(self, x: Array) -> Array:
        """`apply` of A, or of its transpose if `transposed`."""

    @abstractmethod
    def turned(self, *, transposed: bool, conjugated: bool) -> Operator:
        """Another form of A."""

    def apply(self, x: Array) -> Array:
        if not self.conjugated:
            return self.product(x)
        return self.bk.conj(self.product(self.bk.conj(x)))

    def transpose(self) -> Operator:
        return self.turned(transposed=not self.transposed, conjugated=self.conjugated)

    def conj(self) -> Operator:
        return self.turned(transposed=self.transposed, conjugated=not self.conjugated)


# --- The host ---


class BridgedOperator(Products):
    """An operator of another library on NumPy arrays; eager only."""

    def __init__(self, inner: Operator, like: Array | None = None) -> None:
        self.bk, self.inner, self.device_like = get_backend("numpy"), inner, like
        self.shape, self.dtype, self.systems = inner.shape, inner.dtype, inner.systems

    def apply(self, x: Array) -> Array:
        theirs = self.inner.bk
        image = self.inner.apply(theirs.asarray(np.ascontiguousarray(x), like=self.device_like))
        return np.array(theirs.to_numpy(image))  # SciPy's methods write to what they get

    @property
    def together(self) -> int | None:
        return self.inner.together

    def transpose(self) -> Operator:
        return BridgedOperator(self.inner.transpose(), self.device_like)

    def conj(self) -> Operator:
        return BridgedOperator(self.inner.conj(), self.device_like)

    def dense(self) -> Array:
        return self.inner.bk.to_numpy(self.inner.dense())

    def diagonals(self) -> Array:
        return self.inner.bk.to_numpy(self.inner.diagonals())

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self


def products_for_host(
    operator: Operator, compiled: bool, like: Array | None = None
) -> tuple[Sequence[Array], Callable[..., Operator]]:
    """`for_host` of an operator that only knows its products.

    Eagerly the host calls it in its own library; inside a compiled function its entries are found first, because a
    host call must not start computations of the library that waits for it.
    """
    if operator.bk.on_host:
        return (), lambda _: operator
    if not compiled:
        return (), lambda _: BridgedOperator(operator, like)
    return (operator.dense(),), lambda arrays: Dense(get_backend("numpy"), arrays[0])


# --- Composite operators: conversions are applied to their parts, operators and arrays ---


@dataclass(eq=False, repr=False)
class Composed(Products):
    """Dataclass with `parts` among its fields: operators and arrays of the library, or None; others are constants.

    An array that `apply` takes item by item is among `cut`, and may then be a tuple of these, see `Backend.apart`.

    A subclass states its parts, `apply` and `transpose`; the rest follows. One with complex constants states `conj`,
    too. One that is made of arrays only has a field `bk`, and says in `_settle` what its shape and dtype are. In a
    compiled function an array that is known is NumPy's; `apply` takes it by `self.array(name)`.

    Examples:
        >>> @dataclass(eq=False, repr=False)
        ... class Twice(Composed):
        ...     inner: Operator
        ...
        ...     def apply(self, x):
        ...         return 2 * self.inner.apply(x)
        ...
        ...     def transpose(self):
        ...         return self._map(lambda A: A.transpose())
        >>> from krylix import as_operator
        >>> Twice(as_operator(np.eye(2))).T.dense()
        array([[2., 0.],
               [0., 2.]])
    """

    parts: ClassVar[tuple[str, ...]] = ("inner",)
    cut: ClassVar[tuple[str, ...]] = ()
    passes_grids: ClassVar[bool] = False  # does it take and return rows kept as grids where its operators do?

    def __post_init__(self) -> None:
        self._settle()
        self._register()

    def _register(self) -> None:
        register_container(self.bk, type(self), _flatten, _restore)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()  # in the process that reads it

    def _settle(self) -> None:
        """Facts, from those parts that are operators."""
        operators = self._operators()
        first = operators[0]
        self.bk, self.shape, self.dtype = first.bk, first.shape, first.dtype
        self.systems = next((A.systems for A in operators if A.systems is not None), None)
        self.is_container = all(A.is_container for A in operators)  # type: ignore[misc]
        self.tracked = any(A.tracked for A in operators)

    def _operators(self) -> list[Operator]:
        return [part for part in map(self.__dict__.__getitem__, self.parts) if isinstance(part, Operator)]

    @property
    def keeps_grids(self) -> bool:  # type: ignore[override]
        return self.passes_grids and all(A.keeps_grids for A in self._operators())

    # --- the same with other parts ------------------------------------------------------------------------------------

    def _map(
        self, operators: Callable[[Operator], Operator], arrays: Callable[[Array], Array] = lambda array: array
    ) -> Self:
        """Apply functions to all parts."""
        parts = {name: self.__dict__[name] for name in self.parts}

        def image(part: Any) -> Any:
            if part is None:
                return None
            if isinstance(part, tuple):
                return tuple(map(arrays, part))
            return operators(part) if isinstance(part, Operator) else arrays(part)

        return replace(self, **{name: image(part) for name, part in parts.items()})

    def _moved(self, parts: dict[str, Any], bk: Backend) -> Any:
        """Rebuild from parts on another backend."""
        return replace(self, **parts, **({"bk": bk} if "bk" in _constants(type(self)) else {}))

    def conj(self) -> Operator:
        return self._map(lambda A: A.conj(), lambda a: self._library_of(a).conj(a))

    def astype(self, dtype: np.dtype) -> Operator:
        def cast(array: Array) -> Array:
            bk = self._library_of(array)
            return bk.astype(array, dtype) if bk.dtype(array).kind in "fc" else array

        return self._map(lambda A: A.astype(dtype), cast)

    def as_container(self) -> Operator:
        own = self._apart()
        return own._map(lambda A: A.as_container(), self.bk.asarray)

    def _apart(self) -> Any:
        known = {name: self.__dict__[name] for name in self.cut if isinstance(self.__dict__[name], np.ndarray)}
        return replace(self, **{name: self.bk.apart(part) for name, part in known.items()}) if known else self

    def array(self, name: str) -> Array:
        """One of the parts as an array of the library."""
        part = self.__dict__[name]
        if not isinstance(part, np.ndarray) or self.bk.on_host:
            return part
        return self.bk.apart(part) if name in self.cut else self.bk.asarray(part)

    def _library_of(self, array: Array) -> Backend:
        return get_backend("numpy") if isinstance(array, np.ndarray) else self.bk

    def _form(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of one of the parts that are arrays, as a whole."""
        part = self.__dict__[name]
        array, lead = (part[0], (len(part),)) if isinstance(part, tuple) else (part, ())
        return (*lead, *map(int, array.shape)), np.dtype(self._library_of(array).dtype(array))

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        moved: dict[str, Any] = {}
        for name in self.parts:
            part = self.__dict__[name]
            if isinstance(part, Operator):
                moved[name] = part.on_backend(bk, like)
                if moved[name] is None:
                    return None
            else:
                moved[name] = part if part is None or bk.compiled() else bk.asarray(part, like=like)
        return self._moved(moved, bk)

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        found = {name: _for_host(self.__dict__[name]) for name in self.parts}

        def rebuild(values: Sequence[np.ndarray]) -> Operator:
            parts, rest = {}, list(values)
            for name, (arrays, make) in found.items():
                parts[name], rest = make(rest[: len(arrays)]), rest[len(arrays) :]
            return self._moved(parts, get_backend("numpy"))

        return [array for arrays, _ in found.values() for array in arrays], rebuild

    # --- what its first operator tells --------------------------------------------------------------------------------

    @property
    def in_shape(self) -> tuple[int, ...]:
        operators = self._operators()
        return operators[0].in_shape if operators else (self.shape[1],)

    @property
    def out_shape(self) -> tuple[int, ...]:
        operators = self._operators()
        return operators[0].out_shape if operators else (self.shape[0],)

    @property
    def together(self) -> int | None:
        return next((A.together for A in self._operators() if A.together is not None), self.systems)


def _for_host(part: Any) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Any]]:
    if isinstance(part, tuple):
        return part, np.stack
    if isinstance(part, Operator):
        return part.for_host()
    if part is None or isinstance(part, np.ndarray):
        return (), lambda _: part
    return (part,), lambda values: values[0]


@cache
def _constants(cls: type) -> tuple[str, ...]:
    """Names of the fields of a class that are no parts."""
    of: Any = cls
    return tuple(f.name for f in fields(of) if f.name not in of.parts)


def _flatten(operator: Composed) -> tuple[tuple[Any, ...], Any]:
    own = operator.__dict__
    static = tuple(own[name] for name in _constants(type(operator)))
    return tuple(own[name] for name in operator.parts), (type(operator), static)


def _restore(static: Any, parts: Sequence[Any]) -> Composed:
    """Unflatten without `__post_init__`, as transformations replace parts by placeholders."""
    cls, constants = static
    operator: Composed = object.__new__(cls)
    operator.__dict__.update(zip(_constants(cls), constants), **dict(zip(cls.parts, parts)))
    present = [part for part in parts if part is not None]
    if present and all(map(_is_whole, present)):
        operator._settle()
    return operator


def _is_whole(part: Any) -> bool:
    """Is it a part, and no placeholder?"""
    if isinstance(part, tuple):
        return all(map(_is_whole, part))
    return isinstance(part, Operator) or (hasattr(part, "shape") and hasattr(part, "dtype"))
