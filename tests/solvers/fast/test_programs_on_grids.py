"""How large the programs are that solves on grids compile in `jax.jit`: what a first call costs, counted.

XLA takes 10 to 20 ms on a CPU for each kernel that differs from all others. A count that has grown by more than the
slack is a first call that takes longer; one that shrank belongs in the table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from frameworks import lazy
from krylix import linear_solve
from program_counts import compiled_counts

jax = lazy("jax")
jnp = lazy("jax.numpy")

SLACK = 1.05


class Budget(NamedTuple):
    """At most so many."""

    fusions: int
    kernels: int


TABLES: dict[str, dict[str, Budget]] = {  # by the version of jaxlib
    "0.10.2": {
        "constant": Budget(169, 74),
        "known": Budget(170, 82),
        "traced": Budget(751, 188),
        "gradient": Budget(1462, 255),
    },
}
LENGTHS = {"constant": 256, "known": 256, "traced": 320, "gradient": 320}  # multigrid is for 100 000 traced unknowns


def diffusion(u: Any, k: Any) -> Any:
    """Of the means of k at the faces of cells."""
    u, k = jnp.pad(u, 1), jnp.pad(k, 1, mode="edge")
    inside = (slice(1, -1), slice(1, -1))
    beside = [(slice(None, -2), inside[1]), (slice(2, None), inside[1])]
    beside += [(inside[0], slice(None, -2)), (inside[0], slice(2, None))]
    return sum((k[inside] + k[there]) / 2 * (u[inside] - u[there]) for there in beside)


def case(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    n = LENGTHS[name]
    y, x = np.mgrid[0:n, 0:n] / n
    k, b = 1 + 0.9 * np.sin(6 * x) * np.cos(5 * y), jnp.asarray(np.cos(3 * x) + y)

    def solved(k: Any, b: Any) -> Any:
        return linear_solve(lambda u: diffusion(u, k), b).x

    if name == "constant":
        return lambda b: solved(np.ones((n, n)), b), (b,)
    if name == "known":
        return lambda b: solved(k, b), (b,)
    if name == "traced":
        return solved, (jnp.asarray(k), b)
    return jax.grad(lambda k, b: (solved(k, b) ** 2).sum(), (0, 1)), (jnp.asarray(k), b)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("constant", marks=pytest.mark.merge),
        pytest.param("known", marks=pytest.mark.merge),
        pytest.param("traced", marks=pytest.mark.slow),
        pytest.param("gradient", marks=pytest.mark.slow),
    ],
)
def test_kernels(name: str) -> None:
    version = jax.lib.__version__
    if version not in TABLES:
        pytest.skip(f"The counts are those of jaxlib {', '.join(TABLES)}; this is {version}.")
    function, arrays = case(name)
    found, most = compiled_counts(function, *arrays), TABLES[version][name]
    print(name, found)
    assert found.fusions <= SLACK * most.fusions
    assert found.kernels <= SLACK * most.kernels
