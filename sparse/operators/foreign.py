"""Validation of foreign products: those of a LinearOperator, and the first ones of a function.

What is handed out cannot be written to (`Backend.call`). What comes back must have the size, the kind and, for A, the
precision of what was asked for. The first time that an object is used, more is looked for: writes that nobody forbids,
as of compiled code; an rmatvec that is not the adjoint; a matmat that differs from matvec.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...backends import Array, Backend, get_backend
from ..errors import UnsupportedOperation
from ..formats.matrix import Matrix
from ..layout import coarse, is_coarser
from ..operator import Operator
from ..peers.modules import WITH_MODES, wrong_dtype
from ..tracing.front_end import opaque_front_end
from ..tracing.matrix_from_function import traced_matrix
from .composed import Turned

_HOST = get_backend("numpy")


@dataclass
class _Seen:
    """Results of the checks at the first use of an object."""

    reads: bool = False  # was it seen not to write to what it gets?
    has_adjoint: bool = False
    adjoints: set[str] = field(default_factory=set)  # dtypes for which it was compared
    blocks: set[str] = field(default_factory=set)  # products with many columns that were compared


_memory: dict[int, tuple[weakref.ref[Any], _Seen]] = {}  # by identity: equal objects may hold different products


def _seen(it: Any) -> _Seen:
    key = id(it)
    found = _memory.get(key)
    if found is not None and found[0]() is it:
        return found[1]
    seen = _Seen()
    with suppress(TypeError):  # of what cannot be weakly referenced, and is looked at each time
        _memory[key] = weakref.ref(it, lambda _: _memory.pop(key, None)), seen
    return seen


class Guarded:
    """Products of rows of `dtype` with a SciPy `LinearOperator`, or an object of its interface, and with its adjoint.

    With `exact`, images of less precision than `dtype` are refused, as A may not return them; else they are converted.
    """

    def __init__(self, linear: Any, name: str, dtype: np.dtype, exact: bool) -> None:
        self.linear, self.name, self.dtype, self.exact, self.seen = linear, name, dtype, exact, _seen(linear)

    def product(self, x: np.ndarray) -> np.ndarray:
        """`(k, columns)` -> `(k, rows)`: A x.

        Raises:
            ValueError: it writes to x, or returns another size.
            TypeError: it returns complex numbers for real ones, or less precise ones.
        """
        return self._images(x, "matvec", "matmat" if _is_own(self.linear, "_matmat") else None)

    def adjoint(self, x: np.ndarray) -> np.ndarray:
        """`(k, rows)` -> `(k, columns)`: Aᴴ x, which the first time is compared with A by two products.

        Raises:
            ValueError, TypeError: as `product`; or it is not the adjoint.
        """
        if self.dtype.char not in self.seen.adjoints:
            self._compare_adjoint()
        return self._images(x, "rmatvec", "rmatmat" if _is_own(self.linear, "_rmatmat") else None)

    def trust_adjoint(self) -> None:
        """Compare no adjoint: of a part of an operator, whose adjoint is that of all parts together."""
        self.seen.adjoints.add(self.dtype.char)

    def check_adjoint_exists(self) -> None:
        """Cost: the first time one product with zero.

        Raises:
            UnsupportedOperation: it has none.
        """
        if self.seen.has_adjoint:
            return
        try:
            if not hasattr(self.linear, "rmatvec"):
                raise _no_adjoint(type(self.linear).__name__)
            self._image(np.zeros(self.linear.shape[0], self.dtype), "rmatvec")
        except NotImplementedError as error:
            raise _no_adjoint("LinearOperator") from error
        self.seen.has_adjoint = True

    def _images(self, x: np.ndarray, one: str, block: str | None) -> np.ndarray:
        if len(x) == 1:
            return self._image(x[0], one)[None]
        if block is not None and len(x):
            return self._block(x, one, block)
        images = np.empty((len(x), self._size(one)), self.dtype)
        for row, image in zip(x, images, strict=True):  # one by one, as all may be the same memory
            image[:] = self._image(row, one)
        return images

    def _size(self, one: str) -> int:
        return int(self.linear.shape[0 if one == "matvec" else 1])

    def _image(self, x: np.ndarray, one: str) -> np.ndarray:
        """Of one vector; it may share memory with x, or with the next one."""
        n = self._size(one)
        try:
            image = np.asarray(self._called(one, x))
        except ValueError as error:
            if not str(error).startswith("cannot reshape array of size"):  # in SciPy
                raise
            raise ValueError(f"{one} of {self.name} returned a wrong size: {error}; expected ({n},).") from error
        if image.size != n:
            raise ValueError(f"{one} of {self.name} returned an array of shape {image.shape}; expected ({n},).")
        return self._in_dtype(image.reshape(n), x, one)

    def _block(self, x: np.ndarray, one: str, block: str) -> np.ndarray:
        """Images of many vectors at once; the first time one of them is compared."""
        shape = (self._size(one), len(x))
        image = np.asarray(self._called(block, x.T))
        if image.shape != shape:
            raise ValueError(f"{block} of {self.name} returned an array of shape {image.shape}; expected {shape}.")
        found = np.ascontiguousarray(self._in_dtype(image, x, block).T)
        if block not in self.seen.blocks:
            alone = self._image(x[0], one)
            size, error = np.linalg.norm(alone) + np.linalg.norm(found[0]), np.linalg.norm(alone - found[0])
            if error > self._allowed() * size:
                raise ValueError(
                    f"{block} and {one} of {self.name} differ for one vector, by {error / size:.1e} of their size. "
                    f"Mend {block} (_{block} of a subclass), or leave it out."
                )
            self.seen.blocks.add(block)
        return found

    def _called(self, name: str, x: np.ndarray) -> Any:
        product = getattr(self.linear, name)
        if self.seen.reads:
            return _HOST.call_user(product, x, ())
        return _watched(_HOST, self.seen, lambda: _HOST.call_user(product, x, ()), [x], f"{name} of {self.name}")

    def _in_dtype(self, image: np.ndarray, x: np.ndarray, product: str) -> np.ndarray:
        if image.dtype == self.dtype:
            return image
        what = f"{product} of {self.name} returned {image.dtype} for a vector of {x.dtype}"
        if image.dtype.kind not in "biufc":
            raise TypeError(f"{what}; expected {self.dtype}.")
        if image.dtype.kind == "c" and self.dtype.kind != "c":
            raise TypeError(
                f"{what}, and the imaginary part would be lost. Say dtype=complex where the LinearOperator is made, or "
                "give b as a complex array."
            )
        if image.dtype.kind == "f" and self.dtype.kind == "c" and np.any(image):
            raise TypeError(
                f"{what}: the imaginary part of the vector was dropped. Make the array for the result of x's dtype."
            )
        if self.exact and is_coarser(image.dtype, self.dtype):
            raise TypeError(coarse(what, image.dtype))
        return image.astype(self.dtype)

    def _allowed(self) -> float:
        """Tolerance for two products that should be equal, relative to their size."""
        found = getattr(self.linear, "dtype", None)
        declared = self.dtype if found is None else np.dtype(found)
        eps = max(np.finfo(dtype).eps for dtype in (declared, self.dtype) if dtype.kind in "fc")
        return float(np.sqrt(eps))

    def _compare_adjoint(self) -> None:
        """Dot test of the adjoint: <A u, v> = <u, Aᴴ v> for random u and v."""
        rng, (n, m) = np.random.default_rng(9), self.linear.shape
        u, v = (_random(rng, size, self.dtype) for size in (m, n))
        image, back = self._image(u, "matvec").copy(), self._image(v, "rmatvec")
        size = np.linalg.norm(image) * np.linalg.norm(v) + np.linalg.norm(u) * np.linalg.norm(back)
        error = abs(np.vdot(image, v) - np.vdot(u, back))
        if error > self._allowed() * size:
            raise ValueError(
                f"rmatvec of {self.name} is not the adjoint (conjugate transpose) of matvec: <A u, v> and "
                f"<u, A^H v> differ by {error / size:.1e} of their size for random u and v. Return "
                "A.conj().T @ v in rmatvec, or leave it out and choose a method that needs none, such as biCG-stab(2)."
            )
        self.seen.adjoints.add(self.dtype.char)


def _no_adjoint(kind: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"This method needs products with the transposed matrix, and the {kind} has no rmatvec. Define rmatvec (the "
        "conjugate transposed product), or choose another method, such as biCG-stab(2)."
    )


def first_call(bk: Backend, function: Callable[..., Any], x: Any, args: Any, name: str) -> tuple[Any, bool]:
    """`bk.call_user(function, x, args)`, after which x is looked at; and whether that need not be done again.

    Raises:
        ValueError: it writes to x where its library does not see it.
        TypeError: it is a module whose parameters have another dtype than x.
    """
    seen = _seen(function)
    seen.reads |= bk.has_pure_arrays
    try:
        if seen.reads:
            return bk.call_user(function, x, args), True
        leaves, _ = bk.leaves(x)
        return _watched(bk, seen, lambda: bk.call_user(function, x, args), leaves, name), seen.reads
    except RuntimeError as error:  # which PyTorch raises for tensors of different dtypes
        why = wrong_dtype(function, bk.dtype(bk.leaves(x)[0][0])) if bk.name in WITH_MODES else None
        if why is None:
            raise
        raise TypeError(f"{name} failed: {why}.") from error


def _watched(bk: Backend, seen: _Seen, call: Callable[[], Any], arrays: list[Array], name: str) -> Any:
    before = [_value(bk, x) for x in arrays]
    image = call()
    for x, old in zip(arrays, before, strict=True):
        now = None if old is None else _value(bk, x)
        if old is not None and now is not None and not np.array_equal(old, now, equal_nan=True):
            raise ValueError(
                f"{name} writes to its argument, which belongs to the solver, where its library does not see it: "
                "compiled code, x.data, x.numpy(). Make a copy first: x = x.copy(), of a tensor x.clone()."
            )
    seen.reads = all(old is not None and bool(old.all()) for old in before)  # zeros may have been set to zero
    return image


def _value(bk: Backend, x: Array) -> np.ndarray | None:
    found = bk.concrete_value(lambda: x)
    return None if found is None else found.copy()


def _random(rng: np.random.Generator, n: int, dtype: np.dtype) -> np.ndarray:
    x = rng.standard_normal(n)
    return (x + 1j * rng.standard_normal(n) if dtype.kind == "c" else x).astype(dtype)


def _is_own(linear: Any, name: str) -> bool:
    """Has it a product with many columns of its own? SciPy's default joins results that may all be the same memory."""
    matrix = getattr(linear, "A", None)
    if matrix is not None and not hasattr(matrix, "matvec"):  # SciPy's wrapper of a matrix
        return True
    own = getattr(type(linear), name, None)
    return own is not None and not str(getattr(own, "__module__", "scipy")).startswith("scipy")


# --- SciPy's LinearOperator as an operator: products are host calls, also from compiled functions ---


class HostOperator(Turned):
    """A `scipy.sparse.linalg.LinearOperator`, `linear`, one for all systems; for `name` and `exact` see `Guarded`."""

    def __init__(
        self,
        bk: Backend,
        linear: Any,
        dtype: np.dtype,
        name: str = "A",
        *,
        exact: bool = False,
        transposed: bool = False,
        conjugated: bool = False,
    ) -> None:
        self.bk, self.linear, self.dtype, self.name, self.exact = bk, linear, dtype, name, exact
        self.transposed, self.conjugated = transposed, conjugated
        shape = _shape(linear, name)
        self.shape = shape[::-1] if transposed else shape
        self._guarded = Guarded(linear, name, dtype, exact)

    def product(self, x: Array) -> Array:
        if self.bk.on_host:
            return self._on_host(x)[0]
        return self.bk.host_call(self._on_host, [((int(x.shape[0]), self.shape[0]), self.dtype)], x)[0]

    def _on_host(self, x: np.ndarray) -> tuple[np.ndarray]:
        if not self.transposed:
            return (self._guarded.product(x),)
        return (np.conj(self._guarded.adjoint(np.conj(x))),)

    def turned(self, *, transposed: bool, conjugated: bool) -> HostOperator:
        if transposed:
            self._guarded.check_adjoint_exists()
        return self._with(transposed=transposed, conjugated=conjugated)

    def astype(self, dtype: np.dtype) -> HostOperator:
        return self._with(dtype=dtype)

    def on_backend(self, bk: Backend, like: Array | None) -> HostOperator:
        return self._with(bk=bk)

    def of_part(self, bk: Backend) -> HostOperator:
        """The same on the backend of a communicator."""
        self._guarded.trust_adjoint()
        return self._with(bk=bk)

    def exactly(self) -> HostOperator:
        """The same as A of a solve, whose products must have its precision."""
        return self._with(exact=True)

    def dense(self) -> Array:
        if self.bk.on_host:
            return super().dense()
        return self.bk.asarray(self._for_host().dense())

    def matrix(self) -> Matrix:
        """Its entries, found by evaluations, see `matrix_from_function`; known also while a function is compiled.

        Raises:
            UnsupportedOperation: evaluations do not tell them.
        """
        host = self._for_host()
        like = np.zeros(self.shape[1], self.dtype)
        found = traced_matrix(opaque_front_end(), lambda x: host.apply(x[None])[0], like, verify=False)[0]
        moved = found if self.bk.on_host else found.on_backend(self.bk, None)
        if moved is None:
            raise UnsupportedOperation(f"{found!r} has no way to {self.bk.name}.")
        return moved

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self._for_host()

    def _for_host(self) -> HostOperator:
        return self.on_backend(get_backend("numpy"), None)

    def _with(self, **changes: Any) -> HostOperator:
        names = ("bk", "linear", "dtype", "name", "exact", "transposed", "conjugated")
        return HostOperator(**{name: changes.get(name, getattr(self, name)) for name in names})


def _shape(linear: Any, name: str) -> tuple[int, int]:
    try:
        rows, columns = map(int, linear.shape)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is a {type(linear).__name__} with `matvec` and the shape {linear.shape!r}; expected two numbers, "
            "(rows, columns)."
        ) from error
    return rows, columns
