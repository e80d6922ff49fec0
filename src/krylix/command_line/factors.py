"""`krylix direct`: the libraries of sparse factors that are installed, timed on a matrix."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..solvers.factors.pattern import EntryPattern
from ..solvers.factors.protocol import Factors, FactorsRefused, Provider
from ..solvers.factors.sparse import PROVIDERS
from .activity import Activity
from .errors import UsageError
from .inspected import Inspected
from .storage import in_words


@dataclass(frozen=True)
class FactorTimes:
    """What one library does with a matrix; numbers are None where it is not installed or has no factors.

    Attributes:
        library: its name.
        package: what installs it.
        installed: is it there?
        analyse: seconds for the pattern; SuperLU orders within its factorisation.
        factor: seconds for the numbers.
        refactor: seconds for other numbers at the same places.
        solve: seconds for one right-hand side.
        numbers: stored in the factors.
        backward_error: of the solve, relative to |A| |x| + |b|, the largest of all rows.
        transposed_error: likewise of the transposed system.
        problem: why there are no factors, or what is wrong with them.
    """

    library: str
    package: str
    installed: bool
    analyse: float | None = None
    factor: float | None = None
    refactor: float | None = None
    solve: float | None = None
    numbers: int | None = None
    backward_error: float | None = None
    transposed_error: float | None = None
    problem: str | None = None


def measure(inspected: Inspected | None) -> list[FactorTimes]:
    """Time each library on a matrix; without one only tell which are there.

    Raises:
        UsageError: it is not square, or not finite.
    """
    if inspected is None:
        return [FactorTimes(one.name, one.package, one.is_installed()) for one in PROVIDERS.values()]
    A = _checked(inspected)
    found = []
    for done, one in enumerate(PROVIDERS.values()):
        if one.is_installed():
            with Activity(f"{one.name}: factorising", (done, len(PROVIDERS))), np.errstate(all="ignore"):
                _timed(one, sp.csc_array(2 * sp.eye_array(8, dtype=A.dtype)))  # imports, starts threads
                found.append(_timed(one, A))
        else:
            found.append(FactorTimes(one.name, one.package, False))
    return found


def _checked(inspected: Inspected) -> Any:
    A = sp.csc_array(inspected.A, dtype=np.result_type(inspected.A.dtype, np.float32))
    if A.shape[0] != A.shape[1] or not A.shape[0]:
        raise UsageError(f"{inspected.source}: factors need a square matrix that is not empty; this is {A.shape}.")
    if not np.isfinite(A.data).all():
        raise UsageError(f"{inspected.source}: an entry is not finite; expected finite numbers.")
    A.sum_duplicates()
    return A


def _timed(provider: Provider, A: Any) -> FactorTimes:
    times: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = work()
        times[name] = time.perf_counter() - begun
        return result

    known = FactorTimes(provider.name, provider.package, True)
    try:
        pattern = EntryPattern(A.indices, A.indptr)
        analysis = timed("analyse", lambda: provider.analyse(pattern, A))
        if provider.analyse_within_factor:
            del times["analyse"]
        factors: Factors = timed("factor", lambda: analysis.factor(A))
        b = np.random.default_rng(0).standard_normal(A.shape[0]).astype(A.dtype)
        limit = 1e3 * np.finfo(A.dtype).eps
        while True:
            x = timed("solve", lambda: factors.solve(b))
            errors = {
                "backward_error": backward_error(A, x, b),
                "transposed_error": backward_error(A.T, factors.solve_transposed(b), b),
            }
            if max(errors.values()) <= limit or not factors.refine():
                break
        other = sp.csc_array((1.5 * A.data, A.indices, A.indptr), A.shape)
        timed("refactor", lambda: analysis.refactor(other))
    except (FactorsRefused, MemoryError) as error:
        return FactorTimes(**{**asdict(known), **times, "problem": str(error) or type(error).__name__})
    problem = None if max(errors.values()) <= limit else "more than rounding errors: not used"
    return FactorTimes(**{**asdict(known), **times, **errors, "numbers": factors.nnz, "problem": problem})


def backward_error(A: Any, x: np.ndarray, b: np.ndarray) -> float:
    """The largest |b - A x| / (|A| |x| + |b|) of all rows; infinity where x is not finite."""
    if not np.isfinite(x).all():
        return float("inf")
    size = abs(A) @ np.abs(x) + np.abs(b)
    return float(np.max(np.abs(b - A @ x) / np.where(size > 0, size, 1)))


_FORMAT = "{:<9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10}  {}".format


def table(rows: Sequence[FactorTimes]) -> Iterator[str]:
    """Lines for people."""
    if all(row.factor is None and row.problem is None for row in rows):
        for row in rows:
            yield f"{row.library:<9} {'installed' if row.installed else f'not installed: pip install {row.package}'}"
        return
    yield _FORMAT(
        "library", "analyse s", "factor s", "refactor", "solve s", "memory", "error", "transposed", ""
    ).rstrip()
    for row in rows:
        yield _line(row)


def _line(row: FactorTimes) -> str:
    if not row.installed:
        return f"{row.library:<9} not installed: pip install {row.package}"
    times = [_number(seconds) for seconds in (row.analyse, row.factor, row.refactor, row.solve)]
    memory = "-" if row.numbers is None else in_words(8 * row.numbers)
    errors = ["-" if error is None else f"{error:.1e}" for error in (row.backward_error, row.transposed_error)]
    return _FORMAT(row.library, *times, memory, *errors, row.problem or "").rstrip()


def _number(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3g}"


def of_factors(inspected: Inspected | None, rows: Sequence[FactorTimes]) -> dict[str, Any]:
    """What `krylix direct --json` reports."""
    matrix = None if inspected is None else {"source": inspected.source, "shape": inspected.A.shape}
    return {"matrix": matrix, "rows": [asdict(row) for row in rows]}
