"""`krylix compare`: methods and preconditioners on one system, the fastest first."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...solvers import OPTIONAL_METHODS, prepare
from ..errors import UsageError, as_options
from ..facts import Line
from ..storage import in_words
from ..system import SystemRead
from ..system import load as load_system
from . import comparison
from .combinations import combinations
from .comparison import AUTO, NONE, ComparisonRow, Settings, measure


def load(options: argparse.Namespace) -> SystemRead:
    """The system, square or for least squares; of several right-hand sides the first.

    Raises:
        UsageError: as `system.load`, a tolerance that cannot be met, or a method whose package is not installed.
    """
    try:
        for method in ("CG", *(name for name in options.methods if name in OPTIONAL_METHODS)):
            prepare(np.eye(1), np.ones(1), method=method, **_tolerances(options))
    except (ValueError, TypeError, ImportError) as error:
        raise UsageError(as_options(str(error))) from error
    system = load_system(argparse.Namespace(**{**vars(options), "method": "LSMR"}))
    if system.b.ndim == 1:
        return system
    rhs = system.rhs if system.b.shape[1] == 1 else f"{system.rhs}, the first of {system.b.shape[1]} columns"
    return replace(system, b=np.ascontiguousarray(system.b[:, 0]), rhs=rhs)


def compare(options: argparse.Namespace, system: SystemRead) -> list[ComparisonRow]:
    """All rows: those that converged first, the fastest before the others."""
    pairs = combinations(system.A, options.methods, options.preconditioners)
    import pyamg  # noqa: F401  # takes a second, which is not that of a set-up

    for method in ("CG", "scipy-direct"):  # imports what these need
        measure(sp.csr_array(np.eye(3)), np.ones(3), method, NONE, Settings())
    settings = Settings(**_tolerances(options), time_limit=options.time_limit)
    rows = [measure(system.A, system.b, *pair, settings, (done, len(pairs))) for done, pair in enumerate(pairs)]
    return sorted(rows, key=lambda row: (row.problem is not None, not row.converged, row.total))


def _tolerances(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("rtol", "atol", "max_iter")}


_FORMAT = "{:<17} {:<14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10}  {}".format


def table(rows: Sequence[ComparisonRow]) -> Iterator[str]:
    """Lines for people."""
    yield _FORMAT("", "", "", "relative", "set-up", "solve", "total", "", "").rstrip()
    yield _FORMAT("method", "preconditioner", "iterations", "residual", "s", "s", "s", "memory", "end")
    for row in rows:
        yield _text(row)


def _text(row: ComparisonRow) -> str:
    if row.problem is not None:
        return f"{row.method:<17} {row.kind:<14} failed: {row.problem}"
    end = row.status if row.converged else f"NOT CONVERGED: {row.status}"
    end = f"{end}, chosen by auto" if row.wanted[0] == AUTO else end
    seconds = (f"{number or 0:.3g}" for number in (row.set_up, row.seconds, row.total))
    memory = "" if row.bytes is None else in_words(row.bytes)
    return _FORMAT(row.method, row.kind, row.iterations, f"{row.residual:.1e}", *seconds, memory, end)


def advice(options: argparse.Namespace, rows: Sequence[ComparisonRow]) -> list[Line]:
    """The command that solves in the fastest way."""
    best = next((row for row in rows if row.converged), None)
    if best is None:
        return [("fastest", "none converged; see --time-limit, --max-iter, --rtol and `krylix methods`")]
    what = ["--example", options.example] if options.example is not None else [str(options.matrix)]
    method = best.wanted[0]
    words = ["krylix", "solve", *what, *([str(options.rhs)] if options.rhs is not None else [])]
    words += ["--method", method] if method != AUTO else []
    if best.wanted[1] not in (NONE, AUTO):
        words += ["--preconditioner", best.wanted[1]]
    given = {"--rtol": options.rtol, "--atol": options.atol or None, "--dtype": options.dtype}
    words += [word for option, value in given.items() if value is not None for word in (option, str(value))]
    return [("fastest", shlex.join(words))]


def as_object(row: ComparisonRow) -> dict[str, Any]:
    """A row for programs."""
    found = comparison.as_object(row)
    return {**found, "bytes": row.bytes, "wanted": dict(zip(("method", "preconditioner"), row.wanted, strict=True))}
