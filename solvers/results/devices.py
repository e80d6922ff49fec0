"""Transfers of whole vectors between devices that a method or a preconditioner makes, and alternatives.

In a solve vectors stay spread over the mesh, and neighbours exchange halos, unless an operator needs a flat order of
the unknowns or the memory of one device. Then there is a warning.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...sparse import Dense, FunctionOperator, Operator, SparseMatrix
from ..log import log, warn_caller
from ..methods.method import Method
from ..preconditioners import Preconditioner
from ..preconditioners.multigrid.cut import CutMultigrid
from ..read.system import System

LEAST = 1 << 15  # bytes: smaller messages take as long as empty ones, and are only logged
_ALONG_ROWS = ("chebyshev", "ssor", "ic", "ilu")  # exchange halos only, where grids are cut along axis 0 alone
_NO_SHARDING = (
    "how b is spread over devices is not known: it is traced, and its mesh has Auto axes. Give sharding=..., or make "
    "the mesh by jax.make_mesh; else nothing is done block by block"
)


class GatherWarning(UserWarning):
    """A method or a preconditioner sends whole vectors that are spread over several devices to each of them.

    The message gives the number of bytes and an alternative. Python shows it once per line of code; a filter of
    warnings silences it. For vectors of less than 32 KiB only `prepare(...).explain()` reports it.

    Examples:
        >>> import warnings, krylix
        >>> warnings.simplefilter("ignore", krylix.GatherWarning)
    """


class Transfer(NamedTuple):
    """A transfer of more than planes of vectors: its sender in words, bytes to each device, and an alternative."""

    what: str
    size: int
    instead: str

    def __str__(self) -> str:
        return f"{self.what}: {self.size} bytes to each device. {self.instead}"


def transfers(system: System, method: Method, M: Operator | None) -> list[Transfer]:
    """Transfers of whole vectors in each iteration, or for each solve; none where no vector is known to be spread."""
    cut, bk, A = system.cut, system.bk, system.A.without_offset
    if cut is None or not cut.all_names:
        return []
    size = system.layout.systems * system.layout.size * np.dtype(bk.dtype(system.b)).itemsize
    in_rows = cut.on(system.layout.shapes[0], (system.layout.size,)) is not None  # are flat vectors cut, too?
    moved = []
    if not method.keeps_grids:
        where = "on the host" if method.on_host else "on each device"
        moved.append(Transfer(f"{method.name} solves {where}, and gathers b", size, "Use method='auto' or 'CG'."))
    elif system.several and not in_rows:
        moved.append(Transfer("max_iter with several limits gathers vectors", size, "Give one limit."))
    if isinstance(A, Dense) or (isinstance(A, SparseMatrix) and A.structure.gathers):
        what = f"a product with a {'dense matrix' if isinstance(A, Dense) else f'matrix in {A.format}'}"
        instead = "Give A as row_cut(A, like=b) of krylix.sparse, or as a function on a grid."
        moved.append(Transfer(f"{what} gathers its argument", size, instead))
    if not isinstance(M, Preconditioner) or method.factorises:
        return moved
    inner, grid = M.inner, system.A.own_grid or system.A.shape[:1]
    if isinstance(inner, CutMultigrid):
        return moved + _gathers_of_multigrid(inner, size)
    on_grid = M.keeps_grids or inner.keeps_grids or (isinstance(inner, FunctionOperator) and inner.own_grid == grid)
    if not on_grid and not (in_rows and M.kind in _ALONG_ROWS):
        what = f"{M.kind} orders the unknowns in one row, and gathers its argument"
        moved.append(Transfer(what, size, "Use preconditioner='multigrid', 'fast' or 'jacobi', made with b."))
    return moved


def _gathers_of_multigrid(M: CutMultigrid, size: int) -> list[Transfer]:
    """None unless the grid is so small that its gathered coarse grid is not much smaller."""
    last, instead = M.setup.plan.grids[-1], "Use preconditioner='jacobi', or fewer devices."
    if not M.levels:
        return [Transfer(f"multigrid of the small grid {last} gathers its argument", size, instead)]
    coefficients = 3 ** len(last) * math.prod(last) * M.dtype.itemsize
    what = f"multigrid gathers coefficients of the grid {last} when it is set up"
    return [Transfer(what, coefficients, instead)] if coefficients >= size else []


def device_notes(system: System, method: Method, M: Operator | None) -> tuple[str, ...]:
    """Lines of `explain()` about several devices."""
    cut, bk = system.cut, system.bk
    if cut is None:
        unknown = bk.spreads_arrays() and system.compiled and system.layout.structure is None
        return (_NO_SHARDING,) if unknown else ()
    if not cut.all_names:
        return (f"systems spread over the mesh axes {', '.join(cut.batch)}, each on one device",)
    parts = " x ".join(map(str, cut.parts))
    spread = f"vectors spread over {parts} devices, along the mesh axes {', '.join(cut.all_names)}"
    moved = [str(transfer) for transfer in transfers(system, method, M)]
    return (spread, *(moved or ["messages: halo exchanges with neighbours, reductions, and gathers of small grids"]))


def warn_of_transfers(system: System, method: Method, M: Operator | None) -> None:
    """Warn of transfers that are not small, at the caller's line; others are logged."""
    for transfer in transfers(system, method, M):
        if transfer.size >= LEAST:
            warn_caller(str(transfer), GatherWarning)
        else:
            log.debug("%s", transfer)
