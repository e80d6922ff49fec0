"""Levels of classical AMG: fine unknowns interpolate from coarse ones, or are eliminated where they are of one colour.

If couplings are only between unknowns of different colours, as with 5 points in two dimensions and 7 in three, the
unknowns F of one colour follow from the others C:

    A^-1 = P S^-1 R + D_F^-1,   P = [I; -D_F^-1 A_FC],   R = [I, -A_CF D_F^-1],   S = R A P = A_CC - A_CF D_F^-1 A_FC.

This level makes no error. It costs one sparse product to set up and half a product with A to apply, instead of
interpolation and smoothing.

Source: for the elimination Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 12.4.1 (red-black
ordering); Ruge and Stuben, Algebraic multigrid (1987), section 4.1.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ....backends import get_backend
from ....sparse.formats.entries.integers import evenly_spread
from ..multigrid.coarsest import phases, times_diagonals
from .interpolation import STRONGEST, ClassicalRule, prolongation, with_coarse, without_explosion
from .levels import HostLevel, adjoint
from .rows import (
    find_keys,
    gathered,
    keys_of,
    numbered,
    on_diagonal,
    product,
    reduced,
    repeated,
    row_sums,
    selected,
    sorted_rows,
    submatrix,
)
from .settings import AmgSettings

_HUB = 20  # times the mean number of entries of a row
_STRENGTH_OF_HUBS = 0.7  # for graphs with such rows: as many iterations as with 0.25, for four fifths of the memory
DOMINATED = 0.9  # of the diagonal entry, as in BoomerAMG: rows with a larger sum are solved by smoothing alone


def with_positive_diagonal(A: sp.csr_array, diagonal: np.ndarray) -> sp.csr_array:
    """A with rows multiplied by phases that make the diagonal positive."""
    if np.array_equal(diagonal, np.abs(diagonal)):
        return A
    return times_diagonals(phases(get_backend("numpy"), diagonal), A)


def couplings(A: sp.csr_array, own: np.ndarray | None = None) -> np.ndarray:
    """The entries of rows with a positive diagonal as real numbers, negative for couplings that interpolate.

    For a real matrix they are its entries. For a complex one they are `-|a_ij|` and `a_ii`, so that a Hermitian matrix
    `D A D^H` with phases D is coarsened like A. `own` is the mask of the diagonal, for some rows of a matrix.
    """
    if A.dtype.kind != "c":
        return A.data
    return np.where(on_diagonal(A) if own is None else own, 1, -1) * np.abs(A.data)


def strong_entries(
    A: sp.csr_array, coupled: np.ndarray, sums: np.ndarray, diagonal: np.ndarray, theta: float
) -> np.ndarray:
    """Mask of the strong entries of some rows: `-a_ij >= theta max_k -a_ik`; zeros are never strong.

    Rows without a negative coupling, and those with a sum above 0.9 `a_ii` of the positive `diagonal`, have none.
    """
    least = theta * reduced(np.minimum, coupled, A.indptr, 0.0)
    least[(least >= 0) | (sums > DOMINATED * diagonal)] = -np.inf
    return np.asarray(coupled <= repeated(least, A))


def threshold_of(A: sp.csr_array, settings: AmgSettings) -> float:
    """The given strength threshold, or the default, which is higher for graphs with hubs."""
    lengths = np.diff(A.indptr)
    hubs = len(lengths) and lengths.max() > _HUB * max(lengths.mean(), 1)
    return _STRENGTH_OF_HUBS if hubs and settings.strength is None else settings.threshold


def pmis(S: sp.csr_array, seed: int = 0) -> np.ndarray:
    """Mask of the coarse unknowns: a maximal independent set of the graph of S or S^T, where i depends on j if s_ij.

    Unknowns on which most others depend come first, ties at random. An unknown on which no other depends is fine.
    There is no entry on the diagonal.

    Cost: some passes over ever fewer entries of S.

    Source: De Sterck, Yang and Heys, Reducing complexity in parallel algebraic multigrid preconditioners, SIAM J.
    Matrix Anal. Appl. 27 (2006).
    """
    transposed = sp.csr_array(S.T)
    dependents = np.diff(transposed.indptr)
    weight = dependents + np.random.default_rng(seed).random(S.shape[0])
    state = np.where(dependents == 0, -1, 0).astype(np.int8)  # -1 fine, 1 coarse, 0 not decided
    graphs, left = (S, transposed), np.arange(S.shape[0])  # weights of fine ones are below all that are not decided
    while len(left):
        own = weight[left]
        around = [reduced(np.maximum, gathered(own, g.indices), g.indptr, -1.0) for g in graphs]
        new = left[(own > np.maximum(*around)) & (state[left] == 0)]
        state[new] = 1
        near = transposed[new].indices
        state[near[state[near] == 0]] = -1
        open_ = np.flatnonzero(state[left] == 0)
        graphs, left = tuple(g[open_][:, open_] for g in graphs), left[open_]
    return state > 0


def first_pass(S: sp.csr_array) -> np.ndarray:
    """Mask of the coarse unknowns by the first pass of Ruge and Stuben, for S as in `pmis`.

    In turn the unknown becomes coarse on which most others depend, where dependents of fine unknowns count twice.
    Coarse unknowns lie regularly: for five-point stencils they are those of one colour. Fine ones may depend on each
    other without a common coarse one, which distance-two interpolation allows.

    Cost: some passes over the entries of S, by pyamg.

    Source: Ruge and Stuben, Algebraic multigrid, in McCormick (ed.), Multigrid methods, SIAM (1987).
    """
    from pyamg.amg_core import rs_cf_splitting

    transposed = sp.csr_array(S.T)
    parts = [part.astype(np.int32, copy=False) for M in (S, transposed) for part in (M.indptr, M.indices)]
    influence, splitting = np.zeros(S.shape[0], np.int32), np.empty(S.shape[0], np.int32)
    rs_cf_splitting(S.shape[0], *parts, influence, splitting)
    return splitting == 1


# --- levels ---

_MOST_COARSE = 0.9  # of the unknowns: where more are coarse, another level does not pay
_MOST_ENTRIES = 15  # in all levels, times those of A: on graphs without geometry each level has more
_MEAN = 7.5  # entries of a row: with more, matrices have triangles
_MOST_PATHS = 3  # over eliminated unknowns, for each entry of A
_FEWEST = 0.25  # of the unknowns are eliminated at least
_TRIANGLE_SAMPLE = 64  # rows in which triangles are looked for first


def classical_levels(
    above: list[HostLevel], settings: AmgSettings, hermitian: bool, components: np.ndarray | None = None
) -> list[HostLevel]:
    """Levels, finest first, until one is small or cannot be coarsened.

    Args:
        above: the first of them, such as the finest one, of a matrix with sorted rows.
        components: labels of the unknowns of the last of these: only those with the same label are interpolated from
            each other. Galerkin products use all of A.

    Raises:
        ValueError: coarse matrices get more and more entries.

    Cost: about that of 10 to 20 products of A with itself.
    """
    levels, A, finest = [*above], above[-1].A, above[0].A
    theta, most = threshold_of(finest, settings), _MOST_ENTRIES * finest.nnz - sum(level.A.nnz for level in above[:-1])
    while A.shape[0] > settings.max_coarse and len(levels) < settings.max_levels:
        coarse = red_black_splitting(A)
        pair = None if coarse is None else eliminated(levels[-1], coarse, hermitian, components)
        if pair is None:
            strong, coarse, P = _coarsened(A, theta, hermitian, components, len(levels) - 1)
            if not 0 < P.shape[1] <= _MOST_COARSE * P.shape[0]:
                break
            P.sort_indices()
            R, rule = adjoint(P), ClassicalRule.of(A, P, coarse, strong, components)
            level = levels[-1]._replace(P=P, R=R, tentative=rule, splitting=coarse)
            pair = level, level.below(sorted_rows(_galerkin_product(A, P, R, most - A.nnz), hermitian))
        levels[-1:] = pair
        most -= A.nnz
        A = levels[-1].A
        components = None if components is None else components[coarse]
    return levels


def _galerkin_product(A: sp.csr_array, P: sp.csr_array, R: sp.csr_array, most: int) -> sp.csr_array:
    image = product(A, P)
    coarse = product(R, image) if image.nnz <= 2 * most else image
    if coarse.nnz > most:
        raise ValueError(
            f"coarsening='classical' has made a level of {A.shape[0]} unknowns with {A.nnz} entries, and the next one "
            f"would have {coarse.nnz}, as of graphs whose unknowns are all near each other. Use a higher strength, "
            "such as 0.9, or 'jacobi' or 'chebyshev', which suit such matrices."
        )
    return coarse


def _coarsened(
    A: sp.csr_array, theta: float, hermitian: bool, components: np.ndarray | None, level: int
) -> tuple[np.ndarray, np.ndarray, sp.csr_array]:
    """Masks of the strong entries and of the coarse unknowns of a level, and its prolongation."""
    own = None if components is None else repeated(components, A) == gathered(components, A.indices)
    diagonal = A.diagonal()
    B = with_positive_diagonal(A if own is None else selected(A, own), diagonal)
    coupled = couplings(B)
    sums = row_sums(coupled, B)
    strong = strong_entries(B, coupled, sums, np.abs(diagonal), theta)
    S = selected(B, strong, np.ones(len(strong), np.float32))
    coarse = first_pass(S) if S.nnz <= np.iinfo(np.int32).max else pmis(S, level)
    strong = without_explosion(B, strong, coarse, coupled)
    P = prolongation(B, coupled, sums, strong, coarse, hermitian)
    if own is not None:
        own[own] = strong
    return strong if own is None else own, coarse, P


def red_black_splitting(A: sp.csr_array) -> np.ndarray | None:
    """Mask `(n,)` of the unknowns that stay when those of one colour are eliminated; None if that does not pay.

    Two colours suffice if the bipartite double cover of the graph of A is not connected.

    Cost: some passes over the entries of A, if rows are short.
    """
    n = A.shape[0]
    if A.nnz > _MEAN * n or not np.all(A.diagonal()):
        return None
    rows, ones = (
        evenly_spread(n, _TRIANGLE_SAMPLE),
        sp.csr_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), A.shape),
    )
    sample = ones[rows]
    neighbours = selected(sample, sample.indices != repeated(rows, sample))
    # One path to each neighbour over its diagonal entry; overflow of 8 bits may hide triangles, but makes none.
    if np.any(neighbours.multiply(neighbours @ ones).data > 1):  # A triangle needs three colours.
        return None
    off = selected(A, ~on_diagonal(A), np.ones(A.nnz, np.int8))
    starts = np.concatenate([off.indptr, np.full(n, off.indptr[-1], off.indptr.dtype)])
    doubled = sp.csr_array((off.data, off.indices + off.indices.dtype.type(n), starts), (2 * n, 2 * n))
    labels = connected_components(doubled, directed=False)[1]
    colour = labels[:n] < labels[n:]
    if np.any(repeated(colour, off) == gathered(colour, off.indices)):
        return None
    lengths = np.diff(off.indptr).astype(np.int64)
    paths = {key: int(np.sum(lengths[colour == key] ** 2)) for key in (True, False)}
    for key in sorted(paths, key=lambda key: paths[key]):
        if paths[key] <= _MOST_PATHS * A.nnz and np.count_nonzero(colour == key) >= _FEWEST * n:
            return np.asarray(colour != key)
    return None


def eliminated(
    level: HostLevel, coarse: np.ndarray, hermitian: bool, components: np.ndarray | None = None
) -> tuple[HostLevel, HostLevel] | None:
    """The level that eliminates the unknowns outside `coarse`, and that of S; None if these are coupled.

    The matrix has sorted rows and no zeros on its diagonal. Updates need the labels of `components`.
    """
    A = level.A
    fine, own, from_coarse = ~coarse, on_diagonal(A), gathered(coarse, A.indices)
    in_fine = repeated(fine, A)
    if np.any(in_fine & ~from_coarse & ~own):
        return None
    n, m = A.shape[0], int(np.count_nonzero(coarse))
    numbers, places, kept = numbered(coarse, A.indices.dtype), np.flatnonzero(fine), np.flatnonzero(coarse)
    diagonal, sums = A.diagonal(), A @ np.ones(A.shape[1])
    W = submatrix(selected(A, in_fine & ~own, A.data * repeated(-1 / diagonal, A)), places, numbers, m)
    CF = submatrix(selected(A, ~in_fine & ~from_coarse), kept, numbers, n - m)
    CC = submatrix(selected(A, ~in_fine & from_coarse), kept, numbers, m)
    left = sums[coarse] - CF @ (sums / diagonal)[fine]
    S = _with_exact_sums(sp.csr_array(CC + product(CF, W)), CC, left)
    S.sort_indices()
    P = with_coarse(W, places, coarse)
    if hermitian:
        R = adjoint(P)
    else:
        weights = sp.csr_array(CF.T)
        weights.data *= repeated(-1 / diagonal[fine], weights)
        R = sp.csr_array(with_coarse(weights, places, coarse).T)
    rule = ClassicalRule.of(A, P, coarse, ~own, components, hermitian)
    level = level._replace(P=P, R=R, tentative=rule, splitting=coarse, exact=True)
    return level, level.below(S)


def _with_exact_sums(S: sp.csr_array, CC: sp.csr_array, sums: np.ndarray) -> sp.csr_array:
    """S with the diagonal computed from row sums where these suffer less from cancellation.

    If an unknown is coupled to an eliminated one much more strongly than to all others, its diagonal entry is a small
    difference of two large numbers.
    """
    own, diagonal = on_diagonal(S), S.diagonal()
    off = selected(S, ~own)
    sizes = np.abs(sums) + np.abs(off) @ np.ones(off.shape[1])
    better = sizes < np.abs(CC.diagonal())
    S.data[own] = np.where(better, sums - off @ np.ones(off.shape[1]), diagonal)[S.indices[own]]
    return S


# --- does the splitting of other values still suit a matrix? ---

CHECKED = 2  # finest levels whose splittings are checked
_SAMPLE = 5000  # rows
_NEW = 0.1  # of the strong couplings of fine unknowns were weak
_LOST = 0.002  # of the fine unknowns take less than ...
_LEAST = 0.05  # ... of their couplings from those that were strong


def is_reusable(rule: ClassicalRule, A: sp.csr_array, threshold: float) -> bool:
    """Are the strong couplings of A, with sorted rows, mostly those of the rule?

    The limits were measured on hierarchies of one medium with the values of another (constant, smooth, lognormal,
    blocks, channels; 121 pairs): all that took more than 2.0 times the iterations of a fresh one are rejected, and
    those of drifting coefficients are not.

    Cost: some passes over 5000 rows.
    """
    if rule.keeps_all(A):
        return True  # for any values
    fine = np.flatnonzero(~rule.coarse)
    if len(fine) > _SAMPLE:  # a random sample, because evenly spaced unknowns may be alike
        fine = fine[np.unique(np.random.default_rng(0).integers(0, len(fine), _SAMPLE))]
    B = A[fine]
    rows = repeated(fine, B)
    diagonal = reduced(np.add, np.where(B.indices == rows, B.data, 0), B.indptr, 0.0)
    coupled = couplings(with_positive_diagonal(B, diagonal), B.indices == rows)
    if (labels := rule.labels) is not None:
        coupled = np.where(labels[B.indices] == labels[rows], coupled, 0)
    sums = reduced(np.add, coupled, B.indptr, 0.0)
    n = A.shape[0]
    was_strong = find_keys(keys_of(*rule.strong.in_rows(fine), n), keys_of(rows, B.indices, n)) >= 0
    is_whole = reduced(np.add, was_strong.astype(np.int32), B.indptr, 0) < STRONGEST  # else some were omitted
    strong = strong_entries(B, coupled, sums, np.abs(diagonal), threshold) & repeated(is_whole, B)
    if np.count_nonzero(strong & ~was_strong) > _NEW * np.count_nonzero(strong):
        return False
    sizes = np.maximum(-coupled, 0)
    whole, taken = (reduced(np.add, part, B.indptr, 0.0) for part in (sizes, np.where(was_strong, sizes, 0)))
    takes = (whole > 0) & ~(sums > DOMINATED * np.abs(diagonal))
    return bool(np.count_nonzero(takes & (taken < _LEAST * whole)) <= _LOST * np.count_nonzero(takes))
