"""Libraries that are registered, and arrays of libraries that krylix does not compute with."""

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from frameworks import jnp
from krylix import NoBackendFound, choose_backend, linear_solve, register_backend
from krylix.backends import get_backend, registry
from krylix.backends.communicators import _class_over_members
from krylix.backends.numpy.backend import NumpyBackend

A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(5, 5)).tocsr()


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Registered backends are there for the whole process; here, until the test ends."""
    loaded = dict(registry._loaded)
    yield
    registry._loaded.clear()
    registry._loaded.update(loaded)
    registry._known_types.clear()


class Labelled:
    """An array of nobody's."""

    shape = (5,)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.ones(5)


class LabelledBackend(NumpyBackend):
    """A backend of a third party."""

    name = "labelled"
    on_host = False

    def is_array(self, x: Any) -> bool:
        return isinstance(x, Labelled)


def of_package(package: str, base: type = Labelled) -> Any:
    """A class that says that it comes from this package."""
    return type("Array", (base,), {"__module__": f"{package}.core", "__doc__": "Such an array."})


# ---- registered


def test_a_backend(forgotten: None) -> None:
    with pytest.raises(TypeError, match="Labelled"):
        choose_backend(Labelled())  # seen before it is registered
    own = LabelledBackend()
    assert register_backend(own) is register_backend(own) is own
    assert choose_backend(Labelled()) is get_backend("labelled") is own
    assert choose_backend([np.ones(2), Labelled()]) is own and pickle.loads(pickle.dumps(own)) is own
    with pytest.raises(ValueError, match="'labelled', which another backend has"):
        register_backend(LabelledBackend())
    with pytest.raises(ValueError, match="calls itself 'labelled'"):
        register_backend(own.__class__(), "another")


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch"])
def test_a_second_backend_of_the_same_arrays(library: str, forgotten: None) -> None:
    """It would take over those of a user who knows nothing of it."""
    x = pytest.importorskip(library).ones(1)

    class Second(LabelledBackend):
        name = "second"

        def is_array(self, other: Any) -> bool:
            return isinstance(other, type(x))

    known = choose_backend(x)
    with pytest.raises(TypeError, match=f"arrays of second have a backend already.*{known.name!r}"):
        register_backend(Second())
    assert choose_backend(x) is known


def test_a_namespace(forgotten: None) -> None:
    xp = pytest.importorskip("array_api_strict")
    registry._loaded.pop(xp.__name__, None)
    registry._known_types.clear()
    own = register_backend(xp, "strict")
    assert own is register_backend(xp, "strict") is choose_backend("strict") is choose_backend(xp.ones(2))
    assert own is choose_backend(xp.__name__)  # no second backend of the same arrays
    result = linear_solve(A, xp.ones(5), method="CG")
    assert own.is_array(result.x)
    with pytest.raises(TypeError, match="'strict'"):
        register_backend(xp)


@pytest.mark.parametrize("name", ["numpy", "NumPy", "tf", "jax", ""])
def test_names_that_are_taken(name: str) -> None:
    with pytest.raises(ValueError, match="expected one that is not taken"):
        register_backend(pytest.importorskip("array_api_strict"), name)


def test_what_is_no_library() -> None:
    for what in (3, "array_api_strict", pickle, object()):
        with pytest.raises((TypeError, ValueError), match=r"namespace of the array API|name="):
            register_backend(what, "mine")
    with pytest.raises(TypeError, match=r"choose_backend.'numpy'"):
        register_backend(np, "mine")
    with pytest.raises(NoBackendFound, match=r"numpy, jax, torch, tensorflow.*register_backend"):
        choose_backend("mine")


@pytest.mark.needs("jax")
def test_namespaces_of_the_four_libraries() -> None:
    of_arrays = choose_backend(jnp.ones(2))
    assert choose_backend("jax.numpy") is of_arrays
    with pytest.raises(TypeError, match="'jax'"):
        register_backend(jnp)


# ---- refused

PACKAGES = {
    "xarray": "x.data",
    "dask": r"x.compute\(\)",
    "pandas": r"x.to_numpy\(\)",
    "polars": r"x.to_numpy\(\)",
    "sparse": r"x.to_scipy_sparse\(\)",
    "pint": "x.magnitude",
    "somebody": r"numpy.asarray\(x\)",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_arrays_of_other_packages(package: str) -> None:
    x = of_package(package)()
    calls = (
        lambda: choose_backend(x),
        lambda: choose_backend([np.ones(2), {"a": x}]),
        lambda: linear_solve(A, x),
        lambda: linear_solve(x, np.ones(5)),
        lambda: linear_solve(A, np.ones(5), x0=x),
        lambda: krylix.as_operator(x),
        lambda: krylix.prepare(A, x),
        lambda: krylix.convert(x),
        lambda: krylix.convert(x, "numpy"),
    )
    for call in calls:
        with pytest.raises(TypeError, match=f"Array of {package} was given.*{PACKAGES[package]}") as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("package", ["astropy", "unyt"])
def test_arrays_with_units(package: str) -> None:
    """They are NumPy's by inheritance; a result without the unit would be wrong."""
    b = np.ones(5).view(of_package(package, np.ndarray))
    for call in (lambda: linear_solve(A, b), lambda: choose_backend(b), lambda: krylix.convert(b)):
        with pytest.raises(TypeError, match=f"{package}.*x.value"):
            call()


def test_objects_with_a_namespace_of_their_own() -> None:
    """Without what is needed it makes no backend; nor does it make NumPy's array."""

    class Wrapped(Labelled):
        def __array_namespace__(self, api_version: Any = None) -> Any:
            return np if api_version else pickle

    with pytest.raises(TypeError, match="Wrapped"):
        choose_backend(Wrapped())


def test_a_namespace_that_is_refused() -> None:
    class Other(Labelled):
        def __array_namespace__(self, api_version: Any = None) -> Any:
            raise NotImplementedError("of another version")

        def get(self) -> np.ndarray:
            return np.ones(5)

    for call in (lambda: choose_backend(Other()), lambda: linear_solve(A, Other())):
        with pytest.raises(TypeError, match=r"A Other of .* was given.*Give x.get\(\), or a newer version"):
            call()


def test_arguments_of_a_function_are_its_own_affair() -> None:
    """They reach it as they are."""
    seen = []

    def product(x: np.ndarray, table: Any) -> np.ndarray:
        seen.append(type(table))
        return x * np.asarray(table) * 2

    x = linear_solve(product, np.ones(5), args=(of_package("pandas")(),), method="CG").x
    np.testing.assert_allclose(x, 0.5)
    assert seen[0].__module__ == "pandas.core"


def test_a_class_that_derives_from_a_library_has_what_that_has() -> None:
    """Its standard, devices and operations."""

    class Own(NumpyBackend):
        name = "own"

    bk = Own()
    assert bk.xp.sum(np.ones(3)) == 3 and bk.erf(np.zeros(1)) == 0 and bk.default_device.name == "cpu"


def test_a_backend_without_a_folder_says_what_is_expected() -> None:
    with pytest.raises(TypeError, match=r"Backend has no module 'standard' beside it; expected one with the namespace"):
        krylix.backends.Backend._needed_module("standard", "the namespace `xp`")


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_backends_over_members_have_the_modules_of_their_library(name: str) -> None:
    pytest.importorskip(name)
    bk = get_backend(name)
    members = _class_over_members(type(bk))
    for module in ("standard", "devices", "operations"):
        assert members._module(module) is type(bk)._module(module) is not None
