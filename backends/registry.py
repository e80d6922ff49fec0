"""Which backend an object belongs to, found from its type without importing any framework."""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from threading import RLock
from typing import Any

import numpy as np

from . import defaults
from .autocast import without_autocast
from .interface.backend import Backend

_CLASSES = {
    "numpy": (".numpy.backend", "NumpyBackend"),
    "jax": (".jax.backend", "JaxBackend"),
    "torch": (".torch.backend", "TorchBackend"),
    "tensorflow": (".tensorflow.backend", "TensorflowBackend"),
}
_ALIASES = {"np": "numpy", "pytorch": "torch", "tf": "tensorflow"}
# Bases of containers, which have operators of NumPy and no numbers: what is in them tells the library.
_NO_ARRAYS = (object, np.lib.mixins.NDArrayOperatorsMixin)
_chosen: list[Backend] = []
_loaded: dict[str, Backend] = {}
_loading = RLock()
when_loaded: list[Callable[[Backend], None]] = []  # told of each backend that is made
_known_types: dict[type, str | None] = {}
_without_compilers: dict[tuple[Callable[..., Any], bool, bool, bool, bool], Callable[..., Any]] = {}


class NoBackendFound(TypeError):
    """No single array library fits the given objects."""


def _load(name: str) -> Backend:
    return _loaded[name] if name in _loaded else _load_once(name)


def _load_once(name: str) -> Backend:
    module, cls = _CLASSES[name]
    try:
        with _loading:  # there is one of each, also where several threads need it first ...
            if name not in _loaded:
                backend: Backend = getattr(import_module(module, __package__), cls)()
                copyreg.pickle(type(backend), _by_name)  # ... and after a copy
                _loaded[name] = backend
                for tell in when_loaded:
                    tell(backend)
        return _loaded[name]
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == name:
            raise NoBackendFound(f"{name} is not installed: pip install 'krylix[{name}]'.") from error
        raise


def loaded_backends() -> list[Backend]:
    """The backends of all libraries that were needed so far."""
    return list(_loaded.values())


def _by_name(backend: Backend) -> tuple[Callable[..., Backend], tuple[str]]:
    return get_backend, (backend.name,)


def get_backend(name: str | Backend) -> Backend:
    """The backend of this name: numpy (np), jax, torch (pytorch), tensorflow (tf).

    Raises:
        NoBackendFound: no backend has this name, or its library is not installed.
    """
    if isinstance(name, Backend):
        return name
    key = _ALIASES.get(str(name).lower(), str(name).lower())
    if key not in _CLASSES:
        raise NoBackendFound(f"No backend is called {name!r}; there are {', '.join(_CLASSES)}.")
    return _load(key)


def register_container(bk: Backend, cls: type, flatten: Callable[[Any], Any], unflatten: Callable[..., Any]) -> None:
    """Make `cls` a container of arrays of a library.

    What NumPy made is one for JAX, too, if that is there: its functions take NumPy's arrays as arguments.
    """
    bk.register(cls, flatten, unflatten)
    if bk.on_host and "jax" in sys.modules:
        _load("jax").register(cls, flatten, unflatten)


def default_backend() -> Backend:
    """The backend for inputs that are no arrays: innermost `with backend:`, else the one set by `use`, else NumPy."""
    return defaults.innermost() or (_chosen[0] if _chosen else _load("numpy"))


def use(backend: str | Backend) -> Backend:
    """Make `backend` the process-wide default for inputs that are no arrays, and return it."""
    _chosen[:] = [get_backend(backend)]
    return _chosen[0]


def _of_type(cls: type) -> str | None:
    """Name of the backend whose arrays have this type. Frameworks not yet imported own no object."""
    if cls not in _known_types:
        _known_types[cls] = _find_type(cls)
    return _known_types[cls]


def _find_type(cls: type) -> str | None:
    root = cls.__module__.partition(".")[0]
    if root in ("numpy", "scipy"):
        return "numpy"
    if root in ("jax", "jaxlib"):
        return "jax"
    if root in ("tensorflow", "torch"):
        return root
    for base in cls.__mro__[1:]:
        found = _of_type(base) if base not in _NO_ARRAYS else None
        if found:
            return found
    return None


def backend_name(x: Any) -> str | None:
    """Name of the backend that `x` (array, sparse matrix, SciPy LinearOperator) belongs to, or None."""
    return _of_type(type(x))


def choose_backend(*objects: Any) -> Backend:
    """The backend common to `objects`, or the one of a given name.

    NumPy and SciPy objects are constants to every framework and mix with any; lists, numbers, callables and None
    have no say. Containers are searched.

    Args:
        objects: arrays, sparse matrices, containers of them; or one name such as "torch".

    Raises:
        NoBackendFound: arrays of two frameworks are among them, or a name that no backend has.
    """
    if len(objects) == 1 and isinstance(objects[0], (str, Backend)):
        return get_backend(objects[0])
    found: list[str] = []
    for x in objects:
        found += () if x is None else _names(x, in_callables=False)
    frameworks = list(dict.fromkeys(found))
    if "numpy" in frameworks:
        frameworks.remove("numpy")
    if len(frameworks) > 1:
        raise NoBackendFound(
            f"Arrays of {' and '.join(frameworks)} were given together; expected one framework. "
            "Convert with krylix.backends.convert(x, backend); NumPy and SciPy arrays mix with any."
        )
    if frameworks:
        return _load(frameworks[0])
    return _load("numpy") if found else default_backend()


def libraries_of(*objects: Any) -> list[str]:
    """Names of the backends whose arrays are among `objects` and in their containers, callable ones included."""
    return list(dict.fromkeys(name for x in objects for name in _names(x, in_callables=True)))


def _names(x: Any, in_callables: bool) -> list[str]:
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise TypeError(
            "A masked array was given, whose mask a solver cannot follow; expected an array of numbers. Give "
            "`array.filled(value)`, or the system of the entries that are not masked."
        )
    name = _of_type(type(x))
    if name is not None:
        return [name]
    if isinstance(getattr(x, "bk", None), Backend):  # an operator or preconditioner
        return [x.bk.name]
    if isinstance(x, dict):
        return [n for value in x.values() for n in _names(value, in_callables)]
    if isinstance(x, (list, tuple)):
        return [n for value in x for n in _names(value, in_callables)]
    if isinstance(x, (str, bytes, int, float, complex, type(None))) or (callable(x) and not in_callables):
        return []
    # A container that another package has registered with one of the libraries.
    trees = (sys.modules.get("jax.tree"), "leaves"), (sys.modules.get("torch.utils._pytree"), "tree_leaves")
    for leaves in (getattr(module, name)(x) for module, name in trees if hasattr(module, name)):
        if len(leaves) != 1 or leaves[0] is not x:
            return [n for leaf in leaves for n in _names(leaf, in_callables)]
    return []


def without_compilers(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, run outside of compilers that read Python source, autocast, and JAX's strict modes.

    `torch.compile` runs it between two graphs, AutoGraph as it is. PyTorch's autocast is off in it.
    """
    torch, tensorflow = sys.modules.get("torch"), sys.modules.get("tensorflow")
    # Where nobody has imported Dynamo, which takes a second, nobody compiles.
    compiles = "torch._dynamo" in sys.modules and hasattr(torch, "compiler")
    key = (function, compiles, hasattr(tensorflow, "autograph"), "jax" in sys.modules, hasattr(torch, "_C"))
    if key not in _without_compilers:
        wrapped = _leniently(function) if key[3] else function
        wrapped = tensorflow.autograph.experimental.do_not_convert(wrapped) if key[2] else wrapped  # type: ignore[union-attr]
        wrapped = without_autocast(wrapped) if key[4] else wrapped
        _without_compilers[key] = torch.compiler.disable(wrapped) if key[1] else wrapped  # type: ignore[union-attr]
    return _without_compilers[key]


def _leniently(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with _load("jax")._leniently():
            return function(*args, **kwargs)

    return called
