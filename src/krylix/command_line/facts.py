"""Properties of a system before it is solved, in words."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..sparse.analysis.symmetry import is_hermitian, is_symmetric
from .system import SystemRead

Line = tuple[str, str]  # label, text


class Symmetry(NamedTuple):
    """Relative sizes in the Frobenius norm."""

    hermitian: float  # of A - A^H
    symmetric: float  # of A - A^T; the same if A is real


def describe(system: SystemRead) -> list[Line]:
    """Source, size, symmetry, diagonal and right-hand side."""
    A = system.A
    square = A.shape[0] == A.shape[1]
    return [
        ("matrix", system.source),
        ("shape", size_text(A)),
        ("symmetry", symmetry_text(A) if square else "not square: least squares"),
        *([("diagonal", diagonal_text(A.diagonal()))] if square else []),
        *([("null space", "contains the constants: every row sums to zero")] if maps_constants_to_zero(A) else []),
        ("right-hand side", _rhs(system)),
    ]


def maps_constants_to_zero(A: Any) -> bool:
    """Is A 1 = 0, up to rounding? Then the solution is known up to a constant only."""
    ones = np.ones(A.shape[1])
    size = float(np.max(np.abs(A) @ ones, initial=0))
    image = float(np.max(np.abs(A @ ones), initial=0))
    return size > 0 and image <= 100 * np.finfo(A.dtype).eps * size


def size_text(A: Any) -> str:
    """Shape, number of non-zeros and dtype."""
    n, m = A.shape
    kind = "sparse" if sp.issparse(A) else "dense"
    count = int(np.count_nonzero(A.data if sp.issparse(A) else A))
    return f"{n} x {m}, {kind}, {count} non-zeros ({count / max(n, 1):.1f} per row), {A.dtype}"


def symmetry_text(A: Any) -> str:
    """Is a square matrix symmetric, or Hermitian, and how far is it from that?"""
    found = symmetry(A)
    word = "Hermitian" if A.dtype.kind == "c" else "symmetric"
    if is_hermitian(A):
        return f"{word} (relative asymmetry {found.hermitian:.1e})"
    also = ", but complex symmetric (A = A^T)" if A.dtype.kind == "c" and is_symmetric(A) else ""
    return f"not {word}: relative asymmetry {found.hermitian:.1e}{also}"


def symmetry(A: Any) -> Symmetry:
    """How far A is from its adjoint and from its transpose."""
    largest = np.max(np.abs(A.data if sp.issparse(A) else A), initial=0)
    if largest == 0:
        return Symmetry(0.0, 0.0)
    scaled = A / largest  # squares of large entries would overflow
    size = _norm(scaled)
    return Symmetry(_norm(scaled - scaled.conj().T) / size, _norm(scaled - scaled.T) / size)


def _norm(A: Any) -> float:
    return float(np.linalg.norm(A.data if sp.issparse(A) else A.reshape(-1)))


def diagonal_text(diagonal: np.ndarray) -> str:
    """Signs and range of the diagonal."""
    real = diagonal.real
    part = "real part " if np.iscomplexobj(diagonal) and np.any(diagonal.imag) else ""
    signs = {"positive": real > 0, "negative": real < 0, "zero": real == 0}
    words = ", ".join(f"{np.sum(a)} {word}" if not a.all() else f"all {word}" for word, a in signs.items() if a.any())
    return f"{part}{words}" + (f", from {real.min():.3g} to {real.max():.3g}" if real.any() else "")


def _rhs(system: SystemRead) -> str:
    norms = column_norms(system.b)
    if len(norms) == 1:
        return f"{system.rhs}; norm {norms[0]:.3e}, {system.b.dtype}"
    return f"{system.rhs}; {len(norms)} columns, norms {norms.min():.3e} to {norms.max():.3e}, {system.b.dtype}"


def column_norms(v: np.ndarray) -> np.ndarray:
    """2-norms of `(n,)` or of the columns of `(n, k)`, in double precision and without overflow: `(1,)` or `(k,)`."""
    columns = v.reshape(len(v), -1).astype(np.result_type(v.dtype, np.float64))
    largest = np.max(np.abs(columns), axis=0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1)
    return scale * np.linalg.norm(columns / scale, axis=0)
