"""Maximum matching of rows with columns by the places of entries, with a bound on the work.

SciPy's `maximum_bipartite_matching` and `structural_rank` take minutes for some matrices of a thousand rows, and cannot
be stopped.

Source: Hopcroft and Karp, An n^5/2 algorithm for maximum matchings in bipartite graphs, SIAM J. Comput. 2 (1973).
"""

from __future__ import annotations

import numpy as np

_MOST_SCANNED = 4_000_000  # entries that are looked at one by one, in one to two seconds
_ROUNDS = 30  # of the greedy start: later ones find next to nothing


def maximum_matching(indptr: np.ndarray, indices: np.ndarray, n: int) -> np.ndarray | None:
    """The column of each row of a square CSR pattern, int64 `(n,)`, -1 for rows that are left over.

    None where the search would take too long. The pattern of a CSC matrix gives the row of each column.
    """
    rows = np.repeat(np.arange(n), np.diff(indptr))
    row_of = greedy_matching(rows, indices, n)
    if np.all(row_of >= 0):
        return np.argsort(row_of)
    return _augmented(indptr.tolist(), indices.tolist(), row_of.tolist(), n)


def greedy_matching(rows: np.ndarray, cols: np.ndarray, n: int) -> np.ndarray:
    """Row of each column, or -1: as many disjoint entries as a few rounds find, those of the diagonal first."""
    row_of, taken = np.full(n, -1), np.zeros(n, bool)
    here = rows == cols
    row_of[cols[here]], taken[rows[here]] = rows[here], True
    left = np.arange(len(rows))
    for _ in range(_ROUNDS):
        left = left[~taken[rows[left]] & (row_of[cols[left]] < 0)]
        if not len(left):
            break
        chosen = left[np.unique(rows[left], return_index=True)[1]]
        chosen = chosen[np.unique(cols[chosen], return_index=True)[1]]
        row_of[cols[chosen]], taken[rows[chosen]] = rows[chosen], True
    return row_of


def _augmented(starts: list[int], columns: list[int], row_of: list[int], n: int) -> np.ndarray | None:
    """Augment along shortest paths, as many disjoint ones in each phase as there are."""
    col_of = [-1] * n
    for column, row in enumerate(row_of):
        if row >= 0:
            col_of[row] = column
    scanned = 0
    while True:
        layer, queue, is_reached = [-1] * n, [row for row in range(n) if col_of[row] < 0], False
        free = list(queue)
        for row in queue:
            layer[row] = 0
        for row in queue:  # which grows: breadth first
            scanned += starts[row + 1] - starts[row]
            for column in columns[starts[row] : starts[row + 1]]:
                owner = row_of[column]
                if owner < 0:
                    is_reached = True
                elif layer[owner] < 0:
                    layer[owner] = layer[row] + 1
                    queue.append(owner)
        if not is_reached:
            return np.array(col_of, np.int64)
        position = list(starts)
        for first in free:  # depth first, each entry once
            path = [first]
            while path:
                row = path[-1]
                if position[row] == starts[row + 1]:
                    path.pop()
                    continue
                scanned += 1
                owner = row_of[columns[position[row]]]
                position[row] += 1
                if owner < 0:
                    for row in path:
                        column = columns[position[row] - 1]
                        row_of[column], col_of[row], layer[row] = row, column, -1
                    break
                if layer[owner] == layer[row] + 1:
                    path.append(owner)
        if scanned > _MOST_SCANNED:
            return None
