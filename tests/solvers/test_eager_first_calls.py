"""First eager solves of JAX with a function: solved by NumPy with its matrix, the later ones by a program; alike."""

import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cells import DTYPES, METHOD_NAMES, cast, check_true_residual, in_turn, suits
from frameworks import lazy
from krylix import ConvergenceError, NonlinearError, SolveResult, linear_solve, precision
from krylix.solvers import METHODS, PRECONDITIONERS
from krylix.solvers.adapters import first_call
from krylix.solvers.results.result import arrays_of
from modes import Numbers
from problems import SYSTEMS, System, make_operator
from tiers import REPRESENTATIVE

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")

N = 12
K = np.linspace(1.0, 2.0, N)
B = np.cos(np.arange(N) * 1.0)


@pytest.fixture
def on_numpy(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each solve that NumPy was asked for, whether it gave the result."""
    found: list[bool] = []
    solve = first_call.solve_on_numpy

    def watched(*args: Any) -> SolveResult | None:
        found.append(False)
        result = solve(*args)
        found[-1] = result is not None
        return result

    monkeypatch.setattr(first_call, "solve_on_numpy", watched)
    return found


def chain(u: Any, k: Any = 4.0) -> Any:
    """Symmetric and definite."""
    return k * u - jnp.roll(u, 1, -1) - jnp.roll(u, -1, -1)


def closed_ring(u: Any) -> Any:
    """Singular: the constant is its null vector."""
    return chain(u, 2.0)


def dense(f: Callable[[Any], Any], n: int = N) -> np.ndarray:
    return np.asarray(jax.jit(jax.jacfwd(f))(np.zeros(n)))


def outcome(solve: Callable[[], SolveResult]) -> tuple[Any, list[str]]:
    """The result, or the error, and what was warned of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            return solve(), [str(one.message) for one in warned]
        except (ConvergenceError, ValueError, TypeError) as error:
            return error, [str(one.message) for one in warned]


def facts(array: Any) -> Any:
    """Of an array, what a program that gets it depends on."""
    return type(array), array.aval, array.weak_type, array.committed, array.sharding


def assert_alike(first: SolveResult, later: SolveResult, rtol: float = 1e-8) -> None:
    assert first._background == later._background
    assert (first.checkpoints, first.least_squares) == (later.checkpoints, later.least_squares)
    for one, other in zip(arrays_of(first), arrays_of(later), strict=True):
        assert facts(one) == facts(other)
    for name in ("converged", "diverged", "status", "singular"):
        np.testing.assert_array_equal(getattr(first, name), getattr(later, name))
    scale = max(1.0, float(np.nanmax(np.abs(later.x), initial=0)))
    np.testing.assert_allclose(first.x, later.x, rtol=rtol, atol=rtol * scale)
    if np.array_equal(first.iterations, later.iterations):
        # but for a number that rounding decides
        assert len({re.sub(r"\d\.\de-\d\d", "", one.message.split(":")[0]) for one in (first, later)}) == 1


def words(error: Exception) -> str:
    """What it says, but for what rounding decides."""
    return re.sub(r"\d\.\d+e-1\d", "a small number", str(error))


def solve_twice(f: Any, b: Any, on_numpy: list[bool], **settings: Any) -> tuple[Any, Any]:
    """First by NumPy, then by the library, whose errors and warnings are the same."""
    on_numpy.clear()
    first, warned = outcome(lambda: linear_solve(f, b, **settings))
    assert on_numpy, "NumPy was not asked"
    on_numpy.clear()
    later, warned_later = outcome(lambda: linear_solve(f, b, **settings))
    assert not on_numpy
    assert warned == warned_later
    if isinstance(later, Exception):
        assert type(first) is type(later) and words(first) == words(later)
        if isinstance(later, ConvergenceError):
            return first.result, later.result
    return first, later


def regular_system(method: str, dtype: str) -> System | None:
    """One that the method is made for."""
    own = "direct" if method == "auto" else method
    found = [system for system in SYSTEMS.values() if suits(own, system, dtype) and not system.singular]
    return found[-1] if found else None


CELLS = [(m, d) for m in (*METHOD_NAMES, "auto") for d in DTYPES if regular_system(m, d) is not None]


@pytest.mark.parametrize(("method", "dtype", "several"), [(*cell, k % 2 == 1) for k, cell in enumerate(CELLS)])
def test_first_solve_is_right_and_compiles_nothing(
    method: str, dtype: str, several: bool, compilations: list[str], on_numpy: list[bool]
) -> None:
    batch = (3,) if several else ()
    system = regular_system(method, dtype)
    assert system is not None
    matrix, b = cast(system.matrix, dtype), cast(system.right_hand_side(batch, seed=3), dtype)
    A, given = make_operator("jax", "function", matrix), jnp.asarray(b)
    compilations.clear()
    result = linear_solve(A, given, method=method, batch_ndim=len(batch), on_failure="status")
    assert compilations == [] and on_numpy == [True]
    assert np.all(result.converged), result.message
    assert all(isinstance(array, jax.Array) for array in arrays_of(result))
    assert result.x.dtype == dtype and result.x.shape == b.shape
    found = Numbers(result)
    check_true_residual(found, matrix, b)
    exact = np.linalg.solve(matrix.astype(np.complex128), b[..., None])[..., 0]
    limit = 30 * np.linalg.cond(matrix) * found.tolerance / np.linalg.norm(b, axis=-1)
    assert (np.linalg.norm(found.x - exact, axis=-1) <= limit * np.linalg.norm(exact, axis=-1)).all()


def some(names: Any, by_default: Any) -> list[Any]:
    return [name if name in by_default else pytest.param(name, marks=pytest.mark.merge) for name in names]


LATER = [
    *in_turn((*REPRESENTATIVE, "auto"), [True, False], tier="merge"),
    *(
        pytest.param(*case.values, marks=case.marks or pytest.mark.merge)
        for case in in_turn((m for m in METHODS if m not in REPRESENTATIVE), [False, True])
    ),
]


@pytest.mark.parametrize(("method", "several"), LATER)
def test_later_solves_agree(method: str, several: bool, on_numpy: list[bool]) -> None:
    """In numbers to rounding, in all else exactly; a single system, or a batch in single precision."""
    f, b = chain, B
    if method == "fast-direct":
        f, b = (lambda u: chain(u) + 4 * u - jnp.roll(u, 1, -2) - jnp.roll(u, -1, -2)), np.outer(B, B)
    if several:
        wide = jnp.asarray(np.stack([b, 3 * b, 0 * b]), "float32")
        assert_alike(*solve_twice(f, wide, on_numpy, method=method, batch_ndim=1), rtol=1e-4)
    else:
        assert_alike(*solve_twice(f, jnp.asarray(b), on_numpy, method=method))


@pytest.mark.parametrize("kind", some(PRECONDITIONERS, ("jacobi",)))
def test_preconditioners(kind: str, on_numpy: list[bool]) -> None:
    first, later = solve_twice(chain, jnp.asarray(B), on_numpy, method="GMRES", preconditioner=kind)
    if kind != "block-jacobi":  # which finds no blocks here, and says so
        assert_alike(first, later)


SETTINGS: dict[str, tuple[Callable[[Any], Any], np.ndarray, dict[str, Any]]] = {
    "start": (chain, B, {"x0": B[::-1].copy()}),
    "exact start": (lambda u: 2 * u, 2 * B, {"x0": B}),
    "zero": (chain, 0 * B, {}),
    "affine": (lambda u: chain(u) + 1, B, {}),
    "atol": (chain, B, {"atol": 0.01}),
    "a tolerance for each": (chain, np.stack([B, B]), {"rtol": np.array([1e-3, 1e-11]), "batch_ndim": 1}),
    "a limit for each": (chain, np.stack([B, B]), {"max_iter": np.array([30, 40]), "batch_ndim": 1}),
    "checkpoints": (chain, B, {"max_iter": (1, 3, 40), "history": True}),
    "singular": (closed_ring, B - B.mean(), {}),
    "given null vectors": (closed_ring, B - B.mean(), {"nullspace": np.ones((1, N))}),
    "no null vectors": (closed_ring, B - B.mean(), {"nullspace": None}),
    "tiny": (chain, 1e-300 * B, {}),
    "huge": (chain, 1e300 * B, {}),
    "one unknown": (lambda u: 3 * u, np.ones(1), {}),
    "a number": (lambda u: 3 * u, np.array(2.0), {}),
    "grid": (lambda u: chain(u) + chain(u.T).T, np.outer(B, B), {}),
    "not a number": (chain, np.where(B[3] == B, np.nan, B), {}),
    "one of three is none": (chain, np.stack([B, B * np.nan, 0 * B]), {"batch_ndim": 1}),
    "limit": (chain, B, {"max_iter": 2}),
    "beyond the precision": (chain, B, {"rtol": 1e-18}),
    "no solution": (closed_ring, B, {"nullspace": None, "max_iter": 5}),
    "least squares": (closed_ring, B, {}),
    "not symmetric": (lambda u: chain(u, 2.5) + 2 * jnp.roll(u, 1), B, {"max_iter": 5}),
}
FAIL = ("not a number", "one of three is none", "limit", "beyond the precision", "no solution", "not symmetric")


@pytest.mark.parametrize("name", some(SETTINGS, ("start", "checkpoints", "limit")))
def test_settings(name: str, on_numpy: list[bool]) -> None:
    f, b, settings = SETTINGS[name]
    policies = ("raise", "status") if name in FAIL else ("raise",)
    for policy in policies:
        given = {key: jnp.asarray(v) if isinstance(v, np.ndarray) else v for key, v in settings.items()}
        results = solve_twice(f, jnp.asarray(b), on_numpy, method="CG", on_failure=policy, **given)
        assert_alike(*results)
        last = results[0].converged[-1] if results[0].checkpoints else results[0].converged
        assert bool(jnp.all(last)) != (name in FAIL)


@pytest.mark.merge
def test_results_lie_where_b_does(on_numpy: list[bool]) -> None:
    b = jax.device_put(B, jax.devices()[0])
    assert b.committed
    assert_alike(*solve_twice(chain, b, on_numpy, method="CG"))


@pytest.mark.merge
def test_arrays_over_a_mesh_and_weak_types_are_left_to_jax(on_numpy: list[bool]) -> None:
    place = jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices()[:1], ("i",)), jax.sharding.PartitionSpec("i"))
    for b in (jax.device_put(B, place), jnp.full(N, 1.0)):
        x = linear_solve(lambda u: 4 * u, b, method="CG").x
        np.testing.assert_allclose(x, b / 4, rtol=1e-8)
    assert jnp.full(N, 1.0).weak_type and on_numpy == []


@pytest.mark.merge
@pytest.mark.parametrize("policy", ["warn", "nan"])
def test_failures(policy: str, on_numpy: list[bool]) -> None:
    first, later = solve_twice(chain, jnp.asarray(B), on_numpy, method="CG", max_iter=2, on_failure=policy)
    assert_alike(first, later)
    assert bool(jnp.isnan(first.x).all()) == (policy == "nan")


@pytest.mark.parametrize("method", ["scipy-direct", pytest.param("direct", marks=pytest.mark.merge)])
def test_a_singular_matrix_is_told(method: str, on_numpy: list[bool]) -> None:
    """By the same warning."""

    def f(u: Any) -> Any:
        return jnp.arange(1.0, N + 1) * closed_ring(u)[::-1]

    b = jnp.asarray(dense(f) @ B)
    assert_alike(*solve_twice(f, b, on_numpy, method=method, nullspace=None))


def test_late_binding(on_numpy: list[bool]) -> None:
    """What a function closes over, and its arguments, may change between any two solves."""
    state = {"k": 4.0, "coefficients": jnp.asarray(K)}

    def f(u: Any, c: Any) -> Any:
        return chain(u, state["k"]) + state["coefficients"] * u + c * u

    for i in range(5):
        state["k"], state["coefficients"] = 4.0 + i, jnp.asarray(K + i)
        x = linear_solve(f, jnp.asarray(B), method="CG", args=(jnp.asarray(0.1 * i),)).x
        want = np.linalg.solve(dense(lambda u, i=i: f(u, 0.1 * i)), B)
        np.testing.assert_allclose(x, want, rtol=1e-8)
    assert on_numpy == [True]  # one program serves the later ones


def test_results_stay_as_they_were() -> None:
    """Neither a later solve nor the caller writes to their memory."""
    b, x0 = np.array(B), np.array(B)
    first = linear_solve(chain, jnp.asarray(b), x0=x0, method="CG")
    kept = [np.array(a) for a in arrays_of(first)]
    x0[:] = 7
    linear_solve(lambda u: chain(u, 5.0) * 1.5, jnp.asarray(b), method="CG", x0=x0)
    for array, before in zip(arrays_of(first), kept, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.merge
def test_transformations_are_left_to_jax(on_numpy: list[bool]) -> None:
    """Derivatives, and what is mapped or compiled, in the first call and in the next one."""

    ring, like = jnp.asarray(dense(closed_ring)), jnp.asarray(B)

    def x(k: Any, b: Any = like) -> Any:
        return linear_solve(lambda u: chain(u, k), b, method="CG", rtol=1e-12).x

    def exact(k: Any, b: Any = like) -> Any:
        return jnp.linalg.solve(ring + (k - 2) * jnp.eye(N), b)

    for _ in range(2):
        for solve in (
            lambda x: jax.grad(lambda k: jnp.sum(x(k) ** 2))(4.0),
            lambda x: jax.grad(jax.grad(lambda k: jnp.sum(x(k) ** 2)))(4.0),
            lambda x: jax.jvp(x, (4.0,), (1.0,))[1],
            lambda x: jax.vmap(x)(jnp.asarray([4.0, 5.0])),
            lambda x: jax.vmap(lambda b: x(4.0, b))(jnp.asarray([B, 2 * B])),
            lambda x: jax.jit(x)(4.0),
            lambda x: jax.vjp(lambda b: x(4.0, b), jnp.asarray(B))[1](jnp.asarray(B))[0],
        ):
            np.testing.assert_allclose(solve(x), solve(exact), rtol=1e-7)
    assert on_numpy == []


def by_callback(u: Any) -> Any:
    return 4 * jax.pure_callback(lambda v: np.asarray(v), jax.ShapeDtypeStruct(u.shape, u.dtype), u)


def printing(u: Any) -> Any:
    jax.debug.print("called")
    return 4 * u


def in_a_long_loop(u: Any) -> Any:
    return lax.fori_loop(0, 3000, lambda i, v: v + 1e-3 * u, u)


@pytest.mark.parametrize("f", [by_callback, printing, in_a_long_loop], ids=lambda f: f.__name__)
def test_what_is_not_recorded(f: Callable[[Any], Any], on_numpy: list[bool], capfd: Any) -> None:
    """Is solved by the library, with all that the function does."""
    for _ in range(2):
        x = linear_solve(f, jnp.asarray(B), method="CG").x
        np.testing.assert_allclose(x, B / 4, rtol=1e-8)
    assert not any(on_numpy)
    jax.effects_barrier()
    assert ("called" in capfd.readouterr().out) == (f is printing)


CONTEXTS = {
    "disable_jit": lambda: jax.disable_jit(),
    "debug_nans": lambda: jax.debug_nans(True),
    "debug_infs": lambda: jax.debug_infs(True),
    "default_device": lambda: jax.default_device(jax.devices("cpu")[0]),
    "precision": lambda: precision(32),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_settings_of_the_user_are_left_to_jax(name: str, on_numpy: list[bool]) -> None:
    with CONTEXTS[name]():
        result = linear_solve(lambda u: 4 * u, jnp.asarray(B), method="CG" if name == "debug_nans" else "scipy-CG")
    np.testing.assert_allclose(result.x, B / 4, rtol=1e-5)
    assert on_numpy == []


def test_double_precision_in_a_block(on_numpy: list[bool]) -> None:
    """An array of a precision that is switched off now is solved in the precision that there is."""
    b = jnp.asarray(B)
    with jax.enable_x64(False):
        single = linear_solve(chain, jnp.asarray(B), method="CG").x
        assert single.dtype == np.float32 and on_numpy == [True]
    double = linear_solve(chain, b, method="CG").x
    assert double.dtype == np.float64 and on_numpy == [True, True]
    np.testing.assert_allclose(double, np.linalg.solve(dense(chain), B), rtol=1e-8)


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda u: u * u, NonlinearError),
        (lambda u: u[:3], ValueError),
        (lambda u: 1j * u, TypeError),
        (lambda u: u.astype("float32"), TypeError),
        (lambda u: (3 * u).astype("float32").astype(u.dtype), NonlinearError),
        (lambda u: np.asarray(u), TypeError),
        (lambda u: None, TypeError),
    ],
)
def test_bad_functions_are_refused_alike(f: Any, error: type[Exception], on_numpy: list[bool]) -> None:
    found = [outcome(lambda: linear_solve(f, jnp.asarray(B)))[0] for _ in range(2)]
    assert all(type(one) is error for one in found) and str(found[0]) == str(found[1])
    assert not any(on_numpy)


@pytest.mark.merge
def test_what_jax_cannot_transpose_is_solved_later_too(on_numpy: list[bool]) -> None:
    def f(u: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, chain(s[1])), (0, u))[1]

    want = np.linalg.solve(dense(f), B)
    for _ in range(3):
        np.testing.assert_allclose(linear_solve(f, jnp.asarray(B), method="LSMR", rtol=1e-12).x, want, rtol=1e-7)


def test_large_systems_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch, on_numpy: list[bool]) -> None:
    """NumPy would take longer for one solve; sooner for a method that takes many steps."""
    monkeypatch.setattr(first_call, "MOST_STEPPED", N - 1)
    linear_solve(chain, jnp.asarray(B), method="CG")
    assert on_numpy == []
    linear_solve(chain, jnp.asarray(B), method="direct")
    assert on_numpy == [True]
    monkeypatch.setattr(first_call, "MOST_NUMBERS", N - 1)
    linear_solve(chain, jnp.asarray(B))
    assert on_numpy == [True]


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch, on_numpy: list[bool]) -> None:
    """Of more functions in turn, JAX would keep no programs: each is solved by NumPy, again and again."""
    monkeypatch.setattr(first_call.SEEN, "count", 3)
    for _ in range(2):
        for shift in range(1, 5):
            x = linear_solve(lambda u, s=shift: 4 * u + jnp.roll(u, s), jnp.asarray(B), method="GMRES").x
            want = np.linalg.solve(4 * np.eye(N) + np.roll(np.eye(N), shift, 0), B)
            np.testing.assert_allclose(x, want, rtol=1e-8)
    assert on_numpy == [True] * 8
    assert len(first_call.SEEN) == 3


IN_A_NEW_PROCESS = """
import jax, jax.numpy as jnp
from krylix import linear_solve
b = jnp.ones(8)
result = linear_solve(lambda u: 4 * u - jnp.roll(u, 1), b, on_failure="status")
assert result.converged
assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(result)), jax.tree.leaves(result)
"""


@pytest.mark.merge
def test_the_first_result_of_a_process_is_a_container() -> None:
    """Though nothing of JAX's has run before."""
    subprocess.run([sys.executable, "-c", IN_A_NEW_PROCESS], check=True)


@pytest.mark.merge
def test_threads() -> None:
    """Which of them is the first does not matter."""
    want, found = np.linalg.solve(dense(chain), B), []

    def solve() -> None:
        found.extend(linear_solve(chain, jnp.asarray(B), method="CG").x for _ in range(3))

    threads = [threading.Thread(target=solve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    for x in found:
        np.testing.assert_allclose(x, want, rtol=1e-8)
