"""Table of the kinds of objects of other packages that are taken for A and M, known by the names of their classes.

A package is never imported to find out: who has such an object has imported it. There is one function for each package,
which raises TypeError or ValueError for an object that cannot be taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import get_backend
from .read import Read, Space, declared_facts


def _lineax(A: Any) -> Read:
    from .lineax_operators import read

    return read(A)


def _tensorflow(A: Any) -> Read:
    """A `tf.linalg.LinearOperator`: a dense one as its matrix, all others as functions of vectors."""
    shape: list[Any] = A.shape.as_list() if A.shape.rank is not None else [None]
    name = type(A).__name__
    if None in shape:
        raise ValueError(f"A {name} of shape {A.shape} was given; expected one that is known while a graph is made.")
    hermitian = A.is_self_adjoint is True
    declared = declared_facts(hermitian, hermitian and A.is_positive_definite is True)
    if name == "LinearOperatorFullMatrix" or len(shape) > 2:  # a batch is one of matrices
        return Read(A.to_dense(), declared=declared)
    dtype = np.dtype(A.dtype.as_numpy_dtype)
    rows, columns = (Space(((n,),), (dtype,)) for n in shape)
    return Read(TensorFlowProduct(A), get_backend("tensorflow"), columns, rows, declared)


class TensorFlowProduct:
    """`x -> A x` for vectors on the last axis, which it gets as columns: not all kinds take other batches."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def __call__(self, x: Any) -> Any:
        import tensorflow as tf

        columns = tf.transpose(tf.reshape(x, (-1, x.shape[-1])))
        return tf.reshape(tf.transpose(self.operator.matmul(columns)), (*x.shape[:-1], self.operator.shape[0]))


def _torch(A: Any) -> Read:
    """A `torch.nn.Module`, a function that does not tell its shapes; NumPy's arrays become tensors for it."""
    for name, part in A.named_modules():
        why = _unsteady(part) if part.training else None
        if why is not None:
            where = f"its part {name!r}, a {type(part).__name__}," if name else "it"
            raise ValueError(
                f"The module {type(A).__name__} is no linear function: {where} is in training mode, where {why}. Call "
                "module.eval() before the solve."
            )
    return Read(A, get_backend("torch"))


def _unsteady(part: Any) -> str | None:
    bases = {base.__name__ for base in type(part).__mro__}
    if "_DropoutNd" in bases and part.p > 0:
        return "it gives different values for the same x"
    if bases & {"_NormBase", "_SpectralNorm"} and any(buffer is not None for buffer in part._buffers.values()):
        return "every evaluation changes its buffers"
    return None


def _pydata(A: Any) -> Read:
    """A COO, GCXS or DOK as a matrix of SciPy."""
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


def _petsc(A: Any) -> Read:
    """An AIJ `Mat` as a CSR matrix of SciPy."""
    kind = str(A.getType())
    if kind not in ("aij", "seqaij", "mpiaij"):
        raise TypeError(f"A PETSc Mat of type {kind!r} was given; expected an AIJ matrix. Give A.convert('aij').")
    if not A.isAssembled():
        raise ValueError("A PETSc Mat that is not assembled was given: call A.assemble() first.")
    shape = tuple(map(int, A.getSize()))
    first, last = map(int, A.getOwnershipRange())
    if (first, last) != (0, shape[0]):
        raise ValueError(
            f"A PETSc Mat of {shape[0]} rows was given, of which this process has {first} to {last}; expected all rows "
            "in one process. Gather it first, such as by A.createRedundantMatrix of one process each."
        )
    starts, columns, values = A.getValuesCSR()  # a copy
    return Read(sp.csr_array((np.asarray(values), np.asarray(columns), np.asarray(starts)), shape=shape))


class Peer(NamedTuple):
    """A kind of object.

    Attributes:
        name: what the documents call it.
        package: the root of its class's module, or of that of one of its bases.
        cls: the name of that class.
        read: an object of it.
    """

    name: str
    package: str
    cls: str
    read: Callable[[Any], Read]


PEERS = (
    Peer("lineax.AbstractLinearOperator", "lineax", "AbstractLinearOperator", _lineax),
    Peer("tf.linalg.LinearOperator", "tensorflow", "LinearOperator", _tensorflow),
    Peer("torch.nn.Module", "torch", "Module", _torch),
    Peer("sparse.SparseArray", "sparse", "SparseArray", _pydata),
    Peer("petsc4py.PETSc.Mat", "petsc4py", "Mat", _petsc),
)
TAKEN = (
    "a function, a dense or sparse matrix, an operator of krylix, SciPy, lineax or TensorFlow, a sparse array of "
    "pydata/sparse, a Mat of petsc4py, or an object with `shape` and `matvec`"
)
_of_type: dict[type, Peer | None] = {}
NO_PEERS: set[type] = set()
"""Classes that were met and are none of these, so that a solve asks for them without a call."""


def peer_of(cls: type) -> Peer | None:
    """The kind that objects of this class are of; None for all others."""
    try:
        return _of_type[cls]
    except KeyError:
        bases = {(base.__name__, str(base.__module__).partition(".")[0]) for base in cls.__mro__}
        found = _of_type[cls] = next((peer for peer in PEERS if (peer.cls, peer.package) in bases), None)
        if found is None and cls not in (list, tuple):  # in which there may be some
            NO_PEERS.add(cls)
        return found


def read_peer(x: Any) -> Read | None:
    """What x is to krylix, if it is of one of these kinds; else None. A list of matrices is read one by one.

    Raises:
        TypeError, ValueError: it is of one of these kinds, and cannot be taken.
    """
    peer = peer_of(type(x))
    if peer is not None:
        return peer.read(x)
    if isinstance(x, list | tuple) and any(peer_of(type(one)) is not None for one in x):
        each = [read_peer(one) for one in x]
        return Read([one if found is None else found.A for one, found in zip(x, each, strict=True)])
    return None
