"""Indefiniteness test of a Hermitian matrix by a few steps of Lanczos' method."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ...backends import get_backend

_STEPS = 40
_NEGATIVE = 1e-10  # of the largest eigenvalue: semi-definite matrices have rounding errors below zero


def is_seen_indefinite(A: sp.csr_array) -> bool:
    """Has a Hermitian matrix with a positive diagonal, scaled to a diagonal of ones, a clearly negative eigenvalue?

    Lanczos' method sees those at the end of the spectrum after a few steps: what it sees is there, but eigenvalues just
    below zero may be missed. Cost: at most 40 products.

    Source: Saad, Numerical Methods for Large Eigenvalue Problems, 2nd ed., algorithm 6.5.
    """
    n = A.shape[0]
    diagonal = np.abs(A.diagonal().real)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))  # rows of zeros stay
    v = np.random.default_rng(7).standard_normal(n).astype(A.dtype)
    bk = get_backend("numpy")  # whose sums are not spread over threads, which would wait for each other
    v /= bk.norm(v[None])[0]
    old, beta, alphas, betas = np.zeros_like(v), 0.0, [], []
    with np.errstate(all="ignore"):
        for _ in range(min(_STEPS, n)):
            w = scale * (A @ (scale * v)) - beta * old
            alpha = float(bk.dot(v[None], w[None]).real[0, 0])
            w -= alpha * v
            alphas.append(alpha)
            beta = float(bk.norm(w[None])[0, 0])
            if not np.isfinite(beta) or beta <= np.finfo(A.dtype).eps:
                break
            betas.append(beta)
            old, v = v, w / beta
    if not np.isfinite(alphas).all():
        return False  # which the solve will find out
    ritz = scipy.linalg.eigvalsh_tridiagonal(alphas, betas[: len(alphas) - 1])
    return bool(ritz[0] < -max(_NEGATIVE, 100 * np.finfo(A.dtype).eps) * ritz[-1])
