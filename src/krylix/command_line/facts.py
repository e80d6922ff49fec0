"""Facts of matrices, systems, solves and preconditioners: each as a line for people and as an entry for programs.

Norms are 2-norms, but for asymmetries, which are relative in the Frobenius norm.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..backends import get_backend
from ..solvers import Status
from ..solvers.methods.registry import is_auto
from ..solvers.run.outcome import iterations_in_words
from ..sparse.analysis.facts import (
    component_labels,
    dominance,
    has_symmetric_pattern,
    is_positive_definite,
    is_positive_semidefinite,
    occupied_diagonals,
)
from ..sparse.analysis.symmetry import is_hermitian, is_symmetric
from ..sparse.formats import choose_format, from_entries
from ..sparse.formats.ell import PIECE, best_width
from .files import MatrixFile, SystemRead
from .solve import Built, SolveOutcome, column_norms, is_file
from .terminal import Fact, UsageError

_MAX_BYTES = 4 * 2**30  # of a matrix that is built for inspection
_INDEX = 4  # bytes
_MAX_COLUMNS = 10  # right-hand sides that get a line each


# ---- matrices and systems


def of_matrix(A: Any, source: str) -> list[Fact]:
    """Source, shape, number of non-zeros and dtype of a matrix."""
    n, m = A.shape
    kind = "sparse" if sp.issparse(A) else "dense"
    count = int(np.count_nonzero(A.data if sp.issparse(A) else A))
    entries = {"source": source, "shape": A.shape, "dtype": A.dtype.name, "sparse": sp.issparse(A), "nonzeros": count}
    text = f"{n} x {m}, {kind}, {count} non-zeros ({count / max(n, 1):.1f} per row), {A.dtype}"
    return [Fact("matrix", source, {"matrix": entries}), Fact("shape", text)]


def of_system(system: SystemRead) -> list[Fact]:
    """Source, size, symmetry, diagonal and right-hand side."""
    A, b, norms = system.A, system.b, column_norms(system.b)
    square = A.shape[0] == A.shape[1]
    rows_sum_to_zero = "contains the constants: every row sums to zero"
    size = f"norm {norms[0]:.3e}"
    if len(norms) > 1:
        size = f"{len(norms)} columns, norms {norms.min():.3e} to {norms.max():.3e}"
    entries = {"source": system.rhs, "shape": b.shape, "dtype": b.dtype.name}
    return [
        *of_matrix(A, system.source),
        Fact("symmetry", _symmetry(A, is_hermitian(A)) if square else "not square: least squares"),
        Fact("diagonal", _diagonal(A) if square else None),
        Fact("null space", rows_sum_to_zero if maps_constants_to_zero(A) else None),
        Fact("right-hand side", f"{system.rhs}; {size}, {b.dtype}", {"right_hand_side": entries}),
    ]


def of_inspected(file: MatrixFile) -> list[Fact]:
    """Facts that need no solve, of a canonical `csr_array`; those of square matrices are null in JSON for others."""
    A = file.A
    constants, null_space = maps_constants_to_zero(A), None
    if constants:
        both = ", and so does every column" if maps_constants_to_zero(A.T.tocsr()) else ""
        null_space = f"contains the constants: every row sums to zero{both}"
    return [
        *of_matrix(A, file.source),
        _stored(file.stored),
        Fact("per row", _lengths(A)),
        _band(A),
        *_of_square(A),
        Fact("null space", null_space, {"maps_constants_to_zero": constants}),
    ]


def maps_constants_to_zero(A: Any) -> bool:
    """Is A 1 = 0, up to rounding? Then the solution is known up to a constant only."""
    ones = np.ones(A.shape[1])
    size = float(np.max(np.abs(A) @ ones, initial=0))
    image = float(np.max(np.abs(A @ ones), initial=0))
    return size > 0 and image <= 100 * np.finfo(A.dtype).eps * size


def _symmetry(A: Any, hermitian: bool) -> str:
    word = "Hermitian" if A.dtype.kind == "c" else "symmetric"
    entries = A.data if sp.issparse(A) else A
    largest = np.max(np.abs(entries), initial=0) or 1.0
    scaled = A / largest  # squares of large entries would overflow
    asymmetry = _frobenius_norm(scaled - scaled.conj().T) / (_frobenius_norm(scaled) or 1.0)
    if hermitian:
        return f"{word} (relative asymmetry {asymmetry:.1e})"
    also = ", but complex symmetric (A = A^T)" if A.dtype.kind == "c" and is_symmetric(A) else ""
    return f"not {word}: relative asymmetry {asymmetry:.1e}{also}"


def _frobenius_norm(A: Any) -> float:
    return float(np.linalg.norm(A.data if sp.issparse(A) else A.reshape(-1)))


def _diagonal(A: Any) -> str:
    diagonal = A.diagonal()
    real = diagonal.real
    part = "real part " if np.iscomplexobj(diagonal) and np.any(diagonal.imag) else ""
    signs = {"positive": real > 0, "negative": real < 0, "zero": real == 0}
    words = ", ".join(f"{np.sum(a)} {word}" if not a.all() else f"all {word}" for word, a in signs.items() if a.any())
    return f"{part}{words}" + (f", from {real.min():.3g} to {real.max():.3g}" if real.any() else "")


def _stored(raw: Any) -> Fact:
    if sp.issparse(raw):
        raw = raw.tocoo()
        count, duplicates = raw.nnz, raw.nnz - sp.csr_array((np.ones(raw.nnz, np.int8), raw.coords), raw.shape).nnz
        zeros = int(count - np.count_nonzero(raw.data))
        added_up = " (added up)" if duplicates else ""
        text = (
            f"{_count(count, 'entry', 'entries')}, {_count(duplicates, 'duplicate')}{added_up}, "
            f"{_count(zeros, 'explicit zero')}"
        )
    else:
        count, duplicates, zeros = raw.size, 0, int(raw.size - np.count_nonzero(raw))
        text = f"dense, {count} numbers, of which {_count(zeros, 'zero')}"
    return Fact("stored", text, {"stored": {"entries": count, "duplicates": duplicates, "zeros": zeros}})


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"


def _lengths(A: Any) -> str:
    if not A.shape[0]:
        return "no rows"
    lengths = np.diff(A.indptr)
    columns = np.zeros(A.shape[1], bool)
    columns[A.indices] = True
    empty_rows, empty_columns = int(np.sum(lengths == 0)), int(np.sum(~columns))
    empty = f"{_count(empty_rows, 'empty row')}, {_count(empty_columns, 'empty column')}"
    return f"{lengths.min()} to {lengths.max()} non-zeros, median {np.median(lengths):g}; {empty}"


def _band(A: Any) -> Fact:
    offsets = occupied_diagonals(A)
    below, above = (max(0, -int(offsets[0])), max(0, int(offsets[-1]))) if len(offsets) else (0, 0)
    text = f"{below} below and {above} above the diagonal; {len(offsets)} of {sum(A.shape) - 1} diagonals occupied"
    entries = {"below": below, "above": above, "diagonals": len(offsets)}
    return Fact("band", text if A.nnz else "no non-zeros", {"band": entries})


def _of_square(A: Any) -> list[Fact]:
    if A.shape[0] != A.shape[1] or not A.shape[0]:
        unknown = dict.fromkeys(("hermitian", "symmetric_pattern", "positive_definite", "components"))
        return [Fact("symmetry", "not square" if A.shape[0] != A.shape[1] else None, unknown)]
    hermitian, pattern, definite = is_hermitian(A), has_symmetric_pattern(A), is_positive_definite(A)
    count, labels = component_labels(A)
    sizes = np.bincount(labels)
    components = f"{count} that are not connected, of {sizes.min()} to {sizes.max()} rows"
    return [
        Fact("symmetry", _symmetry(A, hermitian), {"hermitian": hermitian}),
        Fact("pattern", "symmetric" if pattern else "not symmetric", {"symmetric_pattern": pattern}),
        Fact("diagonal", _diagonal(A)),
        Fact("dominance", _dominance(A)),
        Fact("definite", _definite(A, hermitian, bool(definite)), {"positive_definite": definite}),
        Fact("components", components if count > 1 else "1, all rows are connected", {"components": count}),
    ]


def _dominance(A: Any) -> str:
    rows = dominance(A)
    if rows.strict.all():
        return "strict in every row"
    if rows.weak.all():
        return f"weak in every row, strict in {rows.strict.sum()} of {A.shape[0]}"
    ratio = rows.diagonal / np.where(rows.weak, 1, rows.others)
    worst = int(np.argmin(np.where(rows.weak, np.inf, ratio)))
    bad = f"{np.sum(~rows.weak)} of {A.shape[0]} rows are not diagonally dominant"
    return f"{bad}; worst row {worst}: |a_ii| is {ratio[worst]:.2g} of the sum of the others"


def _definite(A: Any, hermitian: bool, positive: bool) -> str:
    if not hermitian:
        return f"not {'Hermitian' if A.dtype.kind == 'c' else 'symmetric'}"
    if positive or is_positive_definite(-A):
        sign = "positive" if positive else "negative"
        return f"{sign} definite: diagonally dominant, strictly somewhere in every component"
    for sign, matrix in (("positive", A), ("negative", -A)):
        if is_positive_semidefinite(matrix):
            return f"{sign} semi-definite: diagonally dominant"
    diagonal = A.diagonal().real
    if diagonal.min() < 0 < diagonal.max():
        return "indefinite: the diagonal has both signs"
    return "not proven"


# ---- formats


def of_formats(A: Any, backend: str, wanted: str | None) -> list[Fact]:
    """Memory of a canonical `csr_array` in each format, and the format that was given or that krylix would choose."""
    sizes = bytes_by_format(A)
    choice = choose_format(get_backend(backend), A.indptr, A.indices, A.shape)
    memory = ", ".join(f"{name} {bytes_text(size)}" for name, size in sizes.items())
    chosen = f"{choice.format}, chosen for {backend}: {choice.reason}"
    entries = {"format": {"name": choice.format, "backend": backend, "reason": choice.reason}}
    return [
        Fact("memory", memory, {"bytes": sizes}),
        Fact("format", None if wanted is None else _in_format(A, wanted, sizes[wanted])),
        Fact("format" if wanted is None else "otherwise", chosen, entries),
    ]


def bytes_by_format(A: Any) -> dict[str, int]:
    """Bytes of values and 32-bit indices in each format; nothing is built."""
    (n, m), nnz, size = A.shape, int(A.nnz), A.dtype.itemsize
    place = size + _INDEX
    lengths = np.diff(A.indptr)
    width = best_width(lengths)
    pieces = int(np.sum(-(-np.maximum(lengths - width, 0) // PIECE)))
    diagonals = len(occupied_diagonals(A))
    return {
        "csr": nnz * place + (n + 1) * _INDEX,
        "csc": nnz * place + (m + 1) * _INDEX,
        "coo": nnz * (place + _INDEX),
        "dia": diagonals * (n * size + _INDEX),
        "ell": int(lengths.max(initial=0)) * n * place,
        "hyb": (width * n + pieces * PIECE) * place + pieces * _INDEX,
        "dense": n * m * size,
    }


def bytes_text(size: int) -> str:
    """Bytes with three digits.

    >>> bytes_text(999), bytes_text(1000), bytes_text(283240), bytes_text(8 * 10**12)
    ('999 B', '1 kB', '283 kB', '8 TB')
    """
    number, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB", "EB"):
        if number < 999.5:
            break
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}"


def _in_format(A: Any, wanted: str, size: int) -> str:
    if size > _MAX_BYTES:
        raise UsageError(
            f"--format {wanted}: the matrix would take {bytes_text(size)}; at most {bytes_text(_MAX_BYTES)} are built "
            "to look at it. Choose another format."
        )
    text = f"{wanted}, asked for: {bytes_text(size)}"
    if wanted == "dense":
        return text
    rows, columns = A.tocoo().coords
    try:
        matrix = from_entries(get_backend("numpy"), rows, columns, A.data, A.shape, format=wanted)
    except (ValueError, MemoryError) as error:
        raise UsageError(f"--format {wanted}: {error or 'does not fit into memory.'}") from error
    summary = matrix.structure.summary()
    return f"{text}, {summary}" if summary else text


# ---- solves


def of_solve(options: argparse.Namespace, system: SystemRead, outcome: SolveOutcome) -> list[Fact]:
    """Method, status, iterations, residuals and error; `systems` has one entry per right-hand side."""
    result, converged = outcome.result, outcome.converged
    error = relative_error(system, outcome.x)
    error_text = None
    if error is not None:
        up_to = ", up to a constant" if maps_constants_to_zero(system.A) else ""
        error_text = f"|x - known x| / |known x| = {error:.1e}{up_to}"
    method, M, backend, dtype = result.method, result.preconditioner, options.backend, outcome.x.dtype.name
    automatic = is_auto(options.method)
    method_text = f"{method}, chosen by auto" if automatic else method
    success = {"converged": converged, "confirmed": converged and outcome.confirmed, "message": result.message}
    return [
        Fact("method", method_text, {"method": method, "automatic": automatic}),
        Fact("preconditioner", _preconditioner(M, options.preconditioner), {"preconditioner": M}),
        Fact("backend", f"{backend}, {dtype}", {"backend": backend, "dtype": dtype}),
        Fact("status", _status(outcome), success),
        Fact("singular", "yes; x is orthogonal to the null vectors that were found" if any(outcome.singular) else None),
        Fact("iterations", _range(outcome.iterations, str)),
        Fact("residual", _residual(outcome)),
        Fact("check", _check(outcome)),
        Fact("fit", _fit(outcome) if result.least_squares else None, {"least_squares": result.least_squares}),
        *_of_systems(outcome, column_norms(system.b)),
        Fact("error", error_text, {"relative_error": error}),
        Fact("", None, {"warnings": outcome.notes}),
        *(Fact("warning", note) for note in outcome.notes),
    ]


def _preconditioner(used: str | None, wanted: str | None) -> str:
    if used is None and wanted is not None:
        return f"none ({wanted} was given, but the method that solved in the end takes none)"
    return f"{used}, from {wanted}" if used and is_file(wanted) else used or "none"


def _status(outcome: SolveOutcome) -> str:
    if not outcome.converged:
        return f"NOT CONVERGED: {outcome.result.message}"
    text = "converged" if len(outcome.status) == 1 else f"converged, all {len(outcome.status)} systems"
    if np.all(outcome.result.consistent):
        return text
    return f"{text}, to least squares: no x reaches a part of b of norm {outcome.null_part.max():.3e}"


def _residual(outcome: SolveOutcome) -> str:
    worst = _worst(outcome.residual_norm, outcome.tolerance)
    norm, tolerance = outcome.residual_norm[worst], outcome.tolerance[worst]
    which = "" if len(outcome.status) == 1 else f" (column {worst}, the worst)"
    sign = "<=" if norm <= tolerance else "against"
    return f"{_symbol(outcome)} = {norm:.3e} {sign} tolerance {tolerance:.3e}{which}"


def _check(outcome: SolveOutcome) -> str:
    worst = _worst(outcome.check, outcome.tolerance)
    text = f"{_symbol(outcome)} = {outcome.check[worst]:.3e}, computed again by NumPy and SciPy in double precision"
    if outcome.converged and not outcome.confirmed:
        return f"{text}: NOT CONFIRMED, this is above the tolerance"
    return text if np.all(outcome.result.consistent) else f"{text}; without the part of b that no x reaches"


def _fit(outcome: SolveOutcome) -> str:
    text = f"|b - A x| = {_range(outcome.fit, '{:.3e}'.format)}"
    return f"{text}, the least there is" if outcome.converged else text


def _symbol(outcome: SolveOutcome) -> str:
    return "|A^H (b - A x)|" if outcome.result.least_squares else "|b - A x|"


def _worst(norms: np.ndarray, tolerances: np.ndarray) -> int:
    with np.errstate(all="ignore"):
        excess = np.where(tolerances > 0, norms / tolerances, np.where(norms > 0, np.inf, 0))
    return int(np.argmax(np.nan_to_num(excess, nan=np.inf, posinf=np.inf)))


def _range(values: np.ndarray, form: Callable[[Any], str]) -> str:
    low, high = values.min(), values.max()
    return form(high) if low == high else f"{form(low)} to {form(high)}"


def _of_systems(outcome: SolveOutcome, norms_of_b: np.ndarray) -> list[Fact]:
    systems = [
        {
            "status": status_word(outcome.status[i]),
            "iterations": outcome.iterations[i],
            "residual_norm": outcome.residual_norm[i],
            "tolerance": outcome.tolerance[i],
            "null_part": outcome.null_part[i],
            "checked_residual_norm": outcome.check[i],
            "norm_of_b": norms_of_b[i],
        }
        for i in range(len(outcome.status))
    ]
    facts = [Fact("", None, {"systems": systems})]
    if len(systems) > 1:
        for i, system in enumerate(systems[:_MAX_COLUMNS]):
            steps = iterations_in_words(system["iterations"])
            norm = f"{_symbol(outcome)} = {system['checked_residual_norm']:.3e}, tolerance {system['tolerance']:.3e}"
            facts.append(Fact(f"  column {i}", f"{system['status']}, {steps}, {norm}"))
    if len(systems) > _MAX_COLUMNS:
        facts.append(Fact("", f"... and {len(systems) - _MAX_COLUMNS} more columns"))
    return facts


def status_word(status: int) -> str:
    """The name of a `Status`, in words."""
    return Status(int(status)).name.lower().replace("_", " ")


def relative_error(system: SystemRead, x: np.ndarray) -> float | None:
    """Relative error of x where the solution is known, up to a constant where A 1 = 0; else None."""
    if system.known is None:
        return None
    known = np.asarray(system.known, float)
    error = x - known
    if maps_constants_to_zero(system.A):
        error, known = error - error.mean(), known - known.mean()
    with np.errstate(all="ignore"):
        return float((column_norms(error) / column_norms(known))[0])


# ---- preconditioners


def of_preconditioner(built: Built) -> list[Fact]:
    """Kind, cost and known properties of a preconditioner."""
    M = built.M
    settings = ", ".join(f"{name} = {value}" for name, value in M.settings)
    word = "Hermitian" if M.dtype.kind == "c" else "symmetric"
    symmetry = {True: f"{word}: for CG and MINRES too", False: f"not {word}: not for CG and MINRES", None: "not known"}
    memory = work = None
    if M.memory is not None:
        of_A = f", {M.memory / M.entries:.3g} times the entries of A" if M.entries else ""
        memory = f"{M.memory} numbers ({bytes_text(M.memory * M.dtype.itemsize)}){of_A}"
    if M.work is not None:
        of_A = f", {M.work / M.entries:.3g} products with A" if M.entries else ""
        work = f"{M.work} multiplications per application{of_A}"
    entries = {
        **{name: getattr(M, name) for name in ("kind", "hermitian", "memory", "work", "entries", "note")},
        "settings": dict(M.settings),
        "dtype": M.dtype.name,
        "seconds": {"set_up": built.seconds},
    }
    return [
        Fact("preconditioner", repr(M), {"preconditioner": entries}),
        Fact("settings", settings or None),
        Fact("memory", memory),
        Fact("work", work),
        Fact("symmetry", symmetry[M.hermitian]),
        Fact("note", M.note or None),
        Fact("set-up", f"{built.seconds:.3g} s"),
    ]
