"""One object of each kind that krylix takes of other packages, for the conformance tests: a row of `OBJECTS` each."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

N = 9
RNG = np.random.default_rng(3)
GENERAL = np.diag(np.linspace(4.0, 9.0, N)) + 0.4 * RNG.standard_normal((N, N))
SYMMETRIC = GENERAL @ GENERAL.T
BANDED = np.diag(np.full(N, 5.0)) + np.diag(np.full(N - 1, 1.5), 1) - np.diag(np.full(N - 1, 0.5), -1)
DIAGONAL = np.diag(np.linspace(1.0, 3.0, N))
B = np.cos(np.arange(N))


class PeerObject(NamedTuple):
    """A kind of object.

    Attributes:
        package: that has to be installed.
        cls: of the class in `PEERS`; None where `shape` and `matvec` are all.
        make: the object for a matrix.
        matrix: an example of the matrices that it holds.
        library: whose arrays it takes, as the helper `modes` calls it.
        has_shape: does it tell its shapes?
        derived: do derivatives by the entries go through it?
    """

    package: str
    cls: str | None
    make: Callable[[np.ndarray], Any]
    matrix: np.ndarray = GENERAL
    library: str = "numpy"
    has_shape: bool = True
    derived: bool = False


class Products:
    """All that is asked of an operator: `shape` and `matvec`."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix, self.shape = matrix, matrix.shape

    def matvec(self, x: np.ndarray) -> np.ndarray:
        return self.matrix @ x


class AdjointProducts(Products):
    """With `rmatvec` and `dtype`, too."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__(matrix)
        self.dtype = matrix.dtype

    def rmatvec(self, x: np.ndarray) -> np.ndarray:
        return self.matrix.conj().T @ x


class Mat:
    """The methods of petsc4py.PETSc.Mat, whose package has no wheels: a stand-in under its name."""

    __module__ = "petsc4py.PETSc"

    def __init__(self, matrix: np.ndarray, kind: str = "seqaij", rows: tuple[int, int] | None = None) -> None:
        self.csr, self.kind, self.rows = sp.csr_array(matrix), kind, rows or (0, len(matrix))
        self.assembled = True

    def getType(self) -> str:
        return self.kind

    def isAssembled(self) -> bool:
        return self.assembled

    def getSize(self) -> tuple[int, int]:
        return self.csr.shape

    def getOwnershipRange(self) -> tuple[int, int]:
        return self.rows

    def getValuesCSR(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        csr = self.csr[self.rows[0] : self.rows[1]]
        return csr.indptr.copy(), csr.indices.copy(), csr.data.copy()


def _lineax(make: Callable[[Any, Any, Any], Any]) -> Callable[[np.ndarray], Any]:
    def made(matrix: np.ndarray) -> Any:
        import jax
        import lineax

        return make(lineax, jax.numpy.asarray(matrix), jax.ShapeDtypeStruct((len(matrix),), matrix.dtype))

    return made


def _tensorflow(make: Callable[[Any, Any], Any]) -> Callable[[np.ndarray], Any]:
    def made(matrix: np.ndarray) -> Any:
        import tensorflow as tf

        return make(tf.linalg, tf.convert_to_tensor(matrix))

    return made


def _torch_linear(matrix: np.ndarray) -> Any:
    import torch

    module = torch.nn.Linear(*matrix.shape[::-1], bias=False, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(matrix))
    return module


def _sparse(name: str, **settings: Any) -> Callable[[np.ndarray], Any]:
    def made(matrix: np.ndarray) -> Any:
        import sparse

        return getattr(sparse, name).from_numpy(matrix, **settings)

    return made


def _lx(make: Callable[[Any, Any, Any], Any], matrix: np.ndarray = GENERAL) -> PeerObject:
    return PeerObject("lineax", "AbstractLinearOperator", _lineax(make), matrix, "jax", derived=True)


def _tf(make: Callable[[Any, Any], Any], matrix: np.ndarray = GENERAL) -> PeerObject:
    return PeerObject("tensorflow", "LinearOperator", _tensorflow(make), matrix, "tensorflow", derived=True)


OBJECTS: dict[str, PeerObject] = {
    "matvec": PeerObject("scipy", None, Products),
    "matvec and rmatvec": PeerObject("scipy", None, AdjointProducts),
    "scipy LinearOperator": PeerObject("scipy", None, sla.aslinearoperator),
    "petsc AIJ": PeerObject("scipy", "Mat", Mat),
    "pydata COO": PeerObject("sparse", "SparseArray", _sparse("COO")),
    "pydata GCXS": PeerObject("sparse", "SparseArray", _sparse("GCXS")),
    "pydata GCXS by columns": PeerObject("sparse", "SparseArray", _sparse("GCXS", compressed_axes=(1,))),
    "pydata DOK": PeerObject("sparse", "SparseArray", _sparse("DOK")),
    "torch Linear": PeerObject("torch", "Module", _torch_linear, library="torch", has_shape=False, derived=True),
    "lineax Matrix": _lx(lambda lx, A, x: lx.MatrixLinearOperator(A)),
    "lineax Matrix, tagged": _lx(
        lambda lx, A, x: lx.TaggedLinearOperator(lx.MatrixLinearOperator(A), lx.positive_semidefinite_tag), SYMMETRIC
    ),
    "lineax Function": _lx(lambda lx, A, x: lx.FunctionLinearOperator(lambda v: A @ v, x)),
    "lineax Jacobian": _lx(lambda lx, A, x: lx.JacobianLinearOperator(lambda v, a: a @ v, A[0], args=A)),
    "lineax Diagonal": _lx(lambda lx, A, x: lx.DiagonalLinearOperator(A.diagonal()), DIAGONAL),
    "lineax Tridiagonal": _lx(
        lambda lx, A, x: lx.TridiagonalLinearOperator(A.diagonal(), A.diagonal(-1), A.diagonal(1)), BANDED
    ),
    "lineax composed": _lx(
        lambda lx, A, x: 0.5 * lx.MatrixLinearOperator(A) @ (lx.IdentityLinearOperator(x) + _one(lx, x))
    ),
    "tf FullMatrix": _tf(lambda la, A: la.LinearOperatorFullMatrix(A)),
    "tf Diag": _tf(lambda la, A: la.LinearOperatorDiag(la.diag_part(A)), DIAGONAL),
    "tf LowerTriangular": _tf(lambda la, A: la.LinearOperatorLowerTriangular(A), np.tril(GENERAL)),
    "tf Tridiag": _tf(lambda la, A: la.LinearOperatorTridiag(A, diagonals_format="matrix"), BANDED),
    "tf composed": _tf(
        lambda la, A: la.LinearOperatorComposition(
            [la.LinearOperatorFullMatrix(A), la.LinearOperatorScaledIdentity(N, A[0, 0] / A[0, 0])]
        )
    ),
}  # fmt: skip


def is_installed(package: str) -> bool:
    """Asked of pip: a folder `sparse` may be found by its name where it is another package."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def _one(lx: Any, like: Any) -> Any:
    return lx.TaggedLinearOperator(lx.IdentityLinearOperator(like), lx.symmetric_tag)


def needs_package(name: str) -> Any:
    """The row's name as a parameter, skipped where its package is not installed."""
    package = OBJECTS[name].package
    marks = [pytest.mark.skipif(not is_installed(package), reason=f"{package} is not installed")]
    library = OBJECTS[name].library
    marks += [] if library == "numpy" else [pytest.mark.needs(library)]
    marks += [pytest.mark.merge] if package == "lineax" and name not in ("lineax Matrix", "lineax Function") else []
    return pytest.param(name, marks=marks)


NAMES = [needs_package(name) for name in OBJECTS]
