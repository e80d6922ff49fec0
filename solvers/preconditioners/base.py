"""The Preconditioner class: an operator with a name, facts and its cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from ...backends import Array, Cut, get_backend
from ...sparse import Composed, Operator, UnsupportedOperation, storable
from ...sparse.files import tree
from ...sparse.notebook import html_table
from ..diagonal import DiagonalOperator
from .checks import check_grid


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
    one_after_the_other: ClassVar[str] = (
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
        transposed: Preconditioner = self._map(lambda A: A.transpose())
        return transposed

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
        tree.save_operator(path, self)

    def __copy__(self) -> Preconditioner:
        return self

    def __deepcopy__(self, memo: Any) -> Preconditioner:
        return self
