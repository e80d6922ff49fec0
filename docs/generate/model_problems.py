"""Small systems on which the pages of methods and preconditioners show their convergence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from krylix.solvers import Method

N = 40  # points along each axis of the square


class ModelProblem(NamedTuple):
    """A system, and what it is in words."""

    words: str
    A: sp.csr_array
    b: np.ndarray


def _line(n: int = N) -> sp.csr_array:
    return sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()


def _square(along: sp.csr_array, across: sp.csr_array | None = None) -> sp.csr_array:
    second = along if across is None else across
    return sp.csr_array(sp.kron(along, sp.eye_array(second.shape[0])) + sp.kron(sp.eye_array(along.shape[0]), second))


def _of(words: str, A: sp.csr_array) -> ModelProblem:
    return ModelProblem(words, A, np.random.default_rng(0).standard_normal(A.shape[0]))


def poisson() -> ModelProblem:
    return _of(f"Poisson's equation on {N} × {N} points, five-point stencil", _square(_line()))


def indefinite() -> ModelProblem:
    A = sp.csr_array(_square(_line(20)) - 0.3 * sp.eye_array(400))
    return _of("Helmholtz's equation (symmetric, indefinite) on 20 × 20 points", A)


def absorbing() -> ModelProblem:
    A = sp.csr_array(_square(_line(20)) - (0.3 - 0.1j) * sp.eye_array(400))
    return _of("Helmholtz's equation with absorption (complex symmetric) on 20 × 20 points", A)


def convection() -> ModelProblem:
    upwind = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(N, N)).tocsr()
    A = sp.csr_array(_square(_line() + 0.5 * upwind, _line() + 0.2 * upwind))
    return _of(f"convection and diffusion, upwind differences (not symmetric), {N} × {N} points", A)


def least_squares() -> ModelProblem:
    A = sp.random_array((600, 200), density=0.03, rng=np.random.default_rng(1), format="csr")
    return _of("a least-squares problem of 600 equations and 200 unknowns (sparse, random)", A)


def diffusion(k: np.ndarray, words: str) -> ModelProblem:
    """-div(k grad u) with zero boundary values; k at the points, averaged harmonically on the faces."""

    def along(axis: int) -> sp.csr_array:
        padded = np.pad(k, [(1, 1) if a == axis else (0, 0) for a in range(2)], mode="edge")
        low, high = np.moveaxis(padded, axis, 0)[:-1], np.moveaxis(padded, axis, 0)[1:]
        face = np.moveaxis(2 * low * high / (low + high), 0, axis)
        n = k.shape[axis]
        difference = sp.diags_array([1.0, -1.0], offsets=[0, -1], shape=(n + 1, n))
        eye = sp.eye_array(k.shape[1 - axis])
        D = sp.kron(difference, eye) if axis == 0 else sp.kron(eye, difference)
        return sp.csr_array(D.T @ sp.diags_array(face.ravel()) @ D)

    return _of(words, sp.csr_array(along(0) + along(1)))


def jumps() -> ModelProblem:
    i, j = np.indices((N, N)) // 8
    return diffusion(
        np.where((i + j) % 2, 1e4, 1.0), f"diffusion with coefficients 1 and 10⁴ in blocks, {N} × {N} points"
    )


def smooth() -> ModelProblem:
    x, y = np.meshgrid(*(np.linspace(0, 1, N),) * 2, indexing="ij")
    return diffusion(np.exp(np.sin(6 * x) * np.cos(5 * y)), f"diffusion with smooth coefficients, {N} × {N} points")


def blocks() -> ModelProblem:
    coupling = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.7], [0.0, 0.7, 1.0]]) + 0.4 * np.eye(3)
    A = sp.csr_array(sp.kron(sp.eye_array(200), 30 * coupling) + sp.kron(_line(200), sp.eye_array(3)))
    return _of("three unknowns at each of 200 points, strongly coupled at a point", A)


def for_method(method: Method) -> ModelProblem:
    """A problem that the facts of a method say it is for."""
    if method.least_squares:
        return least_squares()
    if method.needs_definite or method.needs_grid or method.needs_band:
        return poisson()
    if method.needs_symmetric:
        return absorbing()
    return indefinite() if method.needs_hermitian else convection()
