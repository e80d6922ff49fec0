"""Matrices whose rows are distributed over the processes of a communicator: Mat, products and KSP."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import Backend
from .inverse import PetscInverse, same_pattern
from .system import Choice, PetscSystem, errors_explained, has_complex_numbers, made_mat, petsc


class RowsProduct:
    """Products of a Mat with distributed vectors, with SciPy's names.

    Attributes:
        system: the Mat and its KSP.
        rows: CSR of this process; None if a Mat was given.
        shape: of the local part; vectors are distributed like rows.
    """

    def __init__(self, system: PetscSystem, rows: Any) -> None:
        self.system, self.rows = system, rows
        local = system.mat.getLocalSize()
        self.scalar = np.dtype(petsc().ScalarType)
        real = rows is not None and rows.dtype.kind != "c"
        self.shape, self.dtype = (int(local[0]), int(local[1])), np.dtype(petsc().RealType) if real else self.scalar
        self._in, self._out = system.mat.createVecs()

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """Product `A v`, with a message to each neighbour."""
        system = self.system.with_numbers(self.rows)
        return self._product(system, system.mat.mult, v)

    def rmatvec(self, v: np.ndarray) -> np.ndarray:
        """Product of the adjoint with v, with a message to each neighbour."""
        system = self.system.with_numbers(self.rows)
        return self._product(system, system.mat.multHermitian, v)

    def gradient_by_entries(self, y: np.ndarray, x: np.ndarray) -> Any:
        """`- y x^H` at the entries of the local rows, CSR `(local rows, n)`, summed over systems; None for a Mat.

        Takes one message to each neighbour for each system.
        """
        rows, petsc_ = self.rows, petsc()
        if rows is None:
            return None
        needed, place = np.unique(rows.indices, return_inverse=True)
        index = petsc_.IS().createGeneral(needed.astype(petsc_.IntType), comm=petsc_.COMM_SELF)
        near = petsc_.Vec().createSeq(len(needed), comm=petsc_.COMM_SELF)
        scatter = petsc_.Scatter().create(self._in, index, near, None)

        def of_neighbours(v: np.ndarray) -> np.ndarray:
            if v.dtype.kind == "c" and not has_complex_numbers():
                return of_neighbours(v.real) + 1j * of_neighbours(v.imag)
            self._in.setArray(np.ascontiguousarray(v, self.scalar))
            scatter.scatter(self._in, near)
            found: np.ndarray = near.getArray().copy()
            return found.real if v.dtype.kind != "c" else found

        lines = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        values = -sum(yi[lines] * of_neighbours(xi).conj()[place] for yi, xi in zip(y, x, strict=True))
        found = rows.astype(np.result_type(rows.dtype, np.float32))
        found.data = np.asarray(values if found.dtype.kind == "c" else np.real(values), found.dtype)
        for one in (scatter, near, index):
            one.destroy()
        return found

    def _product(self, system: PetscSystem, multiply: Any, v: np.ndarray) -> np.ndarray:
        v = np.asarray(v).reshape(-1)
        if v.dtype.kind == "c" and not has_complex_numbers():
            return self._product(system, multiply, v.real) + 1j * self._product(system, multiply, v.imag)
        with errors_explained("multiply"):
            self._in.setArray(np.ascontiguousarray(v, self.scalar))
            multiply(self._in, self._out)
            found: np.ndarray = system.sign * self._out.getArray()
        return found.real if self.dtype.kind != "c" and v.dtype.kind != "c" else found


def of_members(
    bk: Backend, rows: Any, mat: Any, given: Choice, block_size: int, previous: Any = None
) -> tuple[PetscInverse, RowsProduct]:
    """Set up the KSP of a distributed matrix and its products. Collective.

    Args:
        bk: of the communicator.
        rows: CSR of this process; None if a Mat is given.
        mat: the user's Mat or None.
        given: settings; "" for those that krylix chooses.
        previous: a `PetscInverse` for other values.
    """
    communicator: Any = bk.communicator
    petsc().garbage_cleanup()  # collective: frees discarded objects of all processes
    system, hermitian = None, False
    if isinstance(previous, PetscInverse) and rows is not None:
        (old,), hermitian = previous.solvers, previous.hermitian
        mine = old.rows is not None and same_pattern(old.rows, rows)
        if not communicator.any(not mine):
            system = old.with_numbers(rows)
    if system is None:
        with errors_explained("make a matrix"):
            made = made_mat(rows, 1, block_size, communicator.comm) if mat is None else mat
        system, hermitian = PetscSystem.over(made, given, rows)
    product = RowsProduct(system, rows)
    inverse = PetscInverse(
        bk=bk, shape=product.shape, dtype=product.dtype, systems=None,
        rows=[rows], solvers=[system], hermitian=hermitian, again=_refuse_pickle,
    )  # fmt: skip
    return inverse, product


def _refuse_pickle() -> Any:
    raise TypeError("A solver over a communicator cannot be stored: prepare again, in all of its processes.")
