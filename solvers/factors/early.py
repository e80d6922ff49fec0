"""Early set-up of methods that keep it, mostly factors, as soon as the matrix is known."""

from __future__ import annotations

from ...backends import get_backend
from ...sparse import FunctionOperator, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.operators.concrete import as_matrix, is_known
from ..methods.method import Method
from ..read.system import System
from .protocol import MatrixToFactorise


def factors_of_known(system: System, method: Method) -> Operator | None:
    """While tracing: factors of a matrix that does not depend on the function's arguments, else None.

    They are computed once, at trace time, by NumPy: the library would compile a program for each operation.
    """
    bk, A = system.bk, system.A
    try:
        matrix = as_matrix(A)
    except (UnsupportedOperation, NonlinearError):  # found column by column, when it runs
        return None
    if not is_known(matrix):
        return None
    arrays, make = (A if A.offset else matrix).for_host()
    if arrays:  # of what is added to it
        return None
    if bk.is_eager and not method.on_host:  # a transformation, in which these factors would be those of one lane
        return None
    host, known = get_backend("numpy"), make(())
    if method.needs_grid:  # the form of these depends on the library's transforms, and on how its devices cut a grid
        with bk.errstate(), bk.at_once():
            moved = known.on_backend(bk, None)
            return None if moved is None else method.setup(bk, moved, None)
    with host.errstate():
        factors = method.setup(host, known, None)
    if factors is None or method.on_host:
        return factors
    with bk.at_once():
        return factors.on_backend(bk, None)


def factors_now(system: System, method: Method, previous: Operator | None = None) -> Operator | None:
    """Factors, if they can be computed before b is known; None if each solve has to compute them.

    Args:
        previous: those of another matrix, maybe of the same pattern.
    """
    bk, A = system.bk, system.A
    if system.compiled:
        found = factors_of_known(system, method)
        if found is not None or method.on_host or bk.is_eager:
            return found
    if not method.on_host:
        with bk.errstate():
            return method.set_up_again(bk, A, previous)
    host = get_backend("numpy")
    with host.errstate():
        arrays, make = A.for_host()
        return method.set_up_again(host, make([bk.to_numpy(a) for a in arrays]), previous)


def entries_for(system: System, method: Method, matrix: Operator) -> MatrixToFactorise | None:
    """The entries of a function, to be factorised by an eager program that gets what the function closes over as
    arguments, and could find no pattern in these; None where it needs none.
    """
    bk = system.bk
    eagerly = bk.compiles_solves and not bk.in_program() and not method.on_host
    needed = eagerly and isinstance(system.A, FunctionOperator) and isinstance(matrix, SparseMatrix)
    return MatrixToFactorise(matrix) if needed else None
