"""Eigenvalues, or singular values, of a matrix, and what they say about iterations."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..solvers.eigenvalues.extreme import extreme_eigenvalues
from ..sparse.analysis.facts import is_hermitian
from .errors import SolveFailed, UsageError
from .facts import Line

_COUNT = 6  # at each end
_ALL = 600  # unknowns up to which all are found, for a picture
_RTOL = 1e-10


class SpectrumFacts(NamedTuple):
    """What `krylix inspect --spectrum` has found.

    Attributes:
        kind: "eigenvalues" of a Hermitian matrix, "singular values" of others.
        values: those nearest to zero and those farthest from it, rising; all of a small matrix.
        condition: in the 2-norm.
        singular: is the matrix known to be singular? Then the condition is that of the rest.
    """

    kind: str
    values: np.ndarray
    condition: float
    singular: bool

    @property
    def definite(self) -> bool:
        """Have all that were found one sign?"""
        return bool(np.all(self.values > 0) or np.all(self.values < 0))


def check_square(A: Any) -> None:
    """Raises UsageError for a matrix that has no eigenvalues."""
    if A.shape[0] != A.shape[1] or not A.shape[0]:
        raise UsageError(f"--spectrum: got a matrix of shape {A.shape}; expected a square one with some rows.")


def find(A: Any) -> SpectrumFacts:
    """Eigenvalues of a Hermitian matrix; singular values of another one, as square roots of those of A^H A.

    Raises:
        SolveFailed: they are not found.
    """
    try:
        return _of_hermitian(A) if is_hermitian(A) else _singular_values(A)
    except (RuntimeError, ValueError) as error:
        raise SolveFailed(f"--spectrum: {error}") from error


def _of_hermitian(A: Any) -> SpectrumFacts:
    found = extreme_eigenvalues(A, _count(A))
    values = np.unique(np.concatenate([found.smallest, found.largest]))
    low, high = abs(found.smallest[:1]), abs(found.largest[:1])
    return SpectrumFacts("eigenvalues", values, _ratio(low, high), found.singular)


def _singular_values(A: Any) -> SpectrumFacts:
    """By the Hermitian matrix [[0, A], [A^H, 0]], whose eigenvalues they are, with both signs: nothing is squared."""
    if A.shape[0] <= _ALL:
        values = np.linalg.svd(A.toarray(), compute_uv=False)[::-1]
        rest = values[values > len(values) * np.finfo(values.dtype).eps * values[-1]]
        return SpectrumFacts("singular values", values, _ratio(rest[:1], values[-1:]), len(rest) < len(values))
    both = sp.csr_array(sp.block_array([[None, A], [A.conj().T, None]]))
    found = extreme_eigenvalues(both, 2 * _count(A))
    values = np.unique(np.abs(np.concatenate([found.smallest, found.largest])))
    return SpectrumFacts("singular values", values, _ratio(values[:1], values[-1:]), found.singular)


def _count(A: Any) -> int:
    return int(A.shape[0]) if A.shape[0] <= _ALL else _COUNT


def _ratio(low: np.ndarray, high: np.ndarray) -> float:
    return float(high[0] / low[0]) if len(low) and len(high) and low[0] else math.inf


def describe(found: SpectrumFacts) -> list[Line]:
    """In words."""
    values = found.values
    lines = [(found.kind, f"{values[0]:.6g} to {values[-1]:.6g}")]
    if found.kind == "eigenvalues" and not found.definite:
        nearest = values[np.argsort(np.abs(values))[:2]]
        lines.append(("", f"of both signs, or zero; nearest to zero {', '.join(f'{v:.6g}' for v in nearest)}"))
    rest = "; singular: that of the rest" if found.singular else ""
    lines.append(("condition", f"{found.condition:.3g} in the 2-norm{rest}"))
    lines.append(("iterations", iterations(found)))
    return lines


def iterations(found: SpectrumFacts) -> str:
    """What the condition number says about methods without a preconditioner.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 6.11.3; of MINRES Greenbaum, Iterative
    Methods for Solving Linear Systems (1997), section 3.1.
    """
    if not math.isfinite(found.condition):
        return "no bound"
    if found.kind != "eigenvalues":
        return "no bound by singular values; of CGLS and LSMR about " + _number(found.condition)
    if found.definite:
        return f"of CG without a preconditioner at most about {_number(math.sqrt(found.condition))} to {_RTOL:g}"
    return f"of MINRES without a preconditioner at most about {_number(found.condition)} to {_RTOL:g}"


def _number(root: float) -> str:
    """Iterations that reduce the error by rtol, where each one does by (root - 1) / (root + 1)."""
    return f"{math.ceil(root / 2 * math.log(2 / _RTOL)):d}"


def as_object(found: SpectrumFacts) -> dict[str, Any]:
    """For JSON."""
    condition = found.condition if math.isfinite(found.condition) else None
    return {
        "kind": found.kind, "values": [float(v) for v in found.values], "condition": condition,
        "singular": found.singular, "definite": found.definite if found.kind == "eigenvalues" else None,
    }  # fmt: skip
