"""krylix inside lineax, Optimistix and Diffrax: answers, derivatives, codes of failure."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from frameworks import lazy
from krylix import Status, preconditioner
from krylix.solvers import LSMR, METHODS

jax = lazy("jax")
jnp = lazy("jax.numpy")
eqx = lazy("equinox")
lx = lazy("lineax")
adapter = lazy("krylix.adapters.lineax")

pytestmark = pytest.mark.merge
N = 6
MATRIX = np.diag(np.full(N, 3.0)) + 0.7 * np.eye(N, k=1) - 0.3 * np.eye(N, k=-1)
SPD = MATRIX @ MATRIX.T
B = np.cos(np.arange(N))
SOLVERS = ITERATIVE, FACTORISED = "biCG-stab(2)", "auto"
solvers = pytest.mark.parametrize("solver", SOLVERS)


def solver_of(name: str) -> Any:
    return adapter.LineaxSolver(name, rtol=1e-13) if name == ITERATIVE else adapter.LineaxSolver(name)


def solve(operator: Any, b: Any, solver: Any = ITERATIVE, **options: Any) -> Any:
    """In one program: outside of `jit` each operation of lineax would be compiled by itself."""
    solver = solver_of(solver) if isinstance(solver, str) else solver
    return eqx.filter_jit(lx.linear_solve)(operator, b, solver, **options)


def is_(result: Any, name: str) -> bool:
    return bool(result == getattr(lx.RESULTS, name))


# --- every kind of operator ---


def jacobian(S: Any, x: Any) -> Any:
    return lx.JacobianLinearOperator(lambda x, _: S @ x + 0.1 * x**3, x)


MAKE: dict[str, Callable[[Any], Any]] = {
    "matrix": lambda S: lx.MatrixLinearOperator(S),
    "function": lambda S: lx.FunctionLinearOperator(lambda x: S @ x, jax.eval_shape(lambda: S[0])),
    "jacobian": lambda S: jacobian(S, jnp.linspace(0, 1, N).astype(S.dtype)),
    "pytree": lambda S: lx.PyTreeLinearOperator(S, jax.eval_shape(lambda: S[0])),
    "diagonal": lambda S: lx.DiagonalLinearOperator(jnp.diag(S)),
    "tridiagonal": lambda S: lx.TridiagonalLinearOperator(jnp.diag(S), jnp.diag(S, -1), jnp.diag(S, 1)),
    "tagged": lambda S: lx.TaggedLinearOperator(
        lx.FunctionLinearOperator(lambda x: S @ (S.T.conj() @ x), jax.eval_shape(lambda: S[0])),
        lx.positive_semidefinite_tag,
    ),
    "sum": lambda S: MAKE["matrix"](S) + 0.5 * MAKE["function"](S) - MAKE["diagonal"](S) / 4,
    "product": lambda S: MAKE["matrix"](S) @ -MAKE["function"](S),
}


# The rest of the table on demand; a sum has a function in it, and matrices are factorised in `test_derivatives`.
QUICK = {(ITERATIVE, "complex128", "sum"), *((FACTORISED, "float32", kind) for kind in ("diagonal", "pytree"))}
OPERATORS = [
    pytest.param(s, d, k, marks=() if (s, d, k) in QUICK else pytest.mark.slow)
    for s in SOLVERS
    for d in ("float64", "float32", "complex128")
    for k in MAKE
]


@pytest.mark.parametrize(("solver", "dtype", "kind"), OPERATORS)
def test_operators(solver: Any, kind: str, dtype: str) -> None:
    S = jnp.asarray(MATRIX + (0.4j * np.eye(N, k=2) if dtype == "complex128" else 0)).astype(dtype)
    b = jnp.asarray(B).astype(dtype)
    operators = [MAKE[kind](S), MAKE[kind](S).T, *([lx.conj(MAKE[kind](S))] if dtype == "complex128" else [])]
    for operator in operators:
        solution = solve(operator, b, adapter.LineaxSolver(solver))
        matrix = np.asarray(operator.as_matrix(), np.complex128)
        bound = (1e-5 if dtype == "float32" else 1e-10) * np.linalg.norm(B)
        assert solution.value.dtype == dtype
        assert np.linalg.norm(B - matrix @ np.asarray(solution.value)) <= 1.1 * bound
        assert solution.stats["residual_norm"] <= bound and solution.stats["num_steps"] >= 1


@pytest.mark.slow
def test_transposed_and_conjugated_states() -> None:
    """`solver.transpose(solver.init(A))` must do what `solver.init(A.T)` does."""
    S = jnp.asarray(MATRIX + 0.4j * np.eye(N, k=2))
    M = lx.FunctionLinearOperator(lambda r: r / (3 + 1j), jax.eval_shape(lambda: S[0]))
    for make in (MAKE["function"], MAKE["matrix"]):
        bicgstab = partial(adapter.LineaxSolver, "biCG-stab")
        for solver in (bicgstab(preconditioner=M), solver_of(FACTORISED), bicgstab("jacobi")):
            state, b = solver.init(make(S), {}), jnp.asarray(B + 0j)
            for change, matrix in ((solver.transpose, S.T), (solver.conj, S.conj())):
                changed, options = change(state, {"y0": b, "preconditioner": M})
                assert set(options) == {"preconditioner"}
                x, result, _ = solver.compute(changed, b, {})
                assert is_(result, "successful")
                np.testing.assert_allclose(matrix @ x, b, atol=1e-9)


@pytest.mark.slow
def test_every_method() -> None:
    for name, method in METHODS.items():
        if method.needs_grid or method.needs_band:
            continue
        operator = lx.TaggedLinearOperator(MAKE["function"](jnp.asarray(SPD)), lx.positive_semidefinite_tag)
        if name not in ("scipy-lsqr", "scipy-lsmr"):  # whose own tolerances are about the normal equations
            np.testing.assert_allclose(
                SPD @ solve(operator, jnp.asarray(B), adapter.LineaxSolver(method)).value, B, atol=1e-8
            )


# --- containers, large systems, preconditioners, starts ---


def test_containers() -> None:
    b = {"u": jnp.asarray(B[:4]).reshape(2, 2), "v": jnp.asarray(B[4:])}
    structure = jax.eval_shape(lambda: b)

    def couple(x: Any) -> Any:
        total = x["u"].sum() + x["v"].sum()
        return {"u": 3 * x["u"] + 0.1 * total, "v": 2 * x["v"] - 0.2 * total}

    function = lx.FunctionLinearOperator(couple, structure)
    preconditioned = adapter.LineaxSolver("biCG-stab", lambda r: jax.tree.map(lambda a: a / 3, r))
    for solver, operator in (
        (ITERATIVE, lx.JacobianLinearOperator(lambda x, _: couple(x), b)),
        (FACTORISED, function),
        (preconditioned, function),
    ):
        x = solve(operator, b, solver).value
        assert jax.tree.structure(x) == jax.tree.structure(b)
        jax.tree.map(lambda a, c: np.testing.assert_allclose(a, c, atol=1e-9), couple(x), b)


@pytest.mark.parametrize("solver", [ITERATIVE, pytest.param(FACTORISED, marks=pytest.mark.slow)])
def test_unknowns_of_another_structure(solver: Any) -> None:
    """One container goes in, another one of the same size comes out."""

    def function(x: Any) -> Any:
        flat = jnp.asarray(MATRIX) @ jnp.concatenate([x[0], x[1].ravel()])
        return {"a": flat[:1], "b": flat[1:]}

    def loss(b: Any) -> Any:
        structure = (jax.ShapeDtypeStruct((2,), float), jax.ShapeDtypeStruct((2, 2), float))
        solution = solve(lx.FunctionLinearOperator(function, structure), {"a": b[:1], "b": b[1:]}, solver).value
        return jnp.concatenate([solution[0], solution[1].ravel()])

    np.testing.assert_allclose(loss(jnp.asarray(B)), np.linalg.solve(MATRIX, B), rtol=1e-9)
    np.testing.assert_allclose(jax.jit(jax.jacrev(loss))(jnp.asarray(B)), np.linalg.inv(MATRIX), atol=1e-9)


@pytest.mark.slow
def test_automatic_choice_of_large_systems() -> None:
    n = 600
    b, d = jnp.ones(n), jnp.logspace(-4, 4, n).at[3].multiply(-1)
    wide = solve(lx.DiagonalLinearOperator(d), b, adapter.LineaxSolver())
    assert wide.stats["num_steps"] <= 1
    np.testing.assert_allclose(wide.value, 1 / d, rtol=1e-9)

    def laplace(x: Any) -> Any:
        return -2.1 * x + jnp.roll(x, 1) + jnp.roll(x, -1)

    function = lx.FunctionLinearOperator(laplace, jax.eval_shape(lambda: b), lx.negative_semidefinite_tag)
    assert adapter.LineaxSolver().init(function, {}).ready.method == "CG"
    np.testing.assert_allclose(solve(function, b, adapter.LineaxSolver()).value, -10, rtol=1e-8)
    for dtype, method in ((float, "MINRES"), (complex, "auto")):  # complex symmetric is not Hermitian
        structure = {"a": jax.ShapeDtypeStruct((n,), dtype)}
        function = lx.FunctionLinearOperator(lambda x: {"a": 2 * x["a"]}, structure, lx.symmetric_tag)
        assert adapter.LineaxSolver().init(function, {}).ready.method == method
    matrix = lx.MatrixLinearOperator(jnp.eye(n) + jnp.eye(n, k=1))
    np.testing.assert_allclose(solve(matrix, matrix.mv(b), adapter.LineaxSolver()).value, 1, rtol=1e-8)


@pytest.mark.slow
def test_preconditioners_and_start() -> None:
    scale = np.logspace(0, 6, 40)
    S = np.diag(scale) + np.eye(40, k=1)
    b = jnp.asarray(S @ np.ones(40))
    operator = lx.FunctionLinearOperator(lambda x: jnp.asarray(S) @ x, jax.eval_shape(lambda: b))
    inverse = lx.MatrixLinearOperator(jnp.diag(1 / jnp.asarray(scale)))
    for M in ("jacobi", inverse, lambda r: r / scale, sp.diags_array(1 / scale), preconditioner(S, "jacobi")):
        x, back = jax.vjp(lambda b, M=M: solve(operator, b, adapter.LineaxSolver("biCG-stab(2)", M)).value, b)
        np.testing.assert_allclose(x, 1, rtol=1e-6)
        np.testing.assert_allclose(back(jnp.ones(40))[0], np.linalg.solve(S.T, np.ones(40)), rtol=1e-6, atol=1e-9)
    given = solve(operator, b, adapter.LineaxSolver("biCG-stab(2)"), options={"preconditioner": inverse})
    np.testing.assert_allclose(given.value, 1, rtol=1e-6)
    started = solve(operator, b, adapter.LineaxSolver("biCG-stab(2)"), options={"y0": jnp.ones(40)})
    assert started.stats["num_steps"] == 0


@pytest.mark.slow
@solvers
def test_strict_promotion(solver: Any) -> None:
    """lineax' users may forbid JAX to promote dtypes and ranks."""
    S, b = jnp.asarray(MATRIX), jnp.asarray(B)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        x, back = jax.vjp(lambda b: solve(MAKE["function"](S), b, solver).value, b)
        np.testing.assert_allclose(back(b)[0], np.linalg.solve(MATRIX.T, B), rtol=1e-9)
    np.testing.assert_allclose(x, np.linalg.solve(MATRIX, B), rtol=1e-9)


# --- derivatives ---

TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "jvp": lambda f: lambda *p: jax.jvp(f, p, (p[0] @ p[0], p[1] + 1))[1],
    "jvp of jvp": lambda f: (
        lambda S, b: jax.jvp(lambda S: jax.jvp(lambda S: f(S, b * S[0, 1]), (S,), (S.T,))[1], (S,), (S @ S,))[1]
    ),
    "vjp": lambda f: lambda *p: jax.vjp(f, *p)[1](p[1] ** 2),
    "hessian": lambda f: jax.hessian(lambda *p: jnp.sum(f(*p) ** 2), 1),
    "vmap": lambda f: lambda S, b: jax.vmap(f)(jnp.stack([S, S.T + S]), jnp.stack([b, 1e3 * b])),
    "vmap of one": lambda f: lambda S, b: jax.vmap(f, (None, 0))(S, jnp.stack([b, 0 * b, 2 - b])),
    "vmap of jvp": lambda f: lambda S, b: jax.vmap(lambda t: jax.jvp(f, (S, b), (t * S @ S, b))[1])(jnp.arange(1.0, 4)),
    "vmap of vmap": lambda f: (
        lambda S, b: jax.vmap(jax.vmap(f, (None, 0)), (0, None))(jnp.stack([S, 2 * S]), jnp.stack([b, b**2]))
    ),
    "vmap of vjp": lambda f: lambda S, b: jax.vmap(lambda S: jax.vjp(f, S, b)[1](b))(jnp.stack([S, S.T + S])),
}


BEFORE_A_MERGE = {
    *((ITERATIVE, "function", t) for t in ("jvp", "vmap of vjp")),
    (FACTORISED, "matrix", "vjp"),
}
DERIVATIVES = [
    pytest.param(s, k, t, marks=() if (s, k, t) in BEFORE_A_MERGE else pytest.mark.slow)
    for s in SOLVERS
    for k in ("matrix", "function")
    for t in TRANSFORMS
]


@pytest.mark.parametrize(("solver", "kind", "transform"), DERIVATIVES)
def test_derivatives(solver: Any, kind: str, transform: str) -> None:
    def ours(S: Any, b: Any) -> Any:
        return solve(MAKE[kind](S), b, solver).value

    found = jax.jit(TRANSFORMS[transform](ours))(jnp.asarray(MATRIX), jnp.asarray(B))
    wanted = jax.jit(TRANSFORMS[transform](jnp.linalg.solve))(jnp.asarray(MATRIX), jnp.asarray(B))
    for a, c in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_complex_derivatives() -> None:
    S, b = jnp.asarray(MATRIX + 0.4j * np.eye(N, k=2)), jnp.asarray(B + 1j)

    def loss(way: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(jax.grad(lambda *p: jnp.sum(jnp.abs(way(*p)) ** 2), (0, 1)))

    wanted = loss(jnp.linalg.solve)(S, b)
    for solver in SOLVERS:
        found = loss(lambda S, b, s=solver: solve(MAKE["function"](S), b, s).value)(S, b)
        for a, c in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, c, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_tiny_and_huge(scale: float) -> None:
    S, b = jnp.asarray(MATRIX, np.float32), jnp.asarray(B, np.float32)

    @jax.jit
    def solve_and_back(b: Any) -> Any:
        x, back = jax.vjp(lambda b: solve(MAKE["function"](S), b, adapter.LineaxSolver("biCG-stab(2)")).value, b)
        return x, back(b)[0]

    for found, matrix in zip(solve_and_back(scale * b), (MATRIX, MATRIX.T), strict=True):
        np.testing.assert_allclose(found / scale, np.linalg.solve(matrix, B), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(7, 4), (4, 7)])
@pytest.mark.parametrize("kind", ["matrix", "function"])
def test_rectangular(kind: str, shape: tuple[int, int]) -> None:
    """Least squares and least norm, and their derivatives, with those of the pseudo-inverse."""
    random = np.random.default_rng(2)
    S, b = jnp.asarray(random.normal(size=shape)), jnp.asarray(random.normal(size=shape[0]))

    def ours(S: Any, b: Any) -> Any:
        structure = jax.ShapeDtypeStruct(shape[1:], float)
        operator = MAKE["matrix"](S) if kind == "matrix" else lx.FunctionLinearOperator(lambda x: S @ x, structure)
        return solve(operator, b, adapter.LineaxSolver(rtol=1e-13)).value

    def exact(S: Any, b: Any) -> Any:
        return jnp.linalg.pinv(S) @ b

    np.testing.assert_allclose(ours(S, b), exact(S, b), rtol=1e-8)
    jacobians = (jax.jit(jax.jacrev(function, (0, 1)))(S, b) for function in (ours, exact))
    for found, wanted in zip(*jacobians, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-8)


# --- failures ---


def singular(n: int = 8) -> tuple[Any, np.ndarray]:
    """Differences around a ring; constants are the null space."""
    matrix = 2 * np.eye(n) - np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0)
    return lx.MatrixLinearOperator(jnp.asarray(matrix), lx.positive_semidefinite_tag), matrix


@pytest.mark.parametrize("method", ["auto", *(pytest.param(m, marks=pytest.mark.slow) for m in ("CG", "biCG-stab(2)"))])
def test_singular_systems(method: str) -> None:
    operator, matrix = singular()
    b = matrix @ np.arange(8.0) ** 2
    good = solve(operator, jnp.asarray(b), adapter.LineaxSolver(method))
    np.testing.assert_allclose(matrix @ good.value, b, atol=1e-8)
    bad = solve(operator, jnp.asarray(b + 1), adapter.LineaxSolver(method), throw=False)
    assert not is_(bad.result, "successful") and np.isfinite(bad.value).all()
    with pytest.raises(Exception, match=r"singular|breakdown|stagnation|[Ii]terative|maximum number"):
        solve(operator, jnp.asarray(b + 1), adapter.LineaxSolver(method))


@pytest.mark.slow
def test_codes() -> None:
    operator, b = MAKE["function"](jnp.asarray(MATRIX)), jnp.asarray(B)
    short = adapter.LineaxSolver("biCG-stab", max_iter=1)
    stopped = solve(operator, b, short, throw=False)
    assert is_(stopped.result, "max_steps_reached")
    assert stopped.stats["num_steps"] == stopped.stats["max_steps"] == 1 and stopped.stats["residual_norm"] > 0
    with pytest.raises(Exception, match="maximum number of solver steps"):
        solve(operator, b, short)
    with pytest.raises(Exception, match="maximum number of solver steps"):  # of the derivative
        jax.grad(lambda b: solve(operator, b, short, throw=False).value.sum())(b)
    for solver in SOLVERS:
        assert is_(solve(operator, b.at[2].set(jnp.nan), solver, throw=False).result, "nonfinite_input")
        broken = MAKE["function"](jnp.asarray(MATRIX).at[0, 0].set(jnp.nan))
        assert is_(solve(broken, b, solver, throw=False).result, "singular")
        zero = solve(operator, 0 * b, solver)
        assert is_(zero.result, "successful") and not zero.value.any()
        assert not is_(solve(0 * operator, b, solver, throw=False).result, "successful")
    for status in Status:
        assert is_(adapter._code(jnp.asarray(int(status)), "CG"), "successful") is (status == Status.CONVERGED)


def test_codes_under_vmap() -> None:
    """A good, a zero, a NaN and a hard right-hand side in one batch behave as they do alone."""
    S, rest = jnp.diag(jnp.arange(1.0, N + 1)), adapter.LineaxSolver("CG", max_iter=3)
    rows = jnp.stack([jnp.eye(N)[2], jnp.zeros(N), jnp.full(N, jnp.nan), jnp.ones(N)])

    def one(b: Any) -> Any:
        found = solve(lx.MatrixLinearOperator(S, lx.positive_semidefinite_tag), b, rest, throw=False)
        return found.value, found.stats["num_steps"], found.result

    x, steps, result = jax.jit(jax.vmap(one))(rows)
    assert steps.tolist() == [1, 0, 0, 3]
    codes = [lx.RESULTS.successful, lx.RESULTS.successful, lx.RESULTS.nonfinite_input, lx.RESULTS.max_steps_reached]
    assert jnp.asarray(result == lx.RESULTS.where(True, codes[0], codes[0])).tolist() == [True, True, False, False]
    for i, code in enumerate(codes):
        alone = one(rows[i])
        assert bool(alone[2] == code) and alone[1] == steps[i]
        np.testing.assert_allclose(x[i], alone[0], rtol=1e-12)


def test_refusals() -> None:
    b = jnp.asarray(B)
    with pytest.raises(ValueError, match=r"biCG-stab\(2\) takes square systems; this operator is 4 x 6.*LSMR"):
        solve(lx.MatrixLinearOperator(jnp.ones((4, 6))), b[:4])
    with pytest.raises(ValueError, match=r"is damped"):
        adapter.LineaxSolver(LSMR(damp=0.1))
    with pytest.raises(TypeError, match=r"one dtype; this operator has complex128, float64"):
        solve(lx.DiagonalLinearOperator({"a": b, "b": b + 0j}), {"a": b, "b": b + 0j})
    with pytest.raises(ValueError, match=r"options 'preconditioner' and 'y0'; got \['x0'\]"):
        solve(MAKE["matrix"](jnp.asarray(MATRIX)), b, options={"x0": b})
    with pytest.raises(TypeError, match=r"must be an operator of lineax; got str"):
        solve(MAKE["matrix"](jnp.asarray(MATRIX)), b, options={"preconditioner": "jacobi"})
    with pytest.raises(ValueError, match=r"The preconditioner maps"):
        solve(MAKE["matrix"](jnp.asarray(MATRIX)), b, adapter.LineaxSolver("CG", lx.DiagonalLinearOperator(b[:3])))
    with pytest.raises(ValueError, match=r"No method is called 'CGG'"):
        adapter.LineaxSolver("CGG")
    with pytest.raises(ValueError, match=r"rtol must be >= 0 and below 1; got -1"):
        adapter.LineaxSolver(rtol=-1.0)
    with pytest.raises(ValueError, match=r"max_iter must be one integer"):
        adapter.LineaxSolver(max_iter=(1, 2))  # type: ignore[arg-type]


# --- Optimistix and Diffrax ---


@pytest.mark.parametrize("derivative", ["jacrev", pytest.param("jacfwd", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("root_finder", "method"), [pytest.param("Newton", "auto", marks=pytest.mark.slow), ("Chord", "biCG-stab(2)")]
)
def test_optimistix(root_finder: str, method: str, derivative: str) -> None:
    import optimistix as optx

    S, solver = jnp.asarray(MATRIX), adapter.LineaxSolver(method)
    finder = getattr(optx, root_finder)(rtol=1e-11, atol=1e-11, linear_solver=solver)
    adjoint = optx.ImplicitAdjoint(linear_solver=solver)

    def root(a: Any) -> Any:
        function = lambda x, a: S @ x + a * x**3 - B  # noqa: E731
        return optx.root_find(function, finder, jnp.zeros(N), a, max_steps=200, adjoint=adjoint).value

    x = jax.jit(root)(0.3)
    np.testing.assert_allclose(S @ x + 0.3 * x**3, B, atol=1e-10)
    wanted = np.linalg.solve(MATRIX + np.diag(0.9 * x**2), -(x**3))  # implicit function theorem
    np.testing.assert_allclose(jax.jit(getattr(jax, derivative)(root))(0.3), wanted, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["Kvaerno3", "ImplicitEuler"])
@pytest.mark.parametrize("method", SOLVERS)
def test_diffrax(scheme: str, method: str) -> None:
    """Reaction and diffusion on a ring; the derivative by the reaction's rate against differences."""
    import diffrax
    import optimistix as optx

    n, linear_solver = 12, adapter.LineaxSolver(method, rtol=1e-8)
    accuracy, finder = (1e-5, diffrax.VeryChord) if scheme == "Kvaerno3" else (1e-8, optx.Newton)
    finder = finder(rtol=accuracy, atol=accuracy, linear_solver=linear_solver)
    start = 0.5 + 0.3 * jnp.sin(2 * jnp.pi * jnp.arange(n) / n)

    def rate(t: float, u: Any, r: Any) -> Any:
        return 20.0 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)) + r * u * (1 - u)

    @jax.jit
    def final(r: Any) -> Any:
        constant = diffrax.ConstantStepSize()
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(rate), getattr(diffrax, scheme)(root_finder=finder), 0.0, 0.5, 0.05, start, args=r,
            stepsize_controller=constant, max_steps=20,
        )  # fmt: skip
        return jnp.sum(solution.ys[-1] ** 2)

    difference = (final(2.0 + 1e-4) - final(2.0 - 1e-4)) / 2e-4
    np.testing.assert_allclose(jax.jit(jax.grad(final))(2.0), difference, rtol=10 * accuracy)


def test_diffrax_rejects_steps_on_a_failed_solve() -> None:
    """The code of a failed solve reaches the step size control, which takes smaller steps, and nothing raises."""
    import diffrax

    n = 12

    def rate(t: float, u: Any, _: Any) -> Any:
        return 200.0 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))

    @eqx.filter_jit
    def run(linear_solver: Any) -> Any:
        finder = diffrax.VeryChord(rtol=1e-6, atol=1e-6, linear_solver=linear_solver)
        return diffrax.diffeqsolve(
            diffrax.ODETerm(rate), diffrax.Kvaerno3(root_finder=finder), 0.0, 0.01, 0.01, jnp.cos(jnp.arange(n) ** 2),
            stepsize_controller=diffrax.PIDController(rtol=1e-2, atol=1e-2), max_steps=4000,
        )  # fmt: skip

    free, limited = (
        run(adapter.LineaxSolver("biCG-stab", rtol=1e-6)),
        run(adapter.LineaxSolver("biCG-stab", rtol=1e-6, max_iter=2)),
    )
    assert limited.stats["num_steps"] > free.stats["num_steps"]
    np.testing.assert_allclose(limited.ys, free.ys, atol=2e-2)
