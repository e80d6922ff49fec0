"""JSON reports: one object each. Numbers that are not finite are null; norms are 2-norms."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import __version__
from ..sparse.analysis.facts import (
    component_labels,
    has_symmetric_pattern,
    is_hermitian,
    is_positive_definite,
    occupied_diagonals,
)
from . import preconditioning
from .compare import compare, comparison
from .compare.comparison import ComparisonRow
from .facts import column_norms, maps_constants_to_zero
from .inspected import Inspected
from .preconditioning import Built
from .report import relative_error, status_word
from .solve import SolveOutcome
from .storage import bytes_of, chosen
from .system import SystemRead


def text(command: str, content: dict[str, Any]) -> str:
    """The object as one line of JSON."""
    return json.dumps(_plain({"krylix": __version__, "command": command, **content}), allow_nan=False)


def of_solve(options: argparse.Namespace, system: SystemRead, outcome: SolveOutcome, reading: float) -> dict[str, Any]:
    """What `krylix solve` reports; `systems` has one entry per right-hand side."""
    A, b, result = system.A, system.b, outcome.result
    of_result = (outcome.status, outcome.iterations, outcome.norm, outcome.tolerance, outcome.null_part)
    numbers = zip(*of_result, outcome.check, column_norms(b))
    return {
        "matrix": {"source": system.source, **_matrix(A)},
        "right_hand_side": {"source": system.rhs, "shape": b.shape, "dtype": b.dtype.name},
        "method": result.method,
        "automatic": outcome.automatic,
        "preconditioner": result.preconditioner,
        "backend": options.backend,
        "dtype": outcome.x.dtype.name,
        "least_squares": result.least_squares,
        "converged": outcome.converged,
        "confirmed": outcome.converged and outcome.confirmed,
        "message": result.message,
        "systems": [
            {
                "status": status_word(status),
                "iterations": steps,
                "residual_norm": norm,
                "tolerance": tolerance,
                "null_part": null_part,
                "checked_residual_norm": check,
                "norm_of_b": size,
            }
            for status, steps, norm, tolerance, null_part, check, size in numbers
        ],
        "relative_error": relative_error(system, outcome.x),
        "seconds": {"read": reading, "solve": outcome.seconds},
        "output": None if options.output is None else str(options.output),
        "warnings": outcome.notes,
    }


def of_precondition(
    options: argparse.Namespace, inspected: Inspected, built: Built, size: int | None
) -> dict[str, Any]:
    """What `krylix precondition` reports."""
    return {
        "matrix": {"source": inspected.source, **_matrix(inspected.A)},
        "preconditioner": preconditioning.as_object(built),
        "output": None if options.output is None else {"file": str(options.output), "bytes": size},
    }


def of_inspect(
    options: argparse.Namespace, inspected: Inspected, rows: Sequence[ComparisonRow] | None
) -> dict[str, Any]:
    """What `krylix inspect` reports; facts of square matrices are null for others."""
    A = inspected.A
    square = A.shape[0] == A.shape[1] and A.shape[0] > 0
    offsets = occupied_diagonals(A)
    choice = chosen(A, options.backend)
    return {
        "matrix": {"source": inspected.source, **_matrix(A)},
        "stored": {"entries": inspected.stored, "duplicates": inspected.duplicates, "zeros": inspected.zeros},
        "band": {
            "below": max(0, -int(offsets[0])) if len(offsets) else 0,
            "above": max(0, int(offsets[-1])) if len(offsets) else 0,
            "diagonals": len(offsets),
        },
        "hermitian": is_hermitian(A) if square else None,
        "symmetric_pattern": has_symmetric_pattern(A) if square else None,
        "positive_definite": is_positive_definite(A) if square else None,
        "components": component_labels(A)[0] if square else None,
        "maps_constants_to_zero": maps_constants_to_zero(A),
        "bytes": bytes_of(A),
        "format": {"name": choice.format, "backend": options.backend, "reason": choice.reason},
        "preconditioners": None if rows is None else [comparison.as_object(row) for row in rows],
        "plot": None if options.plot is None else str(options.plot),
    }


def of_compare(options: argparse.Namespace, system: SystemRead, rows: Sequence[ComparisonRow]) -> dict[str, Any]:
    """What `krylix compare` reports, the fastest first."""
    return {
        "matrix": {"source": system.source, **_matrix(system.A)},
        "right_hand_side": {"source": system.rhs, "shape": system.b.shape, "dtype": system.b.dtype.name},
        "time_limit": options.time_limit,
        "rows": [compare.as_object(row) for row in rows],
        "plot": None if options.plot is None else str(options.plot),
    }


def _matrix(A: Any) -> dict[str, Any]:
    count = int(np.count_nonzero(A.data if sp.issparse(A) else A))
    return {"shape": A.shape, "dtype": A.dtype.name, "sparse": sp.issparse(A), "nonzeros": count}


def _plain(x: Any) -> Any:
    """Numbers, lists and texts that JSON has."""
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(value) for value in x]
    if isinstance(x, np.generic):
        x = x.item()
    return None if isinstance(x, float) and not math.isfinite(x) else x
