"""Table of the kinds of objects of other packages that are taken for A and M, known by the names of their classes.

A package is never imported to find out: who has such an object has imported it. The module of a kind is imported when
the first object of it is met.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from .read import Read


class Peer(NamedTuple):
    """A kind of object.

    Attributes:
        name: what the documents call it.
        package: the root of its class's module, or of that of one of its bases.
        cls: the name of that class.
        module: of this folder, with a function `read`.
        has_modes: does it change from one solve to the next? Then the module has what `modes` asks for.
    """

    name: str
    package: str
    cls: str
    module: str
    has_modes: bool = False


PEERS = (
    Peer("lineax.AbstractLinearOperator", "lineax", "AbstractLinearOperator", "lineax_operators"),
    Peer("tf.linalg.LinearOperator", "tensorflow", "LinearOperator", "tensorflow_operators"),
    Peer("torch.nn.Module", "torch", "Module", "torch_modules", has_modes=True),
    Peer("sparse.SparseArray", "sparse", "SparseArray", "pydata_arrays"),
    Peer("petsc4py.PETSc.Mat", "petsc4py", "Mat", "petsc_matrices"),
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
        found = _of_type[cls] = next((peer for peer in PEERS if _is_of(cls, peer)), None)
        if found is None and cls not in (list, tuple):  # in which there may be some
            NO_PEERS.add(cls)
        return found


def _is_of(cls: type, peer: Peer) -> bool:
    named = (base for base in cls.__mro__ if base.__name__ == peer.cls)
    return any(str(base.__module__).partition(".")[0] == peer.package for base in named)


def read_peer(x: Any) -> Read | None:
    """What x is to krylix, if it is of one of these kinds; else None. A list of matrices is read one by one.

    Raises:
        TypeError, ValueError: it is of one of these kinds, and cannot be taken.
    """
    peer = peer_of(type(x))
    if peer is not None:
        found: Read = import_module(f".{peer.module}", __package__).read(x)
        return found
    if isinstance(x, list | tuple) and any(peer_of(type(one)) is not None for one in x):
        each = [read_peer(one) for one in x]
        return Read([one if found is None else found.A for one, found in zip(x, each, strict=True)])
    return None
