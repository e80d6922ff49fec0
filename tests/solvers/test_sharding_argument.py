"""The argument `sharding`: what does not fit is refused, and one device pays nothing for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from krylix import linear_solve, prepare

pytestmark = pytest.mark.needs("jax")


def four(*spec: Any) -> Any:
    """A sharding over four devices, which need not be there for it to be refused."""
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

    return NamedSharding(AbstractMesh((2, 2), ("i", "j")), PartitionSpec(*spec))


def refused(match: str, sharding: Any, b: Any, A: Any = lambda u: 2 * u, error: type[Exception] = ValueError) -> None:
    for call in (lambda: linear_solve(A, b, method="CG", sharding=sharding), lambda: prepare(A, b, sharding=sharding)):
        with pytest.raises(error, match=match):
            call()


def test_what_does_not_fit() -> None:
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec

    grid = jnp.ones((4, 4))
    refused("of 3 axes; b has the shape", four("i", None, "j"), grid)
    refused(r"axis 1 of b, of length 3, into 2 parts", four("i", "j"), jnp.ones((4, 3)))
    refused(r"axis 0 of b, of length 6, into 4 parts", four(("i", "j")), jnp.ones((6, 6)))
    refused("there is no mesh", PartitionSpec("i"), grid)
    refused("must be a NamedSharding", "i", grid, error=TypeError)
    refused("a container of arrays", four("i"), {"a": grid}, lambda u: {"a": 2 * u["a"]}, TypeError)
    with pytest.raises(ValueError, match="together with axis=0"):
        linear_solve(np.eye(4), grid, axis=0, sharding=four("i"))


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.needs("torch"))])
def test_other_libraries(library: str) -> None:
    b = np.ones((4, 4)) if library == "numpy" else pytest.importorskip("torch").ones((4, 4))
    refused("for those of JAX", four("i"), b, error=TypeError)


def test_names_that_the_mesh_has_not() -> None:
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, PartitionSpec

    with jax.set_mesh(jax.make_mesh((1,), ("i",), axis_types=(AxisType.Auto,))):
        refused("names the mesh axis 'k'; the mesh of the context has the axes", PartitionSpec("k"), jnp.ones((4, 4)))
        assert linear_solve(lambda u: 2 * u, jnp.ones((4, 4)), method="CG", sharding=PartitionSpec("i")).converged


def test_two_meshes_with_explicit_axes() -> None:
    import jax
    import jax.numpy as jnp
    from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

    def grid(**axes: int) -> Any:
        mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Explicit,) * len(axes))
        return jax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    def solve(b: Any, c: Any) -> Any:
        return linear_solve(lambda u, c: c * u, b, args=(c,), method="CG").x

    with pytest.raises(ValueError, match=r"k: 4 \(Explicit\).*expected one mesh"):
        jax.eval_shape(solve, grid(i=2, j=2), grid(k=4))
