"""Properties of functions, found by evaluating them for random numbers: linearity, symmetry, facts of coefficients.

Known vectors are NumPy's while a program is traced: XLA would compile each operation of the function separately, which
takes longer than all the rest of the set-up.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ..analysis.analysis import Analysis, with_declared
from ..analysis.symmetry import CHOSEN, PRODUCTS
from ..errors import NonlinearError
from ..formats import Matrix, SparseMatrix
from ..peers.modules import WITH_MODES, state_of
from ..tracing.engine.limits import without_open_ended
from ..tracing.front_end import front_end_of
from .concrete import as_matrix, concrete, is_known
from .function import FunctionOperator


def known_product(A: FunctionOperator, x: np.ndarray, like: Any) -> np.ndarray | None:
    """`A.apply` of rows of NumPy, in memory of its own, where its numbers are known now; else None."""
    if A.recorded is not None and not A.recorded.is_known:
        return None
    bk, x = A.bk, np.ascontiguousarray(x.astype(A.dtype))
    if A.recorded is not None and A.constant is None and not A.may_round:
        found = _by_numpy(A, x)
        if found is not None:
            return found

    def image() -> Array:
        # made in here: outside, JAX would take it for a part of the compiled program
        image = A.apply(bk.asarray(x, like=like))
        A.tracked |= bk.tracks(image)
        return image

    value = bk.concrete_value(image)
    return None if value is None else value.copy()  # the function may use the same memory again


def products_agree(A: FunctionOperator, systems: int, like: Array) -> bool:
    """<u, A v> = <A u, v> for random u and v, in each of the systems taken at once: see `analysis.symmetry`.

    False where the function cannot be evaluated now. Costs two products.
    """
    shape = (systems, A.shape[1])
    u, v = (np.random.default_rng(seed).standard_normal(shape).astype(A.dtype) for seed in (4, 5))
    Au, Av = known_product(A, u, like), known_product(A, v, like)
    if Au is None or Av is None:
        return False
    left, right = (np.sum(a.conj() * b, axis=1) for a, b in ((u, Av), (Au, v)))
    size = np.linalg.norm(u, axis=1) * np.linalg.norm(Av, axis=1)
    return bool(np.all(np.abs(left - right) <= PRODUCTS * np.finfo(A.dtype).eps * size))


def _by_numpy(A: FunctionOperator, x: np.ndarray) -> np.ndarray | None:
    """Evaluate the recorded program of A by NumPy; None where it fails, or returns other arrays than expected."""
    layout, image = A.layout, A.image
    if layout.axis is not None or image.axis is not None:
        return None
    traced: Any = SimpleNamespace(bk=A.bk, program=A.recorded.program)
    ends = np.cumsum([math.prod(shape) for shape in layout.shapes])[:-1]
    leaves = [
        part.reshape(*layout.batch, *shape).astype(dtype)
        for part, shape, dtype in zip(np.split(x, ends, axis=1), layout.shapes, layout.dtypes, strict=True)
    ]
    try:
        with np.errstate(all="ignore"):
            results, _ = front_end_of(A.bk.name).evaluate(traced, leaves)
    except Exception:  # an operation that is for XLA alone
        return None
    shapes = [(*image.batch, *shape) for shape in image.shapes]
    as_expected = len(results) == len(shapes) and all(
        isinstance(found, np.ndarray) and found.shape == shape and found.dtype == A.dtype
        for found, shape in zip(results, shapes, strict=True)
    )
    if not as_expected:
        return None
    return np.concatenate(
        [found.reshape(image.systems, math.prod(shape)) for found, shape in zip(results, image.shapes, strict=True)],
        axis=1,
    )


# --- Linearity ---

Image = Callable[[np.ndarray], np.ndarray | None]
_tested: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()


def linear_part(operator: FunctionOperator) -> FunctionOperator:
    """Linear part of an operator: the constant of an affine function is evaluated and subtracted.

    Costs one evaluation, four when this function object is seen for the first time, or a module of PyTorch in another
    mode; what evaluations write to the buffers of a module in training mode is taken back. Where the function's values
    are not known yet (it closes over traced arrays), the constant part is taken off inside the compiled program and the
    test is left to the final residual.

    Raises:
        NonlinearError: the function is neither linear nor affine, or has several values for one vector.
        ValueError: it writes to its argument.
        TypeError: it computes with fewer digits than its argument has.
    """
    if operator.is_linear:
        return operator
    operator = operator.as_traced()
    bk, shape = operator.bk, (operator.layout.systems, operator.shape[1])

    def at(x: np.ndarray) -> np.ndarray | None:
        return known_product(operator, x, operator.like)

    mode, undo = state_of(operator.function) if bk.name in WITH_MODES else ((), None)
    try:
        constant = at(np.zeros(shape))
        if constant is not None:
            _test_once(operator, at, constant, mode)
    finally:
        if undo is not None:
            undo()
    if constant is not None and not np.any(constant[np.isfinite(constant)]):
        offset = operator.constant
    elif constant is None or operator.tracked:  # the constant part may have derivatives too
        offset = _image_of_zero(operator)
    else:
        offset = bk.asarray(constant, like=operator.like)
    # The user's own operator is tested at the next solve again: its function may close over what changes.
    linear = operator.with_constant(offset)
    linear.is_linear = True
    return linear


def _image_of_zero(operator: FunctionOperator) -> Array:
    """As a grid where the library spreads arrays over devices: a flat one would lie on each of them."""
    bk, image = operator.bk, operator.image
    rows = operator.apply(bk.zeros((operator.layout.systems, operator.shape[1]), operator.dtype, operator.like))
    return rows if image.structure is not None else bk.on_grid(rows, image.shapes[0])


def _test_once(operator: FunctionOperator, at: Image, constant: np.ndarray, mode: tuple[Any, ...]) -> None:
    """Compare, where this function is new in the mode in which it is: a module may be another one in training."""
    layout = operator.layout
    key = (layout.shapes, layout.batch, operator.dtype.char, mode, *_flags(operator.function))
    seen = _memory_of(operator.function)
    if key in seen:
        return
    u, v = np.random.default_rng(0).standard_normal((2, layout.systems, operator.shape[1]))
    factor = -2j if operator.dtype.kind == "c" else -2.0
    images = [at(u), at(v), at(factor * u + v)]
    if all(image is not None for image in images):
        message = _compare(operator, factor, constant, *images)
        if message:
            raise NonlinearError(_if_unsteady(operator, images[0], at(u)) or message)
        seen.add(key)


def _flags(function: Any) -> list[bool]:
    """Truth values that it closes over, which may be other ones at the next solve."""
    flags = []
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # a name without a value yet
            continue
        if isinstance(value, bool):
            flags.append(value)
    return flags


def _memory_of(function: Any) -> set[Any]:
    try:
        return _tested.setdefault(function, set())
    except TypeError:  # a callable that cannot be hashed or weakly referenced is tested every time
        return set()


def _compare(
    operator: FunctionOperator, factor: complex, constant: np.ndarray, Au: Any, Av: Any, both: Any
) -> str | None:
    """Test A(-2 u + v) = -2 A(u) + A(v), with -2i where complex, up to the rounding inside A; the message if not."""
    with np.errstate(all="ignore"):
        expected = operator.dtype.type(factor) * (Au - constant) + (Av - constant)
        error = np.abs((both - constant) - expected)
        error, size = _beyond_rounding(operator, error, np.abs(Au) + np.abs(Av) + np.abs(constant))
    if not error.size:
        return None
    return (
        f"{operator.name} is not linear: with random u and v and the constant part taken off, A({factor} u + v) "
        f"differs from {factor} A(u) + A(v) by {np.max(error):.1e} where these are of size "
        f"{np.max(size):.1e}. linear_solve takes linear and affine functions; for a non-linear one, solve "
        "with its Jacobian in a Newton iteration."
    )


def _if_unsteady(operator: FunctionOperator, once: Any, again: Any) -> str | None:
    """The message about a function that has two values for one vector."""
    if again is None:
        return None
    with np.errstate(all="ignore"):
        error, size = _beyond_rounding(operator, np.abs(again - once), np.abs(once) + np.abs(again))
    if not error.size:
        return None
    return (
        f"{operator.name} gives different values for the same x, by {np.max(error):.1e} where these are of size "
        f"{np.max(size):.1e}: Dropout in training mode (call module.eval()), random numbers, or state that it changes?"
    )


def _beyond_rounding(operator: FunctionOperator, error: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The errors that are no rounding, and the sizes of the values there."""
    known = np.where(np.isfinite(known), known, 0)
    size = np.broadcast_to(np.max(known, axis=1, keepdims=True, initial=0), error.shape)
    wrong = np.isfinite(error) & (error > 1e4 * np.finfo(operator.dtype).eps * size)
    return error[wrong], size[wrong]


# --- Facts of a function whose coefficients are arguments of a compiled program ---
# The program is known, its numbers are not. It is traced again with random positive numbers in their place, by NumPy,
# so that nothing is compiled. An identity in the coefficients, such as symmetry, then holds for all of them but special
# ones that no random number meets; the signs hold for positive coefficients. Both choose a method and prove nothing:
# the true residual decides.

_SEEDS = (31, 32)  # what holds by chance for one does not for the other
_TRUE = 0.75  # share of elements of a mask that are
_MOST_ENTRIES = 64  # per unknown, of matrices that are looked at


def with_facts(matrix: Matrix, A: FunctionOperator) -> Matrix:
    """The matrix that was traced from A; where its values are traced too, with facts of A.

    These are what A declares, or what holds for random arguments. Cost of the latter: two more traces by NumPy.
    """
    if not isinstance(matrix, SparseMatrix) or is_known(matrix) or matrix.nnz > _MOST_ENTRIES * A.shape[0]:
        return matrix
    return with_declared(matrix, A.declared or facts_for_random_values(A))


def facts_for_random_values(A: FunctionOperator) -> tuple[tuple[str, Any], ...]:
    """Facts of `Analysis` that hold for two random values of all traced arrays that A gets or closes over.

    Facts that do not hold are left open. Empty where the function cannot be followed, or loops until a condition holds,
    solves a system or calls the host inside.
    """
    bk, held = A.bk, list[list[tuple[str, Any]]]()
    try:
        program = A.program()
        if program is None:
            return ()
        function, arrays = program
        for seed in _SEEDS:
            drawn = FunctionOperator(bk, function, A.layout, A.dtype, _drawn(bk, arrays, seed), A.name)
            with np.errstate(all="ignore"), without_open_ended():
                matrix = concrete(as_matrix(drawn))
                held.append(_facts(Analysis(matrix)) if matrix.bk.on_host else [])
    except Exception:  # also of the user's checks, which these numbers need not pass
        return ()
    return tuple(fact for fact in held[0] if fact in held[1])


def _facts(analysis: Analysis) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    if analysis.seems_hermitian:
        found += [("asymmetry", 0.0), ("is_hermitian_by_entries", True)]
        if analysis.one_sign and analysis.maybe_definite:
            found += [("one_sign", True), ("maybe_definite", True)]
    elif analysis.asymmetry_without_conjugation is not None and analysis.asymmetry_without_conjugation < CHOSEN:
        found += [("asymmetry_without_conjugation", 0.0)]
    return found


def _drawn(bk: Backend, arrays: Sequence[Any], seed: int) -> list[Any]:
    """Arrays with random numbers between 1/2 and 3/2 in the place of traced ones, masks and numbers of 0 and 1."""
    rng, found = np.random.default_rng(seed), []
    for array in arrays:
        known = bk.constant_folded(array)
        if known is not None:
            found.append(known)
            continue
        shape, dtype = tuple(int(n) for n in array.shape), bk.dtype(array)
        if dtype.kind == "c":
            values = rng.uniform(0.5, 1.5, shape) + 1j * rng.uniform(0.5, 1.5, shape)
        else:
            values = rng.uniform(0.5, 1.5, shape) if dtype.kind == "f" else rng.random(shape) < _TRUE
        found.append(np.asarray(values, dtype))
    return found
