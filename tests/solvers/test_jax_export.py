"""Solves in programs that are exported, stored and run elsewhere."""

from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import linear_solve

jax = lazy("jax")
jnp = lazy("jax.numpy")
export = lazy("jax.export")


def test_an_exported_solve() -> None:
    """Also by default, to raise: no error can leave such a program, so x of a failed solve is NaN."""
    A = np.diag(np.arange(1.0, 9)) + np.eye(8, k=1)

    def solve(b: Any) -> Any:
        result = linear_solve(lambda u: u @ jnp.asarray(A).T, b, method="biCG-stab(2)", batch_ndim=1, max_iter=30)
        return result.x, result.converged

    b = jnp.asarray(np.random.default_rng(0).standard_normal((2, 8)))
    stored = export.export(jax.jit(solve))(b).serialize()
    call = export.deserialize(stored).call
    x, converged = call(b)
    np.testing.assert_allclose(x @ A.T, b, atol=1e-8)
    assert converged.all()
    x, converged = call(b.at[1, 3].set(np.nan))
    assert np.isnan(x).all() and converged.tolist() == [True, False]


@pytest.mark.parametrize("of_factors", [False, True])
def test_programs_that_call_the_host_are_refused(of_factors: bool) -> None:
    """Where "auto" takes factors in each run; with "nan" it takes a method that is exported."""
    k = np.linspace(1, 2, 400)

    def solve(policy: str) -> Any:
        method = "scipy-direct" if of_factors else "auto"
        f = lambda u, k: (2 + k) * u - jnp.roll(u, 1) - k * jnp.roll(u, -7)  # noqa: E731
        return jax.jit(lambda k, b: linear_solve(f, b, args=(k,), method=method, on_failure=policy).x)

    with pytest.raises(TypeError, match=r"jax.export .* calls the host"):
        export.export(solve("raise"))(k, k)
    if not of_factors:
        x = export.export(solve("nan"))(k, k).call(k, k)
        A = np.diag(2 + k) - np.roll(np.eye(400), -1, 1) - k[:, None] * np.roll(np.eye(400), 7, 1)
        np.testing.assert_allclose(A @ x, k, atol=1e-6)
