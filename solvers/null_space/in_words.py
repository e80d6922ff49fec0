"""Known null vectors in words, for messages about right-hand sides that have a part in them."""

from __future__ import annotations

import numpy as np

from ...sparse import Operator
from .projections import WithoutConstants, WithoutVectors

_CLEARLY = 1e-2  # of the largest entry of the part: regions in which there is less are not named


def null_vectors_in_words(null: Operator, part: np.ndarray | None = None) -> str:
    """Name the null vectors that a projection removes.

    Args:
        part: what was taken off right-hand sides `(systems, n)`, where that is known now: only the regions in which it
            is not zero are named.
    """
    if isinstance(null, WithoutVectors):
        count = int(null.basis.shape[-2])
        return "the vector of nullspace" if count == 1 else f"the {count} vectors of nullspace"
    if not isinstance(null, WithoutConstants) or int(null.weights.shape[-1]) == 1:
        return "constants"
    if part is None or len(null.labels.shape) != 1:
        return "constants on closed regions"
    labels, size = np.asarray(null.labels), np.abs(part).max(axis=0)
    regions = np.unique(labels[size > _CLEARLY * size.max()])
    first = np.flatnonzero(labels == regions[0])
    named = f"the region of unknown {first[0]}, which has {len(first)} unknowns" if len(first) > 1 else (
        f"unknown {first[0]}, which is coupled to no other one"
    )  # fmt: skip
    return (
        f"constants on {named}" if len(regions) == 1 else f"constants on {len(regions)} regions, the first is {named}"
    )
