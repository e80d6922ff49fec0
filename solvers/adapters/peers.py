"""Objects of other packages among the arguments of a solve, converted to matrices and functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import Backend, choose_backend
from ...sparse.peers.read import LibraryFunction, Read, Space
from ...sparse.peers.table import peer_of, read_peer
from ..methods.registry import find_method, is_auto
from ..read.arguments import Request


def with_peers_read(request: Request) -> Request:
    """The request with A and M as matrices and functions; a Mat for PETSc stays as it is.

    Raises:
        TypeError, ValueError: one of them cannot be taken; b has another shape or dtype than a function returns.
    """
    if (over := communicator_of_mat(request)) is not None:
        return replace(request, over=over)
    A, M = read_peer(request.A), read_peer(request.preconditioner)
    if M is not None:
        request = replace(request, preconditioner=M.A)
    if A is None:
        return request
    if A.bk is not None:
        request = _for_function(request, A, A.bk)
    else:
        request = replace(request, A=A.A)
    return replace(request, declared=A.declared) if A.declared else request


def communicator_of_mat(request: Request) -> Any:
    """The communicator of a Mat of PETSc that PETSc is to solve with; None for all else, and without mpi4py.

    Raises:
        ValueError: another communicator was given.
    """
    A, peer = request.A, peer_of(type(request.A))
    if peer is None or peer.package != "petsc4py" or type(request.b) is not np.ndarray:
        return None
    if is_auto(request.method) or not find_method(request.method).takes_rows:
        return None
    try:
        own = A.getComm().tompi4py()
    except ImportError:
        return None
    if request.over is not None and type(own).Compare(request.over, own) > 1:  # neither it nor a copy
        raise ValueError("A is a Mat of another communicator than over=...; leave over out, or give that of the Mat.")
    return own


def _for_function(request: Request, A: Read, bk: Backend) -> Request:
    function = LibraryFunction(A.A, bk)
    if A.gives is None or A.takes is None:
        return replace(request, A=A.A if choose_backend(request.b) is bk else function)
    choose_backend(request.b, function)  # refuses arrays of another library
    if request.args:
        raise TypeError(
            f"args are passed on to a function, but A is a {type(request.A).__name__} with its own numbers."
        )
    b, batch = _matched(bk, request.b, A.gives)
    request, x0 = replace(request, A=function, b=b), request.x0
    square = A.takes.is_like(A.gives)
    if not square and (is_auto(request.method) or not find_method(request.method).least_squares):
        raise ValueError(
            f"A maps {A.takes} to {A.gives}; a square system has one shape. For the least-squares solution use "
            "method='LSMR'."
        )
    if not square and x0 is None:  # x0 gives the shape of x
        request = replace(request, x0=A.takes.zeros(bk, batch))
    return replace(request, batch_ndim=len(batch))


def _matched(bk: Backend, b: Any, gives: Space) -> tuple[Any, tuple[int, ...]]:
    """b, made complex where the function returns complex numbers, and its batch axes."""
    leaves, structure = bk.leaves(b)
    arrays = [leaf if bk.is_array(leaf) else bk.asarray(leaf) for leaf in leaves]
    shapes = [tuple(leaf.shape) for leaf in arrays]
    axes = max(len(shapes[0]) - len(gives.shapes[0]), 0) if shapes else 0
    got = Space(tuple(shape[axes:] for shape in shapes), tuple(map(bk.dtype, arrays)), structure)
    alike = got.is_like(gives)
    if alike and got.dtypes != gives.dtypes and got.dtypes == tuple(_real(dtype) for dtype in gives.dtypes):
        arrays = [bk.astype(leaf, dtype) for leaf, dtype in zip(arrays, gives.dtypes, strict=True)]
        return bk.unleaves(structure, arrays), shapes[0][:axes]
    if not alike or got.dtypes != gives.dtypes:
        got = Space(tuple(shapes), got.dtypes, structure)
        raise ValueError(f"b is {got}; expected {gives}, what A returns, with any batch axes in front.")
    return b, shapes[0][:axes] if shapes else ()


def _real(dtype: np.dtype) -> np.dtype:
    return np.zeros((), dtype).real.dtype
