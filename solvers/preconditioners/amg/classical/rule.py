"""What an update of a classical level keeps: its splitting, its strong couplings, the places of its prolongation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .....backends import Array, Backend, get_backend
from .....sparse import Composed, Operator, SparseMatrix, storable
from .....sparse.files.structures import fields_of, structure_of
from .....sparse.formats import Structure
from .....sparse.formats.compressed import CsrStructure
from .....sparse.formats.entries.integers import starts_from, starts_of
from .....sparse.formats.making.build import from_csr
from ..scaled_values import ScaledValues
from .plan import InterpolationPlaces, places_of
from .renewed import interpolation_values
from .rows import row_counts


class InterpolationPlan(NamedTuple):
    """Extended+i interpolation for matrices of one structure."""

    places: InterpolationPlaces

    @property
    def prolongation(self) -> CsrStructure:
        """Structure of the prolongation."""
        return self.places.prolongation

    def values(self, bk: Backend, level: ScaledValues, kept: Any, rho: Array) -> Array:
        """Entries of P in row order, for the scaled matrix of a level."""
        p, last = interpolation_values(bk, self.places, level.before), len(level.before.shape) - 1
        return p / bk.take_in_bounds(level.scale, self.prolongation.rows, last)


class EliminationPlan(NamedTuple):
    """Exact interpolation of fine unknowns that are coupled to coarse ones only: `-a_ij / a_ii`.

    Attributes:
        prolongation: structure of P.
        entries: places of its entries in the matrix of the level.
        rows: places of the diagonal entries of their rows.
        coarse: mask of the entries that are ones, of coarse unknowns.
    """

    prolongation: CsrStructure
    entries: np.ndarray
    rows: np.ndarray
    coarse: np.ndarray

    @classmethod
    def of(cls, A: CsrStructure, injection: Structure, kept: Structure) -> EliminationPlan:
        chosen, (rows, cols, _) = injection.entries().rows, kept.entries()
        n, every = np.int64(A.shape[1]), A.entries()
        keys = every.rows.astype(np.int64) * n + every.cols
        entries, diagonal = (np.searchsorted(keys, rows * n + to) for to in (chosen[cols], rows))
        return cls(
            CsrStructure(starts_of(rows, kept.shape[0]), cols, kept.shape), entries, diagonal, chosen[cols] == rows
        )

    def values(self, bk: Backend, level: ScaledValues, kept: Any, rho: Array) -> Array:
        """Entries of P in row order, for the scaled matrix of a level."""
        last = len(level.before.shape) - 1
        entries, diagonal, scale = (
            bk.take_in_bounds(x, at, last)
            for x, at in (
                (level.before, self.entries),
                (level.before, self.rows),
                (level.scale, self.prolongation.entries().rows),
            )
        )
        p = bk.where(~bk.constant(self.coarse), -entries / bk.where(diagonal != 0, diagonal, 1), 1)
        return bk.astype(p, bk.dtype(scale)) / scale


@dataclass(frozen=True)
class ClassicalRule:
    """Rule of extended+i interpolation: what classical coarsening has chosen on a level.

    Attributes:
        injection: `(n, m)`: the entry of each coarse unknown, in its column of the next coarser level.
        kept: `(n, m)`: the places of the prolongation, those of `injection` among them.
        strong: `(n, n)`: strong couplings.
        components: `(n, k)`: to which of k components an unknown belongs, which are interpolated apart; None: to one.
        eliminates: are fine unknowns coupled to coarse ones only, and those of a Hermitian matrix?
    """

    injection: Structure
    kept: Structure
    strong: Structure
    components: Structure | None = None
    eliminates: bool = False

    @classmethod
    def of(
        cls,
        A: sp.csr_array,
        P: sp.csr_array,
        coarse: np.ndarray,
        strong: np.ndarray,
        components: np.ndarray | None = None,
    ) -> ClassicalRule:
        """Of a level on the host with sorted rows: masks of its coarse unknowns and of the strong entries of A."""
        (n, m), places = P.shape, np.flatnonzero(strong)
        starts = np.append(0, np.cumsum(row_counts(strong, A)))
        own = None
        if components is not None:
            labels = np.unique(components, return_inverse=True)[1]
            own = CsrStructure(np.arange(n + 1), labels, (n, int(labels.max(initial=0)) + 1))
        return cls(
            CsrStructure(starts_from(coarse), np.arange(m, dtype=np.int32), (n, m)),
            CsrStructure(P.indptr, P.indices, (n, m)),
            CsrStructure(starts, A.indices.take(places), (n, n)),
            own,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """`(n, m)` of the prolongation."""
        return self.injection.shape

    @property
    def coarse(self) -> np.ndarray:
        """Mask of the coarse unknowns."""
        found = np.zeros(self.shape[0], bool)
        found[self.injection.entries().rows] = True
        return found

    def keeps_all(self, A: sp.csr_array) -> bool:
        """Has the prolongation all entries of fine rows of A but the diagonal ones, as where these are eliminated?"""
        kept = np.bincount(self.kept.entries().rows, minlength=self.shape[0])
        return bool(np.all(np.diff(A.indptr)[~self.coarse] == kept[~self.coarse] + 1))

    def plan(self, A: CsrStructure) -> InterpolationPlan | EliminationPlan:
        """Places for matrices with the structure of A; those for the last one of interpolation are kept."""
        if self.eliminates:
            return EliminationPlan.of(A, self.injection, self.kept)
        return self.interpolation(A)

    def interpolation(self, A: CsrStructure) -> InterpolationPlan:
        """Likewise, of interpolation in any case."""
        found: InterpolationPlan | None = self.__dict__.get("_last")
        if found is None or found.places.A != A:
            found = InterpolationPlan(places_of(A, self.injection, self.kept, self.strong, self.components))
            self.__dict__["_last"] = found
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_last"}

    def prolongation(self, A: sp.csr_array) -> sp.csr_array:
        """P of a known matrix with sorted rows."""
        places = self.interpolation(CsrStructure.of(A)).places
        values = interpolation_values(get_backend("numpy"), places, A.data)
        return places.prolongation.to_scipy((values,))


def _fields(kept: Injection) -> dict[str, Any]:
    """Fields in files: an operator and arrays."""
    rule = kept.rule
    arrays = {name: tuple(fields_of(getattr(rule, name)).items()) for name in ("kept", "strong")}
    components = None if rule.components is None else rule.components.entries().cols
    return {"injection": kept.injection, **arrays, "components": components, "eliminates": np.array(rule.eliminates)}


def _from_fields(given: dict[str, Any]) -> Injection:
    injection: SparseMatrix = given["injection"]
    (n, m), labels = injection.shape, given["components"]
    kept, strong = (
        structure_of("csr", shape, dict(given[name])) for name, shape in (("kept", (n, m)), ("strong", (n, n)))
    )
    components = None
    if labels is not None:
        width = int(labels.max(initial=0)) + 1
        components = structure_of("csr", (n, width), {"starts": np.arange(n + 1, dtype=np.int32), "cols": labels})
    eliminates = bool(given["eliminates"])
    return Injection(injection, ClassicalRule(injection.structure, kept, strong, components, eliminates))


@storable("interpolation of classical AMG", _fields, _from_fields)
@dataclass(eq=False, repr=False)
class Injection(Composed):
    """Injection of coarse unknowns, with the rule by which numbers of A make a prolongation of it.

    Attributes:
        injection: ones at coarse unknowns, in the columns of the next coarser level.
        rule: in what is static: who gets this as an argument of a compiled function knows it, too.
    """

    parts = ("injection",)

    injection: Operator
    rule: ClassicalRule

    def __post_init__(self) -> None:
        if self.injection.shape != self.rule.shape:
            raise ValueError(f"Rules of a prolongation {self.rule.shape} do not fit to {self.injection!r}.")
        super().__post_init__()

    @classmethod
    def of(cls, rule: ClassicalRule, bk: Backend, dtype: np.dtype, like: Array | None) -> Injection:
        """Beside an array of a library."""
        ones = rule.injection.to_scipy((np.ones(rule.shape[1], dtype),))
        return cls(from_csr(bk, ones, prune=False, format="csr", like=like), rule)

    def apply(self, x: Array) -> Array:
        return self.injection.apply(x)

    def transpose(self) -> Operator:
        return self.injection.transpose()
