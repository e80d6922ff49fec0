"""PETSc's Python bindings, imported when a solve needs them, and what of their errors users can do something about."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from glob import glob
from importlib import import_module
from typing import Any

import numpy as np

_INSTALL = (
    "Install PETSc with its bindings: 'apt-get install python3-petsc4py python3-mpi4py mpi-default-bin' (Debian and "
    "Ubuntu, for the system's Python with NumPy 1), 'conda install -c conda-forge petsc4py mpi4py', or "
    "'pip install krylix[petsc]' where a compiler and MPI are."
)
_OUT_OF_MEMORY = 55


@cache
def petsc() -> Any:
    """The module `petsc4py.PETSc`; PETSc is started by its first import.

    Raises:
        ImportError: it is not installed, or cannot be loaded; with what to do.
    """
    try:
        return import_module("petsc4py.PETSc")
    except ImportError as error:
        places = glob("/usr/lib/petscdir/*/*-real")
        found = f" Debian's lie in {places[0]}: set the environment variable PETSC_DIR to it." if places else ""
        raise ImportError(
            f"method='petsc' needs petsc4py, which cannot be imported: {error}. {_INSTALL}{found}"
        ) from error


def checked_values(values: np.ndarray) -> np.ndarray:
    """Numbers in the type of this build of PETSc.

    Raises:
        TypeError: they are complex, and it was built for real ones.
    """
    wanted = np.dtype(petsc().ScalarType)
    if values.dtype.kind == "c" and wanted.kind != "c":
        if np.any(values.imag != 0):
            raise TypeError(
                "The matrix is complex, and this build of PETSc computes with real numbers. Set PETSC_DIR (PETSC_ARCH) "
                "to a complex build (Debian: python3-petsc4py-complex), or use 'scipy-direct' or GMRES."
            )
        values = values.real
    return np.ascontiguousarray(values, wanted)


def checked_indices(indices: np.ndarray, rows: int, most: int) -> np.ndarray:
    """Indices in the type of this build of PETSc.

    Args:
        rows: of the whole matrix.
        most: entries of this process.

    Raises:
        ValueError: they do not fit.
    """
    wanted = np.dtype(petsc().IntType)
    if max(rows, most) > np.iinfo(wanted).max:
        raise ValueError(
            f"The matrix has {rows} rows and {most} entries in one process; this build of PETSc counts with {wanted}. "
            "Take one with 64-bit indices (--with-64-bit-indices), or cut the rows over more processes."
        )
    return np.ascontiguousarray(indices, wanted)


def is_used(option: str) -> bool:
    """Has PETSc read an option of its database? True where this build does not tell.

    Args:
        option: its name with its prefix.
    """
    used = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL(petsc().__file__).PetscOptionsUsed(None, option.encode(), ctypes.byref(used))
    except (OSError, AttributeError):  # the bindings have no function for it, and here no symbol of the library
        return True
    return bool(failed or used.value)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Words for errors of PETSc.

    Args:
        what: that is being done, such as "set up KSP cg with PC hypre".

    Raises:
        ValueError: PETSc cannot do it.
        MemoryError: there is no room for it.
    """
    try:
        yield
    except petsc().Error as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        text = " ".join(line.partition("] ")[2] or line for line in lines[-2:])
        if error.ierr == _OUT_OF_MEMORY:
            raise MemoryError(f"PETSc has no memory to {what}: {text}") from error
        raise ValueError(f"PETSc cannot {what}. Its error {error.ierr}: {text}.") from error
