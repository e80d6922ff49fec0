"""PETSc's matrices (petsc4py.PETSc.Mat, AIJ) as SciPy's CSR."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .read import Read

_FORMATS = ("aij", "seqaij", "mpiaij")


def read(A: Any) -> Read:
    """
    Raises:
        TypeError: it is of a type whose entries are not rows of numbers.
        ValueError: it is not assembled, or rows of it belong to other processes.
    """
    kind = str(A.getType())
    if kind not in _FORMATS:
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
