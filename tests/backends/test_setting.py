"""Settings of the process and of `with` blocks, and JAX's compiled functions, which follow them."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import jax, jnp
from krylix.backends.settings import Setting

SETTINGS: dict[str, tuple[Callable[[Any], AbstractContextManager[None]], Callable[[Any], None], Any, Any]] = {
    "on_failure": (krylix.on_failure, krylix.set_global_on_failure, "raise", "nan"),
    "precision": (krylix.precision, krylix.set_global_precision, None, 32),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    for _, set_global, default, _ in SETTINGS.values():
        set_global(default)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", SETTINGS)
def test_jitted_functions_follow(name: str) -> None:
    """A function is traced once for each value, whichever `jax.jit` and thread calls it."""
    local, set_global, default, other = SETTINGS[name]
    get, traced = getattr(krylix, f"get_{name}"), []

    def function(x: Any) -> Any:
        traced.append(get())
        return x + (1 if traced[-1] == default else 2)

    def values() -> set[float]:
        return {float(jax.jit(function)(0.0)), float(compiled(0.0)), float(jax.vmap(jax.jit(function))(np.zeros(1))[0])}

    with local(default):
        pass  # JAX was perhaps imported after krylix: it then knows the setting from now on
    compiled = jax.jit(function)
    assert values() == {1}
    with local(other):
        assert values() == {2}
        with local(default):
            assert values() == {1}
        found: list[set[float]] = []
        thread = threading.Thread(target=lambda: found.append(values()))
        thread.start()
        thread.join()
        assert found == [{1}]
        with pytest.raises(KeyError), local(default):
            raise KeyError
        assert values() == {2}
    assert values() == {1}
    set_global(other)
    assert values() == {2}
    assert sorted(map(str, set(traced))) == sorted(map(str, (default, other)))
    assert len(traced) <= 4  # twice for each value: scalars, and those of a batch


@pytest.mark.needs("jax")
def test_a_jitted_solve_in_another_precision() -> None:
    solve = jax.jit(lambda b: krylix.linear_solve(lambda x: 2 * x, b, method="CG").x)
    b = jnp.ones(3, "float64")
    assert solve(b).dtype == "float64"
    with krylix.precision(32):
        assert solve(b).dtype == "float32"
        assert jax.grad(lambda b: solve(b).sum())(b).dtype == "float64"
    assert solve(b).dtype == "float64"


def test_no_framework_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    setting = Setting("test", 1, compiled=True)
    with setting.local(2):
        setting.set_global(3)
        assert setting.get() == 2
    assert setting.get() == 3
    assert "jax" not in sys.modules
