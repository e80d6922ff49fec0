"""Multiple eigenvalues: one start vector shows each of them once, so that the others are looked for beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg as spla

Product = Callable[[np.ndarray], np.ndarray]
Pairs = tuple[np.ndarray, np.ndarray]
_SEEN = 100  # times the accuracy may be the residual of a vector that is put together


def with_copies(find: Callable[..., Pairs], product: Product, found: Pairs, accuracy: float, steps: int) -> Pairs:
    """The k largest eigenvalues, falling in modulus, each as often as it has independent vectors.

    Krylov spaces of one start vector hold one vector of each eigenspace; what ARPACK has beyond that comes from
    rounding, when the others have converged. So the operator is looked at on the complement of the vectors that are
    known, from another start vector, until nothing there is larger than the last one.

    Args:
        find: `find(operator, k=, v0=, tol=, ncv=, which=)`, of SciPy's kind.
        product: the operator on `(n,)`.
        found: k eigenvalues, falling in modulus, and their vectors in columns.
        accuracy: relative, to which eigenvalues are told apart.
        steps: vectors that ARPACK keeps.

    Cost: a search for one eigenvalue, at least `steps` products, and one more for each copy that was not found.

    Source: Saad, Numerical Methods for Large Eigenvalue Problems (2011), section 4.2.3 (deflation of Schur vectors).
    """
    values, vectors = found
    n, k = vectors.shape
    real = not np.iscomplexobj(product(np.ones(n, vectors.real.dtype)))
    basis = _joined(np.zeros((n, 0), vectors.real.dtype if real else vectors.dtype), vectors)
    rng = np.random.default_rng(3)
    for _ in range(2 * k):
        if basis.shape[1] + 3 >= n:
            break
        start = _beside(basis, rng.standard_normal((n,)).astype(basis.dtype))
        image = _beside(basis, product(start))
        if not np.linalg.norm(image) > accuracy * abs(values[-1]) * np.linalg.norm(start) / n:
            break
        here = _on_complement(basis, product)
        settings = {"k": 1, "v0": start, "tol": accuracy, "ncv": min(steps, n), "which": "LM"}
        value, vector = find(here, **settings)
        if not abs(value[0]) > (1 + accuracy) * abs(values[-1]):
            break
        whole = _of_whole(basis, product, value[0], vector[:, 0])
        if np.linalg.norm(product(whole) - value[0] * whole) > _SEEN * accuracy * np.linalg.norm(value[0] * whole):
            break  # of a Jordan block: it has no vector of its own
        more, columns = value[:1], whole[:, None]
        if real and np.iscomplexobj(whole) and value[0].imag:
            more, columns = np.array([value[0], value[0].conj()]), np.stack([whole, whole.conj()], axis=1)
        basis = _joined(basis, vector[:, :1])
        values, vectors = np.concatenate([values, more]), np.concatenate([vectors, columns], axis=1)
        order = np.argsort(-np.abs(values), kind="stable")[:k]
        values, vectors = values[order], vectors[:, order]
    return values, vectors


def _beside(basis: np.ndarray, v: np.ndarray) -> np.ndarray:
    """v without its part in the space of the basis; twice, as the first time leaves rounding."""
    for _ in range(2):
        v = v - basis @ (basis.conj().T @ v)
    return v


def _on_complement(basis: np.ndarray, product: Product) -> spla.LinearOperator:
    def times(v: np.ndarray) -> np.ndarray:
        return _beside(basis, product(_beside(basis, v.reshape(-1))))

    return spla.LinearOperator((len(basis), len(basis)), matvec=times, dtype=basis.dtype)


def _joined(basis: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The basis and orthonormal vectors of what others add; in real numbers both parts of complex ones."""
    split = np.iscomplexobj(vectors) and not np.iscomplexobj(basis)
    columns = np.concatenate([vectors.real, vectors.imag], axis=1) if split else vectors
    limit = np.sqrt(np.finfo(basis.dtype).eps)
    for v in columns.T:
        size = np.linalg.norm(v)
        rest = _beside(basis, v / size) if size else v
        if np.linalg.norm(rest) > limit:
            basis = np.concatenate([basis, (rest / np.linalg.norm(rest))[:, None]], axis=1)
    return basis


def _of_whole(basis: np.ndarray, product: Product, value: Any, w: np.ndarray) -> np.ndarray:
    """The eigenvector whose part in the complement is w, of unit norm; w itself of a Hermitian operator."""
    coupling = basis.conj().T @ product(w)
    if np.linalg.norm(coupling) <= np.sqrt(np.finfo(basis.dtype).eps) * abs(value):
        return w
    inner = basis.conj().T @ np.stack([product(v) for v in basis.T], axis=1)
    rest, *_ = np.linalg.lstsq(inner - value * np.eye(len(inner)), -coupling, rcond=None)
    whole = w + basis @ rest
    return whole / np.linalg.norm(whole)
