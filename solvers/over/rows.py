"""A matrix over a communicator, for methods that take rows: those of this member, of the whole or as given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import agreed, choose_backend, over_members
from ...sparse import Operator, SparseMatrix, is_function
from ...sparse.analysis.canonical import canonical
from ...sparse.formats.row_block import row_block
from ..methods.petsc.inverse import PetscInverse, with_diagonal
from ..methods.petsc.library import checked_indices, checked_values, petsc
from ..read.arguments import Request

_ROUNDING = 64  # times eps, of the sums of |a_ij|: what sums of rows and columns may be, of a matrix of constants


def rows_over(request: Request, method: Any, previous: Operator | None) -> tuple[Request, PetscInverse]:
    """The request with a product in place of the matrix, and what the method has set up for it.

    The matrix is CSR of this member's rows, `(local, n)` as many as b has here; or one of all rows `(n, n)`, such as a
    traced function, which is cut; or a Mat of PETSc, which is taken as it is.

    Raises:
        TypeError, ValueError: in all members, where it is none of these, or they do not fit together.

    Cost: 6 messages of a number, the set-up, and with nullspace="auto" 2 products.
    """
    alone = choose_backend(request.b)
    bk = over_members(alone, request.over)
    communicator: Any = bk.communicator
    local = agreed(communicator, "the matrix and b", lambda: _local_size(request, alone))
    sizes = communicator.comm.allgather(local)
    mat, rows = None, None
    if _is_mat(request.A):
        mat = request.A
        agreed(communicator, "the Mat", lambda: _check_mat(mat, local))
    else:
        first = sum(sizes[: communicator.rank])
        rows = agreed(communicator, "its rows", lambda: _rows(request.A, first, local, sum(sizes), method.block_size))
    made, product = method.of_rows(bk, rows, mat, previous)
    automatic = isinstance(request.nullspace, str) and request.nullspace == "auto"
    made.has_constants = automatic and _has_constants(bk, product, made)
    return replace(request, A=product), made


def _local_size(request: Request, alone: Any) -> int:
    """How many unknowns this member has."""
    if not alone.on_host:
        raise TypeError(
            f"b is an array of {alone.name}; with over= the vectors of PETSc are NumPy's. Convert b, or leave over out."
        )
    A, b = request.A, np.asarray(request.b)
    if is_function(A) and not _is_mat(A):
        raise TypeError(
            "A is a function; with over= and method='petsc' expected the rows of this member, CSR of the shape "
            "(local rows, n), or the matrix of the whole function, krylix.matrix_from_function(f, like)[0], to be cut."
        )
    if request.axis not in (None, -1) or request.batch_ndim not in (0, b.ndim - 1):
        raise ValueError(
            "With over= and method='petsc' vectors lie on the last axis of b; leave axis and batch_ndim out."
        )
    if b.ndim < 1:
        raise ValueError("b is a single number; expected this member's part of a vector.")
    return int(b.shape[-1])


def _rows(A: Any, first: int, local: int, n: int, block_size: int) -> Any:
    """This member's rows as canonical CSR with a diagonal, in numbers that PETSc takes."""
    petsc()
    shape = tuple(getattr(A, "shape", ()))
    if len(shape) != 2 or not (sp.issparse(A) or isinstance(A, SparseMatrix | np.ndarray)):
        raise TypeError(
            f"A is a {type(A).__name__}; with over= and method='petsc' expected a sparse matrix of SciPy or krylix "
            "with the rows of this member (local rows, n) or of all members (n, n), or a Mat of PETSc."
        )
    if shape[1] != n or shape[0] not in (local, n):
        raise ValueError(
            f"A has the shape {shape}; this member's b has {local} of {n} unknowns, so expected ({local}, {n}), its "
            f"rows, or ({n}, {n}), all of them."
        )
    if local % block_size:
        raise ValueError(f"This member has {local} rows, which is no multiple of block_size={block_size}.")
    if shape[0] == local:
        rows = A.known() if isinstance(A, SparseMatrix) else A
    else:
        rows = (
            row_block(A, first, first + local)
            if isinstance(A, SparseMatrix)
            else sp.csr_array(A)[first : first + local]
        )
    found = with_diagonal(canonical(sp.csr_array(rows)), first)
    if not np.all(np.isfinite(found.data)):
        raise ValueError("A has no solution in finite numbers: rows of this member have NaN or infinity.")
    checked_indices(found.indptr[:0], n, found.nnz)
    checked_values(found.data[:0] if found.dtype.kind != "c" else found.data)
    return found


def _is_mat(A: Any) -> bool:
    """Is it a Mat of PETSc?"""
    return hasattr(A, "getOwnershipRange")


def _check_mat(mat: Any, local: int) -> None:
    if not mat.isAssembled():
        raise ValueError("A PETSc Mat that is not assembled was given: call A.assemble() first.")
    (rows, n), (own, columns) = mat.getSize(), mat.getLocalSize()
    if rows != n or own != columns or own != local:
        raise ValueError(
            f"A is a Mat of {rows} rows and {n} columns, {own} and {columns} of them in this process, and its part of "
            f"b has {local} numbers; expected one number for each row, and a square matrix whose columns are cut alike."
        )


def _has_constants(bk: Any, product: Any, made: Any) -> bool:
    """Do A and its adjoint map the constant to zero, up to rounding?"""
    ones = np.ones(product.shape[0], product.dtype)
    usual = abs(bk.norm(made.scale_of_rows()[None])[0, 0])
    eps = _ROUNDING * float(np.finfo(product.dtype).eps)
    return all(
        bool(bk.norm(multiply(ones)[None])[0, 0] <= eps * usual) for multiply in (product.matvec, product.rmatvec)
    )
