"""How large the programs are that a solve in `jax.jit` compiles: what a first call costs, counted.

XLA takes 10 to 20 ms on a CPU for each kernel that differs from all others; Python takes as long for 100 equations.
A count that has grown by more than the slack is a first call that takes longer; one that shrank belongs in the table.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from frameworks import lazy
from krylix import linear_solve
from program_counts import Counts, compiled_counts, traced_counts

jax = lazy("jax")
jnp = lazy("jax.numpy")

SLACK = 1.05
N = 64
TABLES: dict[str, dict[str, Counts]] = {  # by the version of jaxlib
    "0.10.2": {
        "CG, rtol": Counts(equations=368, constants=16, fusions=58, kernels=31),
        "CG": Counts(equations=363, constants=16, fusions=63, kernels=36),
        "biCG-stab(2)": Counts(equations=618, constants=16, fusions=130, kernels=67),
        "GMRES": Counts(equations=638, constants=15136, fusions=126, kernels=74),
        "small": Counts(equations=474, constants=80, fusions=52, kernels=40),  # two to raise with
    },
}
CASES: dict[str, dict[str, Any]] = {
    "CG, rtol": {"method": "CG", "rtol": 1e-8, "on_failure": "status"},
    "CG": {"method": "CG"},
    "biCG-stab(2)": {"method": "biCG-stab(2)"},
    "GMRES": {"method": "GMRES"},
    "small": {},
}
CALLS = 1  # of the user's function while a solve is traced


def laplacian(u: Any) -> Any:
    return 4 * u - jnp.roll(u, 1) - jnp.roll(u, -1)


def case(name: str) -> tuple[Callable[[Any], Any], Any]:
    b = jnp.ones(8 if name == "small" else N, jnp.float64)
    return (lambda b: linear_solve(laplacian, b, **CASES[name]).x), b


def budget(name: str) -> Counts:
    version = jax.lib.__version__
    if version not in TABLES:
        pytest.skip(f"The counts are those of jaxlib {', '.join(TABLES)}; this is {version}.")
    return TABLES[version][name]


@pytest.mark.parametrize("name", CASES)
def test_equations_and_constants(name: str) -> None:
    equations, constants = traced_counts(*case(name))
    assert equations <= SLACK * budget(name).equations
    assert constants <= SLACK * budget(name).constants


@pytest.mark.merge
@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str) -> None:
    found, most = compiled_counts(*case(name)), budget(name)
    assert found.fusions <= SLACK * most.fusions
    assert found.kernels <= SLACK * most.kernels


@pytest.mark.parametrize("name", ["CG, rtol", "GMRES"])
def test_calls_of_the_function(name: str) -> None:
    calls = []

    def counted(u: Any) -> Any:
        calls.append(u)
        return laplacian(u)

    jax.jit(lambda b: linear_solve(counted, b, **CASES[name]).x).trace(jnp.ones(N))
    assert len(calls) == CALLS


@pytest.mark.parametrize("method", ["auto", "direct"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_known_factors_are_made_by_numpy(kind: str, method: str, compilations: list[str]) -> None:
    """Operations of JAX would each compile a program of their own while a solve with a known matrix is traced."""
    n = {"dense": 67, "sparse": 301}[kind] + (method == "direct")  # shapes that nothing else has compiled for
    A: Any = 3 * np.eye(n) + np.random.default_rng(0).uniform(size=(n, n)) * (1 / n if kind == "dense" else 0)
    A = A if kind == "dense" else sp.csr_array(A) + sp.eye_array(n, k=1) + 2 * sp.eye_array(n, k=-7)
    b = jnp.asarray(np.ones(n)).block_until_ready()
    compilations.clear()
    jax.jit(lambda b: linear_solve(A, b, method=method).x).lower(b)
    assert not compilations
