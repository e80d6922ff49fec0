"""Factors of a sparse matrix by the first library that is installed, suits it and passes the check; SuperLU last."""

from __future__ import annotations

import logging
from typing import Any

from .....sparse.formats.entries.scipy_form import csc_array
from ..pivot_order import LEAST, factors_of, is_stable
from .analyses import KnownPattern, known_pattern
from .by_cholmod import Cholmod
from .by_pardiso import Pardiso
from .by_rslab import Rslab
from .by_superlu import SuperLU
from .protocol import Factors, FactorsRefused, PatternRefused, Provider

SUPERLU = SuperLU()
PROVIDERS: dict[str, Provider] = {one.name: one for one in (Pardiso(), Cholmod(), Rslab(), SUPERLU)}
"""Name -> library of sparse factors, in the order in which they are tried."""

log = logging.getLogger("krylix")


def providers_of(name: str | None) -> tuple[Provider, ...]:
    """What is tried, in order: the installed ones, or the one of this name.

    Raises:
        ValueError: there is none of this name, or its package is not installed.
    """
    if name is None:
        return tuple(one for one in PROVIDERS.values() if one.is_installed())
    found = {key.lower(): one for key, one in PROVIDERS.items()}.get(name.strip().lower())
    if found is None:
        raise ValueError(f"No library of sparse factors is called {name!r}. There are {', '.join(PROVIDERS)}.")
    if not found.is_installed():
        raise ValueError(f"{found.name} is not installed. Install {found.package}, or leave the name out.")
    return (found,)


def sparse_factors(A: Any, providers: tuple[Provider, ...] = (SUPERLU,)) -> tuple[Any, str]:
    """Factors of a square `csc_array`, and what made them, in words.

    Raises:
        RuntimeError: a pivot is zero whatever row is taken, as SuperLU says.
    """
    alone = len(providers) == 1
    if A.shape[0] < LEAST and (not alone or providers[0] is SUPERLU):  # analyses take longer than they save
        return factors_of(A), SUPERLU.name
    if not A.has_canonical_format:
        A = A.copy()
        A.sum_duplicates()
    known, refusals = known_pattern(A.indices, A.indptr), []
    A = csc_array(A.data, known.pattern.indices, known.pattern.indptr, A.shape)
    for provider in (one for one in providers if one is not SUPERLU):
        try:
            return _with_pattern(known, _checked(known, provider, A)), provider.name
        except FactorsRefused as error:
            refusals.append(f"{provider.name}: {error}")
            log.info("%s does not factorise %d x %d: %s", provider.name, *A.shape, error)
    try:
        found = _made(known, SUPERLU, A)
    except FactorsRefused as error:
        raise RuntimeError(str(error)) from error
    by = SUPERLU.name if not refusals else f"{SUPERLU.name}, after {'; '.join(refusals)}"
    return _with_pattern(known, found), by


def _checked(known: KnownPattern, provider: Provider, A: Any) -> Factors:
    """Factors whose solve leaves rounding errors only; analysed anew where the numbers have moved too far.

    Raises:
        FactorsRefused: the library has none.
    """
    key = _key(provider, A)
    if key in known.refused:
        raise PatternRefused(known.refused[key])
    while True:
        again = key in known.analyses
        try:
            found = _made(known, provider, A)
            if is_stable(A, found) or (found.refine() and is_stable(A, found)):
                return found
            why = "a solve left more than rounding errors"
        except PatternRefused as error:
            known.refused[key] = str(error)
            raise
        except FactorsRefused as error:
            why = str(error)
        known.analyses.pop(key, None)
        if not again:
            raise FactorsRefused(why)


def _made(known: KnownPattern, provider: Provider, A: Any) -> Factors:
    key = _key(provider, A)
    analysis = known.analyses.get(key)
    if analysis is not None:
        return analysis.refactor(A)
    analysis = provider.analyse(known.pattern, A)
    found = analysis.factor(A)
    known.analyses[key] = analysis
    return found


def _key(provider: Provider, A: Any) -> tuple[str, str]:
    return provider.name, A.dtype.kind


def _with_pattern(known: KnownPattern, factors: Factors) -> Factors:
    factors.known = known  # as long as they live, so do the analyses
    return factors
