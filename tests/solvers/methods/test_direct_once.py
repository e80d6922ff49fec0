"""Dense direct solves in programs: LU applied once, and the host for what that leaves over."""

from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import SingularMatrixWarning, linear_solve

jax = lazy("jax")
jnp = lazy("jax.numpy")

N = 12
rng = np.random.default_rng(3)
REGULAR = rng.standard_normal((N, N)) + 4 * np.eye(N)
SINGULAR = rng.standard_normal((N, N - 2)) @ rng.standard_normal((N - 2, N))
B = rng.standard_normal(N)
LINES = {"solve": 375, "gradient": 610, "known": 240}  # of StableHLO; lineax has 172, 254 and 173


def solved(A: Any, b: Any, **settings: Any) -> Any:
    return jax.jit(lambda A, b: linear_solve(A, b, method="direct", on_failure="status", **settings))(A, b)


def conditioned(cond: float, n: int = 60) -> np.ndarray:
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return (left * np.geomspace(1, 1 / cond, n)) @ right


def test_regular_systems_stay_in_the_program() -> None:
    result = solved(REGULAR, B)
    assert result.method == "direct" and result.iterations == 1 and not result.singular
    np.testing.assert_allclose(result.x, np.linalg.solve(REGULAR, B), rtol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision_stays_in_the_program(dtype: str) -> None:
    A, b = conditioned(1e4).astype(dtype), rng.standard_normal(60).astype(dtype)
    result = solved(A, b)
    assert result.converged and result.method == "direct" and result.x.dtype == dtype
    expected = np.linalg.solve(A.astype(complex), b)
    assert np.linalg.norm(result.x - expected) < 1e-2 * np.linalg.norm(expected)


def test_singular_systems_are_those_of_the_host() -> None:
    consistent = solved(SINGULAR, SINGULAR @ B)
    assert consistent.method == "direct" and consistent.singular and consistent.converged
    np.testing.assert_allclose(consistent.x, np.linalg.pinv(SINGULAR) @ SINGULAR @ B, atol=1e-11)
    assert not solved(SINGULAR, B).converged
    nothing = solved(SINGULAR, 0 * B)
    assert nothing.singular and nothing.iterations == 0 and not np.any(nothing.x)


def test_all_null_vectors_are_found() -> None:
    A = rng.standard_normal((30, 18)) @ rng.standard_normal((18, 30))
    b = A @ rng.standard_normal(30)
    np.testing.assert_allclose(solved(A, b).x, np.linalg.pinv(A) @ b, atol=1e-10)


@pytest.mark.parametrize("scales", [(True, False), (False, True)])
def test_badly_scaled_systems(scales: tuple[bool, bool]) -> None:
    size = 10.0 ** np.linspace(-12, 12, N)
    rows, columns = (size if one else np.ones(N) for one in scales)
    result = solved(rows[:, None] * REGULAR * columns, rows * B)
    assert result.converged and not result.singular
    np.testing.assert_allclose(result.x * columns, np.linalg.solve(REGULAR, B), rtol=1e-9)


def test_units_and_starts() -> None:
    expected = np.linalg.solve(REGULAR, B)
    for unit in (1e-290, 1e290):
        np.testing.assert_allclose(solved(REGULAR, unit * B).x / unit, expected, rtol=1e-11)
    started, exact = solved(REGULAR, B, x0=1e3 * B), solved(REGULAR, REGULAR @ B, x0=B)
    np.testing.assert_allclose(started.x, expected, rtol=1e-9)
    assert exact.iterations == 0 and np.array_equal(exact.x, B)


def test_lanes_and_batches_of_matrices() -> None:
    A = np.stack([REGULAR, SINGULAR, np.full((N, N), np.nan), REGULAR.T])
    b = np.stack([B, SINGULAR @ B, B, B])
    batch = solved(A, b)
    lanes = jax.jit(jax.vmap(lambda A, b: linear_solve(A, b, method="direct", on_failure="status")))(A, b)
    for found in (batch, lanes):
        assert np.array_equal(found.converged, [True, True, False, True])
        assert np.array_equal(found.singular[:2], [False, True])
        np.testing.assert_allclose(found.x[1], np.linalg.pinv(SINGULAR) @ b[1], atol=1e-11)
        np.testing.assert_allclose(found.x[3], np.linalg.solve(REGULAR.T, B), rtol=1e-11)


def test_derivatives_of_singular_systems() -> None:
    """Those with respect to b are the pseudo-inverse, found by the host in both directions."""
    found = jax.jit(jax.jacrev(lambda b: linear_solve(traced_singular(b), SINGULAR @ b, method="direct").x))(B)
    np.testing.assert_allclose(found, np.linalg.pinv(SINGULAR) @ SINGULAR, atol=1e-9)


def traced_singular(b: Any) -> Any:
    return jnp.asarray(SINGULAR) + 0 * b[0]  # not known while it is traced


def test_second_derivatives() -> None:
    def f(A: Any) -> Any:
        return jnp.sum(linear_solve(A, jnp.asarray(B), method="direct").x ** 2)

    def reference(A: Any) -> Any:
        return jnp.sum(jnp.linalg.solve(A, jnp.asarray(B)) ** 2)

    direction = rng.standard_normal((N, N))
    found, expected = (
        jax.jit(lambda A, f=one: jax.jvp(jax.grad(f), (A,), (direction,))[1])(REGULAR) for one in (f, reference)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)


def test_exported_programs_have_no_host() -> None:
    program = jax.jit(lambda A, b: linear_solve(A, b, method="direct").x)
    A = jax.ShapeDtypeStruct((N, N), np.float64)
    again = jax.export.deserialize(jax.export.export(program)(A, jax.ShapeDtypeStruct((N,), np.float64)).serialize())
    np.testing.assert_allclose(again.call(REGULAR, B), np.linalg.solve(REGULAR, B), rtol=1e-11)
    assert np.all(np.isnan(again.call(SINGULAR, SINGULAR @ B)))


def test_eager_solves() -> None:
    with pytest.warns(SingularMatrixWarning, match="direct: the matrix is singular"):
        result = linear_solve(jnp.asarray(SINGULAR), jnp.asarray(SINGULAR @ B), method="direct")
    assert result.method == "direct" and result.singular
    np.testing.assert_allclose(result.x, np.linalg.pinv(SINGULAR) @ SINGULAR @ B, atol=1e-11)


@pytest.mark.parametrize("what", LINES)
def test_lines_of_programs(what: str) -> None:
    def f(A: Any, b: Any) -> Any:
        return linear_solve(REGULAR if what == "known" else A, b).x

    program = jax.grad(lambda A, b: jnp.sum(f(A, b)), (0, 1)) if what == "gradient" else f
    assert len(jax.jit(program).lower(REGULAR, B).as_text().splitlines()) <= LINES[what]


CLAIMS: dict[str, dict[str, Any]] = {
    "default": {},
    "rtol": {"rtol": 1e-6},
    "atol": {"rtol": 0.0, "atol": 1e-3},
    "three steps": {"max_iter": 3},
    "start": {"x0": 0.1 * B},
    "no null space": {"nullspace": None},
}
HARD = np.diag(10.0 ** np.linspace(0, -13, N))


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
@pytest.mark.parametrize("settings", CLAIMS)
def test_what_it_claims(settings: str) -> None:
    """Success only by the true residual, in long double; the same status as NumPy's; with an x0 larger than x, too."""
    given = CLAIMS[settings]
    run = jax.jit(lambda A, b: linear_solve(A, b, method="direct", on_failure="status", **given))
    zero = [0 * HARD] * ("nullspace" in given)  # of which NumPy knows null vectors beforehand, else
    for A in (REGULAR, REGULAR + REGULAR.T, HARD, SINGULAR, *zero):
        for b in (B, SINGULAR @ B, 1e-180 * B, 1e180 * B, 0 * B, np.where(np.arange(N) == 3, np.nan, B)):
            found, expected = run(A, b), linear_solve(A, b, method="direct", on_failure="status", **given)
            assert int(found.status) == int(expected.status)
            if found.converged:
                own, right, x = (np.asarray(v, np.longdouble) for v in (A, b, found.x))
                norm, rounding = (np.sqrt((v**2).sum()) for v in (right - own @ x, abs(own) @ abs(x)))
                allowed = N * np.finfo(float).eps * (rounding + norm) + np.longdouble(found.null_part)
                assert norm <= 1.01 * np.longdouble(found.tolerance) + allowed
                assert abs(norm - np.longdouble(found.residual_norm)) <= allowed


def test_programs_with_and_without_a_start_share_no_function_of_the_host() -> None:
    for given in ({}, {"x0": 1e3 * B}, {}):
        result = solved(SINGULAR, SINGULAR @ B, nullspace=None, **given)
        assert result.converged
        np.testing.assert_allclose(SINGULAR @ result.x, SINGULAR @ B, rtol=1e-8, atol=1e-9)
