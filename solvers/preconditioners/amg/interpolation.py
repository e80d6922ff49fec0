"""Extended+i interpolation, exactly, by one product of sparse matrices.

With F and C for fine and coarse unknowns, A_FC and A_FF the strong entries of fine rows, and e the sums of whole rows:

    N = A_FC + F A_FC,   F_ik = a_ik / (beta_k + a_ki),   beta = A_FC 1,   W = -N / (e - t),   t = N 1 = beta + F beta.

The textbook's denominator, `a_ii + sum of weak a_ij + sum_k F_ik a_ki`, is `e - t`, in which nothing cancels: where
e = 0 the weights of a row add up to 1 for any contrast of the coefficients.

Source: De Sterck, Falgout, Nolting and Yang, Distance-two interpolation for parallel algebraic multigrid, Numer. Linear
Algebra Appl. 15 (2008); in products, with averages of a_ki: Li, Sjogreen and Yang, A new class of AMG interpolation
methods based on matrix-matrix multiplications, SIAM J. Sci. Comput. 43 (2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....sparse import Composed, Operator, SparseMatrix, storable
from ....sparse.files.saved import fields_of, structure_of
from ....sparse.formats import Structure
from ....sparse.formats.compressed import CsrStructure
from ....sparse.formats.entries.integers import (
    check_size,
    places_in_rows,
    repeat_rows,
    rows_first,
    starts_from,
    starts_of,
)
from ....sparse.formats.entries.values import take_or_zero
from .rows import (
    find_keys,
    gathered,
    keys_of,
    largest_in_rows,
    numbered,
    on_diagonal,
    product,
    reduced,
    repeated,
    row_counts,
    selected,
    submatrix,
    transposed_entries,
)

MOST = 4
"""Entries of a row of the prolongation, as in BoomerAMG. On grids, media and a mesh of 6 000 to 10 000 unknowns these
take as many iterations as all entries (5 to 9); 3 take one more, and 16 in place of 9 for a rotated anisotropy."""
LARGEST_SUM = 10.0  # of the weights of a row
_MOST_PATHS = 20  # over two strong couplings, for each entry of A
STRONGEST = 10  # couplings to fine unknowns of a row, where there are more paths


def prolongation(
    A: sp.csr_array,
    coupled: np.ndarray,
    sums: np.ndarray,
    strong: np.ndarray,
    coarse: np.ndarray,
    symmetric: bool,
    most: int = MOST,
) -> sp.csr_array:
    """Rows of W at fine unknowns, of the identity at coarse ones, from a canonical A with a positive diagonal.

    Args:
        coupled, sums: its entries as real numbers, see `couplings`, and their sums in rows.
        strong, coarse: masks of entries and of unknowns.
        symmetric: is `a_ki = a_ik` in `coupled`?
        most: number of largest entries kept in a row, scaled to the sum of the whole row.
    """
    fine = np.flatnonzero(~coarse)
    numbers = numbered(coarse, A.indices.dtype)
    to_coarse, of_fine = gathered(coarse, A.indices), repeated(~coarse, A)
    strong = strong & of_fine
    fc, ff = strong & to_coarse, strong & ~to_coarse
    A_FC = submatrix(selected(A, fc), fine, numbers, A.shape[0] - len(fine))
    beta = reduced(np.add, A_FC.data if coupled is A.data else coupled[fc], A_FC.indptr, 0.0)
    places = np.flatnonzero(ff)
    own, of_k = coupled.take(places), gathered(beta, numbers.take(A.indices.take(places)))
    if symmetric:
        back = own
    else:
        opposite = transposed_entries(A, places)
        back = np.where(opposite >= 0, np.minimum(coupled.take(opposite), 0), 0)
    below = of_k + back
    below[below == 0] = -np.inf  # k does not interpolate: the entry counts as weak.
    values = np.ones(len(A.data), A.dtype)  # ones on the diagonal: one product then makes A_FC + F A_FC
    values[places] = A.data.take(places) / below
    N = product(submatrix(selected(A, ff | (on_diagonal(A) & of_fine), values), fine, numbers, len(fine)), A_FC)
    total = None
    if coupled is not A.data:  # N has phases
        through = np.zeros(len(coupled))
        through[places] = own / below * of_k
        total = beta + reduced(np.add, through, A.indptr, 0.0)[fine]
    return with_coarse(_weights(N, total, sums[fine], most), fine, coarse)


def without_explosion(A: sp.csr_array, strong: np.ndarray, coarse: np.ndarray, coupled: np.ndarray) -> np.ndarray:
    """`strong`, but with only the 10 strongest couplings between fine unknowns in a row if there are too many paths.

    Otherwise A_FF A_FC could have many times the entries of A, as with hubs. Omitted couplings count as weak.
    """
    if np.diff(A.indptr).max() <= _MOST_PATHS:
        return strong
    to_coarse = strong & gathered(coarse, A.indices)
    between = strong & ~to_coarse & repeated(~coarse, A)
    if gathered(row_counts(to_coarse, A), A.indices[between]).sum(dtype=np.int64) <= _MOST_PATHS * A.nnz:
        return strong
    kept = largest_in_rows(np.where(between, -coupled, 0), A.indptr, STRONGEST)
    return strong & (kept | ~between)


def _weights(N: sp.csr_array, total: np.ndarray | None, sums: np.ndarray, most: int) -> sp.csr_array:
    """`W = -N / (e - t)`: the largest entries of each row, with the sum of all.

    If the sum of a row of A is so negative that its weights would add up to more than 10, they add up to 10.
    """
    sizes = np.abs(N.data)
    W = selected(N, largest_in_rows(sizes, N.indptr, most))
    total = -reduced(np.add, sizes, N.indptr, 0.0) if total is None else total  # no entry of N is positive
    kept, below = reduced(np.add, np.abs(W.data), W.indptr, 0.0), np.maximum(sums - total, -total / LARGEST_SUM)
    factor = np.divide(total, -kept, out=np.zeros_like(below), where=kept > 0)  # kept * below may underflow
    np.divide(-factor, below, out=factor, where=below > 0)
    W.data *= repeated(factor, W)
    return W


def with_coarse(W: sp.csr_array, fine: np.ndarray, coarse: np.ndarray) -> sp.csr_array:
    """Rows of W at fine unknowns, of the identity at coarse ones."""
    lengths = np.ones(len(coarse), W.indptr.dtype)
    lengths[fine] = np.diff(W.indptr)
    starts = np.zeros(len(coarse) + 1, W.indptr.dtype)
    np.cumsum(lengths, out=starts[1:])
    data, cols = np.ones(starts[-1], W.dtype), np.empty(starts[-1], W.indices.dtype)
    places = np.flatnonzero(np.repeat(~coarse, lengths))
    data[places], cols[places] = W.data, W.indices
    cols[starts[:-1][coarse]] = np.arange(W.shape[1])
    return sp.csr_array((data, cols, starts), (len(coarse), W.shape[1]))


# --- renewal: the same formulas on a known pattern, for values that may be traced ---
#
# A renewal keeps the splitting, the strong couplings and the pattern of the prolongation. The index pairs are computed
# once per pattern; with them new values are gathers, products and segment sums, in compiled programs, too. Only the
# kept entries of N are computed, because its row sums are `t = beta + F beta`.


@dataclass(frozen=True)
class ClassicalRule:
    """Rule of extended+i interpolation: the choices of classical coarsening on a level.

    Attributes:
        injection: `(n, m)`: the entry of each coarse unknown, in its column of the next coarser level.
        kept: `(n, m)`: the pattern of the prolongation, that of `injection` included.
        strong: `(n, n)`: strong couplings.
        components: `(n, k)`: the component of each unknown, if there are several, which are interpolated separately.
        eliminates: is the matrix Hermitian, with fine unknowns coupled to coarse ones only?
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
        eliminates: bool = False,
    ) -> ClassicalRule:
        """Rule of a matrix with sorted rows, from masks of its coarse unknowns and of the strong entries."""
        n, m = P.shape
        starts = np.append(0, np.cumsum(row_counts(strong, A)))
        membership = None
        if components is not None:
            labels = np.unique(components, return_inverse=True)[1]
            membership = CsrStructure(np.arange(n + 1), labels, (n, int(labels.max(initial=0)) + 1))
        return cls(
            CsrStructure(starts_from(coarse), np.arange(m, dtype=np.int32), (n, m)),
            CsrStructure(P.indptr, P.indices, (n, m)),
            CsrStructure(starts, A.indices.take(np.flatnonzero(strong)), (n, n)),
            membership,
            eliminates,
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.injection.shape

    @property
    def coarse(self) -> np.ndarray:
        mask = np.zeros(self.shape[0], bool)
        mask[self.injection.entries().rows] = True
        return mask

    @property
    def labels(self) -> np.ndarray | None:
        return None if self.components is None else self.components.entries().cols

    def keeps_all(self, A: sp.csr_array) -> bool:
        """Does the prolongation keep all off-diagonal entries of fine rows of A, as in an elimination?"""
        kept = np.bincount(self.kept.entries().rows, minlength=self.shape[0])
        return bool(np.all(np.diff(A.indptr)[~self.coarse] == kept[~self.coarse] + 1))

    def plan(self, A: CsrStructure) -> InterpolationPlan | EliminationPlan:
        return EliminationPlan.of(A, self) if self.eliminates else self.interpolation(A)

    def interpolation(self, A: CsrStructure) -> InterpolationPlan:
        """The plan of extended+i interpolation, also if `eliminates`; the last one is cached."""
        plan: InterpolationPlan | None = self.__dict__.get("_last")
        if plan is None or plan.A != A:
            plan = self.__dict__["_last"] = InterpolationPlan.of(A, self)
        return plan

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_last"}

    def prolongation(self, A: sp.csr_array) -> sp.csr_array:
        plan = self.interpolation(CsrStructure.of(A))
        return plan.prolongation.to_scipy((plan.weights(get_backend("numpy"), A.data),))


class ScaledValues(NamedTuple):
    """Values of the matrix of a level in CSR order, `diag(scale) before diag(scale)`, `(systems, ...)` for a batch."""

    values: Array
    scale: Array
    before: Array


class EliminationPlan(NamedTuple):
    """Exact interpolation of fine unknowns that are coupled to coarse ones only: `-a_ij / a_ii`."""

    prolongation: CsrStructure
    entries: np.ndarray  # of each entry of P: the position of the one of the matrix, or -1
    rows: np.ndarray  # the position of the diagonal entry of its row, likewise
    coarse: np.ndarray  # mask of the entries of coarse unknowns, which are ones

    @classmethod
    def of(cls, A: CsrStructure, rule: ClassicalRule) -> EliminationPlan:
        coarse, (rows, cols, _) = rule.injection.entries().rows, rule.kept.entries()
        n, keys = A.shape[1], keys_of(A.rows, A.cols, A.shape[1])
        entries, diagonal = (find_keys(keys, keys_of(rows, to, n)) for to in (coarse[cols], rows))
        return cls(CsrStructure(starts_of(rows, n), cols, rule.shape), entries, diagonal, coarse[cols] == rows)

    def values(self, bk: Backend, level: ScaledValues, kept: Any, rho: Array) -> Array:
        last = len(level.before.shape) - 1
        entries, diagonal = (take_or_zero(bk, level.before, at) for at in (self.entries, self.rows))
        scale = bk.take_in_bounds(level.scale, self.prolongation.rows, last)
        p = bk.where(~bk.constant(self.coarse), -entries / bk.where(diagonal != 0, diagonal, 1), 1)
        return bk.astype(p, bk.dtype(scale)) / scale


class InterpolationPlan(NamedTuple):
    """Positions (int32) of the values of extended+i interpolation. Fine unknowns are numbered 0, 1, ...

    `F` stands for the couplings between fine unknowns with weights, and `W` for the kept weights of fine unknowns.
    """

    A: CsrStructure
    prolongation: CsrStructure
    fine: np.ndarray  # unknowns
    counted: np.ndarray | None  # entries of A in its sums of rows; None: all
    to_coarse: np.ndarray  # strong entries of A, of fine rows
    to_coarse_rows: np.ndarray  # their fine unknowns, rising
    to_fine: np.ndarray
    to_fine_rows: np.ndarray
    to_fine_cols: np.ndarray
    back: np.ndarray  # the entries of A opposite to `to_fine`, or -1
    left: np.ndarray  # of each single product: the number in F, or len(F) for a coupling itself
    right: np.ndarray  # the number in `to_coarse`
    into: np.ndarray  # the number in W, rising
    rows: np.ndarray  # of each number in W: the fine unknown
    source: np.ndarray  # of each entry of the prolongation: the number in W, or len(W) for a one

    @classmethod
    def of(cls, A: CsrStructure, rule: ClassicalRule) -> InterpolationPlan:
        """Plan without the strong couplings that have no entry of A. Cost: a search for each single product."""
        (n, m), (coarse, columns, _) = rule.shape, rule.injection.entries()
        coarse_of = np.full(n, -1, np.int32)
        coarse_of[coarse] = columns
        is_fine = coarse_of < 0
        fine_of = np.cumsum(is_fine, dtype=np.int32) - np.int32(1)
        i, j, _ = rule.strong.entries()
        places = find_keys(keys_of(A.rows, A.cols, n), keys_of(i, j, n))
        some = (places >= 0) & is_fine[i] & (i != j)
        i, j, places = i[some], j[some], places[some]
        inner = is_fine[j]
        C, F = (fine_of[i[~inner]], coarse_of[j[~inner]]), (fine_of[i[inner]], fine_of[j[inner]])
        kept_rows, kept_cols, _ = rule.kept.entries()
        weights = np.flatnonzero(is_fine[kept_rows])
        W = fine_of[kept_rows[weights]], kept_cols[weights]
        left, right, into = _products(F, C, W, int(is_fine.sum()), m)
        source = np.full(len(kept_rows), len(weights), np.int32)
        source[weights] = np.arange(len(weights), dtype=np.int32)
        labels, ones = rule.labels, np.ones(A.nnz, np.int8)
        return cls(
            A=A,
            prolongation=CsrStructure(starts_of(kept_rows, n), kept_cols, (n, m)),
            fine=np.flatnonzero(is_fine).astype(np.int32),
            counted=None if labels is None else np.flatnonzero(labels[A.rows] == labels[A.cols]).astype(np.int32),
            to_coarse=places[~inner],
            to_coarse_rows=C[0],
            to_fine=places[inner],
            to_fine_rows=F[0],
            to_fine_cols=F[1],
            back=transposed_entries(sp.csr_array((ones, A.cols, A.starts), A.shape), places[inner]),
            left=left,
            right=right,
            into=into,
            rows=W[0],
            source=source,
        )

    def values(self, bk: Backend, level: ScaledValues, kept: Any, rho: Array) -> Array:
        p, last = self.weights(bk, level.before), len(level.before.shape) - 1
        return p / bk.take_in_bounds(level.scale, self.prolongation.rows, last)

    def weights(self, bk: Backend, a: Array) -> Array:
        """Values of P in row order from those of A, `(nnz,)` or `(systems, nnz)`.

        Strong couplings that now have the sign of the diagonal count as weak.

        Cost: 12 gathers and 6 segment sums.
        """
        last, fine = len(a.shape) - 1, len(self.fine)

        def take(x: Array, at: np.ndarray) -> Array:
            return bk.take_in_bounds(x, at, last)

        def summed(x: Array, rows: np.ndarray, count: int) -> Array:
            return bk.sum_entries(x, rows, count, sorted=True)

        units, sums = self._units_and_sums(bk, a)
        own = take(units, self.fine)
        c = _opposite(bk, take(a, self.to_coarse) * take(own, self.to_coarse_rows))
        f = _opposite(bk, take(a, self.to_fine) * take(own, self.to_fine_rows))
        back = _opposite(bk, take_or_zero(bk, a, self.back) * take(own, self.to_fine_cols))
        beta = summed(_coupled(bk, c), self.to_coarse_rows, fine)
        of_k = take(beta, self.to_fine_cols)
        below = of_k + _coupled(bk, back)
        total = beta + summed(_quotient_or_zero(bk, _coupled(bk, f), below) * of_k, self.to_fine_rows, fine)
        F = _quotient_or_zero(bk, f, bk.astype(below, bk.dtype(a)))
        N = summed(take(_append_one(bk, F), self.left) * take(c, self.right), self.into, len(self.rows))
        kept = summed(bk.abs(N), self.rows, fine)
        denominator = bk.maximum(take(sums, self.fine) - total, -total / LARGEST_SUM)
        scale = _quotient_or_zero(bk, _quotient_or_zero(bk, total, kept), denominator)
        W = N * bk.astype(take(scale, self.rows), bk.dtype(a))
        return take(_append_one(bk, W), self.source)

    def _units_and_sums(self, bk: Backend, a: Array) -> tuple[Array, Array]:
        """Phases `(n,)` that make the diagonal positive, and real sums of the rows rotated by them."""
        last, (n, _) = len(a.shape) - 1, self.A.shape
        diagonal = self.A.diagonal(bk, (a,), None if last == 0 else int(a.shape[0]))
        size = bk.abs(diagonal)
        unit = bk.conj(diagonal) / bk.astype(bk.where(size > 0, size, 1), bk.dtype(a))
        unit = bk.where(bk.astype(size, bk.dtype(a)) != 0, unit, 1)
        rows = self.A.rows
        if self.counted is not None:
            a, rows = bk.take_in_bounds(a, self.counted, last), rows[self.counted]
        if bk.dtype(a).kind == "c":  # `_coupled`, and the diagonal
            return unit, 2 * size - bk.sum_entries(bk.abs(a), rows, n, sorted=True)
        return unit, unit * bk.sum_entries(a, rows, n, sorted=True)


Entries: TypeAlias = tuple[np.ndarray, np.ndarray]


def _products(F: Entries, C: Entries, W: Entries, fine: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Single products of `C + F C` that contribute to W, in the order of its entries."""
    starts = starts_of(C[0], fine)
    counts = np.diff(starts)[F[1]]
    check_size(int(counts.sum(dtype=np.int64)) + len(C[0]), "single products of couplings")
    pairs = starts_from(counts)
    left = repeat_rows(pairs)
    right = starts[F[1]][left] + places_in_rows(pairs)
    rows = np.concatenate([F[0][left], C[0]])
    left = np.concatenate([left, np.full(len(C[0]), len(F[0]), np.int32)])
    right = np.concatenate([right, np.arange(len(C[0]), dtype=np.int32)])
    into = find_keys(keys_of(*W, m), keys_of(rows, C[1][right], m))
    there = np.flatnonzero(into >= 0)
    there = there[rows_first(into[there], len(W[0]))]
    return left[there], right[there], into[there]


def _coupled(bk: Backend, rotated: Array) -> Array:
    """Couplings as real numbers: `-|a|` of complex ones, as in `classical.couplings`."""
    return -bk.abs(rotated) if bk.dtype(rotated).kind == "c" else rotated


def _opposite(bk: Backend, rotated: Array) -> Array:
    """The couplings, with positive real ones replaced by 0."""
    return rotated if bk.dtype(rotated).kind == "c" else bk.where(rotated < 0, rotated, 0)


def _quotient_or_zero(bk: Backend, a: Array, b: Array) -> Array:
    some = b != 0
    return bk.where(some, a / bk.where(some, b, 1), 0)


def _append_one(bk: Backend, x: Array) -> Array:
    lead = tuple(int(n) for n in x.shape[:-1])
    return bk.concat([x, bk.full((*lead, 1), 1, bk.dtype(x), x)], len(lead))


# --- the operator that a level keeps for updates ---


def _fields(kept: Injection) -> dict[str, Any]:
    rule = kept.rule
    arrays = {name: tuple(fields_of(getattr(rule, name)).items()) for name in ("kept", "strong")}
    return {"injection": kept.injection, **arrays, "components": rule.labels, "eliminates": np.array(rule.eliminates)}


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
    """Injection of coarse unknowns, with the rule that computes a prolongation from the values of A.

    The rule is static, so that it is known where this is an argument of a compiled function.
    """

    parts = ("injection",)

    injection: Operator
    rule: ClassicalRule

    def __post_init__(self) -> None:
        if self.injection.shape != self.rule.shape:
            raise ValueError(f"Rules of a prolongation {self.rule.shape} do not fit to {self.injection!r}.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        return self.injection.apply(x)

    def transpose(self) -> Operator:
        return self.injection.transpose()
