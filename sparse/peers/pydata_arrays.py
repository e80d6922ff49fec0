"""Sparse arrays of pydata/sparse (COO, GCXS, DOK) as SciPy's matrices."""

from __future__ import annotations

from typing import Any

from .read import Read


def read(A: Any) -> Read:
    """
    Raises:
        ValueError: it is no matrix, or what it does not store is not zero.
    """
    kind = type(A).__name__
    if A.ndim != 2:
        raise ValueError(
            f"A {kind} of pydata/sparse with the shape {tuple(A.shape)} was given; expected one matrix (n, n). For a "
            "batch give a list of matrices, [A[i] for i in range(len(A))]."
        )
    if not bool(A.fill_value == 0):
        raise ValueError(
            f"A {kind} of pydata/sparse with fill_value={A.fill_value} was given, so it is a dense matrix; expected "
            "fill_value=0. Give A.todense(), or as_operator of the sparse part with matrix_offset=fill_value."
        )
    A = A.to_coo() if hasattr(A, "to_coo") else A  # of DOK
    return Read(A.to_scipy_sparse())
