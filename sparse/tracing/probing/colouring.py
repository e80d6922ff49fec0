"""Sets of columns that no row meets twice: one evaluation tells the entries of all of a set."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

_LARGEST = 400  # modulus of a lattice


def coloured(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """A colour for each column of a pattern, so that columns of one colour have no row in common.

    >>> coloured(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]), (3, 3))
    array([0, 1, 0])
    """
    pattern = sp.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape)
    graph = sp.csr_array(pattern.T @ pattern)
    starts, neighbours = graph.indptr.tolist(), graph.indices
    colours = np.full(shape[1], -1)
    for node in np.argsort(-np.diff(graph.indptr), kind="stable").tolist():
        used = set(colours[neighbours[starts[node] : starts[node + 1]]].tolist())
        colour = 0
        while colour in used:
            colour += 1
        colours[node] = colour
    return colours


def lattice(offsets: Sequence[tuple[int, ...]], ndim: int) -> tuple[int, tuple[int, ...]] | None:
    """A modulus and weights: the offsets from a point all have different `weights . offset % modulus`.

    >>> lattice([(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)], 2)
    (5, (1, 2))
    """
    found = np.array(offsets)
    for modulus in range(len(offsets), _LARGEST):
        if modulus**ndim > 10**6:
            return None
        choices = np.array(list(itertools.product(range(modulus), repeat=ndim)))
        rest = np.sort(choices @ found.T % modulus, axis=1)
        good = np.flatnonzero((rest[:, 1:] != rest[:, :-1]).all(axis=1))
        if len(good):
            return modulus, tuple(int(w) for w in choices[good[0]])
    return None
