"""Diagnosis of a failed solve: its causes, looked for when a failure has happened or its message is read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...backends import Array, Backend, get_backend
from ...sparse import Matrix, Operator
from ...sparse.fingerprint import fingerprint
from ...sparse.operators.concrete import is_known
from ..methods.method import Method
from ..preconditioners import Preconditioner
from ..read.system import System
from ..run.null_part import NullPart
from ..run.outcome import Outcome, Status
from .causes import Case, Image, affine_preconditioner, norms, not_finite, too_few_iterations, wrong_symmetry
from .no_solution import singular
from .numbers import EndState
from .words import Cause

_QUESTIONS = (not_finite, affine_preconditioner, wrong_symmetry, singular, too_few_iterations)
"""Asked in this order, up to the first answer that explains the failure by itself."""


@dataclass(frozen=True, eq=False)
class Look:
    """Diagnosis of a solve; nothing is computed before it is called."""

    method: Method
    case: Callable[[EndState], Case | None]  # the failed solve; None where nothing can be examined
    known: tuple[Callable[[], Operator] | None, ...] = ()  # make A and M on the host, for a compiled function
    note: str | None = None  # a remark of the library that the method calls

    @classmethod
    def at(
        cls,
        system: System,
        method: Method,
        M: Operator | None,
        outcome: Outcome,
        later: bool = False,
        both: bool = False,
    ) -> Look:
        """Diagnosis of a finished solve, or of one in a compiled function.

        Args:
            M: its preconditioner or factors, or None.
            later: may the arrays have been written to since?
            both: are known null vectors of A those of the transpose, too?
        """
        note = getattr(M, "note", None) if method.holds_external else None
        M = M if isinstance(M, Preconditioner) else None
        if not (system.compiled or system.bk.compiled(outcome.status)):
            return cls(method, lambda end: _case(system, method, M, outcome, later, both, end), note=note)
        known_A = None if system.given is not None else _on_host(system.A)
        known_M = None if M is None else _on_host(M)
        return cls(method, lambda end: _known_case(method, known_A, known_M, end), (known_A, known_M))

    @property
    def name(self) -> str | None:
        """Name of a diagnosis in compiled functions, the same in all processes; None if there is none."""
        try:
            return fingerprint(self.method, *(None if make is None else make() for make in self.known))
        except Exception:  # no solve fails because its name cannot be made
            return None

    def __call__(self, end: EndState) -> tuple[Cause, ...] | None:
        """Find the causes for an end state in NumPy; None if nothing could be examined.

        Raises nothing. Cost: at most as many products as the solve has made, or a few; of a known matrix also factors,
        where they take less than a second.
        """
        if np.any(end.status == int(Status.TIME_LIMIT)):  # more time was not wanted
            return None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                case = self.case(EndState(*(a.reshape(-1) for a in end.arrays())))
                causes = None if case is None else _causes(case)
                return causes if causes is None or self.note is None else (*causes, Cause(self.note, settles=False))
            except Exception:  # of a user's function, say: the failure itself is reported without a cause
                return None


def _causes(case: Case) -> tuple[Cause, ...]:
    causes: list[Cause] = []
    for question in _QUESTIONS:
        causes += question(case)
        if any(cause.settles for cause in causes):
            break
    return tuple(causes)


def _case(
    system: System, method: Method, M: Operator | None, outcome: Outcome, later: bool, both: bool, end: EndState
) -> Case | None:
    bk, given, several = system.bk, system.given, system.several and len(system.limits) > 1
    x, r = (bk.to_numpy(bk.flat(a[-1] if several else a)) for a in (outcome.x, outcome.residual))
    products = bk.to_numpy(outcome.products[-1] if several else outcome.products)
    b = bk.to_numpy(NullPart.rest_of(bk, bk.flat(system.b), system.null, both))
    case = Case(
        method, end, system.A, system.A if given is None else given.A, _image(bk, system.A, system.b),
        M=M, M_image=None if M is None else _image(bk, M, system.b), b=b, x=x, r=r,
        right=(b, system.layout) if given is None else (bk.to_numpy(given.b), given.layout),
        x0=None if system.x0 is None else bk.to_numpy(bk.flat(system.x0)), layout=system.layout,
        null=system.null is not None, both=system.null is not None and both, products=int(np.max(products, initial=0)),
    )  # fmt: skip
    if later:  # the arrays may have been overwritten, and the residual is then another one
        change, size = norms(b - case.A_image(x) - r), norms(b) + norms(r)
        if np.any(change > np.sqrt(case.eps) * size + end.null_part):  # factors subtract that part, too
            return None
    return case


def _known_case(
    method: Method, known_A: Callable[[], Operator] | None, known_M: Callable[[], Operator] | None, end: EndState
) -> Case | None:
    if known_A is None:
        return None
    host, A, M = get_backend("numpy"), known_A(), None if known_M is None else known_M()
    if any(operator is not None and operator.systems not in (None, end.status.size) for operator in (A, M)):
        return None  # in a function that was vectorised since
    M_image = None if M is None else _image(host, M, None)
    products = int(np.max(end.iterations, initial=0))
    return Case(method, end, A, A, _image(host, A, None), M=M, M_image=M_image, products=products)


def _on_host(A: Operator) -> Callable[[], Operator] | None:
    """Function that makes A on NumPy arrays, for values that are known while tracing."""
    if isinstance(A, Preconditioner):
        if A.kind == "user's function":
            return None
    elif not (isinstance(A, Matrix) and is_known(A)):
        return None
    try:
        arrays, make = A.for_host()
        if arrays and A.bk.compiled(*arrays):
            return None
        values = [A.bk.to_numpy(array) for array in arrays]
    except Exception:  # no solve fails because its diagnosis cannot be prepared
        return None
    return lambda: make(values)


def _image(bk: Backend, A: Operator, like: Array | None) -> Image:
    def image(rows: np.ndarray) -> np.ndarray:
        with bk.errstate():
            # A copy, because a function may use the same memory again.
            return np.array(bk.to_numpy(A.apply(bk.asarray(np.ascontiguousarray(rows), like=like))))

    return image
