"""What a user sees of a failed solve inside a compiled program, where JAX has the last word."""

import logging
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import linear_solve

jax = lazy("jax")
jnp = lazy("jax.numpy")

B = np.cos(np.arange(8.0))


def failing(b: Any) -> Any:
    return linear_solve(lambda u: 3 * u - jnp.roll(u, 1), b, method="biCG-stab", max_iter=2).x


@pytest.mark.parametrize("kind", ["alone", "mapped"])
def test_our_message_comes_first(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """And JAX's error ends with it; JAX keeps neither the class nor the cause."""
    solve, b = (failing, B) if kind == "alone" else (jax.vmap(failing), np.stack([0 * B, B]))
    with caplog.at_level(logging.DEBUG, "jax._src.callback"), pytest.raises(RuntimeError) as info:
        np.asarray(jax.jit(solve)(b))
    first = caplog.records[0]
    assert first.name == "krylix" and first.getMessage().startswith("NotConverged: biCG-stab reached the limit")
    assert [r.name for r in caplog.records if r.levelno >= logging.ERROR] == ["krylix"]
    assert first.getMessage() in str(info.value)


def test_other_errors_of_callbacks_are_still_logged_by_jax(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(_: Any) -> Any:
        raise ValueError("not ours")

    with pytest.raises(RuntimeError):
        np.asarray(jax.jit(failing)(B))
    caplog.clear()
    with pytest.raises(RuntimeError, match="not ours"):
        np.asarray(jax.jit(lambda b: jax.pure_callback(wrong, b, b))(B))
    assert any(r.name.startswith("jax") and r.exc_info for r in caplog.records)
