"""The system that is solved: every argument checked, A as an operator on rows, b and x0 in rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, Cut, choose_backend, of_libraries, real_dtype
from ...backends.settings import checked_policy
from ...sparse import (
    Dense,
    FunctionOperator,
    HostOperator,
    Layout,
    Matrix,
    NonlinearError,
    OffsetOperator,
    Operator,
    SparseMatrix,
    UnsupportedOperation,
    batch_shape,
    is_function,
    linear_part,
    to_operator,
)
from ...sparse.analysis.analysis import analyse_anew, with_declared
from ...sparse.operators.concrete import for_compiled_products, is_known, without_derivatives
from ...sparse.operators.cut_grids import CutStencil, cut_stencil
from ..adapters.least_squares import LeastSquaresProblem
from ..methods.method import Method
from ..preconditioners.operators import Spread
from ..run.stopping import Limits
from ..run.watch import Monitor
from ..singular.constants import constants_at_run_time, find_constants
from ..singular.projections import are_of_adjoint, given_vectors
from .arguments import (
    Request,
    as_arrays,
    checked_offset,
    default_rtol,
    expected_vectors,
    find_limits,
    form_of,
    matched,
    refused_args,
    right_hand_side,
    tolerance,
)


class KnownNull(NamedTuple):
    """Projection that removes known null vectors of A, and whether the transpose has them too."""

    projection: Operator | None
    both: bool


@dataclass(frozen=True)
class System:
    """A x = b in rows of `(systems, n)`."""

    bk: Backend
    A: Operator
    b: Array
    x0: Array | None
    layout: Layout
    like: Array
    rtol: Array
    atol: Array
    by_default: bool  # default rtol? Then the attainable accuracy counts as converged too
    has_atol: bool  # may atol be more than zero? If it is known to be zero, it needs no scaling for derivatives
    limits: Limits
    several: bool  # was max_iter a sequence?
    null: Operator | None  # projects known null vectors of A out of rows, and ...
    both: bool  # ... those that the transpose has too
    compiled: bool
    on_failure: str = "raise"
    history: bool = False  # are residual norms recorded?
    monitor: Monitor | None = None  # progress, callback and time limit
    derived: bool = False  # is it the solve for a derivative?
    least_squares: bool = False  # are A x = b the normal equations of a least-squares problem, ...
    given: LeastSquaresProblem | None = None  # ... which is this one?
    source: Any = None  # the user's A
    cut: Cut | None = None  # how `(systems, *shape of one system)` is distributed over devices, where that is known

    @property
    def may_be_stopped(self) -> bool:
        """Is there a callback?"""
        return self.monitor is not None and self.monitor.callback is not None

    @property
    def spread(self) -> Spread | None:
        """How its vectors are spread over devices, where that is known."""
        return None if self.cut is None else Spread(self.layout.shapes[0], self.cut)

    @property
    def is_empty(self) -> bool:
        """Are there no systems, or no unknowns? Then there is nothing to factorise, and A has no entries."""
        whole = self.bk.communicator is None  # a member without unknowns still takes part
        return not (self.layout.systems and (self.layout.size or not whole))

    def spread_rows(self, rows: Array) -> Array:
        """Rows shaped as x, distributed as b is; those from the host lie on one device."""
        fits = int(rows.shape[-1]) == self.layout.size and self.given is None
        return self.bk.on_grid(rows, self.layout.shapes[0], self.cut) if fits else rows

    @property
    def is_implicit(self) -> bool:
        """May x need derivatives, by the implicit function theorem?"""
        return len(self.limits) == 1 and (self.compiled or self.is_tracked)

    @cached_property
    def is_tracked(self) -> bool:
        """Does the library record derivatives with respect to the data of the problem?"""
        bk = self.bk
        return bk.explicit_derivatives and (
            bk.tracks(self.b) or self.A.tracked or any(map(bk.tracks, bk.flatten(self.A)[0]))
        )


def read_system(request: Request, method: Method | None, null: KnownNull | None = None) -> System:
    """Check and convert; for a least-squares method, a rectangular or damped problem into its normal equations.

    With `request.over`, b is a part of a vector. Then nothing is evaluated here, where one member may fail alone: see
    `adapters/members.py`, which completes it.

    Args:
        request: the arguments; method and preconditioner are checked elsewhere.
        method: the method that will solve, None where it is still to be chosen.
        null: the null vectors of A from an earlier search, whose other facts of A are then kept too.

    Raises:
        ValueError, TypeError, NoBackendFound, NonlinearError: got / expected / do this instead.
    """
    checked_policy(request.on_failure)
    A, args, whole = request.A, request.args, request.over is None
    if not isinstance(args, list | tuple):
        raise TypeError(refused_args("A", args))
    bk = choose_backend(request.b, A, request.x0, *(args and of_libraries(args)), request.preconditioner)

    b, like, axis = right_hand_side(bk, request)
    if not bk.on_host and (bk.is_array(A) or bk.sparse.accepts(A)):
        bk.check_numbers(A, "A")
    layout, dtype = form_of(bk, A, b, request.batch_ndim)
    cut = _known_cut(bk, request, b, layout) if bk.compiles_solves or request.sharding is not None else None
    on_devices = None if cut is None or bk.in_program() else cut  # in a program a compiler cancels opposite reshapes
    rows = layout.flatten(bk, b, dtype, "b", cut=on_devices)
    layout = layout if axis is None else layout.along(axis)
    x0 = None if request.x0 is None else as_arrays(bk, request.x0, "x0", like)[0]

    unknown = _unknown(bk, A, x0, layout, method)
    operator = _operator(bk, request, layout, unknown, dtype, like, method)
    inner = operator.without_offset
    if null is None:  # A prepared solver keeps its facts.
        analyse_anew(inner)
    if unknown is layout and operator.shape[0] != operator.shape[1]:
        unknown = Layout(layout.batch, ((operator.shape[1],),), layout.dtypes, axis=layout.axis)
    if isinstance(inner, FunctionOperator) and inner.constant is not None:  # A x + c = b
        rows = layout.difference(bk, rows, inner.constant)
    if not layout.systems and bk.on_host and whole:
        # Without systems no product can show the entries.
        operator = to_operator(bk, sp.csr_array(operator.shape, dtype=dtype), None, dtype)
    if x0 is not None:
        x0 = bk.copy(_start(bk, x0, unknown, layout, dtype, on_devices))
    compiled = bk.compiled(rows, *(() if x0 is None else (x0,)), *args)
    limits, several = find_limits(bk, request.max_iter, unknown.size, layout.batch)

    given, damp = None, float(getattr(method, "damp", 0.0))
    if null is None:
        look = unknown is layout and not damp and layout.systems > 0 and whole
        null = _null_vectors(request, bk, operator, unknown, like, look)
    if unknown is not layout or damp:
        given = LeastSquaresProblem(operator, bk.flat(rows), layout, damp)
        operator, rows = given.equations() if whole else (operator, rows)
    if request.derived and null.both and null.projection is not None:
        rows = null.projection.apply(bk.flat(rows))
    real = real_dtype(bk.dtype(rows))
    return System(
        bk=bk, A=operator, b=rows, x0=x0, layout=unknown, like=like,
        rtol=tolerance(bk, request.rtol, default_rtol(dtype), "rtol", layout, rows, real),
        atol=tolerance(bk, request.atol, 0.0, "atol", layout, rows, real),
        by_default=request.rtol is None, has_atol=not isinstance(request.atol, int | float) or request.atol > 0,
        limits=limits, several=several, null=null.projection, both=null.both, compiled=compiled,
        on_failure=request.on_failure, history=request.history, monitor=request.monitor, derived=request.derived,
        least_squares=given is not None, given=given, source=A, cut=cut,
    )  # fmt: skip


def _known_cut(bk: Backend, request: Request, b: Any, layout: Layout) -> Cut | None:
    """The distribution of `(systems, *shape of one system)`; b has the vectors of a matrix on its last axis."""
    if layout.structure is not None:
        if request.sharding is not None:
            raise TypeError(
                f"sharding={request.sharding!r} was given for a container of arrays; expected one array. Spread its "
                "arrays by jax.device_put, and leave it out."
            )
        return None
    if request.sharding is not None and request.axis not in (None, -1):
        raise ValueError(
            f"sharding was given together with axis={request.axis}; expected vectors on the last axis. Give b.T."
        )
    sharding = request.sharding
    if sharding is None and tuple(b.shape) == tuple(getattr(request.b, "shape", ())) and request.axis in (None, -1):
        sharding = request.seen_sharding
    return bk.cut_of(b, len(layout.batch), sharding) if bk.spreads_arrays() or sharding is not None else None


def _unknown(bk: Backend, A: Any, x0: Any, layout: Layout, method: Method | None) -> Layout:
    """The layout of x: that of `x0` for a rectangular function, else that of b."""
    if x0 is None or not is_function(A) or method is None or not method.least_squares:
        return layout
    layout_of_x = Layout.of(bk, x0, len(layout.batch), "x0")
    if (layout_of_x.shapes, layout_of_x.structure) == (layout.shapes, layout.structure):
        return layout
    if layout_of_x.batch != layout.batch:
        raise ValueError(f"x0 has the batch axes {layout_of_x.batch}; expected {layout.batch}, those of b.")
    return layout_of_x.with_dtype(layout.dtypes[0])


def _start(bk: Backend, x0: Any, unknown: Layout, layout: Layout, dtype: np.dtype, cut: Cut | None) -> Array:
    shape, expected = tuple(getattr(x0, "shape", ())), unknown.whole((unknown.size,))
    if unknown is not layout and len(unknown.shapes[0]) == 1 and unknown.structure is None and shape != expected:
        raise ValueError(f"x0 has the shape {shape}; expected {expected}, because A has {unknown.size} columns.")
    return unknown.flatten(bk, x0, dtype, "x0", cut=cut if unknown is layout else None)


def _operator(
    bk: Backend,
    request: Request,
    layout: Layout,
    unknown: Layout,
    dtype: np.dtype,
    like: Array,
    method: Method | None,
) -> Operator:
    A, args, offset = request.A, request.args, request.matrix_offset
    least_squares = method is not None and method.least_squares
    if unknown is layout:
        operator = to_operator(bk, A, layout, dtype, args, like)
    else:
        operator = FunctionOperator(bk, A, unknown, dtype, args, "A(x)", like, image=layout)
    m, n = operator.shape
    if n != m and not least_squares:
        name = "auto" if method is None else method.name
        raise ValueError(
            f"A has the shape {operator.shape}; {name} needs a square matrix. For the least-squares solution use "
            "method='LSMR'."
        )
    if m != layout.size:
        raise ValueError(
            f"A has the shape {operator.shape} and b {tuple(like.shape)}; {expected_vectors(like, m, request.axis)}."
        )
    if isinstance(operator, Matrix):
        if operator.systems is not None:
            operator = matched(operator, batch_shape(A, bk), layout)
        elif bk.in_program() if bk.has_pure_arrays else bk.compiled():
            operator = for_compiled_products(operator)
    elif isinstance(operator, FunctionOperator):
        if operator is A and (A.layout.batch, A.layout.shapes) != (layout.batch, layout.shapes):
            raise ValueError(f"The operator takes arrays of shape {A.in_shape}; b has {tuple(like.shape)}.")
        operator = operator if request.program is None else operator.by_its_program(request.program)
        operator = operator if request.over is not None else _linear_part(operator, layout, unknown, least_squares)
    elif isinstance(operator, HostOperator):
        operator = operator.exactly()
    if request.declared:
        operator = with_declared(operator, request.declared)
    if offset is None:
        return operator
    offset = checked_offset(bk, offset, operator.dtype)
    return OffsetOperator(operator, offset) if offset else operator


_ABOUT_SHAPES = re.compile(r"shape|dimension|size|broadcast|mismatch|align|length", re.IGNORECASE)
_OTHER_CAUSES = ("A(x) returned", "A(x) is complex", "The function writes")  # in our own errors
_OF_SHAPES = (ValueError, TypeError, RuntimeError, IndexError)  # errors of libraries where shapes do not fit


def _linear_part(operator: FunctionOperator, layout: Layout, unknown: Layout, least_squares: bool) -> FunctionOperator:
    """`linear_part`, whose errors for an x shaped as b advise to give x0 where A may be rectangular."""
    try:
        return linear_part(operator)
    except (NonlinearError, UnsupportedOperation):
        raise
    except Exception as error:
        text = str(error).rstrip()
        ours = text.startswith(_OTHER_CAUSES) or "writes to its argument" in text
        if ours or (least_squares and unknown is not layout):
            raise
        by_library = isinstance(error, _OF_SHAPES) or type(error).__module__.startswith("tensorflow")
        of_shapes = by_library and "Tracer" not in type(error).__name__ and _ABOUT_SHAPES.search(text)
        if not (least_squares or of_shapes):
            raise
        if not text.startswith("A(x) "):
            text = f"A(x) failed for an x shaped as b, {layout.shape}: {text}"
        advice = "give x0: it tells the shape of x"
        advice = advice if least_squares else f"use method='LSMR', and {advice}"
        raise ValueError(f"{text}{'' if text.endswith('.') else '.'} If A is rectangular, {advice}.") from error


def _null_vectors(request: Request, bk: Backend, A: Operator, layout: Layout, like: Array, look: bool) -> KnownNull:
    given = request.nullspace if request.over is None else "auto"
    if isinstance(given, str) and given == "auto":
        return KnownNull(find_constants(A, layout, like) if look else None, both=True)
    if given is None:
        return KnownNull(None, both=False)
    vectors = given_vectors(given, bk, A, layout, like)
    return KnownNull(vectors, look and are_of_adjoint(vectors, bk, A, layout, like))


def with_constants(system: System, method: Method, matrix: Operator, request: Request) -> System:
    """Add the projection of `constants_at_run_time` to the problem.

    Dense factors detect singularity by themselves.

    Args:
        method: the method that will solve.
        system: for matrices that are known now, its null vectors have been looked for.
        matrix: of A, if known.
        request: of the solve.
    """
    if system.bk.is_eager and system.bk.compiled():  # a transformation, in which no branch may look at values
        return system
    automatic = isinstance(request.nullspace, str) and request.nullspace == "auto" and system.null is None
    square = system.given is None and system.layout.structure is None and not system.A.offset
    if not (automatic and square and isinstance(matrix, SparseMatrix | Dense)) or 0 in matrix.shape:
        return system
    if is_known(matrix) or (method.factorises and isinstance(matrix, Dense)):
        return system
    constant: Any = without_derivatives(matrix)
    if system.cut is not None and system.cut.all_names and isinstance(system.A, FunctionOperator):
        return _with_constants_on_blocks(system)
    return replace(system, null=constants_at_run_time(constant), both=True)


def _with_constants_on_blocks(system: System) -> System:
    """`with_constants` for values that would lie on each device; unchanged where A is no stencil of blocks."""
    bk, grid = system.bk, system.layout.shapes[0]
    rows = bk.on_grid(system.b, grid, system.cut)
    A: Any = None if system.cut is None else cut_stencil(system.A, system.cut, rows)
    if not isinstance(A, CutStencil):
        return system
    one = bk.full_like(bk.constant(rows), 1)
    own = replace(A, values=tuple(map(bk.constant, A.values)))
    return replace(system, null=constants_at_run_time(own, one), both=True)
