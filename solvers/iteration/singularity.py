"""Systems that are known to be singular, from null vectors or from factors."""

from __future__ import annotations

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator
from ..methods.direct.singular import Singularity, told_by
from ..null_space.projections import WithoutConstants, WithoutConstantsInside, WithoutVectors

_KNOWN = int(Singularity.KNOWN)


def singularity(bk: Backend, b: Array, null: Operator | None, factors: Operator | None) -> Array | None:
    """`(batch, 1)`, numbers of `Singularity`; None where nothing is known.

    Args:
        b: the right-hand sides, in rows.
        null: projects given or found null vectors out.
        factors: of a direct method.
    """
    told = told_by(factors)
    if null is None and told is None:
        return None
    rows = int(b.shape[0])
    none = bk.zeros((rows, 1), np.dtype(np.int32), b)
    found = none if told is None else bk.broadcast_to(told, (rows, 1)) + none
    return found if null is None else bk.where(_takes_off(bk, null, b), none + _KNOWN, found)


def _takes_off(bk: Backend, null: Operator, b: Array) -> Array:
    """For which systems is the projection not the identity?"""
    if isinstance(null, WithoutConstantsInside):
        return null.array("active") > 0
    if isinstance(null, WithoutConstants) and len(null.array("labels").shape) == 2:
        return bk.max_abs(bk.take(null.array("weights"), null.array("labels"), 0)) > 0
    return bk.full_like(bk.max_abs(b), not (isinstance(null, WithoutVectors) and not int(null.basis.shape[0])), bool)
