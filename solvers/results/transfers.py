"""Transfers of whole vectors between devices that a method or a preconditioner makes, and what to do instead.

Vectors stay spread over the mesh in a solve, and neighbours exchange halos, unless something needs a flat order of the
unknowns, or one device's memory. That is never done in silence.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np

from ...sparse import Dense, FunctionOperator, Operator, SparseMatrix
from ..log import log
from ..methods.method import Method
from ..preconditioners import Preconditioner
from ..preconditioners.multigrid.cut.cycle import CutMultigrid
from ..read.system import System
from .failure import outside

LEAST = 1 << 15  # bytes: below that a message takes as long as an empty one, and no warning is given
_ALONG_ROWS = ("chebyshev", "ssor", "ic", "ilu")  # exchange halos only, where grids are cut along axis 0 alone
_NO_SHARDING = (
    "how b is spread over devices is not known: it is traced, and its mesh has Auto axes. Give sharding=..., or make "
    "the mesh by jax.make_mesh; else nothing is done block by block"
)


class GatherWarning(UserWarning):
    """A method or a preconditioner sends whole vectors, which are spread over several devices, to each of them.

    The message says how many bytes, and what to do instead. Python shows it once for each place that it is raised at;
    it is silenced as any warning is, by its class. For vectors of less than 32 KiB only `prepare(...).explain()` tells.

    Examples:
        >>> import warnings, krylix
        >>> warnings.simplefilter("ignore", krylix.GatherWarning)
    """


class Transfer(NamedTuple):
    """What moves more than planes of vectors.

    Attributes:
        what: sends it, in words.
        size: bytes that each device gets.
        instead: what to do.
    """

    what: str
    size: int
    instead: str

    def __str__(self) -> str:
        return f"{self.what}: {self.size} bytes to each device. {self.instead}"


def transfers(system: System, method: Method, M: Operator | None) -> list[Transfer]:
    """Transfers of whole vectors in each iteration, or for each solve; none where no vector is known to be spread."""
    cut, bk = system.cut, system.bk
    if cut is None or not cut.all_names:
        return []
    size = system.layout.systems * system.layout.size * np.dtype(bk.dtype(system.b)).itemsize
    in_rows = cut.on(system.layout.shapes[0], (system.layout.size,)) is not None  # are flat vectors cut, too?
    found = []
    if not method.keeps_grids:
        where = "on the host" if method.on_host else "on each device"
        found.append(Transfer(f"{method.name} solves {where}, and gathers b", size, "Take method='auto', or 'CG'."))
    elif system.several and not in_rows:
        found.append(Transfer("max_iter with several limits gathers vectors", size, "Give one limit."))
    of_matrix = _of_matrix(system.A.without_offset)
    if of_matrix is not None:
        found.append(
            Transfer(of_matrix, size, "Give A as row_cut(A, like=b) of krylix.sparse, or a function on a grid.")
        )
    if isinstance(M, Preconditioner) and not method.factorises:
        found += _of_preconditioner(M, system, in_rows, size)
    return found


def _of_matrix(A: Operator) -> str | None:
    if isinstance(A, Dense):
        return "a product with a dense matrix gathers its argument"
    if isinstance(A, SparseMatrix) and A.structure.gathers:
        return f"a product with a matrix in {A.format} gathers its argument"
    return None


def _of_preconditioner(M: Preconditioner, system: System, in_rows: bool, size: int) -> list[Transfer]:
    inner, grid = M.inner, system.A.own_grid or system.A.shape[:1]
    if isinstance(inner, CutMultigrid):
        return _of_multigrid(inner, size)
    if M.keeps_grids or inner.keeps_grids or (isinstance(inner, FunctionOperator) and inner.own_grid == grid):
        return []
    if in_rows and M.kind in _ALONG_ROWS:
        return []
    what = f"{M.kind} orders the unknowns in one row, and gathers its argument"
    return [Transfer(what, size, "Take preconditioner='multigrid', 'fast' or 'jacobi', made with b.")]


def _of_multigrid(M: CutMultigrid, size: int) -> list[Transfer]:
    """Of a grid so small that the one that is gathered is not much smaller."""
    last, instead = M.setup.plan.grids[-1], "Take preconditioner='jacobi', or fewer devices."
    if not M.levels:
        return [Transfer(f"multigrid of the small grid {last} gathers its argument", size, instead)]
    coefficients = 3 ** len(last) * math.prod(last) * M.dtype.itemsize
    if coefficients < size:
        return []
    return [Transfer(f"multigrid gathers coefficients of the grid {last} when it is set up", coefficients, instead)]


def told_of_devices(system: System, method: Method, M: Operator | None) -> tuple[str, ...]:
    """What `explain()` says of several devices, in lines."""
    cut, bk = system.cut, system.bk
    if cut is None:
        unknown = bk.spreads_arrays() and system.compiled and system.layout.structure is None
        return (_NO_SHARDING,) if unknown else ()
    if not cut.all_names:
        return (f"systems spread over the mesh axes {', '.join(cut.batch)}, each on one device",)
    parts = " x ".join(map(str, cut.parts))
    found = [f"vectors spread over {parts} devices, along the mesh axes {', '.join(cut.all_names)}"]
    moved = [str(one) for one in transfers(system, method, M)]
    return (*found, *(moved or ["messages: halo exchanges with neighbours, reductions, and gathers of small grids"]))


def warn_of_transfers(system: System, method: Method, M: Operator | None) -> None:
    """Warn of those that are not small, at the caller's line; others are logged."""
    for one in transfers(system, method, M):
        if one.size >= LEAST:
            warnings.warn(str(one), GatherWarning, stacklevel=outside())
        else:
            log.debug("%s", one)
