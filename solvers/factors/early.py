"""Early set-up of direct methods: factors are computed as soon as the matrix is known."""

from __future__ import annotations

from ...backends import get_backend
from ...sparse import FunctionOperator, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.operators.concrete import as_matrix, is_known
from ..methods.method import Method
from ..read.system import System
from .inverse import MatrixToFactorise


def factors_of_known(system: System, method: Method) -> Operator | None:
    """Factors of a matrix that does not depend on the arguments of the traced function, else None.

    NumPy computes them once at trace time, because the library would compile a program for each operation.
    """
    bk, A = system.bk, system.A
    try:
        matrix = as_matrix(A)
    except (UnsupportedOperation, NonlinearError):  # Its entries are found column by column at run time.
        return None
    if not is_known(matrix):
        return None
    arrays, make = (A if A.offset else matrix).for_host()
    if arrays:  # a traced offset
        return None
    if bk.is_eager and not method.on_host:  # under vmap these factors would belong to one element of the batch
        return None
    host, known = get_backend("numpy"), make(())
    if method.needs_grid:  # These factors depend on the library's transforms and on how its devices partition a grid.
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
    """Factors if they can be computed before b is known; None if each solve has to compute them.

    `previous` are factors of another matrix, possibly of the same pattern.
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
    """The matrix of a function if an eagerly compiled program needs it to factorise, else None.

    The program gets the arrays that the function closes over as arguments, in which it could find no pattern.
    """
    bk = system.bk
    eagerly = bk.compiles_solves and not bk.in_program() and not method.on_host
    needed = eagerly and isinstance(system.A, FunctionOperator) and isinstance(matrix, SparseMatrix)
    return MatrixToFactorise(matrix) if needed else None
