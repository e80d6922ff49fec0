"""Small named systems whose facts are known, in float64; and operators made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyamg
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from modes import array, native_sparse, product

N = 12


@dataclass(frozen=True)
class System:
    """A matrix and what is known about it."""

    name: str
    matrix: np.ndarray
    hermitian: bool = False
    definite: bool = False  # or semi-definite, of either sign
    singular: bool = False

    @property
    def symmetric(self) -> bool:
        """Without conjugation."""
        return bool(np.array_equal(self.matrix, self.matrix.T))

    @property
    def complex(self) -> bool:
        return self.matrix.dtype.kind == "c"

    def right_hand_side(self, systems: tuple[int, ...] = (), seed: int = 0) -> np.ndarray:
        """In the range of the matrix where that is singular."""
        rng = np.random.default_rng(seed)
        v = rng.standard_normal((*systems, len(self.matrix)))
        if self.complex:
            v = v + 1j * rng.standard_normal(v.shape)
        return v @ self.matrix.T if self.singular else v


def _poisson() -> np.ndarray:
    return pyamg.gallery.poisson((3, 4)).toarray()


def _neumann() -> np.ndarray:
    path = np.diag([1.0, *([2.0] * (N - 2)), 1.0]) - np.eye(N, k=1) - np.eye(N, k=-1)
    return path


def _two_regions() -> np.ndarray:
    half = np.diag([1.0, 2, 2, 2, 2, 1]) - np.eye(6, k=1) - np.eye(6, k=-1)
    return np.kron(np.eye(2), half)


def _zero_rows() -> np.ndarray:
    matrix = _poisson()
    matrix[[2, 7]] = 0
    matrix[:, [2, 7]] = 0
    return matrix


def _saddle() -> np.ndarray:
    constraint = np.random.default_rng(3).standard_normal((4, 8))
    return np.block([[3 * np.eye(8) + np.eye(8, k=1) + np.eye(8, k=-1), constraint.T], [constraint, np.zeros((4, 4))]])


def _advection() -> np.ndarray:
    return _poisson() + 0.6 * (np.eye(N, k=1) - np.eye(N, k=-1)) + np.diag(np.linspace(0, 1, N))


def _hermitian() -> np.ndarray:
    upper = np.triu(np.random.default_rng(4).standard_normal((N, N)), 1) * 0.2
    return _poisson() + 1j * (upper - upper.T) + np.eye(N)


SYSTEMS = {
    s.name: s
    for s in (
        System("definite", _poisson(), hermitian=True, definite=True),
        System("negative definite", -_poisson(), hermitian=True, definite=True),
        System("scaled 1e10", 1e10 * _poisson(), hermitian=True, definite=True),
        System("nonsymmetric", _advection()),
        System("indefinite", _saddle(), hermitian=True),
        System("complex Hermitian", _hermitian(), hermitian=True, definite=True),
        System("complex", _advection() + 1j * np.diag(np.linspace(-1, 1, N)) + 0.3j * np.eye(N, k=2)),
        System("complex symmetric", _poisson() + 1j * np.diag(np.linspace(-1, 1, N)) + 0.5j * np.eye(N)[::-1]),
        System("constant null vector", _neumann(), hermitian=True, definite=True, singular=True),
        System("constant per region", _two_regions(), hermitian=True, definite=True, singular=True),
        System("zero rows", _zero_rows(), hermitian=True, definite=True, singular=True),
    )
}

OPERATORS = ("dense", "function", "scipy", "LinearOperator", "native", "native-csr", "native-csc", "native-bsr")


def has_operator(mode: str, kind: str) -> bool:
    """Does this library have such a matrix?"""
    name = mode.split("-")[0]
    missing = {"jax": ("native-csc", "native-bsr"), "tf": ("native-csr", "native-csc", "native-bsr")}
    return kind not in missing.get(name, ())


def make_operator(mode: str, kind: str, matrix: np.ndarray) -> Any:
    """The matrix as a user of the mode's library would hand it over."""
    if kind == "dense":
        return array(mode, matrix)
    if kind == "function":
        return product(mode, array(mode, matrix))
    if kind == "scipy":
        return sp.csr_array(matrix)
    if kind == "LinearOperator":
        return spl.aslinearoperator(sp.csr_array(matrix))
    return native_sparse(mode, matrix, kind.partition("-")[2] or "coo")
