"""krylix as a linear solver of lineax, and so of Optimistix and Diffrax. Importing this imports JAX and lineax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import scipy.sparse as sp

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import lineax as lx
    from jax.extend import core
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"krylix.solvers.lineax_solver needs {error.name}, which is not installed: pip install 'krylix[lineax]'.",
        name=error.name,
    ) from error

from ..backends.jax_function import trace
from ..sparse import Operator, as_operator
from .linear_solve import linear_solve
from .method import Method
from .registry import METHODS, find_method
from .status import Status

_SMALL = 256  # unknowns up to which `auto` finds the entries of a function: cheaper than many steps, and safer
_FACTORISING = ("direct", "scipy-direct")
_BLAMES_THE_MATRIX = {Status.MAX_ITER, Status.STAGNATED, Status.BREAKDOWN}  # where a factorisation did not do it


def _hashable(M: Any) -> Any:
    """SciPy matrices have no hash, which JAX asks of everything that is no array."""
    return as_operator(M) if sp.issparse(M) else M


class _Opaque:
    """`f(x, *constants)` of a program, equal to itself only."""

    def __init__(self, jaxpr: Any, structure: Any) -> None:
        self.jaxpr, self.structure = jaxpr, structure

    def __call__(self, x: Any, *constants: Any) -> Any:
        run = core.jaxpr_as_fun(core.ClosedJaxpr(self.jaxpr, list(constants)))
        return jax.tree.unflatten(self.structure, run(*jax.tree.leaves(x)))


class _Linear(eqx.Module):
    """A linear function on containers. Its leaves are arrays, and it equals another one of the same program.

    Operators of lineax hold programs that equal only themselves; loops that make a new state in each turn refuse these.
    """

    constants: Any
    program: Any = eqx.field(static=True)
    takes: Any = eqx.field(static=True)  # structures, hashable
    gives: Any = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)

    @classmethod
    def of(cls, function: Callable[[Any], Any], takes: Any, symmetric: bool = False) -> _Linear:
        """`function`, which takes arrays of the structure `takes`."""
        gives = jax.eval_shape(function, takes)
        found = trace(function, takes)
        if found is None:  # a program that cannot be compared
            closed = jax.make_jaxpr(function)(takes)
            found = _Opaque(closed.jaxpr, jax.tree.structure(gives)), closed.consts
        return cls(list(found[1]), found[0], _static(takes), _static(gives), symmetric)

    def __call__(self, x: Any) -> Any:
        return self.program(x, *self.constants)

    @property
    def T(self) -> _Linear:
        if self.symmetric:
            return self
        transposed = jax.linear_transpose(self, _structure(self.takes))
        return _Linear.of(lambda y: transposed(y)[0], _structure(self.gives))

    def conj(self) -> _Linear:
        def conjugated(x: Any) -> Any:
            return jax.tree.map(jnp.conj, self(jax.tree.map(jnp.conj, x)))

        return _Linear.of(conjugated, _structure(self.takes), self.symmetric)


class _Ready(eqx.Module):
    """An operator made ready."""

    operator: _Linear | None  # None where the matrix stands for it
    matrix: Any
    preconditioner: Any  # a `_Linear`, a matrix or operator on the flat vector, the name of a kind, or None
    method: str | Method = eqx.field(static=True)
    inside: Any = eqx.field(static=True)  # structure of the unknowns, hashable
    outside: Any = eqx.field(static=True)  # structure of the right-hand side

    @property
    def flat(self) -> bool:
        """Does the solver see one vector, or the containers of the user?"""
        return self.matrix is not None or self.inside != self.outside


class _State(eqx.Module):
    """What `LineaxSolver.init` returns: `_Ready` with nothing but arrays as leaves, which chord methods ask for."""

    arrays: Any
    rest: Any = eqx.field(static=True)

    @classmethod
    def of(cls, ready: _Ready) -> _State:
        arrays, rest = eqx.partition(ready, eqx.is_array)
        leaves, tree = jax.tree.flatten(rest)
        return cls(arrays, (tuple(leaves), tree))

    @property
    def ready(self) -> _Ready:
        leaves, tree = self.rest
        return eqx.combine(self.arrays, jax.tree.unflatten(tree, leaves))


class LineaxSolver(lx.AbstractLinearSolver):
    """Solves the square linear systems of lineax, of Optimistix' root finders and of Diffrax' implicit methods.

    ```
    solver = LineaxSolver("biCG-stab(2)", rtol=1e-8)
    x = lineax.linear_solve(operator, b, solver).value
    newton = optimistix.Newton(rtol=1e-6, atol=1e-8, linear_solver=solver)
    method = diffrax.Kvaerno3(root_finder=diffrax.VeryChord(rtol=1e-6, atol=1e-8, linear_solver=solver))
    ```

    Every operator of lineax is taken: matrices as they are, all others by their products, on containers of arrays too.
    Derivatives, of every order and under `vmap`, are those of `lineax.linear_solve`; the matrix is assumed to be
    regular there. A failed solve does not raise: `lineax.linear_solve` raises or returns the code, as its `throw` says,
    and with a code step size controls go on with a smaller step. Success means that the true residual is within the
    tolerance: `|b - A x| <= max(rtol |b|, atol)`. `stats` has `num_steps`, `max_steps` and `residual_norm`.

    Args:
        method: a name or method object as in `krylix.linear_solve`. "auto" factorises small systems (up to 256
            unknowns, matrices up to 1000), takes CG for operators tagged as positive or negative semi-definite, the
            diagonal of diagonal ones, and what `krylix.linear_solve` takes for all others.
        preconditioner: a name, an operator of lineax, a function `r -> M r` on arrays shaped as the right-hand side, or
            a matrix or krylix `Preconditioner` on the flat vector. `options={"preconditioner": ...}` of
            `lineax.linear_solve` goes before it.
        rtol: relative tolerance; 1e-5 in single and 1e-10 in double precision if None.
        atol: absolute tolerance. It is the same for the solves of derivatives, however small these are; 0 is safe.
        max_iter: limit of iterations, 10 n but at most 10 000 if None.

    `options` of `lineax.linear_solve`: `preconditioner`, and `y0`, an initial guess.

    Raises:
        ValueError, TypeError: settings that no solve can use, an operator that is not square or mixes dtypes, an
            unknown option.

    Cost: that of the method. An operator whose entries are taken is evaluated once per unknown, once for all solves
    that share a `state`, such as the steps of a chord method.
    """

    method: str | Method = eqx.field(default="auto", static=True)
    preconditioner: Any = eqx.field(default=None, converter=_hashable)
    rtol: Any = None
    atol: Any = 0.0
    max_iter: int | None = eqx.field(default=None, static=True)

    def __check_init__(self) -> None:
        if not self._automatic:
            find_method(self.method)
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if isinstance(value, (int, float)) and not value >= 0:
                raise ValueError(f"{name} must be >= 0; got {value!r}.")
        whole = isinstance(self.max_iter, int) and not isinstance(self.max_iter, bool) and self.max_iter >= 0
        if self.max_iter is not None and not whole:
            raise ValueError(f"max_iter must be one integer >= 0, or None; got {self.max_iter!r}.")

    @property
    def _automatic(self) -> bool:
        return isinstance(self.method, str) and self.method.strip().lower() == "auto"

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> _State:
        """Everything that can be done before the right-hand side is known."""
        n, m = operator.out_size(), operator.in_size()
        if n != m:
            raise ValueError(
                f"LineaxSolver takes square systems; this operator is {n} x {m}. For least squares use "
                "lineax.AutoLinearSolver(well_posed=None), lineax.LSMR or lineax.Normal(LineaxSolver('CG'))."
            )
        _check_options(options)
        _check_dtypes(operator)
        method, takes_entries = self._plan(operator, n, options)
        M = self.preconditioner
        if M is None and not takes_entries and lx.is_diagonal(operator) and self._automatic:
            M = _inverse_diagonal(operator)
        inside, outside = _static(operator.in_structure()), _static(operator.out_structure())
        if isinstance(M, lx.AbstractLinearOperator):
            M = _Linear.of(lx.linearise(M).mv, M.in_structure())
        elif callable(M) and not isinstance(M, Operator):
            M = _Linear.of(M, operator.out_structure())
        if takes_entries:
            return _State.of(_Ready(None, operator.as_matrix(), M, method, inside, outside))
        A = _Linear.of(lx.linearise(operator).mv, operator.in_structure(), lx.is_symmetric(operator))
        return _State.of(_Ready(A, None, M, method, inside, outside))

    def _plan(self, operator: lx.AbstractLinearOperator, n: int, options: dict[str, Any]) -> tuple[str | Method, bool]:
        """The method, and whether it gets the matrix."""
        inner = operator
        while isinstance(inner, lx.TaggedLinearOperator):
            inner = inner.operator
        is_matrix = isinstance(inner, (lx.MatrixLinearOperator, lx.PyTreeLinearOperator))
        if not self._automatic:
            return self.method, is_matrix or find_method(self.method).name in _FACTORISING
        preconditioned = self.preconditioner is not None or "preconditioner" in options
        if n <= _SMALL and not preconditioned:
            return "direct", True
        if lx.is_positive_semidefinite(operator) or lx.is_negative_semidefinite(operator):
            return "CG", is_matrix
        return "auto", is_matrix and not lx.is_diagonal(operator)

    def compute(self, state: _State, vector: Any, options: dict[str, Any]) -> tuple[Any, lx.RESULTS, dict[str, Any]]:
        """The solution, how the solve ended, and its statistics."""
        _check_options(options)
        ready = state.ready
        x0, M = options.get("y0"), options.get("preconditioner", ready.preconditioner)
        inside, outside = _structure(ready.inside), _structure(ready.outside)
        A = ready.matrix if ready.matrix is not None else ready.operator
        if isinstance(M, lx.AbstractLinearOperator):
            M = _Linear.of(M.mv, M.in_structure())
        if isinstance(M, _Linear) and (M.takes, M.gives) != (ready.outside, ready.inside):
            raise ValueError(
                f"The preconditioner maps {_structure(M.takes)} to {_structure(M.gives)}; expected {outside} to "
                f"{inside}, the other way round than the operator."
            )
        b = vector
        if ready.flat:
            A = A if ready.matrix is not None else _on_vectors(A, inside)
            M = _on_vectors(M, outside) if isinstance(M, _Linear) else M
            b, x0 = _ravel(vector), None if x0 is None else _ravel(x0)
        result = linear_solve(
            A, b, x0=x0, method=ready.method, preconditioner=M, rtol=self.rtol, atol=self.atol, max_iter=self.max_iter,
            on_failure="status",
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
        old = state.ready
        operator = None if old.operator is None else old.operator.T
        matrix = None if old.matrix is None else old.matrix.T
        new = _Ready(operator, matrix, _transposed(old.preconditioner), old.method, old.outside, old.inside)
        return _State.of(new), {k: _transposed(M) for k, M in options.items() if k == "preconditioner"}

    def conj(self, state: _State, options: dict[str, Any]) -> tuple[_State, dict[str, Any]]:
        """The state of the conjugated operator, and the options for it."""
        old = state.ready
        operator = None if old.operator is None else old.operator.conj()
        matrix = None if old.matrix is None else old.matrix.conj()
        new = _Ready(operator, matrix, _conjugated(old.preconditioner), old.method, old.inside, old.outside)
        return _State.of(new), {k: _conjugated(M) for k, M in options.items() if k == "preconditioner"}

    def assume_full_rank(self) -> bool:
        """Derivatives are those of a regular matrix."""
        return True


def _code(status: Any, method: str) -> lx.RESULTS:
    """Status -> lineax.RESULTS; a vector that is not finite is told apart by lineax itself."""
    codes = {
        Status.MAX_ITER: lx.RESULTS.max_steps_reached,
        Status.STAGNATED: lx.RESULTS.stagnation,
        Status.BREAKDOWN: lx.RESULTS.breakdown,
        Status.DIVERGED: lx.RESULTS.singular,
    }
    if method in _FACTORISING:
        codes |= dict.fromkeys(_BLAMES_THE_MATRIX, lx.RESULTS.singular)
    found = lx.RESULTS.where(status == int(Status.CONVERGED), lx.RESULTS.successful, lx.RESULTS.breakdown)
    for number, code in codes.items():
        found = lx.RESULTS.where(status == int(number), code, found)
    return found


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


def _check_dtypes(operator: lx.AbstractLinearOperator) -> None:
    leaves = jax.tree.leaves((operator.in_structure(), operator.out_structure()))
    dtypes = sorted({jnp.dtype(leaf.dtype).name for leaf in leaves})
    if len(dtypes) > 1:  # rounding, or taking a real part, would spoil the solution after its residual was checked
        raise TypeError(f"LineaxSolver takes arrays of one dtype; this operator has {', '.join(dtypes)}. Cast them.")


def _inverse_diagonal(operator: lx.AbstractLinearOperator) -> lx.AbstractLinearOperator:
    diagonal = lx.diagonal(operator)
    inverse = jnp.where(diagonal == 0, 0, 1 / jnp.where(diagonal == 0, 1, diagonal))
    return lx.DiagonalLinearOperator(_unravel(inverse, operator.in_structure()))


def _transposed(M: Any) -> Any:
    """A kind of preconditioner that has a name is built anew, from the transposed matrix."""
    return M if M is None or isinstance(M, str) else M.T


def _conjugated(M: Any) -> Any:
    if M is None or isinstance(M, str):
        return M
    return lx.conj(M) if isinstance(M, lx.AbstractLinearOperator) else M.conj()


def _static(structure: Any) -> Any:
    """Shapes and dtypes of a container as something hashable."""
    leaves, tree = jax.tree.flatten(structure)
    return tuple((leaf.shape, jnp.dtype(leaf.dtype)) for leaf in leaves), tree


def _structure(static: Any) -> Any:
    leaves, tree = static
    return jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])


def _ravel(tree: Any) -> jax.Array:
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


def _unravel(vector: jax.Array, structure: Any) -> Any:
    leaves, tree = jax.tree.flatten(structure)
    parts, start = [], 0
    for leaf in leaves:
        stop = start + math.prod(leaf.shape)
        parts.append(vector[start:stop].reshape(leaf.shape))
        start = stop
    return jax.tree.unflatten(tree, parts)


def _on_vectors(function: Callable[[Any], Any], takes: Any) -> Callable[[jax.Array], jax.Array]:
    return lambda v: _ravel(function(_unravel(v, takes)))
