"""How far a known matrix is from being Hermitian, found by products with a random vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .operator import Operator


def asymmetry(operator: Operator) -> float | None:
    """The relative size of A - Aᴴ, seen by one random vector; None where the entries are not known now.

    Exactly Hermitian matrices give a value of the order of rounding. A batch gives that of its worst matrix.
    Costs two products.
    """
    matrix = operator.known()
    return None if matrix is None else _asymmetry(matrix)


def _asymmetry(matrix: Any) -> float:
    if matrix.shape[-1] != matrix.shape[-2]:
        return float("inf")
    v = np.random.default_rng(1).standard_normal(matrix.shape[-1])
    transposed = matrix.T if sp.issparse(matrix) else np.swapaxes(matrix, -1, -2)
    with np.errstate(all="ignore"):
        forward, backward = matrix @ v, np.conj(transposed @ v)  # v is real
        scale = np.linalg.norm(forward, axis=-1) + np.linalg.norm(backward, axis=-1)
        relative = np.linalg.norm(forward - backward, axis=-1) / np.where(scale > 0, scale, 1)
    return float(np.max(relative, initial=0))  # NaN where the matrix has one: neither symmetric nor not
