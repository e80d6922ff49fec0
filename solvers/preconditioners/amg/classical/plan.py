"""Symbolic part of extended+i interpolation: the places of its sums and products, found once per pattern."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .....sparse.formats import Structure
from .....sparse.formats.compressed import CsrStructure
from .....sparse.formats.entries.integers import check_size, places_in_rows, repeat_rows, starts_from, starts_of
from .....sparse.formats.entries.order import rows_first
from .rows import find_keys, keys_of, transposed_entries


class InterpolationPlaces(NamedTuple):
    """Places of the numbers of extended+i interpolation; int32. Fine unknowns are numbered 0, 1, ...

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


def places_of(
    A: CsrStructure, injection: Structure, kept: Structure, strong: Structure, components: Structure | None
) -> InterpolationPlaces:
    """The places for a level, see `ClassicalRule`; strong couplings without an entry of A are left out.

    Cost: searches of all single products among the kept entries.
    """
    n, m = injection.shape
    coarse_of = np.full(n, -1, np.int32)
    rows, cols, _ = injection.entries()
    coarse_of[rows] = cols
    is_fine = coarse_of < 0
    fine = np.flatnonzero(is_fine).astype(np.int32)
    fine_of = np.cumsum(is_fine, dtype=np.int32) - np.int32(1)
    keys = keys_of(A.rows, A.cols, n)
    i, j, _ = strong.entries()
    places = find_keys(keys, keys_of(i, j, n))
    some = (places >= 0) & is_fine[i] & (i != j)
    i, j, places = i[some], j[some], places[some]
    inner = is_fine[j]
    c_rows, c_cols = fine_of[i[~inner]], coarse_of[j[~inner]]
    f_rows, f_cols = fine_of[i[inner]], fine_of[j[inner]]
    kept_rows, kept_cols, _ = kept.entries()
    in_weights = np.flatnonzero(is_fine[kept_rows])
    w_rows = fine_of[kept_rows[in_weights]]
    left, right, into = _products((f_rows, f_cols), (c_rows, c_cols), (w_rows, kept_cols[in_weights]), len(fine), m)
    source = np.full(len(kept_rows), len(in_weights), np.int32)
    source[in_weights] = np.arange(len(in_weights), dtype=np.int32)
    return InterpolationPlaces(
        A=A,
        prolongation=CsrStructure(starts_of(kept_rows, n), kept_cols, (n, m)),
        fine=fine,
        counted=_counted(components, A),
        to_coarse=places[~inner],
        to_coarse_rows=c_rows,
        to_fine=places[inner],
        to_fine_rows=f_rows,
        to_fine_cols=f_cols,
        back=transposed_entries(_as_scipy(A), places[inner], i[inner]),
        left=left,
        right=right,
        into=into,
        rows=w_rows,
        source=source,
    )


Entries = tuple[np.ndarray, np.ndarray]


def _products(F: Entries, C: Entries, W: Entries, fine: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Single products of `C + F C` that add to entries of W, in the order of these."""
    starts = starts_of(C[0], fine)
    counts = np.diff(starts)[F[1]]
    check_size(int(counts.sum(dtype=np.int64)) + len(C[0]), "single products of couplings")
    pairs = starts_from(counts)
    left = repeat_rows(pairs)
    right = starts[F[1]][left] + places_in_rows(pairs)
    left = np.concatenate([left, np.full(len(C[0]), len(F[0]), np.int32)])
    right = np.concatenate([right, np.arange(len(C[0]), dtype=np.int32)])
    rows = np.append(F[0], np.int32(0))[left]
    itself = left == len(F[0])
    rows[itself] = C[0][right[itself]]
    into = find_keys(keys_of(*W, m), keys_of(rows, C[1][right], m))
    there = np.flatnonzero(into >= 0)
    there = there[rows_first(into[there], len(W[0]))]
    return left[there], right[there], into[there]


def _as_scipy(A: CsrStructure) -> sp.csr_array:
    return sp.csr_array((np.ones(A.nnz, np.int8), A.cols, A.starts), A.shape)


def _counted(components: Structure | None, A: CsrStructure) -> np.ndarray | None:
    if components is None:
        return None
    rows, cols, _ = components.entries()
    of = np.zeros(A.shape[0], np.int32)
    of[rows] = cols
    return np.flatnonzero(of[A.rows] == of[A.cols]).astype(np.int32)
