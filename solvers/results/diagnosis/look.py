"""Run the diagnosis: eagerly on everything, in a compiled function on what is known on the host."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....backends import Array, Backend, get_backend
from ....sparse import Matrix, Operator
from ....sparse.fingerprint import fingerprint
from ....sparse.operators.concrete import is_known
from ...methods.method import Method
from ...preconditioners import Preconditioner
from ...read.system import System
from ...run.null_part import NullPart
from ...run.outcome import Outcome, Status
from ..advice import Cause
from .case import Case, EndState, Image, norms
from .constant_part import affine_preconditioner
from .inputs import not_finite_cause
from .progress import too_few_iterations
from .singular import singular
from .symmetry import wrong_symmetry

_QUESTIONS: tuple[Callable[[Case], list[Cause]], ...] = (
    not_finite_cause, affine_preconditioner, wrong_symmetry, singular, too_few_iterations,
)  # fmt: skip
"""In this order; the first that has an answer which settles the matter is the last that is asked."""


@dataclass(frozen=True, eq=False)
class Look:
    """Diagnosis of a solve; nothing is computed before it is called.

    Attributes:
        system: what was solved; None in a compiled function, which may keep no arrays.
        method: that solved it.
        M: its preconditioner, or None.
        outcome: what it found, or None.
        A, known_M: functions that make them on the host, if known in a compiled function.
        dtype: their working dtype.
        later: may the arrays have been written to since?
        both: are known null vectors of A those of the transpose, too?
        note: what the library that the method calls has said.
    """

    system: System | None
    method: Method
    M: Operator | None = None
    outcome: Outcome | None = None
    A: Callable[[], Operator] | None = None
    known_M: Callable[[], Operator] | None = None
    dtype: np.dtype | None = None
    later: bool = False
    note: str | None = None
    both: bool = False

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
        """Diagnosis of a finished solve, or of one in a compiled function."""
        note = getattr(M, "note", None) if method.holds_external else None
        M = M if isinstance(M, Preconditioner) else None  # factors are none
        if not (system.compiled or system.bk.compiled(outcome.status)):
            return cls(system, method, M, outcome, later=later, note=note, both=both)
        A = None if system.given is not None else _on_host(system.A)
        return cls(None, method, A=A, known_M=None if M is None else _on_host(M), dtype=system.A.dtype)

    @property
    def name(self) -> str | None:
        """See `LookForCauses`; of a look in a compiled function."""
        try:
            known = [None if make is None else make() for make in (self.A, self.known_M)]
        except Exception:  # as when it is looked at: no solve fails by that
            return None
        return fingerprint(self.method, self.dtype, *known)

    def __call__(self, *numbers: np.ndarray) -> tuple[Cause, ...] | None:
        """Find the causes for the end states of the systems; None if nothing could be examined.

        Raises nothing. Cost: at most as many products as the solve has made, or a few; of a known matrix also factors,
        where they take less than a second.
        """
        if np.any(numbers[0] == int(Status.TIME_LIMIT)):  # which has taken its time
            return None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                case = self._case(EndState(*(np.asarray(a).reshape(-1) for a in numbers)))
                found = None if case is None else _asked(case)
                return found if found is None or self.note is None else (*found, Cause(self.note, settles=False))
            except Exception:  # of a user's function, or in what is only looked at: the failure itself is told
                return None

    def _case(self, numbers: EndState) -> Case | None:
        if self.system is None or self.outcome is None:
            return self._known_case(numbers)
        system, outcome = self.system, self.outcome
        bk, several = system.bk, system.several and len(system.limits) > 1
        x, r = (bk.to_numpy(bk.flat(a[-1] if several else a)) for a in (outcome.x, outcome.residual))
        made = bk.to_numpy(outcome.products[-1] if several else outcome.products)
        given = system.given
        b = bk.to_numpy(NullPart.rest_of(bk, bk.flat(system.b), system.null, self.both))
        right = (b, system.layout) if given is None else (bk.to_numpy(given.b), given.layout)
        case = Case(
            self.method, numbers, system.A.dtype, system.A, system.A if given is None else given.A,
            A_image=_image(bk, system.A, system.b), M=self.M,
            M_image=None if self.M is None else _image(bk, self.M, system.b),
            b=b, x=x, r=r, right=right, x0=None if system.x0 is None else bk.to_numpy(bk.flat(system.x0)),
            layout=system.layout, null=system.null is not None,
            both=system.null is not None and self.both, products=int(np.max(made, initial=0)),
        )  # fmt: skip
        return None if self.later and _has_changed(case) else case

    def _known_case(self, numbers: EndState) -> Case | None:
        if self.A is None or self.dtype is None:
            return None
        host, A, M = get_backend("numpy"), self.A(), None if self.known_M is None else self.known_M()
        if any(one is not None and one.systems not in (None, numbers.status.size) for one in (A, M)):
            return None  # in a function that was vectorised since
        return Case(
            self.method, numbers, self.dtype, A, A, A_image=_image(host, A, None),
            M_image=None if M is None else _image(host, M, None), M=M, products=int(np.max(numbers.steps, initial=0)),
        )  # fmt: skip


def _asked(case: Case) -> tuple[Cause, ...]:
    found: list[Cause] = []
    for question in _QUESTIONS:
        found += question(case)
        if any(cause.settles for cause in found):
            break
    return tuple(found)


def _on_host(A: Operator) -> Callable[[], Operator] | None:
    """Function that makes A on NumPy arrays, for values that are known while tracing."""
    inner = A.inner if isinstance(A, Preconditioner) else A
    if isinstance(A, Preconditioner) and A.kind == "user's function":
        return None
    if not isinstance(A, Preconditioner) and not (isinstance(inner, Matrix) and is_known(inner)):
        return None
    try:
        arrays, make = A.for_host()
        if arrays and A.bk.compiled(*arrays):
            return None
        values = [A.bk.to_numpy(array) for array in arrays]
    except Exception:  # what is only looked at after a failure fails no solve
        return None
    return lambda: make(values)


def _image(bk: Backend, A: Operator, like: Array | None) -> Image:
    """Products with A as the solve makes them: compiled where it was."""
    made: list[Callable[[Array], Array]] = []

    def image(rows: np.ndarray) -> np.ndarray:
        with bk.errstate():
            if not made:
                made.append(_product(bk, A))
            found = made[0](bk.asarray(np.ascontiguousarray(rows), like=like))
        return np.array(bk.to_numpy(found))  # a function may use the same memory again

    return image


def _product(bk: Backend, A: Operator) -> Callable[[Array], Array]:
    if not bk.compiles_solves:
        return A.apply
    container = A.as_container()
    if not container.is_container:
        return A.apply
    compiled = bk.compile_if_faster(_apply, ())
    return lambda rows: compiled(container, rows)


def _apply(A: Operator, x: Array) -> Array:
    return A.apply(x)


def _has_changed(case: Case) -> bool:
    """Has the residual changed, because the arrays were overwritten?"""
    if case.A_image is None or case.x is None or case.b is None or case.r is None:
        return False
    change, size = norms(case.b - case.A_image(case.x) - case.r), norms(case.b) + norms(case.r)
    taken_off = case.numbers.null_part  # also by factors
    return bool(np.any(change > np.sqrt(case.eps) * size + taken_off))
