"""Preconditioners as operators: the class `Preconditioner`, and the operators that several kinds are made of.

These are M in another precision, between diagonal scalings or permutations, products of three operators, and a choice
at run time. Transposes, conversions and pytrees of all of them come from `Composed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, Cut, get_backend
from ...backends.numpy.vectors import scaled
from ...sparse import DIA, Composed, Operator, SparseMatrix, Stencil, UnsupportedOperation, storable
from ...sparse.files.saved import save_operator
from ...sparse.formats import choose_format
from ...sparse.formats.compressed import CsrStructure
from ...sparse.notebook import html_table
from ..diagonal import DiagonalOperator
from .checks import check_grid

_PLAIN = 1e15  # up to it, and down to its inverse, numbers are far from overflow and underflow in single precision
_SINGLE = {"float64": np.dtype(np.float32), "complex128": np.dtype(np.complex64)}
_LONG = 2**15  # length of a diagonal from which products by diagonals are faster than by rows
_SMALL = 50_000  # entries up to which products by rows take as long, and compile in a third of the time


class Spread(NamedTuple):
    """How vectors are spread over devices.

    Attributes:
        shape: shape of one vector.
        cut: cut of `(systems, *shape)`.
    """

    shape: tuple[int, ...]
    cut: Cut


@storable("preconditioner")
@dataclass(eq=False, repr=False)
class Preconditioner(Composed):
    """An approximation M of the inverse of A, applied as `M @ r`; `M1 + M2` and `c * M` are preconditioners, too.

    Attributes:
        inner: M as an operator: a matrix, a function, or a `Composed` of matrices and other constants.
        kind: name of the kind.
        hermitian: is M symmetric (Hermitian)? None: not known. CG and MINRES refuse an M known not to be.
        memory: number of values stored.
        work: multiplications per application.
        entries: stored entries of A, to which memory and work are compared; None for a function.
        settings: pairs of name and value.
        note: changes without which it could not be built, such as a shift of the diagonal.
        reason: why `settings` were chosen, if a table chose them.
        grid: shape of the arrays that A maps, which `M(u)` accepts, too; None: that of `inner`.

    Examples:
        >>> import numpy as np, scipy.sparse as sp, krylix
        >>> A = sp.diags_array([2.0, 4.0, 8.0], format="csr")
        >>> M = krylix.preconditioner(A, "jacobi")
        >>> M @ np.ones(3)
        array([0.5  , 0.25 , 0.125])
        >>> M.kind, M.shape, M.memory
        ('jacobi', (3, 3), 3)
    """

    __array_ufunc__ = None  # NumPy leaves `number * M` to M
    passes_grids = True
    product_advice: ClassVar[str] = (
        "krylix.solvers.preconditioners.multiplicative(A, M1, M2), or as_operator(lambda r: M1 @ (M2 @ r), like=b)"
    )
    plus: ClassVar[Callable[..., Any]]  # `M1 + M2` and `c * M` are set by `composed`, which imports this module.
    times: ClassVar[Callable[..., Any]]

    inner: Operator
    kind: str
    hermitian: bool | None = None
    memory: int | None = None
    work: int | None = None
    entries: int | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    note: str | None = None
    grid: tuple[int, ...] | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is not None and math.prod(check_grid(self.grid)) != self.shape[0]:
            raise ValueError(f"A preconditioner for {self.shape[0]} unknowns has the grid {self.grid}.")

    @property
    def in_shape(self) -> tuple[int, ...]:
        return super().in_shape if self.grid is None else self.grid

    @property
    def out_shape(self) -> tuple[int, ...]:
        return super().out_shape if self.grid is None else self.grid

    def on_grid_of(self, A: Operator) -> Preconditioner:
        """Return it on arrays of the shape that A maps, if A maps single arrays."""
        shape = A.in_shape
        if len(shape) < 2 or shape != A.out_shape or not all(isinstance(n, int) for n in shape):
            return self
        return replace(self, grid=shape)

    def apply(self, x: Array) -> Array:
        if x.shape[-1] not in (self.inner.shape[1], None):  # Libraries would broadcast, or raise their own errors.
            raise ValueError(
                f"M.apply got an array of shape {tuple(x.shape)}; expected rows (systems, {self.inner.shape[1]}). "
                "M @ r takes the shape of the right-hand side."
            )
        z = self.inner.apply(x)
        return z if isinstance(self.inner, DiagonalOperator) else self.bk.materialize(z)

    def transpose(self) -> Preconditioner:
        return self._map(lambda A: A.transpose())

    def dense(self) -> Array:
        return self.bk.copy(self.inner.dense())

    def diagonals(self) -> Array:
        return self.bk.copy(self.inner.diagonals())

    def per_system(self, i: int) -> Any:
        return self.inner.per_system(i)

    def known(self) -> Any:
        """SciPy matrix or `LinearOperator` of M, or None while values are traced; a tuple for a batch."""
        known = self.inner.known()
        if known is not None:
            return known
        arrays, make = self.for_host()
        if arrays and self.bk.compiled(*arrays):
            return None
        host = make([self.bk.to_numpy(array) for array in arrays])
        return host.per_system(0) if self.systems is None else tuple(map(host.per_system, range(self.systems)))

    def __add__(self, other: Any) -> Preconditioner:
        """Additive composition. `other` is anything that `linear_solve` takes for M, except a function."""
        return type(self).plus(self, other)

    def __radd__(self, other: Any) -> Preconditioner:
        return self if isinstance(other, int) and other == 0 else type(self).plus(other, self)

    def __mul__(self, factor: Any) -> Preconditioner:
        return type(self).times(self, factor)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        facts = [f"<{self.kind} preconditioner for {self.shape[0]} unknowns", str(self.dtype), self.bk.name]
        if self.systems is not None:
            facts.append(f"{self.systems} systems")
        return ", ".join([*facts, *self._costs(), *([self.note] if self.note else [])]) + ">"

    def _repr_html_(self) -> str:
        symmetric = {None: "not known", True: "yes", False: "no"}[self.hermitian]
        rows = [("unknowns", str(self.shape[0])), ("dtype", str(self.dtype)), ("library", self.bk.name)]
        rows += [] if self.systems is None else [("systems", str(self.systems))]
        rows += [("symmetric", symmetric), ("cost", ", ".join(self._costs()) or "not known")]
        rows += [("settings", ", ".join(f"{name}={value!r}" for name, value in self.settings))] if self.settings else []
        rows += [(name, text) for name, text in (("note", self.note), ("reason", self.reason)) if text]
        return html_table(f"{self.kind} preconditioner", rows)

    def _costs(self) -> list[str]:
        unknowns = max(self.shape[0] * (self.systems or 1), 1)
        costs = [] if self.memory is None else [f"{self.memory / unknowns:.3g} numbers per unknown"]
        if self.memory is not None and self.entries:
            costs.append(f"{self.memory / self.entries:.3g} x the entries of A")
        if self.work is not None and self.entries:
            costs.append(f"{self.work / self.entries:.3g} products with A per application")
        return costs

    def to(self, backend: Any, like: Array | None = None) -> Preconditioner:
        """Convert to another library, on the device of `like`.

        Raises:
            NoBackendFound: there is no such library.
            UnsupportedOperation: its values are not known yet (inside a compiled function), or a part of it, such as a
                function, works in its own library only.
        """
        bk = get_backend(backend)
        if bk is self.bk:
            return self
        arrays, make = self.for_host()
        if arrays and self.bk.compiled(*arrays):
            raise UnsupportedOperation(f"The values of {self!r} are not known before the compiled function runs.")
        host = make([self.bk.to_numpy(array) for array in arrays])
        moved = host if bk.on_host else host.on_backend(bk, like)
        if not isinstance(moved, Preconditioner):
            raise UnsupportedOperation(f"{self!r} cannot be converted to {bk.name}. Build it there, from the matrix.")
        return moved

    def save(self, path: Any) -> None:
        """Write it to a `.npz` file, which `krylix.load_preconditioner` reads exactly, for any library.

        Raises:
            ValueError: the path has another ending, or a value is not finite.
            UnsupportedOperation: it holds a function or objects of SciPy or pyamg, or its values are not known yet
                (inside a compiled function).
            OSError: the file cannot be written.

        Cost: its stored values (`memory`) and indices.
        """
        save_operator(path, self)

    def __copy__(self) -> Preconditioner:
        return self

    def __deepcopy__(self, memo: Any) -> Preconditioner:
        return self


# --- precision ---


def check_precision(precision: Any) -> None:
    """Check the `precision` of a cycle."""
    if precision not in (None, "single"):
        raise ValueError(f"precision={precision!r} was given; expected 'single', or None, for that of A.")


def inner_dtype(precision: str | None, dtype: np.dtype) -> np.dtype:
    """Dtype of a cycle for a matrix of `dtype`."""
    return _SINGLE.get(dtype.name, dtype) if precision == "single" else dtype


def precision_as_setting(precision: str | None) -> tuple[tuple[str, Any], ...]:
    """Pairs for the settings of a preconditioner."""
    return () if precision is None else (("precision", precision),)


def note_on_precision(M: Operator) -> str | None:
    """Note of a preconditioner that is partly in a lower precision."""
    return "single precision inside" if _has_recast(M) else None


def _has_recast(M: Operator) -> bool:
    parts = [getattr(M, name) for name in M.parts] if isinstance(M, Composed) else []
    return isinstance(M, Recast) or any(_has_recast(part) for part in parts if isinstance(part, Operator))


def recast(inner: Operator, dtype: np.dtype) -> Operator:
    """`inner` for vectors of `dtype`."""
    return inner if inner.dtype == dtype else Recast(inner, np.dtype(dtype).name)


@storable("in another precision")
@dataclass(eq=False, repr=False)
class Recast(Composed):
    """`factor inner` for vectors in the precision `given`, which is not that of `inner`.

    For a lower precision of `inner`, a vector whose largest number is beyond `_PLAIN` is divided by a nearby power of
    two first, and the image multiplied by it, so that only the numbers of one vector have to lie in its range.
    Derivatives of M @ r itself, which no solve takes, are not finite for such an r: tangents of another size would
    vanish. Methods take as many iterations, because rounding is small relative to the error of a preconditioner.

    Source: Goddeke, Strzodka and Turek, Performance and accuracy of hardware-oriented native-, emulated- and
    mixed-precision solvers in FEM simulations, Int. J. Parallel Emergent Distrib. Syst. 22 (2007), for multigrid in
    single precision inside of a double one.
    """

    passes_grids = True

    inner: Operator
    given: str
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.given not in ("float32", "float64", "complex64", "complex128"):
            raise ValueError(
                f"An operator for vectors of {self.given!r} was requested; expected a real or complex dtype."
            )
        super().__post_init__()
        if self.dtype.kind != self.inner.dtype.kind:
            raise ValueError(f"{self.inner!r} was to be applied to vectors of {self.given}.")

    def _settle(self) -> None:
        super()._settle()
        self.dtype = np.dtype(self.given)

    def apply(self, x: Array) -> Array:
        bk = self.bk
        if self.inner.dtype.itemsize > self.dtype.itemsize:
            return self.factor * bk.astype(self.inner.apply(bk.astype(x, self.inner.dtype)), self.dtype)
        if bk.on_host:
            with np.errstate(over="ignore"):
                lower = bk.astype(x, self.inner.dtype)
            if self._in_range(lower):
                return self._times_factor(bk.astype(self.inner.apply(lower), self.dtype))
        scale = self._scale(x)
        image = self.inner.apply(bk.materialize(bk.astype(bk.times(1 / scale, x), self.inner.dtype)))
        return bk.times(self.factor * scale, bk.astype(image, self.dtype))

    def between(self, left: Array, x: Array, right: Array) -> Array | None:
        """`left * self.apply(right * x)` where NumPy multiplies and casts in one pass; else None."""
        if not self.bk.on_host or self.inner.dtype.itemsize > self.dtype.itemsize:
            return None
        with np.errstate(over="ignore"):
            lower = scaled(right, x, self.inner.dtype)
        return self._times_factor(scaled(left, self.inner.apply(lower), self.dtype)) if self._in_range(lower) else None

    def _in_range(self, lower: Array) -> bool:
        """Do all vectors fit the lower precision without scaling?"""
        size = self.bk.max_abs(lower)
        return bool(np.all((size > 2 / _PLAIN) & (size < _PLAIN / 2)))  # factor 2, because the scale is rounded

    def _times_factor(self, x: Array) -> Array:
        return x if self.factor == 1 else self.factor * x

    def _scale(self, x: Array) -> Array:
        """`(batch, 1)`: 1, or for vectors beyond `_PLAIN` a power of two, whose derivative is not finite."""
        bk, scale = self.bk, self.bk.constant(self.bk.binary_scale(x))
        beyond, one = (scale < 1 / _PLAIN) | (scale > _PLAIN), bk.full_like(scale, 1)
        if bk.has_derivatives and not hasattr(x, "cells"):  # Only solves keep rows as grids.
            first = bk.real(x[:, :1])
            # The derivative of a root at 0 is infinite.
            root = bk.sqrt(bk.where(beyond, first - bk.constant(first), one))
            scale = scale * (1 + bk.where(beyond, root, 0 * one))
        return bk.where(beyond, scale, one)

    def transpose(self) -> Operator:
        return replace(self, inner=self.inner.transpose())

    def astype(self, dtype: np.dtype) -> Operator:
        inner = self.inner
        if inner.dtype.kind != np.dtype(dtype).kind:
            inner = inner.astype(np.result_type(inner.dtype, np.complex64))
        return recast(inner, dtype) if self.factor == 1 else Recast(inner, np.dtype(dtype).name, self.factor)


# --- products with diagonals, permutations and rectangular operators ---


@storable("scaled on both sides")
@dataclass(eq=False, repr=False)
class DiagonallyScaled(Composed):
    """`left inner right` with diagonals `(1, n)`, or `(systems, n)`, one per system.

    Diagonals `(1, *grid)` may be spread over devices as vectors are.
    """

    parts = ("inner", "left", "right")
    passes_grids = True

    inner: Operator
    left: Array
    right: Array

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            rows, *lengths = map(int, side.shape) if len(side.shape) > 1 else (0, 0)
            if math.prod(lengths) != self.inner.shape[0] or rows not in (1, self.inner.systems):
                raise ValueError(f"A diagonal of the shape {tuple(side.shape)} does not fit to {self.inner!r}.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        left, right = self.array("left"), self.array("right")
        if len(left.shape) > 2:
            return self._on_grid(left, self.inner.apply(self._on_grid(right, x)))
        image = self.inner.between(left, x, right) if isinstance(self.inner, Recast) else None
        return left * self.inner.apply(right * x) if image is None else image

    def _on_grid(self, side: Array, x: Array) -> Array:
        return self.bk.as_rows(side * self.bk.cells(x, tuple(side.shape[1:])), x)

    def transpose(self) -> DiagonallyScaled:
        return DiagonallyScaled(self.inner.transpose(), self.right, self.left)


@storable("product of three")
@dataclass(eq=False, repr=False)
class TripleProduct(Composed):
    """`left inner right`: two triangular factors around a diagonal, or prolongation, coarse solve and restriction."""

    parts = ("left", "inner", "right")

    left: Operator
    inner: Operator
    right: Operator

    def _settle(self) -> None:
        super()._settle()
        self.shape = (self.left.shape[0], self.right.shape[1])

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.right.in_shape

    def apply(self, x: Array) -> Array:
        return self.left.apply(self.inner.apply(self.right.apply(x)))

    def transpose(self) -> TripleProduct:
        return TripleProduct(self.right.transpose(), self.inner.transpose(), self.left.transpose())


@storable("permuted")
@dataclass(eq=False, repr=False)
class Permuted(TripleProduct):
    """`Q^T inner Q` with the permutation matrix Q that has a one in row k and column `order[k]`.

    The order is in the positions of entries, which are never traced: it stays known where M is an argument of a
    compiled function.
    """

    @property
    def order(self) -> np.ndarray:
        Q: Any = self.right
        return np.asarray(Q.structure.entries().cols)

    def __post_init__(self) -> None:
        if not self.inner.shape == self.left.shape == self.right.shape:
            raise ValueError(f"An order of {self.right.shape[0]} unknowns does not fit to {self.inner!r}.")
        super().__post_init__()

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        moved: Any = super().on_backend(bk, like)
        return moved and replace(moved, left=suited(moved.left, bk, like), right=suited(moved.right, bk, like))

    def transpose(self) -> Permuted:
        return replace(self, inner=self.inner.transpose())


def suited(A: Operator, bk: Backend, like: Array | None) -> Operator:
    """A sparse matrix in the format for a library, on the device of `like`; stencils and others are unchanged."""
    if not isinstance(A, SparseMatrix) or isinstance(A, Stencil):
        return A
    if isinstance(A, DIA) and A.shape[0] >= _LONG and bk.prefers_diagonals(like):
        return A
    rows: Any = A.to("csr")
    format = suitable_format(bk, rows.structure)
    return A if format == A.format else rows.to(format)


def suitable_format(bk: Backend, A: CsrStructure | sp.csr_array) -> str:
    """Format of a CSR matrix with the fastest products in a library, with regard to compile time.

    In PyTorch each diagonal is an operation of its own, so that short ones take longer than products by rows.
    """
    if bk.has_compiled_rows and not bk.on_host:
        return "csr"
    starts, cols = (A.starts, A.cols) if isinstance(A, CsrStructure) else (A.indptr, A.indices)
    return "csr" if len(cols) <= _SMALL else choose_format(bk, starts, cols, A.shape).format


@storable("reordered")
@dataclass(eq=False, repr=False)
class Reordered(Composed):
    """`inner` between two permutations: `y[i] = (inner x[before])[after[i]]`; and the inverses of these.

    The rows and columns of `inner` may be in different orders. Gathers are faster than the products of `Permuted`, but
    their indices are traced where M is an argument of a compiled function.
    """

    parts = ("inner", "before", "before_back", "after", "after_back")

    inner: Operator
    before: Array
    before_back: Array
    after: Array
    after_back: Array

    @classmethod
    def of(cls, inner: Operator, rows: np.ndarray, cols: np.ndarray, like: Array | None = None) -> Reordered:
        """Inverse of A from that of A with row `rows[k]` as row k and column `cols[k]` as column k.

        The indices are on the device of `like`.
        """
        bk, orders = inner.bk, [order.astype(np.int32) for order in (rows, np.argsort(rows), np.argsort(cols), cols)]
        return cls(inner, *(orders if bk.compiled() else (bk.asarray(order, like=like) for order in orders)))

    def transpose(self) -> Reordered:
        return Reordered(self.inner.transpose(), self.after_back, self.after, self.before_back, self.before)

    def apply(self, x: Array) -> Array:
        before, after = self.array("before"), self.array("after")
        return self.bk.take_in_bounds(self.inner.apply(self.bk.take_in_bounds(x, before, 1)), after, 1)


# --- a choice at run time ---


@storable("one of two")
@dataclass(eq=False, repr=False)
class Either(Composed):
    """`first` where `chosen`, a real array `(1,)`, is positive, else `second`; only that one is applied."""

    parts = ("first", "second", "chosen")

    first: Operator
    second: Operator
    chosen: Array

    def __post_init__(self) -> None:
        if self.first.shape != self.second.shape or tuple(self.chosen.shape) != (1,):
            shapes = self.first.shape, self.second.shape, tuple(self.chosen.shape)
            raise ValueError(f"Two operators and a choice have the shapes {shapes}, which do not match.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        return self.bk.compile_if_faster(_apply_chosen, ())(self, x)  # traced once for the many applications of a solve

    def transpose(self) -> Either:
        return Either(self.first.transpose(), self.second.transpose(), self.chosen)


def _apply_chosen(M: Either, x: Array) -> Array:
    return M.bk.cond(M.array("chosen")[0] > 0, M.first.apply, M.second.apply, x)
