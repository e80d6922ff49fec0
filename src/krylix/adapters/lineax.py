"""krylix as a solver of lineax, Optimistix and Diffrax: `LineaxSolver`. Importing this imports JAX and lineax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import lineax as lx
    from jax.extend import core
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"krylix.adapters.lineax needs {error.name}, which is not installed: pip install 'krylix[lineax]'.",
        name=error.name,
    ) from error

from ..backends.jax.program.function import trace
from ..solvers.linear_solve import linear_solve
from ..solvers.methods.method import Method
from ..solvers.methods.registry import find_method, is_auto
from ..solvers.read.arguments import check_tolerance_number
from ..solvers.run.outcome import Status
from ..sparse import Operator, as_operator

__all__ = ["LineaxSolver"]

_SMALL = 256  # unknowns up to which `auto` finds the entries of a function: cheaper than many steps, and safer
_FACTORISING = ("direct", "scipy-direct", "sparse-direct")
_SINGULAR = {Status.MAX_ITER, Status.STAGNATED, Status.BREAKDOWN}  # failures of factorisations


def _constant(M: Any) -> Any:
    # Operators of SciPy and krylix on NumPy arrays are neither containers of JAX nor hashable.
    M = as_operator(M) if sp.issparse(M) or isinstance(M, np.ndarray) else M
    return _HostOperator(M) if isinstance(M, Operator) and M.bk.on_host else M


class LineaxSolver(lx.AbstractLinearSolver):
    """Solves the linear systems of lineax, of Optimistix' root finders and of Diffrax' implicit methods.

    ```
    solver = LineaxSolver("biCG-stab(2)", rtol=1e-8)
    x = lineax.linear_solve(operator, b, solver).value
    newton = optimistix.Newton(rtol=1e-6, atol=1e-8, linear_solver=solver)
    method = diffrax.Kvaerno3(root_finder=diffrax.VeryChord(rtol=1e-6, atol=1e-8, linear_solver=solver))
    ```

    Every operator of lineax is accepted: matrices as they are, all others by their products, on containers of arrays
    too. Derivatives, of any order and under `vmap`, are those of `lineax.linear_solve`; the matrix is assumed to have
    full rank there. A failed solve does not raise: `lineax.linear_solve` raises or returns the code, depending on its
    `throw`, and with a code step size controls continue with a smaller step. Success means that the true residual is
    within the tolerance: `|b - A x| <= max(rtol |b|, atol)`, that of the normal equations for a rectangular operator.
    `stats` has `num_steps`, `max_steps` and `residual_norm`.

    Args:
        method: a name or method object as in `krylix.linear_solve`. "auto" factorises small systems (up to 256
            unknowns, matrices up to 1000), uses CG for operators tagged as positive or negative semi-definite, MINRES
            for symmetric ones, the diagonal of diagonal ones, LSMR (least squares, least norm) for rectangular ones,
            and the choice of `krylix.linear_solve` for all others.
        preconditioner: a name, an operator of lineax, a function `r -> M r` on arrays shaped as the right-hand side, or
            a matrix or krylix operator on the flat vector. `options={"preconditioner": ...}` of
            `lineax.linear_solve` overrides it.
        rtol: relative tolerance; 1e-5 in single and 1e-10 in double precision if None.
        atol: absolute tolerance. It is the same for the solves of derivatives, however small these are; 0 is safe.
        max_iter: limit of iterations, 10 n but at most 10 000 if None.

    `options` of `lineax.linear_solve`: `preconditioner`, and `y0`, an initial guess.

    Raises:
        ValueError, TypeError: settings that no solve can use, a rectangular operator with a method for square ones,
            an operator that mixes dtypes, an unknown option.

    Cost: that of the method. An operator whose entries are needed is evaluated once per unknown, once for all solves
    that share a `state`, such as the steps of a chord method.

    Examples:
        >>> import jax.numpy as jnp, lineax
        >>> from krylix.adapters.lineax import LineaxSolver
        >>> operator = lineax.MatrixLinearOperator(jnp.diag(jnp.array([2.0, 4.0])))
        >>> lineax.linear_solve(operator, jnp.ones(2), LineaxSolver("GMRES")).value.round(4).tolist()
        [0.5, 0.25]
    """

    method: str | Method = eqx.field(default="auto", static=True)
    preconditioner: Any = eqx.field(default=None, converter=_constant)
    rtol: Any = None
    atol: Any = 0.0
    max_iter: int | None = eqx.field(default=None, static=True)

    def __check_init__(self) -> None:
        if not is_auto(self.method) and getattr(find_method(self.method), "damp", False):
            raise ValueError(f"{self.method!r} is damped; lineax takes derivatives of solutions without damping.")
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            check_tolerance_number(name, value)
        whole = isinstance(self.max_iter, int) and not isinstance(self.max_iter, bool) and self.max_iter >= 0
        if self.max_iter is not None and not whole:
            raise ValueError(f"max_iter must be one integer >= 0, or None; got {self.max_iter!r}.")

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> _State:
        """Set up everything that does not depend on the right-hand side."""
        _check_options(options)
        method, takes_entries = self._plan(operator, "preconditioner" in options)
        M = self.preconditioner
        if M is None and not takes_entries and method == "auto" and lx.is_diagonal(operator):
            M = _inverse_diagonal(operator)
        if isinstance(M, lx.AbstractLinearOperator):
            M = _LinearFunction.of(lx.linearise(M).mv, M.in_structure())
        elif callable(M) and not isinstance(M, Operator):
            M = _LinearFunction.of(M, operator.out_structure())
        inside, outside = _hashable(operator.in_structure()), _hashable(operator.out_structure())
        if takes_entries:
            return _State.of(_Prepared(None, operator.as_matrix(), M, method, inside, outside))
        A = _LinearFunction.of(lx.linearise(operator).mv, operator.in_structure(), lx.is_symmetric(operator))
        return _State.of(_Prepared(A, None, M, method, inside, outside))

    def _plan(self, operator: lx.AbstractLinearOperator, given: bool) -> tuple[str | Method, bool]:
        """The method, and whether it gets the matrix; `given`: do the options have a preconditioner?"""
        n, m, dtype = operator.out_size(), operator.in_size(), _dtype(operator)
        method = "LSMR" if is_auto(self.method) and n != m else self.method
        inner = operator
        while isinstance(inner, lx.TaggedLinearOperator):
            inner = inner.operator
        is_matrix = isinstance(inner, (lx.MatrixLinearOperator, lx.PyTreeLinearOperator))
        if not is_auto(method):
            chosen = find_method(method)
            if n != m and not chosen.least_squares:
                raise ValueError(
                    f"{chosen.name} takes square systems; this operator is {n} x {m}. Use LineaxSolver('LSMR')."
                )
            return method, is_matrix or chosen.name in _FACTORISING
        preconditioned = given or self.preconditioner is not None
        if n <= _SMALL and not preconditioned:
            return "direct", True
        if lx.is_positive_semidefinite(operator) or lx.is_negative_semidefinite(operator):
            return "CG", is_matrix
        if lx.is_diagonal(operator):
            return "auto", False
        hermitian = lx.is_symmetric(operator) and dtype.kind == "f"
        return "MINRES" if hermitian and not preconditioned else "auto", is_matrix

    def compute(self, state: _State, vector: Any, options: dict[str, Any]) -> tuple[Any, lx.RESULTS, dict[str, Any]]:
        """The solution, how the solve ended, and its statistics."""
        _check_options(options)
        ready = state.ready
        x0, M = options.get("y0"), options.get("preconditioner", ready.preconditioner)
        inside, outside = _structure(ready.inside), _structure(ready.outside)
        A = ready.matrix if ready.matrix is not None else ready.operator
        if isinstance(M, lx.AbstractLinearOperator):
            M = _LinearFunction.of(M.mv, M.in_structure())
        elif isinstance(M, _HostOperator):
            M = M.operator
        if isinstance(M, _LinearFunction) and (M.takes, M.gives) != (ready.outside, ready.inside):
            raise ValueError(
                f"The preconditioner maps {_structure(M.takes)} to {_structure(M.gives)}; expected {outside} to "
                f"{inside}, the other way round than the operator."
            )
        b = vector
        if ready.flat:
            A, M = (_on_vectors(f) if isinstance(f, _LinearFunction) else f for f in (A, M))
            b, x0 = _ravel(vector), None if x0 is None else _ravel(x0)
            unknowns = sum(leaf.size for leaf in jax.tree.leaves(inside))
            if x0 is None and unknowns != b.size:  # for a function their number is not known otherwise
                x0 = jnp.zeros(unknowns, b.dtype)
        with jax.numpy_rank_promotion("allow"):  # users may forbid it in their own code
            result = linear_solve(
                A, b, x0=x0, method=ready.method, preconditioner=M, rtol=self.rtol, atol=self.atol,
                max_iter=self.max_iter, on_failure="status",
            )  # fmt: skip
        solution = _unravel(result.x, inside) if ready.flat else result.x
        stats = {
            "num_steps": result.iterations,
            "max_steps": self.max_iter,
            "residual_norm": result.residual_norm,
        }
        return solution, _code(result.status, result.method), stats

    def transpose(self, state: _State, options: dict[str, Any]) -> tuple[_State, dict[str, Any]]:
        """The state of the transposed operator, and the options for it."""
        A, matrix, M, method, inside, outside = state.ready.fields
        new = _Prepared(_transposed(A), _transposed(matrix), _transposed(M), method, outside, inside)
        return _State.of(new), {k: _transposed(M) for k, M in options.items() if k == "preconditioner"}

    def conj(self, state: _State, options: dict[str, Any]) -> tuple[_State, dict[str, Any]]:
        """The state of the conjugated operator, and the options for it."""
        A, matrix, M, method, inside, outside = state.ready.fields
        new = _Prepared(_conjugated(A), _conjugated(matrix), _conjugated(M), method, inside, outside)
        return _State.of(new), {k: _conjugated(M) for k, M in options.items() if k == "preconditioner"}

    def assume_full_rank(self) -> bool:
        """Derivatives are those of a matrix of full rank."""
        return True


def _code(status: Any, method: str) -> lx.RESULTS:
    """Status -> lineax.RESULTS; lineax itself detects vectors that are not finite."""
    codes = {
        Status.MAX_ITER: lx.RESULTS.max_steps_reached,
        Status.STAGNATED: lx.RESULTS.stagnation,
        Status.BREAKDOWN: lx.RESULTS.breakdown,
        Status.DIVERGED: lx.RESULTS.singular,
    }
    if method in _FACTORISING:
        codes |= dict.fromkeys(_SINGULAR, lx.RESULTS.singular)
    result = lx.RESULTS.where(status == int(Status.CONVERGED), lx.RESULTS.successful, lx.RESULTS.breakdown)
    for number, code in codes.items():
        result = lx.RESULTS.where(status == int(number), code, result)
    return result


def _check_options(options: dict[str, Any]) -> None:
    unknown = set(options) - {"preconditioner", "y0"}
    if unknown:
        raise ValueError(f"LineaxSolver has the options 'preconditioner' and 'y0'; got {sorted(unknown)}.")
    M = options.get("preconditioner")
    if M is not None and not isinstance(M, lx.AbstractLinearOperator):
        raise TypeError(
            f"options['preconditioner'] must be an operator of lineax; got {type(M).__name__}. "
            "LineaxSolver(preconditioner=...) takes functions, matrices and names too."
        )


def _dtype(operator: lx.AbstractLinearOperator) -> np.dtype:
    leaves = jax.tree.leaves((operator.in_structure(), operator.out_structure()))
    dtypes = sorted({np.dtype(leaf.dtype) for leaf in leaves}, key=str)
    if len(dtypes) > 1:  # rounding, or taking a real part, would spoil the solution after its residual was checked
        names = ", ".join(map(str, dtypes))
        raise TypeError(f"LineaxSolver takes arrays of one dtype; this operator has {names}. Cast them.")
    return dtypes[0]


def _inverse_diagonal(operator: lx.AbstractLinearOperator) -> lx.AbstractLinearOperator:
    diagonal = lx.diagonal(operator)
    inverse = jnp.where(diagonal == 0, 0, 1 / jnp.where(diagonal == 0, 1, diagonal))
    return lx.DiagonalLinearOperator(_unravel(inverse, operator.in_structure()))


def _transposed(M: Any) -> Any:
    # A named kind is made again, of the transposed matrix.
    return M if M is None or isinstance(M, str) else M.T


def _conjugated(M: Any) -> Any:
    if M is None or isinstance(M, str):
        return M
    return lx.conj(M) if isinstance(M, lx.AbstractLinearOperator) else M.conj()


# --- prepared operators


class _Prepared(eqx.Module):
    operator: _LinearFunction | None  # None where the matrix stands for it
    matrix: Any
    preconditioner: Any  # a function, a matrix or operator on the flat vector, the name of a kind, or None
    method: str | Method = eqx.field(static=True)
    inside: Any = eqx.field(static=True)  # structure of the unknowns, hashable
    outside: Any = eqx.field(static=True)  # structure of the right-hand side

    @property
    def fields(self) -> tuple[Any, ...]:
        return self.operator, self.matrix, self.preconditioner, self.method, self.inside, self.outside

    @property
    def flat(self) -> bool:
        """Does the solver get flat vectors instead of the user's containers?"""
        return self.matrix is not None or self.inside != self.outside


class _State(eqx.Module):
    """`_Prepared` with arrays as its only leaves, which chord methods need."""

    arrays: Any
    rest: Any = eqx.field(static=True)

    @classmethod
    def of(cls, ready: _Prepared) -> _State:
        arrays, rest = eqx.partition(ready, eqx.is_array)
        leaves, tree = jax.tree.flatten(rest)
        return cls(arrays, (tuple(leaves), tree))

    @property
    def ready(self) -> _Prepared:
        leaves, tree = self.rest
        return eqx.combine(self.arrays, jax.tree.unflatten(tree, leaves))


# --- operators as linear functions, and their containers of arrays as flat vectors


class _LinearFunction(eqx.Module):
    """A linear function on containers; a pytree of arrays, equal to others of the same program.

    Operators of lineax hold programs that equal only themselves; loops that make a new state in each step reject these.
    """

    constants: Any
    program: Any = eqx.field(static=True)
    takes: Any = eqx.field(static=True)  # structures, hashable: see `_hashable`
    gives: Any = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)

    @classmethod
    def of(cls, function: Callable[[Any], Any], takes: Any, symmetric: bool = False) -> _LinearFunction:
        gives = jax.eval_shape(function, takes)
        traced: tuple[Any, Any] | None = trace(function, takes)
        if traced is None:
            closed = jax.make_jaxpr(function)(takes)
            traced = _Incomparable(closed.jaxpr, jax.tree.structure(gives)), closed.consts
        return cls(list(traced[1]), traced[0], _hashable(takes), _hashable(gives), symmetric)

    def __call__(self, x: Any) -> Any:
        return self.program(x, *self.constants)

    @property
    def T(self) -> _LinearFunction:
        if self.symmetric:
            return self
        transposed = jax.linear_transpose(self, _structure(self.takes))
        return _LinearFunction.of(lambda y: transposed(y)[0], _structure(self.gives))

    def conj(self) -> _LinearFunction:
        def conjugated(x: Any) -> Any:
            return jax.tree.map(jnp.conj, self(jax.tree.map(jnp.conj, x)))

        return _LinearFunction.of(conjugated, _structure(self.takes), self.symmetric)


class _Incomparable:
    """`f(x, *constants)` of a program that equals only itself."""

    def __init__(self, jaxpr: Any, structure: Any) -> None:
        self.jaxpr, self.structure = jaxpr, structure

    def __call__(self, x: Any, *constants: Any) -> Any:
        run = core.jaxpr_as_fun(core.ClosedJaxpr(self.jaxpr, list(constants)))
        return jax.tree.unflatten(self.structure, run(*jax.tree.leaves(x)))


class _HostOperator:
    """An operator on NumPy arrays, static to JAX: a constant of its programs."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    @property
    def T(self) -> _HostOperator:
        return _HostOperator(self.operator.T)

    def conj(self) -> _HostOperator:
        return _HostOperator(self.operator.conj())


def _hashable(structure: Any) -> Any:
    leaves, tree = jax.tree.flatten(structure)
    return tuple((leaf.shape, jnp.dtype(leaf.dtype)) for leaf in leaves), tree


def _structure(structure: Any) -> Any:
    """Inverse of `_hashable`."""
    leaves, tree = structure
    return jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])


def _ravel(tree: Any) -> jax.Array:
    """All arrays of a container in one vector, in the order of lineax' matrices."""
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


def _unravel(vector: jax.Array, structure: Any) -> Any:
    """Inverse of `_ravel` for a container of this structure."""
    leaves, tree = jax.tree.flatten(structure)
    parts, start = [], 0
    for leaf in leaves:
        stop = start + math.prod(leaf.shape)
        parts.append(vector[start:stop].reshape(leaf.shape))
        start = stop
    return jax.tree.unflatten(tree, parts)


def _on_vectors(function: _LinearFunction) -> Callable[[jax.Array], jax.Array]:
    takes = _structure(function.takes)
    return lambda v: _ravel(function(_unravel(v, takes)))
