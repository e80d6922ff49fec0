"""Which frameworks there are, and which of them are installed here. Importing this imports none of them."""

from functools import cache
from importlib.util import find_spec

FRAMEWORKS = ("jax", "torch", "tensorflow")
PEERS = ("lineax", "keras", "skfem", "fipy", "pymatsolver", "phiml", "jax_fem")  # that krylix.adapters and layers serve


@cache
def missing(framework: str) -> bool:
    return find_spec(framework) is None


def framework_of(name: object) -> str | None:
    """The framework that a backend or mode such as `"jax-jit"` or `"tf-function"` belongs to, None for NumPy."""
    start = str(name).lower().split("-")[0]
    start = "tensorflow" if start == "tf" else start
    return start if start in FRAMEWORKS else None
