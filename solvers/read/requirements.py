"""Requirements of methods on A and M, checked before anything is computed."""

from __future__ import annotations

from typing import Any

from ...sparse import NonlinearError, Operator, UnsupportedOperation
from ...sparse.analysis.analysis import analysis_of, not_finite
from ...sparse.analysis.symmetry import REFUSED
from ..methods.method import Method
from ..preconditioners import Preconditioner
from ..preconditioners.pipeline import far_from_hermitian, far_from_symmetric
from .system import System


def refuse_preconditioner(method: Method, M: Any) -> None:
    """Raises ValueError for a preconditioner where the method takes none."""
    if M is not None and not method.takes_preconditioner:
        raise ValueError(f"{method.name} takes no preconditioner; got {M!r}. Leave it out.")


def check_requirements(system: System, method: Method, M: Operator | None) -> None:
    """Refuse systems that the method cannot solve, as far as is known now.

    Raises:
        TypeError, ValueError, UnsupportedOperation: got / expected / do this instead.
    """
    if not method.takes_complex and system.A.dtype.kind == "c":
        raise TypeError(
            f"{method.name} takes real systems only; this one is {system.A.dtype}. Use biCG-stab(2) or scipy-GMres."
        )
    systems = system.layout.systems
    if M is not None and M.systems not in (None, systems):
        raise ValueError(
            f"The preconditioner or factorisation was made for {M.systems} systems with a matrix each; got {systems} "
            "right-hand sides. Make it (prepare) for arrays of their shape, or solve for them in parts."
        )
    method.check(system.A, M)
    if method.needs_transpose:
        _check_transpose(system.A, method)
        if M is not None:
            _check_transpose(M, method)
    if method.needs_symmetric:
        _check_symmetric(system.A, method, M)
    if not method.needs_hermitian:
        return
    relative = analysis_of(system.A).asymmetry
    if relative is not None and relative > REFUSED:
        word, adjoint = (
            ("symmetric", "transpose") if system.A.dtype.kind != "c" else ("Hermitian", "conjugate transpose")
        )
        raise ValueError(
            f"{method.name} needs a {word} matrix; this one differs from its {adjoint} by a relative {relative:.1e}. "
            "Use biCG-stab(2), scipy-GMres or scipy-direct."
        )
    if M is not None and isinstance(M, Preconditioner):
        refuse_asymmetric(method, M)


def _check_symmetric(A: Operator, method: Method, M: Operator | None) -> None:
    """Refuse A and M that are not equal to their transposes, without conjugation."""
    relative = analysis_of(A).asymmetry_without_conjugation
    if relative is not None and relative > REFUSED:
        hermitian = A.dtype.kind == "c" and (analysis_of(A).asymmetry or 0) <= REFUSED
        instead = "CG or MINRES, because it is Hermitian" if hermitian else "biCG-stab(2), scipy-GMres or scipy-direct"
        raise ValueError(
            f"{method.name} needs a symmetric matrix (A^T = A, without conjugation); this one differs from its "
            f"transpose by a relative {relative:.1e}. Use {instead}."
        )
    if not isinstance(M, Preconditioner):
        return
    if M.dtype.kind != "c":
        refuse_asymmetric(method, M)
        return
    relative = far_from_symmetric(M)
    if relative is not None:
        raise ValueError(
            f"{method.name} needs a symmetric preconditioner (M^T = M, without conjugation); {M!r} differs from its "
            f"transpose by a relative {relative:.1e}. Use biCG-stab(2) or GMRES with it, or 'jacobi' or 'ssor'."
        )


def refuse_asymmetric(method: Method, M: Preconditioner) -> None:
    """Raise ValueError for a non-symmetric preconditioner with a method that needs symmetry."""
    relative = far_from_hermitian(M)
    if M.hermitian is not False and relative is None:
        return
    word = "Hermitian" if M.dtype.kind == "c" else "symmetric"
    how = " is not" if relative is None else f" differs from its transpose by a relative {relative:.1e}"
    factors = ", as incomplete factors of spilu mostly do" if M.kind == "SuperLU" else ""
    raise ValueError(
        f"{method.name} needs a {word} preconditioner; {M!r}{how}{factors}. Use biCG-stab(2) or GMRES with it, or a "
        "preconditioner that is, such as 'ic' or 'amg'."
    )


def refuse_unsuited(system: System, method: Method, M: Operator | None) -> None:
    """`check_requirements` for an automatically chosen method.

    Raises:
        UnsupportedOperation: it cannot solve this.
        NonlinearError: the function is not linear.
    """
    try:
        check_requirements(system, method, M)
    except NonlinearError:
        raise
    except (TypeError, ValueError) as error:
        raise UnsupportedOperation(str(error)) from error


def refuse_infinite_entries(system: System, on_failure: str) -> None:
    """Raises ValueError for a matrix with NaN or infinity, where it is known and failures raise.

    With another policy the solve ends as diverged, as in a compiled function whose matrix is not known.
    """
    if on_failure != "raise":
        return
    A = system.A if system.given is None else system.given.A
    wrong = not_finite(A.without_offset)
    if wrong is not None:
        raise ValueError(
            f"A has no solution in finite numbers: {wrong}. Look for the division or the overflow that made it; with "
            "on_failure='status' the solve ends as diverged."
        )


def _check_transpose(operator: Operator, method: Method) -> None:
    try:
        operator.transpose()
    except TypeError as error:
        raise UnsupportedOperation(f"{method.name} needs products with the transpose. {error}") from error
