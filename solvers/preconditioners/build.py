"""Build a preconditioner from a matrix and a kind, from an object of the user, or from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from typing import Any

import numpy as np

from ...backends import Array, Backend, choose_backend, without_compilers
from ...backends.profile.spans import span
from ...backends.tracebacks import front_door
from ...sparse import (
    CutRows,
    Layout,
    Operator,
    RowCutMatrix,
    UnsupportedOperation,
    as_operator,
    is_function,
    operand_dtype,
    to_operator,
)
from ...sparse.analysis.analysis import analyse_anew, analysed, analysis_of
from ...sparse.files.saved import load_operator
from ...sparse.formats import Matrix
from ..diagonal import DOMINANT
from ..factors.inverse import DirectInverse
from ..methods.method import Method
from ..names import NO_PRECONDITIONER, is_method, preconditioner_meant, squeezed
from .amg.amg import amg
from .amg.hierarchy import updated
from .chebyshev import chebyshev, chebyshev_by_parts
from .choose import AUTOMATIC, choose_kind, chosen_for_blocks
from .composed import foreign_piece
from .fast import fast, fast_on_cut_grid
from .ilu import ic, ilu, ssor
from .jacobi import block_jacobi, jacobi, jacobi_on_blocks
from .multigrid.cut import multigrid_on_cut_grid
from .multigrid.multigrid import multigrid
from .operators import Preconditioner, Spread
from .pipeline import check_square, constant_linear_part
from .shifted_laplacian import shifted_laplacian
from .two_level import block_jacobi_by_parts, cluster, schwarz, schwarz_by_parts

PRECONDITIONERS: dict[str, Callable[..., Preconditioner]] = {
    "jacobi": jacobi,
    "block-jacobi": block_jacobi,
    "ssor": ssor,
    "chebyshev": chebyshev,
    "ilu": ilu,
    "ic": ic,
    "amg": amg,
    "multigrid": multigrid,
    "fast": fast,
    "cluster": cluster,
    "shifted-laplacian": shifted_laplacian,
    "schwarz": schwarz,
}
"""Name -> function that builds it from an operator; tests and the command line use this table."""

ON_CUT_GRIDS: dict[str, Callable[..., Preconditioner | None]] = {
    "multigrid": multigrid_on_cut_grid,
    "fast": fast_on_cut_grid,
    "jacobi": jacobi_on_blocks,
}
"""Kinds with a form for vectors spread over a device mesh; they return None for other cuts of the vectors."""

BY_PARTS: dict[str, Callable[..., Preconditioner]] = {
    "jacobi": jacobi,
    "chebyshev": chebyshev_by_parts,
    "block-jacobi": block_jacobi_by_parts,
    "schwarz": schwarz_by_parts,
}
"""Kinds that are set up and applied part by part, for matrices whose rows are cut (`CutRows`)."""

UPDATES: dict[str, Callable[[Preconditioner, Operator], Preconditioner | None]] = {"amg": updated}
"""Name -> function that updates M to the values of another matrix, or returns None where it cannot."""


@front_door
def preconditioner(A: Any, kind: str = "auto", *, like: Any = None, **settings: Any) -> Preconditioner:
    """Compute a preconditioner M, an approximation of the inverse of A, to be passed to `linear_solve`.

    Args:
        A: a matrix of any kind (dense, sparse, operator), or a function, which is traced; or an object that is a
            preconditioner by itself: factors of SciPy's `splu` and `spilu`, or a hierarchy of pyamg.
        kind: "jacobi", "block-jacobi", "ssor", "chebyshev", "ilu", "ic", "amg", "multigrid", "fast", "cluster",
            "shifted-laplacian", "schwarz"; "auto" chooses by the known properties of A.
        like: an array of the shape and dtype that a function takes. For a matrix of NumPy or SciPy: an array of the
            library in which the preconditioner is to be applied.
        **settings: further settings of that kind, which docs/preconditioners.md lists.

    Returns:
        Preconditioner: `M1 + M2` and `c * M` are preconditioners, too.

    Raises:
        ValueError: there is no such kind, or a setting or the matrix does not suit it.
        UnsupportedOperation: A does not give access to the entries that this kind needs.

    Examples:
        >>> import numpy as np, scipy.sparse as sp, krylix
        >>> A = sp.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(100, 100), format="csr")
        >>> M = krylix.preconditioner(A, "ic")
        >>> result = krylix.linear_solve(A, np.ones(100), method="CG", preconditioner=M)
        >>> result.preconditioner, bool(result.converged)
        ('ic', True)
    """
    return without_compilers(_of_user)(A, kind, like, settings)


preconditioner._torchdynamo_disable = True  # type: ignore[attr-defined]  # see linear_solve


def _of_user(A: Any, kind: str, like: Any, settings: dict[str, Any]) -> Preconditioner:
    if not isinstance(kind, str):
        raise TypeError(f"kind={kind!r} was given; expected a name: auto, {', '.join(PRECONDITIONERS)}.")
    M = A if isinstance(A, Preconditioner) else foreign_piece(A)
    if M is None:
        operator = as_operator(A, like)
        kept, operator.analysis = operator.analysis, None  # The caller may have written to A since it was analysed.
        try:
            return _build(operator, kind, settings, None, _spread_of(like, operator))
        finally:
            operator.analysis = kept
    named = kind.strip().lower() != "auto"
    if named or settings:
        asked = f"kind={kind!r}" if named else ", ".join(settings)
        raise ValueError(f"{M!r} is a preconditioner by itself; got {asked} too. Leave that out, or give A.")
    if like is None:
        return M
    bk = choose_backend(like)
    dtype = np.result_type(M.dtype, bk.dtype(bk.asarray(like)))
    return replace(M, inner=to_operator(bk, M.inner, None, dtype, (), like))


def _spread_of(like: Any, A: Operator) -> Spread | None:
    if like is None or not A.bk.is_array(like) or tuple(like.shape) != A.in_shape:
        return None
    cut = A.bk.cut_of(like, 0)
    return None if cut is None else Spread(A.in_shape, cut)


def to_preconditioner(
    M: Any,
    A: Operator,
    bk: Backend,
    layout: Layout,
    like: Any,
    previous: Operator | None = None,
    precision: str | None = None,
    spread: Spread | None = None,
) -> Operator | None:
    """The operator that `linear_solve(preconditioner=M)` means, or None.

    Args:
        precision: precision of a kind that is chosen here, if it has this setting; see `Method.combines_images`.
        previous: preconditioner for other values of A, updated where its kind can be.
        spread: how vectors are spread over devices, if known.

    Raises:
        ValueError: the name is unknown, or the size is not that of A.
        TypeError: it is complex, and the system real.
    """
    if M is None:
        return None
    if isinstance(M, Method) or (isinstance(M, type) and issubclass(M, Method)):
        raise TypeError(
            f"preconditioner={M!r} was given, which is a method: give it as method=..., or for a preconditioner that "
            "iterates a function r -> M r."
        )
    if isinstance(M, str):
        if isinstance(previous, Preconditioner) and previous.kind in UPDATES and previous.kind == _key(A, M):
            linear = constant_linear_part(A)
            with analysed(linear):
                updated = UPDATES[previous.kind](previous, linear)
            if updated is not None:
                return updated.on_grid_of(linear)
        return _build(A, M, _previous_precision(previous, M), precision, spread)
    if is_function(M):
        function = to_operator(bk, M, layout, A.dtype, (), like, "preconditioner")
        function.may_round = True  # type: ignore[attr-defined]
        return Preconditioner(function, "user's function")
    foreign = foreign_piece(M)
    given = M if foreign is None else foreign.inner
    dtype = operand_dtype(given, bk)
    if dtype.kind == "c" and A.dtype.kind != "c":
        raise TypeError(
            f"A preconditioner of {dtype} was given for a system of {A.dtype}; expected a real one, as x is real. Give "
            "its real part, or a complex A or b."
        )
    if isinstance(M, Matrix):
        analyse_anew(M)
    operator = to_operator(bk, given, layout, A.dtype, (), like, "preconditioner")
    if operator.shape != A.shape:
        raise ValueError(f"The preconditioner has the shape {operator.shape}; expected {A.shape}, that of A.")
    if foreign is not None:
        return replace(foreign, inner=operator)
    if isinstance(operator, Preconditioner):
        return operator
    return Preconditioner(operator, getattr(operator, "kind", "user's matrix"))


def _previous_precision(previous: Operator | None, kind: str) -> dict[str, Any]:
    same = isinstance(previous, Preconditioner) and previous.kind == check_kind(kind)
    return {k: v for k, v in previous.settings if k == "precision"} if same else {}  # type: ignore[union-attr]


def _build(
    A: Operator, kind: str, settings: dict[str, Any], precision: str | None = None, spread: Spread | None = None
) -> Preconditioner:
    """Build M from the linear part of A, detached from derivatives."""
    if isinstance(A, RowCutMatrix):  # built by parts, for vectors in the user's order
        M = _build(A.inner, kind, settings, precision)
        return replace(M, inner=A.by(M.inner))
    A = constant_linear_part(A)
    with analysed(A), span("set-up", f"preconditioner {kind}", A.bk) as done:
        M = _of_kind(A, kind, settings, precision, spread)
        return done(M, made=M.kind).on_grid_of(A)


def _of_kind(
    A: Operator, kind: str, settings: dict[str, Any], precision: str | None, spread: Spread | None
) -> Preconditioner:
    key = check_kind(kind)
    check_square(A)
    if isinstance(A, CutRows):
        return _by_parts(A, key, settings)
    if key == "auto" and not settings:
        return _first_that_can_be_built(A, precision) if spread is None else chosen_for_blocks(A, precision, spread)
    key = _key(A, kind)
    _check_settings(key, PRECONDITIONERS[key], settings)
    if not A.shape[0] or A.systems == 0:  # empty: any kind will do
        return replace(jacobi(A), kind=key)
    M = None if spread is None or key not in ON_CUT_GRIDS else ON_CUT_GRIDS[key](A, spread=spread, **settings)
    return PRECONDITIONERS[key](A, **settings) if M is None else M


def _by_parts(A: CutRows, kind: str, settings: dict[str, Any]) -> Preconditioner:
    if kind == "auto":
        kind = "jacobi" if analysis_of(A).dominates(DOMINANT) else "schwarz"
    if kind not in BY_PARTS:
        raise UnsupportedOperation(
            f"{kind!r} was asked for a matrix whose rows are cut; kinds by parts are {', '.join(BY_PARTS)}. Use one "
            "of these, or give the matrix uncut, which each device then holds as a whole."
        )
    _check_settings(f"{kind} of a matrix whose rows are cut", BY_PARTS[kind], settings)
    return BY_PARTS[kind](A, **settings)


def _first_that_can_be_built(A: Operator, precision: str | None) -> Preconditioner:
    kinds = dict.fromkeys(PRECONDITIONERS)
    while (key := choose_kind(A, kinds)) != "jacobi":
        try:
            make = AUTOMATIC.get(key, PRECONDITIONERS[key])
            return make(A, **({"precision": precision} if "precision" in signature(make).parameters else {}))
        except (ValueError, UnsupportedOperation):  # Only building it shows whether it suits A.
            del kinds[key]
    return jacobi(A)


def _key(A: Operator, kind: str) -> str:
    key = check_kind(kind)
    return choose_kind(A, PRECONDITIONERS) if key == "auto" else key


def check_kind(kind: str) -> str:
    """Canonical name of a kind, or "auto", regardless of case and with `_` or spaces for hyphens."""
    kinds = {squeezed(name): name for name in ("auto", *PRECONDITIONERS)}
    key = squeezed(kind)
    if key in kinds:
        return kinds[key]
    meant, close = preconditioner_meant(kind, kinds), get_close_matches(key, kinds, 1)
    if key in NO_PRECONDITIONER:
        hint = "; for none give preconditioner=None."
    elif meant is None and is_method(kind):
        hint = f", which is a method: give method={kind!r}."
    else:
        meant = meant or (kinds[close[0]] if close else None)
        hint = f". Did you mean {meant!r}?" if meant else "."
    raise ValueError(f"No preconditioner is called {kind!r}{hint} Available: auto, {', '.join(PRECONDITIONERS)}.")


def _check_settings(name: str, make: Callable[..., Preconditioner], given: dict[str, Any]) -> None:
    _, *known = signature(make).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in known):
        return
    names = [p.name for p in known]
    unknown = [setting for setting in given if setting not in names]
    if unknown:
        raise ValueError(f"{name} has no setting {', '.join(unknown)}; it has {', '.join(names) or 'none'}.")


# --- from a file ---


def load_preconditioner(path: Any, like: Array | None = None) -> Preconditioner:
    """Read a preconditioner, or a factorisation of `prepare(...)`, from a file of its `save`.

    Args:
        path: path of the file, which may have been written by another library.
        like: an array of the library and on the device of use; None: those of the default backend.

    Returns:
        The preconditioner, or factors, which have `@`, `kind` and `save`, too.

    Raises:
        ValueError: the file is damaged, is no such file, or was written by a newer krylix.
        TypeError: it cannot be converted to the library.
        OSError, MemoryError: the file cannot be read.

    Cost: a few passes over the values, and a product or two. Factors of `scipy-direct` are computed again.

    Examples:
        >>> import tempfile, numpy as np, scipy.sparse as sp, krylix
        >>> A = sp.diags_array([2.0, 4.0], format="csr")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     krylix.preconditioner(A, "jacobi").save(f"{folder}/M.npz")
        ...     M = krylix.load_preconditioner(f"{folder}/M.npz")
        >>> M @ np.ones(2)
        array([0.5 , 0.25])
    """
    M: Any = without_compilers(_load)(path, like)
    return M


load_preconditioner._torchdynamo_disable = True  # type: ignore[attr-defined]  # see linear_solve


def _load(path: Any, like: Array | None) -> Operator:
    def check(M: Operator) -> None:
        if not isinstance(M, Preconditioner | DirectInverse) or M.shape[0] != M.shape[1]:
            raise ValueError(f"it holds {M!r}, no preconditioner; expected a file of Preconditioner.save")

    bk, M = choose_backend(like), load_operator(path, check)
    moved = M if bk is M.bk else M.on_backend(bk, like)
    if not isinstance(moved, Preconditioner | DirectInverse):
        raise TypeError(f"{path}: {M!r} serves NumPy arrays only; load it without `like`.")
    return moved
