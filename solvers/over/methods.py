"""Methods for parts of vectors: which there are, and which one "auto" takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator, UnsupportedOperation
from ...sparse.analysis.spectrum import largest_eigenvalue
from ...sparse.analysis.symmetry import PRODUCTS
from ..methods.method import Method
from ..methods.registry import METHODS
from ..read.system import System

_STEPS = 6  # of Lanczos' method, to see whether A has both signs


def refuse_method(method: Method) -> None:
    """Raises UnsupportedOperation for a method that needs all of A, or the vectors of NumPy."""
    if method.takes_rows:
        return
    if method.on_host or method.factorises or method.needs_grid or method.needs_band or method.needs_known:
        raise UnsupportedOperation(
            f"{method.name} needs whole vectors and the entries of A; with over= each member has a part, and A is a "
            "function. Use a Krylov method of krylix: CG, MINRES, biCG-stab(2), GMRES, IDR(4), ..."
        )


class Chosen(NamedTuple):
    """A method, and why it was chosen."""

    method: Method
    why: str


def choose_over(system: System) -> Chosen:
    """The method that "auto" takes, by products alone; all members choose alike.

    CG for a symmetric (Hermitian) A whose Ritz values in a small Krylov space have one sign, MINRES for another
    symmetric one, else biCG-stab(2); this too where A is known in a program only.

    Cost: 8 products and 20 messages, of which 6 and 13 for a symmetric A only; none in a program.
    """
    if system.bk.communicator.is_traced:
        return Chosen(METHODS["biCG-stab(2)"], "A is known in the program only, which suits any A")
    with system.bk.errstate():
        symmetric, definite = _symmetry(system.bk, system.A, system.b)
    if not symmetric:
        return Chosen(METHODS["biCG-stab(2)"], "products with vectors show that A is not symmetric")
    if definite:
        return Chosen(METHODS["CG"], "products with vectors show A to be symmetric, and of one sign")
    return Chosen(METHODS["MINRES"], "products with vectors show A to be symmetric, and of both signs")


def _symmetry(bk: Backend, A: Operator, like: Array) -> tuple[bool, bool]:
    """Is `<u, A v> = <A u, v>` for random u and v; and then, have all Ritz values from u the sign of `<u, A u>`?"""
    shape = (int(like.shape[0]), A.shape[1])
    seeds = [(seed, int(bk.communicator.rank)) for seed in (4, 5)]
    u, v = (bk.asarray(np.random.default_rng(seed).standard_normal(shape).astype(A.dtype), like=like) for seed in seeds)
    Au, Av = bk.copy(A.apply(u)), bk.copy(A.apply(v))
    size = bk.norm(u) * bk.norm(Av) + bk.norm(Au) * bk.norm(v)
    differ = bk.abs(bk.dot(u, Av) - bk.dot(Au, v)) > PRODUCTS * float(np.finfo(A.dtype).eps) * size
    if bk.any(differ):
        return False, False
    form = bk.real(bk.dot(u, Au))
    against = bk.where(form > 0, bk.full_like(form, -1), bk.full_like(form, 1))
    other = largest_eigenvalue(bk, lambda w: bk.times(against, A.apply(w)), u, _STEPS)
    return True, not bk.any(other > 0)


def check_over(system: System, method: Method, M: Operator | None) -> None:
    """Refuse what the method cannot do; what all members find alike.

    Raises:
        TypeError, ValueError, UnsupportedOperation: got / expected / do this instead.
    """
    systems = system.layout.systems
    if M is not None and M.systems not in (None, systems):
        raise ValueError(f"The preconditioner was made for {M.systems} systems; got {systems} right-hand sides.")
    method.check(system.A, M)
    if not method.needs_transpose:
        return
    for operator in (system.A, M):
        try:
            if operator is not None:
                operator.transpose()
        except TypeError as error:
            raise UnsupportedOperation(f"{method.name} needs products with the transpose. {error}") from error
