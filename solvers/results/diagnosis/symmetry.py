"""Diagnosis of symmetry and definiteness of A and M, by products with a few vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from ....sparse.analysis.symmetry import CHOSEN, PRODUCTS, REFUSED
from ...preconditioners import Preconditioner
from ..advice import Cause
from .case import Case, Image, dots, norms

_STEPS = 40  # of Lanczos' method
_HARMLESS = 1e-6  # asymmetry of M, as of one that computes in single precision
_CLEARLY = 1e-10  # of the largest curvature, or some rounding units: what is below has no sign

_UNSYMMETRIC = ("use biCG-stab(2) or GMRES, which take any matrix",)


def wrong_symmetry(case: Case) -> list[Cause]:
    """Cause: a missing property that CG and MINRES need: A^H = A, M^H = M, definiteness."""
    if not case.method.needs_hermitian or case.A_image is None or case.A is None:
        return []
    n = case.A.shape[1]
    u, v = case.random(4, n), case.random(5, n)
    images = _Images(case.A_image, u, v, case.A_image(u), case.A_image(v))
    found = _asymmetry(case, images)
    causes = []
    if found is not None:
        settles = found * np.sqrt(n) > REFUSED
        causes.append(Cause(_not_symmetric(case, "A", found), _UNSYMMETRIC, settles))
    sign = 0 if causes else _sign(case, images)
    if sign is None and case.method.needs_definite:
        seen = f"A{case.of_which} is indefinite: <v, A v> has both signs, and {case.method.name} needs one"
        causes.append(Cause(seen, ("use MINRES, which takes such matrices", "factorise (method='scipy-direct')")))
    return causes + _of_preconditioner(case, u, v, sign)


class _Images(NamedTuple):
    """Two random vectors and their products."""

    image: Image
    u: np.ndarray
    v: np.ndarray
    Au: np.ndarray
    Av: np.ndarray


def _asymmetry(case: Case, images: _Images) -> float | None:
    """By how much <u, A v> and <A u, v> differ, of |u| |A v|, where that is more than rounding; of the worst system."""
    _, u, v, Au, Av = images
    size = norms(u) * norms(Av) + norms(Au) * norms(v)
    gap = np.abs(dots(u, Av) - dots(Au, v)) / np.where(size > 0, size, 1)
    # an asymmetry of CHOSEN, in all directions alike, makes a gap that is smaller by the root of the unknowns
    limit = max(PRODUCTS * case.eps, CHOSEN / np.sqrt(u.shape[1]))
    gap = np.where(case.numbers.failed, gap, 0)
    largest = float(np.max(gap, initial=0))
    return largest if largest > limit else None


def _not_symmetric(case: Case, name: str, gap: float) -> str:
    word = "Hermitian" if case.dtype.kind == "c" else "symmetric"
    what = "A" if name == "A" else "the preconditioner"
    return (
        f"{what} is not {word}, as {case.method.name} needs it: <u, {name} v> and <{name} u, v> differ by a relative "
        f"{gap:.1e} for random u and v"
    )


def _sign(case: Case, images: _Images) -> int | None:
    """Sign of all observed <v, A v>: 1 or -1, None if both occur, 0 if none is clear."""
    system = case.numbers.worst
    pairs = [(images.u, images.Au), (images.v, images.Av)]
    if case.x is not None and case.b is not None and case.r is not None:
        pairs.append((case.x, case.b - case.r))
        pairs.append((case.r, images.image(case.r)))
    signs = {s for u, Au in pairs if (s := _curvature(case, u, Au)[system])}
    if len(signs) < 2:
        start = images.u if case.r is None or not np.isfinite(case.r[system]).all() else case.r
        signs |= _of_diagonal(case) or _by_lanczos(case, start, system)
    return None if len(signs) == 2 else (signs.pop() if signs else 0)


def _curvature(case: Case, v: np.ndarray, Av: np.ndarray) -> np.ndarray:
    """The sign of <v, A v>, 0 if it may be rounding."""
    value, size = dots(v, Av).real, norms(v) * norms(Av)
    clear = np.isfinite(value) & (np.abs(value) > max(_CLEARLY, PRODUCTS * case.eps) * size)
    return np.where(clear, np.sign(value), 0).astype(int)


def _of_diagonal(case: Case) -> set[int]:
    """Both signs, if the diagonal of a known matrix has both; else no sign."""
    if case.matrix is None:
        return set()
    diagonal = np.asarray(case.matrix.diagonal()).real
    return {1, -1} if (diagonal > 0).any() and (diagonal < 0).any() else set()


def _by_lanczos(case: Case, start: np.ndarray, system: int) -> set[int]:
    """Clear signs of Lanczos' eigenvalue estimates, in at most as many products as the solve has made.

    Source: Saad, Numerical Methods for Large Eigenvalue Problems, 2nd ed., algorithm 6.5.
    """
    image = case.A_image
    steps = min(_STEPS, start.shape[1], case.products)
    norm = norms(start[system : system + 1])[0]
    if image is None or steps < 2 or not 0 < norm < np.inf:
        return set()
    rows = np.zeros_like(start)
    v, old, beta = start[system] / norm, np.zeros_like(start[system]), 0.0
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(steps):
        rows = rows.copy()
        rows[system] = v
        w = image(rows)[system] - beta * old
        alpha = float(dots(v[None], w[None])[0].real)
        w = w - alpha * v
        beta = float(norms(w[None])[0])
        if not np.isfinite([alpha, beta]).all():
            return set()
        alphas.append(alpha)
        if beta <= 100 * case.eps * max(map(abs, alphas)):
            break
        betas.append(beta)
        old, v = v, (w / beta).astype(start.dtype)
    ritz = scipy.linalg.eigvalsh_tridiagonal(np.array(alphas), np.array(betas[: len(alphas) - 1]))
    clear = max(_CLEARLY, 100 * case.eps) * np.max(np.abs(ritz))
    return {int(np.sign(value)) for value in (ritz[0], ritz[-1]) if abs(value) > clear}


def _of_preconditioner(case: Case, u: np.ndarray, v: np.ndarray, sign: int | None) -> list[Cause]:
    image = case.M_image
    if image is None:
        return []
    images = _Images(image, u, v, image(u), image(v))
    declared = isinstance(case.M, Preconditioner) and case.M.hermitian
    gap = None if declared else _asymmetry(case, images)
    if gap is not None and gap > max(_HARMLESS, REFUSED / np.sqrt(u.shape[1])):
        mend = "make one that is (preconditioner='ic' or 'amg')", "use biCG-stab(2) or GMRES with this one"
        return [Cause(_not_symmetric(case, "M", gap), mend)]
    pairs = [(u, images.Au), (v, images.Av)]
    if case.r is not None:
        pairs.append((case.r, image(case.r)))
    signs = {int(s) for w, Mw in pairs for s in _curvature(case, w, Mw)[case.numbers.failed] if s}
    if case.method.needs_definite and len(signs) < 2:
        return []
    if not case.method.needs_definite and -1 not in signs:
        return []
    word = "definite" if case.method.needs_definite else "positive definite"
    seen = f"the preconditioner is not {word}, as {case.method.name} needs it: <v, M v> is negative for some v"
    if signs == {-1} and sign == -1:
        return [Cause(seen, ("solve -A x = -b with the preconditioner made of -A, as A is negative definite",))]
    return [Cause(seen, ("make one that is", "leave it out"))]
