"""Null vectors that a projection removes, as an orthonormal basis."""

from __future__ import annotations

import numpy as np

from ...sparse import Operator
from .projections import WithoutConstants, WithoutConstantsInside, WithoutVectors


def basis_of(null: Operator, system: int) -> np.ndarray | None:
    """Orthonormal rows `(k, n)` of NumPy, of one system; None where the projection is of another kind."""
    if isinstance(null, WithoutVectors):
        rows = np.asarray(null.basis)
        rows = rows if rows.ndim == 2 else rows[system if null.systems is not None else 0]
        return rows if null.bk.communicator is not None else rows[np.any(rows != 0, axis=1)]  # of a part all are
    if isinstance(null, WithoutConstants):
        labels, weights = np.asarray(null.labels), np.asarray(null.weights)
        own = labels if labels.ndim == 1 else labels[system]
        sets = [k for k in np.unique(own) if weights[k] != 0]
        return np.array([np.where(own == k, np.sqrt(weights[k]), 0) for k in sets]).reshape(len(sets), own.size)
    if isinstance(null, WithoutConstantsInside):
        fields = (np.asarray(null.inside), np.asarray(null.weights), np.asarray(null.active))
        inside, weight, active = (one[system if len(one) > 1 else 0] for one in fields)
        found = (inside * np.sqrt(weight))[None]
        return found if active[0] > 0 else found[:0]
    return None
