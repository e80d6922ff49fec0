"""ILU, IC and SSOR preconditioners: two triangular factors with a diagonal between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spilu

from ....sparse import Matrix, UnsupportedOperation
from ....sparse.analysis.symmetry import CHOSEN
from ....sparse.formats import from_csr
from ....sparse.operators.concrete import in_scipy
from ...diagonal import DiagonalOperator
from ..checks import MOST_STEPS, check_choice, check_integer, check_number
from ..operators import Preconditioner, Reordered, TripleProduct
from ..pipeline import Target, of_operator
from .factors import factored, factors_by_sweeps, incomplete_factors, triangle_solve
from .matching import Ordered, has_small_diagonal, is_poor
from .unit_diagonal import UnitDiagonalMatrix, check_finite_rows

_FILL = 10.0  # entries of the factors per entry of A, at most
_SWEEPS = 2  # Jacobi sweeps for each triangular solve
_BUILD_SWEEPS = 3  # fixed-point sweeps that make factors of traced values; Chow and Patel (2015) need 3 to 5
_BUILD_SWEEPS_CAPPED = 5  # likewise with `levels`, after which sweeps are exact


@of_operator()
def ilu(
    own: Matrix,
    target: Target,
    *,
    apply: str | None = None,
    sweeps: int = _SWEEPS,
    levels: int | None = None,
    build_sweeps: int | None = None,
    shift: float | str = "auto",
    drop_tolerance: float | None = None,
    fill_factor: float = _FILL,
    matching: bool | None = None,
) -> Preconditioner:
    """Incomplete LU factors in the pattern of A, ILU(0): for non-symmetric matrices and implicit time steps.

    For symmetric positive definite matrices CG with "jacobi", or multigrid, is mostly faster: these factors save two
    thirds of the iterations, which then cost three times as much. M is Hermitian if A is.

    If the values of A are known, the factors are exact. In compiled functions with A as an argument they are
    approximated by `build_sweeps` sweeps. Two are nearly as good as exact factors; matrices of finite elements may need
    five, and those of discontinuous elements exact factors.

    Args:
        apply: "sweeps" of Jacobi's method for both triangles, or "exact" solves, level by level (on NumPy by SuperLU).
            None: sweeps, but exact with `levels` or `drop_tolerance`. For convection that is much stronger than
            diffusion, exact solves need a third of the iterations or less. Sweeps that would grow, as for the squared
            Laplace operator, are damped (see `note`): there, too, exact solves are much stronger.
        sweeps: number of sweeps for each triangle.
        levels: drop entries of the factors between bands of this many levels of rows, so that exact solves take only
            this many steps; 16 is a good choice.
        build_sweeps: number of sweeps for values that are not known; None: 3, and 5 with `levels`.
        shift: multiply the diagonal by 1 + shift; "auto": only if pivots demand it (see `note`).
        drop_tolerance: drop entries of the factors below this fraction of their column, instead of those outside the
            pattern: by SciPy's `spilu` on the host, for one matrix with known values.
        fill_factor: largest number of entries of the factors with a drop tolerance, relative to that of A.
        matching: reorder and scale the rows of A so that the product of the diagonal is largest, and reduce the
            bandwidth; `apply` is then "exact" by default. None: only if the diagonal has zeros or small entries, and
            the factors of A in its given order make random vectors larger (see `note`). For matrices with known
            values.

    Raises:
        ValueError: a setting is invalid, no shift makes good pivots, or there is no matching.
        UnsupportedOperation: the entries of A are not available, or its rows are too full.

    Stores as many numbers as A has entries (the pattern is made symmetric). An application by sweeps costs as many
    products with A as there are sweeps, an exact one a product in as many steps as there are levels.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.3; Chow and Patel, SISC 37 (2015);
    Duff and Koster, SIMAX 22 (2001), for the matching.
    """
    apply = _checked_apply(apply, sweeps, levels, build_sweeps, shift)
    if matching not in (None, True, False):
        raise ValueError(f"matching={matching!r} was given; expected True, False, or None to decide by the values.")
    if drop_tolerance is not None:
        others = {"levels": levels, "build_sweeps": build_sweeps, "shift": shift, "matching": matching}
        given = [name for name, value in others.items() if value is not None and (name, value) != ("shift", "auto")]
        if given:
            raise ValueError(
                f"ilu was asked for a drop_tolerance, and for {', '.join(given)}, which SciPy's spilu does not have; "
                "expected one of these."
            )
        return _ilu_with_dropping(own, target, sweeps if apply == "sweeps" else None, drop_tolerance, fill_factor)
    if fill_factor != _FILL:
        raise ValueError(f"fill_factor={fill_factor!r} was given; it takes a drop_tolerance, too.")
    make = partial(incomplete, "ilu", sweeps=sweeps, levels=levels, build=build_sweeps, shift=shift)
    if matching:
        return _with_matched_rows(own, target, apply, make)
    as_given = UnitDiagonalMatrix.of(own, target)
    if matching is None and has_small_diagonal(own) and is_poor(as_given, 0.0 if shift == "auto" else float(shift)):
        with suppress(ValueError):  # There is no better order.
            return _with_matched_rows(own, target, apply, make)
    return make(as_given, apply)


@of_operator()
def serving_ilu(own: Matrix, target: Target) -> Preconditioner:
    """`ilu` with useful factors, in the given order or with matched rows; ValueError if there is no matching."""
    make, as_given = partial(incomplete, "ilu"), UnitDiagonalMatrix.of(own, target)
    if has_small_diagonal(own) and is_poor(as_given, 0.0):
        return _with_matched_rows(own, target, None, make)
    return make(as_given, None)


@of_operator()
def ic(
    own: Matrix,
    target: Target,
    *,
    apply: str | None = None,
    sweeps: int = _SWEEPS,
    levels: int | None = None,
    build_sweeps: int | None = None,
    shift: float | str = "auto",
) -> Preconditioner:
    """Incomplete Cholesky factors in the pattern of A, IC(0): for Hermitian positive definite matrices.

    M is Hermitian positive definite with any settings. If the values are not known, only the lower triangle of A is
    read, so that M is Hermitian there, too. For settings and costs see `ilu`. On most problems CG with "jacobi", or
    multigrid, is faster; these factors pay if a product or a scalar product is expensive.

    Raises:
        ValueError: A is known not to be Hermitian, its diagonal is not positive, no shift makes good pivots, or a
            setting is invalid.
        UnsupportedOperation: the entries of A are not available, or its rows are too full.

    Stores as many numbers as A has entries; an application by sweeps costs the multiplications of about 2 products.

    Source: Meijerink and van der Vorst, Math. Comp. 31 (1977); Saad, 2nd ed., section 10.3.
    """
    apply = _checked_apply(apply, sweeps, levels, build_sweeps, shift)
    A = UnitDiagonalMatrix.of(own, target, lower_only=True)
    if A.hermitian is not True:
        raise ValueError("The matrix is not Hermitian; expected a Hermitian positive definite one for 'ic'. Use 'ilu'.")
    wrong = np.argwhere((A.units.real <= 0) | (A.diagonal() == 0)) if A.known else np.empty((0, 1))
    if len(wrong):
        raise ValueError(
            f"The diagonal is not positive in row {wrong[0, -1]}; expected a positive definite matrix for 'ic'. Use "
            "'ilu'."
        )
    return incomplete("ic", A, apply, sweeps=sweeps, levels=levels, build=build_sweeps, shift=shift)


@of_operator()
def ssor(
    own: Matrix, target: Target, *, omega: float = 1.0, apply: str | None = None, sweeps: int = 2
) -> Preconditioner:
    """Symmetric relaxation, `M^-1 = (D/w + L) (D/w)^-1 (D/w + U) / (2 - w)`, of A = L + D + U.

    Nothing is factorised, so that the set-up takes almost no time, also in compiled functions. M is Hermitian if A is,
    and then positive definite if the diagonal is positive. It saves somewhat fewer iterations than "ilu".

    Args:
        omega: the relaxation w, between 0 and 2; 1 is symmetric Gauss-Seidel.
        apply: "sweeps" of Jacobi's method for both triangles (None too), or "exact" solves; see `ilu`.
        sweeps: number of sweeps for each triangle.

    A zero on the diagonal is replaced by the sum of |a_ij| in the row, or by 1 in a row of zeros.

    Raises:
        ValueError: omega is not between 0 and 2, or another setting is invalid.
        UnsupportedOperation: the entries of A are not available.

    Stores as many numbers as A has entries. An application by sweeps costs as many products with A as there are sweeps.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.2.
    """
    exact = _checked_apply(apply, sweeps) == "exact"
    if check_number("omega", omega, 0) >= 2:
        raise ValueError(f"omega={omega!r} was given; expected a number between 0 and 2.")
    A = UnitDiagonalMatrix.of(own, target)
    pivots = A.host.full_like(A.units, 1 / omega)
    M, note = factored(A, A.values, pivots, None if exact else sweeps, scale=2 - omega)
    return _preconditioner(M, "ssor", A, {"omega": float(omega), **_settings_of(None if exact else sweeps)}, note)


def incomplete(
    kind: str,
    A: UnitDiagonalMatrix,
    apply: str | None,
    *,
    sweeps: int = _SWEEPS,
    levels: int | None = None,
    build: int | None = None,
    shift: float | str = "auto",
) -> Preconditioner:
    """Preconditioner "ilu" or "ic" of zero-fill factors, with the settings of `ilu`."""
    if levels is not None:
        A = A.capped(levels)
    exact = apply == "exact" or (apply is None and levels is not None)
    settings = _settings_of(None if exact else sweeps) | ({} if levels is None else {"levels": levels})
    shifted = None
    if A.known:
        factors, pivots, used = incomplete_factors(A, shift, kind == "ic")
        if used:
            shifted = f"diagonal multiplied by {1 + used:g}" + (
                " because pivots demanded it" if shift == "auto" else ""
            )
    else:
        count = build or (_BUILD_SWEEPS if levels is None else max(min(levels - 1, _BUILD_SWEEPS_CAPPED), 1))
        settings |= {"build_sweeps": count}
        factors, pivots = factors_by_sweeps(A.shifted(0.0 if shift == "auto" else float(shift)), count)
    M, damped = factored(A, factors, pivots, None if exact else sweeps)
    return _preconditioner(M, kind, A, settings, "; ".join(filter(None, (shifted, damped))) or None)


def _with_matched_rows(
    own: Matrix, target: Target, apply: str | None, make: Callable[[UnitDiagonalMatrix, str | None], Preconditioner]
) -> Preconditioner:
    # Solves are exact by default, because sweeps need a dominant diagonal.
    ordered = Ordered.of(own)
    return ordered.restored(make(UnitDiagonalMatrix.of(ordered.matrix, target), apply or "exact"), target)


def _ilu_with_dropping(
    own: Matrix, target: Target, sweeps: int | None, tolerance: float, fill_factor: float
) -> Preconditioner:
    """ILU with a drop tolerance and row exchanges.

    Source: Li and Shao, A supernodal approach to incomplete LU factorization with partial pivoting, TOMS 37 (2011).
    """
    check_number("fill_factor", fill_factor, 0)
    if tolerance != 0:
        check_number("drop_tolerance", tolerance, 0)
    A = in_scipy(own)
    if A is None or isinstance(A, tuple):
        got = "of a matrix whose values are not known yet" if A is None else f"of {len(A)} systems"
        raise UnsupportedOperation(
            f"A drop tolerance was given for a factorisation {got}; expected one matrix whose values are known, "
            "because the pattern of the factors depends on them. Leave drop_tolerance out for the pattern of A."
        )
    check_finite_rows(A.data, np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)))  # SuperLU would not terminate.
    try:
        factors = spilu(sp.csc_array(A), drop_tol=float(tolerance), fill_factor=float(fill_factor))
    except RuntimeError as error:
        raise ValueError(
            "SciPy's spilu found the matrix singular, or its factors too large. Use 'jacobi', or shift A's diagonal."
        ) from error
    upper = sp.csr_array(factors.U)
    pivots = upper.diagonal()
    if not (pivots != 0).all() or not np.isfinite(upper.data).all():
        raise ValueError("SciPy's spilu made a pivot of zero: the matrix is singular. Use 'jacobi'.")
    unit = (sp.csr_array(sp.tril(factors.L, -1)), sp.csr_array(sp.diags_array(1 / pivots) @ sp.triu(upper, 1)))
    triangles = [from_csr(target.bk, S.astype(own.dtype), prune=False, like=target.like) for S in unit]
    inverse = DiagonalOperator(target.bk, target.array((1 / pivots)[None]))
    inner = TripleProduct(triangle_solve(triangles[1], sweeps), inverse, triangle_solve(triangles[0], sweeps))
    v = np.random.default_rng(3).standard_normal(A.shape[0]).astype(upper.dtype)
    forward, backward = factors.solve(v), factors.solve(v, "H")
    seems_hermitian = np.linalg.norm(forward - backward) <= CHOSEN * np.linalg.norm(forward)
    entries = sum(S.nnz for S in triangles)
    settings = {"drop_tolerance": tolerance, "fill_factor": fill_factor, **_settings_of(sweeps)}
    M = Reordered.of(inner, np.argsort(factors.perm_r), np.argsort(factors.perm_c), target.like)
    return Preconditioner(
        M, "ilu", None if seems_hermitian else False,
        memory=entries + len(pivots), work=entries * (sweeps or 1) + len(pivots), settings=tuple(settings.items()),
    )  # fmt: skip


def _settings_of(sweeps: int | None) -> dict[str, Any]:
    return {"apply": "exact"} if sweeps is None else {"apply": "sweeps", "sweeps": sweeps}


def _preconditioner(
    M: TripleProduct, kind: str, A: UnitDiagonalMatrix, settings: dict[str, Any], note: str | None
) -> Preconditioner:
    entries, n = (len(A.pattern.rows) - A.pattern.n) * A.systems, A.pattern.n * A.systems
    return Preconditioner(
        M, kind, A.hermitian, memory=entries + n, work=entries * settings.get("sweeps", 1) + n,
        settings=tuple(settings.items()), note=note,
    )  # fmt: skip


def _checked_apply(
    apply: str | None,
    sweeps: int,
    levels: int | None = None,
    build: int | None = None,
    shift: float | str = "auto",
) -> str | None:
    for name, value in (("levels", levels), ("build_sweeps", build)):
        if value is not None:
            check_integer(name, value, 1)
    if shift != "auto" and (isinstance(shift, str) or shift != 0):
        check_number("shift", shift, 0)
    check_integer("sweeps", sweeps, 1, MOST_STEPS)
    return None if apply is None else check_choice("apply", apply, ("sweeps", "exact"))
