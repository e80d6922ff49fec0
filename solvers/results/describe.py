"""The outcome of a solve in words."""

from __future__ import annotations

import numpy as np

from ..iteration.status import ADVICE, EXPLANATION, Status


def describe(
    method: str,
    status: np.ndarray,
    steps: np.ndarray,
    norm: np.ndarray,
    bound: np.ndarray,
    *,
    least_squares: bool = False,
) -> str:
    """One sentence for success; for failures also the worst system and what to try."""
    kind_of_norm = "normal residual norm" if least_squares else "residual norm"
    status, steps, norm, bound = (np.atleast_1d(a) for a in (status, steps, norm, bound))
    bound = np.broadcast_to(bound, norm.shape)
    failed = status != Status.CONVERGED
    if not failed.any():
        return _success(method, steps, norm, bound, kind_of_norm)
    with np.errstate(all="ignore"):
        excess = np.where(failed, np.where(np.isfinite(norm), norm / bound, np.inf), -1)
    worst = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), status.shape)
    kind = Status(int(status[worst]))
    where = ""
    if status.size > 1:
        index = worst[0] if len(worst) == 1 else tuple(int(i) for i in worst)
        where = f" in {int(failed.sum())} of {status.size} systems; the worst, system {index},"
    return (
        f"{method}{where} {EXPLANATION[kind]} after {steps[worst]} iterations: {kind_of_norm} {norm[worst]:.3e}, "
        f"tolerance {bound[worst]:.3e}. To do: {ADVICE[kind]}."
    )


def _success(method: str, steps: np.ndarray, norm: np.ndarray, bound: np.ndarray, kind_of_norm: str) -> str:
    if steps.size == 0:
        return f"{method}: no systems to solve."
    low, high = int(steps.min()), int(steps.max())
    taken = f"{high}" if low == high else f"{low} to {high}"
    systems = "" if steps.size == 1 else f" for all {steps.size} systems"
    return (
        f"{method} converged in {taken} iterations{systems}: {kind_of_norm} {norm.max():.3e}, tolerance "
        f"{bound.flat[int(norm.argmax())]:.3e}."
    )
