"""Decision table of the automatic choice: facts of a system, and the method that solves it.

The first row that holds decides. docs/choosing.md shows it; the tests run over it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .facts import BAND, BAND_TO_COMPILE, Facts

SMALL = 1000  # unknowns up to which a dense factorisation is the quickest and safest way
FEW = 300  # unknowns of a sparse matrix whose factors take less time than to look at it
MANY_SOLVES = 2e9  # work of factors that are worth it for many solves, a quarter of a second
ONE_SOLVE = 3000  # work per stored entry of factors that take no longer than a good iteration
IN_EACH_RUN = 1e10  # likewise of factors in each run of a program, beside a hierarchy that takes ten seconds to compile
AFFORDED = 3e10  # work of factors that are worth it where no iteration is known to be safe, some seconds


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        known: the condition, in words.
        holds: the condition as a function.
        method: its name.
        preconditioner: the kind to take where the user gives none; "auto" has a table of its own.
        why: in words.
    """

    known: str
    holds: Callable[[Facts], bool]
    method: str
    preconditioner: str | None
    why: str


def _factors_at_most(facts: Facts, work: float) -> bool:
    if facts.preconditioned or not facts.factors_on_host:
        return False
    few = facts.entries is not None and facts.unknowns <= FEW and work > 0
    return few or facts.factors_take_at_most(work)


def _cheap(facts: Facts) -> bool:
    if facts.entries is None or (facts.is_singular and facts.symmetric):
        return False
    most = ONE_SOLVE * facts.entries
    return _factors_at_most(facts, max(most, IN_EACH_RUN) if facts.problem.compiled and facts.in_each_run else most)


ROWS = (
    Row(
        f"a dense matrix of at most {SMALL} unknowns",
        lambda f: f.is_dense and f.unknowns <= SMALL and not f.preconditioned,
        "direct", None, "factors of LAPACK cost no more than an iteration, and always work",
    ),
    Row(
        "values known, on a grid, and a sum of matrices along its axes",
        lambda f: f.fast is not None,
        "fast-direct", None, "transforms along the axes solve it at once",
    ),
    Row(
        f"`prepare`, on the host: factors take at most {MANY_SOLVES:.0e} units of work",
        lambda f: f.many and _factors_at_most(f, MANY_SOLVES),
        "scipy-direct", None, "sparse factors are made once and serve many solves",
    ),
    Row(
        "symmetric, its diagonal of one sign and at least 1.02 times the rest of its row everywhere",
        lambda f: f.is_easy,
        "CG", "auto", "scaled by its dominant diagonal, A needs few iterations",
    ),
    Row(
        f"not on the host: a matrix of at most {BAND} diagonals beside the main one in a narrow order, of "
        f"{BAND_TO_COMPILE} if its values are not known",
        lambda f: f.banded,
        "banded-direct", None, "cyclic reduction solves it at once",
    ),
    Row(
        f"in a compiled function: a known sparse matrix of at most {SMALL} unknowns that multigrid does not suit",
        lambda f: f.while_compiling and f.unknowns <= SMALL and not f.preconditioned,
        "direct", None, "factors of LAPACK are made once, while the function is compiled, and always work",
    ),
    Row(
        f"on the host: factors take at most {ONE_SOLVE} units of work per stored entry, in each run of a program "
        f"{IN_EACH_RUN:.0e}, or {FEW} unknowns, and A is not seen to be singular and symmetric",
        _cheap,
        "scipy-direct", None, "sparse factors cost no more than an iteration, and always work",
    ),
    Row(
        "a matrix, symmetric, its diagonal of one sign, and not seen to be indefinite",
        lambda f: f.shows_entries and f.symmetric and f.maybe_definite,
        "CG", "auto", "conjugate gradients suit definite matrices",
    ),
    Row(
        f"on the host: any other matrix whose factors take at most {AFFORDED:.0e} units of work",
        lambda f: _factors_at_most(f, AFFORDED),
        "scipy-direct", None, "no iteration is known to be safe for A",
    ),
    Row(
        "a matrix, symmetric",
        lambda f: f.shows_entries and f.symmetric and not f.preconditioned,
        "MINRES", None, "MINRES takes indefinite matrices",
    ),
    Row(
        "a function without a matrix that is symmetric for random vectors",
        lambda f: f.matrix is None and f.symmetric,
        "CG", None, "the function shows its products only",
    ),
    Row(
        "a matrix, complex, and symmetric without conjugation",
        lambda f: f.complex_symmetric and not f.preconditioned,
        "COCR", "auto", "with one product in each step, COCR takes half the time of methods for general matrices",
    ),
    Row(
        "a matrix",
        lambda f: f.shows_entries,
        "biCG-stab(2)", "auto", "biCG-stab(2) takes any matrix, but needs a preconditioner",
    ),
    Row("nothing of that", lambda f: True, "biCG-stab(2)", None, "A shows its products only"),
)  # fmt: skip
"""In the order in which they are asked."""
