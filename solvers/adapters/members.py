"""Solves whose vectors are divided over the members of a communicator (`linear_solve(over=...)`).

Each member first checks its own arguments, without a message. Then the members exchange whether any has failed, and
their settings: a member on another path would leave the others waiting for ever. No decision is made by one member's
part alone: no entries are traced, no set-up is kept, no fallback is tried, and no cause of a failure is looked for.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, agreed, choose_backend, find_communicator, of_libraries, over_members
from ...sparse import FunctionOperator, HostOperator, Operator, SparseMatrix, UnsupportedOperation, is_function
from ...sparse.analysis.canonical import canonical
from ...sparse.analysis.spectrum import largest_eigenvalue
from ...sparse.analysis.symmetry import PRODUCTS
from ...sparse.formats.sparse_matrix import row_block
from ..choose import Explanation, auto_reason
from ..judge import solve
from ..methods.method import Method
from ..methods.petsc.inverse import PetscInverse, with_diagonal
from ..methods.petsc.system import checked_indices, checked_values, petsc
from ..methods.registry import METHODS, find_method, is_auto
from ..plan import Plan, Rung
from ..preconditioners import Preconditioner, to_preconditioner
from ..preconditioners.build import check_kind
from ..preconditioners.chebyshev import ChebyshevOperator
from ..read.arguments import Request, find_limits
from ..read.requirements import refuse_preconditioner
from ..read.system import KnownNull, System, read_system
from ..results.result import SolveResult
from ..singular.projections import WithoutVectors


def solve_over(request: Request) -> SolveResult:
    """Solve over a communicator: x and residual are the parts of this member, the numbers are those of the whole."""
    return solve(*plan_over(request), request.b)


def plan_over(request: Request, made: Operator | None = None, previous: Operator | None = None) -> tuple[Plan, System]:
    """The plan and the system, the same in all members.

    Args:
        made: a preconditioner of an earlier solve with this A.
        previous: that of another A, which may have the same pattern.
    """
    method = None if is_auto(request.method) else find_method(request.method, request.A)
    if method is not None and method.takes_rows and not isinstance(made, PetscInverse):
        request, made = _rows_over(request, method, previous)
    constants = isinstance(made, PetscInverse) and made.has_constants
    system, given = _system_over(replace(request, nullspace="constant") if constants else request, method)
    system = replace(system, both=True) if constants else system
    A = system.A if system.given is None else system.given.A
    plan = Plan(A, KnownNull(system.null, system.both), (), source=system.source)
    if system.is_empty:
        return replace(plan, rungs=(Rung(method or METHODS["CG"]),)), system
    if method is None:
        method, reason = _chosen(system)
        why = Explanation("a function of parts of vectors", (), reason, method.name, reason, None)
        plan = replace(plan, why=why, reason=auto_reason(reason))
    M = _made_of_products(given, system) if made is None else made
    agreed(system.bk.communicator, "the requirements of the method", lambda: _check_requirements(system, method, M))
    return replace(plan, rungs=(Rung(method, M),)), system


# --- prepared solvers: the method and the preconditioner are kept, the function is called anew


def prepared_over(request: Request, previous: Operator | None = None) -> tuple[Plan, Request]:
    """The plan and the settings of many solves with the same A; `previous` as in `plan_over`."""
    automatic = isinstance(request.preconditioner, str) and request.preconditioner.strip().lower() == "auto"
    asked = replace(request, preconditioner=None) if automatic else request
    plan, _ = plan_over(asked, previous=previous)
    return replace(plan, source=None), replace(asked, A=None, args=(), method=plan.method, b=request.b)


def solve_prepared_over(A: Operator, M: Operator | None, request: Request) -> SolveResult:
    """Solve for a right-hand side with the current function A and the kept preconditioner M."""
    alone = choose_backend(request.b)
    communicator = over_members(alone, request.over).communicator
    agreed(communicator, "the length of b", lambda: _check_length(A, request, alone))
    args: Any = A.args if isinstance(A, FunctionOperator) else ()
    function = A.function if isinstance(A, FunctionOperator) else A.linear  # type: ignore[attr-defined]
    return solve(*plan_over(replace(request, A=function, args=args), M), request.b)


def _check_length(A: Operator, request: Request, alone: Backend) -> None:
    shapes = [tuple(int(n) for n in np.shape(leaf)) for leaf in alone.leaves(request.b)[0]]
    if isinstance(A, FunctionOperator):
        length = sum(math.prod(shape[request.batch_ndim :]) for shape in shapes)
    else:
        length = shapes[0][-1 if request.axis is None else request.axis] if shapes[0] else 1
    if length != A.shape[0]:
        raise ValueError(
            f"b has {length} numbers for each system in this member, in the shape {', '.join(map(str, shapes))}; this "
            f"solver was prepared for {A.shape[0]} of them. Prepare another one for a b of this length."
        )


# --- the system: this member's part of it, and the agreement of all


def _system_over(request: Request, method: Method | None) -> tuple[System, Operator | str | None]:
    """The system in this member's rows, and the preconditioner of this part, the name of one made of products, or None.

    Cost: 3 messages, and 1 product; more with null vectors.
    """
    communicator = find_communicator(request.over)
    bk, local, M, vectors = agreed(communicator, "the arguments", lambda: _checked(request, method))
    _agree_on_settings(bk, request, local)
    limits, several = find_limits(bk, request.max_iter, bk.unknowns(local.b), local.layout.batch)
    A = _on_members(local.A if local.given is None else local.given.A, bk)
    # Null vectors that are given are those of A, not of its adjoint.
    system = replace(local, bk=bk, limits=limits, several=several, both=local.both and vectors is None)
    if system.is_empty:
        return replace(system, A=A), None
    A, rows = _linear(bk, A, local)
    if isinstance(M, Preconditioner) and isinstance(M.inner, FunctionOperator):  # others act on this part alone
        inner = _on_members(M.inner, bk)
        inner.may_round = True  # type: ignore[attr-defined]
        M = replace(M, inner=inner)
    given = None
    if local.given is not None:
        given = replace(local.given, A=A, b=rows)
        A, rows = given.equations()
    null = None if vectors is None else _orthonormal(bk, A, vectors)
    return replace(system, A=A, b=rows, given=given, null=null), M


def _checked(request: Request, method: Method | None) -> tuple[Backend, System, Any, Array | None]:
    """Without a message: the backend of the communicator, the problem of this part, its M and its null vectors."""
    A = request.A
    alone = choose_backend(request.b, A, request.x0, *of_libraries(request.args))
    alone.check_numbers(request.b, "b")
    bk = over_members(alone, request.over)
    if alone.is_eager and alone.compiled():
        raise UnsupportedOperation(
            "A transformation of functions (vmap, grad, jvp) runs, which sends no messages; expected a solve outside "
            "of it. Give a batch by batch_ndim, and take derivatives by autograd."
        )
    if request.sharding is not None:
        raise ValueError(
            f"sharding={request.sharding!r} tells how a whole b is spread over devices, and with over= b is the part "
            "of one member; give one of the two."
        )
    if request.matrix_offset is not None:
        raise ValueError(
            "matrix_offset adds a number to every entry of A, and with over= it would have to be summed over all "
            "members; expected None. Add it in the function A, with a sum over the communicator."
        )
    of_scipy = alone.on_host and hasattr(A, "matvec") and not isinstance(A, Operator)
    if not (is_function(A) or isinstance(A, FunctionOperator) or of_scipy):
        also = ", a LinearOperator" if alone.on_host else ""
        raise TypeError(
            f"A is a {type(A).__name__}; with over= expected a function of this member's part{also}, which exchanges "
            "with other members what it needs: a matrix does not tell how their unknowns are coupled to these."
        )
    if method is not None and not method.takes_rows and (
        method.on_host or method.factorises or method.needs_grid or method.needs_band or method.needs_known
    ):  # fmt: skip
        raise UnsupportedOperation(
            f"{method.name} needs whole vectors and the entries of A; with over= each member has a part, and A is a "
            "function. Use a Krylov method of krylix: CG, MINRES, biCG-stab(2), GMRES, IDR(4), ..."
        )
    system = read_system(request, method)
    M = _of_one_part(request.preconditioner, system, method)
    return bk, system, M, _given_vectors(request.nullspace, system)


def _agree_on_settings(bk: Backend, request: Request, local: System) -> None:
    # Members with different settings would take different steps.
    monitor, method = request.monitor, request.method
    watched = None if monitor is None else (monitor.callback is None, monitor.time_limit is None)
    kind = request.preconditioner if isinstance(request.preconditioner, str) else type(request.preconditioner).__name__
    if not isinstance(method, str):
        method = repr(method) if is_dataclass(method) else method.name
    numbers = [repr(value) for value in (request.rtol, request.atol, request.max_iter)]
    null = request.nullspace if isinstance(request.nullspace, str | None) else np.shape(request.nullspace)[:1]
    settings = (method, kind, *numbers, request.x0 is None, request.history, null, watched)
    mine = repr((*settings, local.layout.batch, local.A.dtype.name, request.on_failure == "nan", request.derived))
    number = zlib.crc32(mine.encode())
    most, least = bk.communicator.max_of_numbers([number, -number])
    if most != -least:
        raise ValueError(
            "The settings of the members of the communicator differ; expected one method, one preconditioner, the same "
            f"tolerances, limits, batch axes and dtype in all {bk.communicator.size}. This one has {mine}."
        )


def _on_members(A: Operator, bk: Backend) -> Operator:
    if isinstance(A, HostOperator):
        return A.of_part(bk)
    if not isinstance(A, FunctionOperator):
        raise TypeError(f"A is a {type(A).__name__}; expected a function.")
    return FunctionOperator(bk, A.function, A.layout, A.dtype, A.args, A.name, A.like, image=A.image)


def _linear(bk: Backend, A: Operator, local: System) -> tuple[Operator, Array]:
    """The linear part of A, and b without its constant part; all members find one, or none does."""
    b, communicator = local.b, bk.communicator
    zeros = bk.zeros((local.layout.systems, A.shape[1]), A.dtype, local.like)
    if not isinstance(A, FunctionOperator):
        agreed(communicator, "its first product with A", lambda: A.apply(zeros))
        return A, b
    if communicator.is_traced:
        A = A.as_traced()
        constant = A.apply(zeros)
    else:
        constant = agreed(communicator, "its first product with A", lambda: A.apply(zeros))
        image = bk.to_numpy(constant)
        mine = [bk.tracks(constant), bk.tracks(b)]
        is_affine = bool(np.any(image[np.isfinite(image)]))
        affine, *tracked = communicator.max_of_numbers([is_affine, *mine, *(not one for one in mine)])
        if any(yes and no for yes, no in zip(tracked[:2], tracked[2:], strict=True)):
            raise ValueError(
                "Derivatives with respect to b, or to what A depends on, are recorded in some members of the "
                "communicator only; expected all or none: each takes part in the solve for a derivative. Set "
                "requires_grad_() in all."
            )
        A.tracked = mine[0]
        constant = constant if affine else None
    linear = A.with_constant(constant)
    linear.is_linear = True
    return linear, b if constant is None else linear.image.difference(bk, b, constant)


# --- the method

_STEPS = 6  # of Lanczos' method, to find out whether A has eigenvalues of both signs


def _chosen(system: System) -> tuple[Method, str]:
    """The method that "auto" chooses by products alone, and why; the same in all members.

    CG for a symmetric (Hermitian) A whose Ritz values in a small Krylov space have one sign, MINRES for another
    symmetric one, else biCG-stab(2), also where A is known in a program only.

    Cost: 8 products and 20 messages, of which 6 and 13 for a symmetric A only; none in a program.
    """
    if system.bk.communicator.is_traced:
        name, why = "biCG-stab(2)", "A is known in the program only, which suits any A"
    else:
        with system.bk.errstate():
            symmetric, definite = _symmetry(system.bk, system.A, system.b)
        if not symmetric:
            name, why = "biCG-stab(2)", "products with vectors show that A is not symmetric"
        else:
            name, sign = ("CG", "one sign") if definite else ("MINRES", "both signs")
            why = f"products with vectors show A to be symmetric, and of {sign}"
    return METHODS[name], why


def _symmetry(bk: Backend, A: Operator, like: Array) -> tuple[bool, bool]:
    """Is A symmetric for two random vectors, and do its Ritz values then have one sign?"""
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


def _check_requirements(system: System, method: Method, M: Operator | None) -> None:
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


# --- the preconditioner: each member applies its own to its part

_DEGREE, _RATIO, _MARGIN = 4, 30.0, 1.1


def _of_one_part(M: Any, system: System, method: Method | None) -> Operator | str | None:
    """The preconditioner of this part, on the library's own backend; or "chebyshev", which is made of products.

    A matrix, an operator or a `Preconditioner` is one for this part alone: block Jacobi over the members.
    """
    if method is not None:
        refuse_preconditioner(method, M)
    if isinstance(M, str):
        kind = check_kind(M)
        if kind in ("auto", "chebyshev"):
            return None if kind == "auto" else kind
        raise UnsupportedOperation(
            f"preconditioner={M!r} is made of the entries of A, and with over= A is a function. Make it of the entries "
            f"between the unknowns of this member, M = krylix.preconditioner(A_here, {kind!r}), and give M; or give a "
            "function r -> M r of this part (for Jacobi r / diagonal), or 'chebyshev'."
        )
    made = to_preconditioner(M, system.A, system.bk, system.layout, system.like)
    if method is not None and method.needs_symmetry and isinstance(made, Preconditioner) and made.hermitian is False:
        raise ValueError(
            f"{method.name} needs a symmetric preconditioner; {made!r} is not. Use biCG-stab(2) or GMRES with it."
        )
    return made


def _made_of_products(kind: str | Operator | None, system: System) -> Operator | None:
    """The preconditioner on the members, where its name was given.

    Cost: "chebyshev": 10 products with A and 3 messages each; then 3 products per application.
    """
    if not isinstance(kind, str):
        return kind
    bk, A, systems = system.bk, system.A, system.layout.systems
    numbers = bk.scatter_numbers(A.shape[1], np.dtype(bk.dtype(bk.real(system.b))), system.b)
    start = bk.copy(bk.broadcast_to(bk.astype(numbers, A.dtype)[None, :], (systems, A.shape[1])))
    with bk.errstate():
        bound = _MARGIN * largest_eigenvalue(bk, A.apply, start)
    bound = bk.constant(bk.where(bound > 0, bound, bk.full_like(bound, 1)))
    inverse = bk.full((1, A.shape[0]), 1, A.dtype, system.like)
    operator = ChebyshevOperator(A, inverse, bound, _DEGREE, _RATIO)
    note = f"{_DEGREE - 1} products with A per application, not scaled by its diagonal"
    return Preconditioner(operator, kind, None, A.shape[0] + 1, note=note)


# --- null vectors, of which each member gives its part

_DEPENDENT = 1e3  # times eps: least norm of a unit vector without its components in the others


def _given_vectors(nullspace: Any, system: System) -> Array | None:
    """`(k, n)`, parts of null vectors; None where none are given: "auto" would need entries, so it finds none here."""
    bk, n, dtype = system.bk, system.layout.size, system.A.dtype
    if nullspace is None or (isinstance(nullspace, str) and nullspace == "auto"):
        return None
    if isinstance(nullspace, str):
        if nullspace != "constant":
            raise ValueError(f"nullspace must be 'auto', None, 'constant' or an array of vectors; got {nullspace!r}.")
        return bk.full((1, n), 1, dtype, system.like)
    vectors = nullspace if bk.is_array(nullspace) else bk.asarray(np.asarray(nullspace), like=system.like)
    shape = tuple(vectors.shape)
    if not shape or not shape[0] or shape[1:] not in (system.layout.shape, (n,)):
        raise ValueError(
            f"nullspace has the shape {shape}; expected (k, *{system.layout.shape}), this member's part of k vectors."
        )
    if bk.dtype(vectors).kind == "c" and dtype.kind != "c":
        raise TypeError(f"nullspace is complex, and the system is one of {dtype}; give real vectors.")
    return bk.astype(bk.reshape(vectors, (shape[0], n)), dtype)


def _orthonormal(bk: Backend, A: Operator, vectors: Array) -> WithoutVectors:
    """Projection that removes the vectors, by Gram-Schmidt, twice.

    Cost: 2 messages for each vector and 2 for each pair, and outside of programs 1 product for each.
    """
    eps, known = np.finfo(A.dtype).eps, not bk.communicator.is_traced
    with bk.errstate():
        rows: list[Array] = []
        for i in range(int(vectors.shape[0])):
            v = vectors[i : i + 1, :]
            v = bk.times(1 / bk.norm(v), v)
            for _ in range(2):
                for u in rows:
                    v = v - bk.dot(u, v) * u
            length = bk.norm(v)
            if known and not bk.to_numpy(length).min() > _DEPENDENT * eps:
                raise ValueError(
                    "The vectors of nullspace are zero, not finite or linearly dependent; give each direction once."
                )
            rows.append(bk.times(1 / length, v))
        numbers = bk.reshape(bk.scatter_numbers(A.shape[1], np.dtype(bk.dtype(bk.real(vectors))), vectors), (1, -1))
        usual = _image_norm(bk, A, bk.times(1 / bk.norm(numbers), bk.astype(numbers, A.dtype))) if known else 0.0
        for i, v in enumerate(rows if known else ()):
            mapped = _image_norm(bk, A, v)
            if mapped > np.sqrt(eps) * usual:
                raise ValueError(
                    f"A does not map vector {i} of nullspace to zero (|A v| = {mapped:.1e}, a random v gives "
                    f"{usual:.1e}). Give this member's parts of null vectors of A, or nullspace=None."
                )
        return WithoutVectors(bk, bk.constant(bk.concat(rows, 0)))


def _image_norm(bk: Backend, A: Operator, v: Array) -> float:
    rows = bk.copy(bk.broadcast_to(v, (A.systems or 1, int(v.shape[1]))))
    return float(np.max(bk.to_numpy(bk.norm(A.apply(rows)))))


# --- matrices, for methods that take the rows of this member

_ROUNDING = 64  # times eps, of the sums of |a_ij|: bound of sums of rows and columns that are zero


def _rows_over(request: Request, method: Any, previous: Operator | None) -> tuple[Request, PetscInverse]:
    """The request with a product in place of the matrix, and the set-up of the method for it.

    The matrix is CSR of this member's rows, `(local, n)` as many as b has here; or one of all rows `(n, n)`, such as a
    traced function, which is cut; or a Mat of PETSc.

    Cost: 6 messages of a number, the set-up, and with nullspace="auto" 2 products.
    """
    alone = choose_backend(request.b)
    bk = over_members(alone, request.over)
    communicator: Any = bk.communicator
    local = agreed(communicator, "the matrix and b", lambda: _local_size(request, alone))
    sizes = communicator.comm.allgather(local)
    mat, rows = None, None
    if _is_mat(request.A):
        mat = request.A
        agreed(communicator, "the Mat", lambda: _check_mat(mat, local))
    else:
        first = sum(sizes[: communicator.rank])
        rows = agreed(communicator, "its rows", lambda: _rows(request.A, first, local, sum(sizes), method.block_size))
    made, product = method.of_rows(bk, rows, mat, previous)
    automatic = isinstance(request.nullspace, str) and request.nullspace == "auto"
    made.has_constants = automatic and _has_constants(bk, product, made)
    return replace(request, A=product), made


def _local_size(request: Request, alone: Any) -> int:
    if not alone.on_host:
        raise TypeError(
            f"b is an array of {alone.name}; with over= the vectors of PETSc are NumPy's. Convert b, or leave over out."
        )
    A, b = request.A, np.asarray(request.b)
    if is_function(A) and not _is_mat(A):
        raise TypeError(
            "A is a function; with over= and method='petsc' expected the rows of this member, CSR of the shape "
            "(local rows, n), or the matrix of the whole function, krylix.matrix_from_function(f, like)[0], to be cut."
        )
    if request.axis not in (None, -1) or request.batch_ndim not in (0, b.ndim - 1):
        raise ValueError(
            "With over= and method='petsc' vectors lie on the last axis of b; leave axis and batch_ndim out."
        )
    if b.ndim < 1:
        raise ValueError("b is a single number; expected this member's part of a vector.")
    return int(b.shape[-1])


def _rows(A: Any, first: int, local: int, n: int, block_size: int) -> Any:
    """This member's rows as canonical CSR with a diagonal, in dtypes that PETSc takes."""
    petsc()
    shape = tuple(getattr(A, "shape", ()))
    if len(shape) != 2 or not (sp.issparse(A) or isinstance(A, SparseMatrix | np.ndarray)):
        raise TypeError(
            f"A is a {type(A).__name__}; with over= and method='petsc' expected a sparse matrix of SciPy or krylix "
            "with the rows of this member (local rows, n) or of all members (n, n), or a Mat of PETSc."
        )
    if shape[1] != n or shape[0] not in (local, n):
        raise ValueError(
            f"A has the shape {shape}; this member's b has {local} of {n} unknowns, so expected ({local}, {n}), its "
            f"rows, or ({n}, {n}), all of them."
        )
    if local % block_size:
        raise ValueError(f"This member has {local} rows, which is no multiple of block_size={block_size}.")
    if shape[0] == local:
        rows = A.known() if isinstance(A, SparseMatrix) else A
    elif isinstance(A, SparseMatrix):
        rows = row_block(A, first, first + local)
    else:
        rows = sp.csr_array(A)[first : first + local]
    rows = with_diagonal(canonical(sp.csr_array(rows)), first)
    if not np.all(np.isfinite(rows.data)):
        raise ValueError("A has no solution in finite numbers: rows of this member have NaN or infinity.")
    checked_indices(rows.indptr[:0], n, rows.nnz)
    checked_values(rows.data[:0] if rows.dtype.kind != "c" else rows.data)
    return rows


def _is_mat(A: Any) -> bool:
    return hasattr(A, "getOwnershipRange")  # of PETSc


def _check_mat(mat: Any, local: int) -> None:
    if not mat.isAssembled():
        raise ValueError("A PETSc Mat that is not assembled was given: call A.assemble() first.")
    (rows, n), (own, columns) = mat.getSize(), mat.getLocalSize()
    if rows != n or own != columns or own != local:
        raise ValueError(
            f"A is a Mat of {rows} rows and {n} columns, {own} and {columns} of them in this process, and its part of "
            f"b has {local} numbers; expected one number for each row, and a square matrix whose columns are cut alike."
        )


def _has_constants(bk: Any, product: Any, made: Any) -> bool:
    """Do A and its adjoint map the constant to zero, up to rounding?"""
    ones = np.ones(product.shape[0], product.dtype)
    usual = abs(bk.norm(made.scale_of_rows()[None])[0, 0])
    eps = _ROUNDING * float(np.finfo(product.dtype).eps)
    return all(
        bool(bk.norm(multiply(ones)[None])[0, 0] <= eps * usual) for multiply in (product.matvec, product.rmatvec)
    )
