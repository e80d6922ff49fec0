"""Diagnosis of preconditioners that are no linear maps: functions and modules with a constant part."""

from __future__ import annotations

import numpy as np

from ....sparse import Matrix
from ...preconditioners import Preconditioner
from ..advice import Cause
from .case import Case, norms


def affine_preconditioner(case: Case) -> list[Cause]:
    """Cause: the user's products as M do not take zero to zero. Costs one evaluation."""
    M = case.M
    if case.M_image is None or case.A is None or not isinstance(M, Preconditioner) or not M.kind.startswith("user's"):
        return []
    if isinstance(M.inner, Matrix):
        return []
    image = case.M_image(np.zeros((case.numbers.status.size, case.A.shape[0]), case.dtype))
    norm = norms(image)[case.numbers.worst]
    if not (np.isfinite(norm) and norm > 0):
        return []
    seen = f"M is not linear: M(0) != 0, but of norm {norm:.1e}"
    return [Cause(seen, ("take the constant part off: r -> M(r) - M(0), of a layer bias=False",))]
