"""Solves in programs that are exported, stored and run elsewhere."""

from typing import Any

import numpy as np

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
