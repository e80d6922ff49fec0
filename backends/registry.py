"""Which backend an object belongs to, found from its type without importing any framework."""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import RLock
from typing import Any

import numpy as np

from .interface.backend import Backend, entered

# Four libraries have a folder each. Any other one of the array API standard gets a backend when its first array is met,
# or when it is registered.

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


class NoBackendFound(TypeError):
    """No single array library fits the given objects.

    Examples:
        >>> import krylix
        >>> krylix.choose_backend("fortran")
        Traceback (most recent call last):
        krylix.backends.registry.NoBackendFound: ...
    """


def _load(name: str) -> Backend:
    return _loaded[name] if name in _loaded else _load_once(name)


def _load_once(name: str) -> Backend:
    module, cls = _CLASSES[name]
    try:
        with _loading:  # there is one of each, also where several threads need it first ...
            if name not in _loaded:
                backend: Backend = getattr(import_module(module, __package__), cls)()
                copyreg.pickle(type(backend), _by_name)  # ... and after a copy
                _keep(name, backend)
        return _loaded[name]
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == name:
            raise NoBackendFound(f"{name} is not installed: pip install 'krylix[{name}]'.") from error
        raise


def _keep(name: str, backend: Backend) -> None:
    _loaded[name] = backend
    for tell in when_loaded:
        tell(backend)


def loaded_backends() -> list[Backend]:
    """The backends of all libraries that were needed so far."""
    return list(_loaded.values())


def _by_name(backend: Backend) -> tuple[Callable[..., Backend], tuple[str]]:
    return get_backend, (backend.name,)


def get_backend(name: str | Backend) -> Backend:
    """The backend of this name: numpy (np), jax, torch (pytorch), tensorflow (tf), or one of `register_backend`.

    A library of the array API standard that has been imported has one of its module's name, too.

    Args:
        name: of the library, upper and lower case alike; a backend is returned as it is.

    Raises:
        NoBackendFound: no backend has this name, or its library is not installed.

    Examples:
        >>> from krylix.backends import get_backend
        >>> get_backend("numpy").name
        'numpy'
    """
    if isinstance(name, Backend):
        return name
    key = _ALIASES.get(str(name).lower(), str(name).lower())
    if key in _CLASSES:
        return _load(key)
    if str(name) in _loaded:
        return _loaded[str(name)]
    namespace = imported_namespace(str(name))
    if namespace is not None:
        owner = _owner_of(namespace.zeros(1))
        return _load(owner) if owner else _added(of_namespace(namespace, str(name)))
    raise NoBackendFound(
        f"No backend is called {name!r}; there are {', '.join({**_CLASSES, **_loaded})}. Import a library of the array "
        "API standard first; krylix.register_backend makes any other one known."
    )


def register_backend(backend: Any, name: str | None = None) -> Backend:
    """Make a further array library known to the whole process, and return its backend.

    Arrays with `__array_namespace__`, such as CuPy's, are known without it.

    Args:
        backend: a namespace of the array API standard, such as a module, for which a backend is made of the standard's
            functions; or a `Backend`, whose `is_array` tells which arrays belong to it.
        name: how `choose_backend` and messages call it; that of the namespace or the Backend if None.

    Raises:
        ValueError: another backend has this name.
        TypeError: it is neither, or its arrays have a backend already.

    Examples:
        >>> import numpy as np, krylix
        >>> try:  # instead of NumPy another library of the standard, such as `cupy`
        ...     krylix.register_backend(np, name="my arrays")
        ... except TypeError:
        ...     print("its arrays have a backend already")
        its arrays have a backend already
    """
    ready = isinstance(backend, Backend)
    name = str(getattr(backend, "name" if ready else "__name__", "")) if name is None else name
    known = _loaded.get(name)
    if known is not None and backend in (known, getattr(known, "namespace", None)):
        return known
    if not name or known is not None or name.lower() in {*_CLASSES, *_ALIASES}:
        raise ValueError(
            f"register_backend got the name {name!r}, which " + ("another backend has" if name else "is empty")
            + "; expected one that is not taken: give name=."
        )  # fmt: skip
    if not ready:
        found = of_namespace(backend, name)
        owner = _owner_of(backend.zeros(1))
        if owner:
            raise TypeError(f"The arrays of {name} have a backend already: krylix.choose_backend({owner!r}).")
        return _added(found)
    if backend.name != name:
        raise ValueError(f"The backend calls itself {backend.name!r}, and name={name!r} was given; leave name out.")
    owner = _owner_of_the_arrays_of(backend)
    if owner:
        raise TypeError(f"The arrays of {name} have a backend already: krylix.choose_backend({owner!r}).")
    return _added(backend)


def _owner_of_the_arrays_of(backend: Backend) -> str | None:
    """The backend whose arrays another one takes for its own, of those that are known and the libraries imported."""
    for name in (*(name for name in _CLASSES if sys.modules.get(name) is not None), *_loaded):
        if backend.is_array(get_backend(name).zeros((1,), np.dtype(np.float32))):
            return name
    return None


def _added(backend: Backend) -> Backend:
    """The backend, or the one that another thread has made of the same namespace."""
    with _loading:
        copyreg.pickle(type(backend), _by_name)
        if backend.name not in _loaded:
            _keep(backend.name, backend)
        _known_types.clear()
    return _loaded[backend.name]


def register_container(bk: Backend, cls: type, flatten: Callable[[Any], Any], unflatten: Callable[..., Any]) -> None:
    """Make `cls` a container of arrays of a library.

    What NumPy made is one for JAX, too, if that is there: its functions take NumPy's arrays as arguments.
    """
    bk.register(cls, flatten, unflatten)
    if bk.on_host and "jax" in sys.modules:
        _load("jax").register(cls, flatten, unflatten)


def default_backend() -> Backend:
    """The backend for inputs that are no arrays: innermost `with backend:`, else the one set by `use`, else NumPy.

    Examples:
        >>> import krylix
        >>> krylix.default_backend().name
        'numpy'
    """
    return context_backend() or (_chosen[0] if _chosen else _load("numpy"))


def context_backend() -> Backend | None:
    """The backend of the innermost `with backend:` of this thread; None outside of all.

    Examples:
        >>> import krylix
        >>> with krylix.choose_backend("numpy"):
        ...     print(krylix.context_backend().name)
        numpy
        >>> krylix.context_backend() is None
        True
    """
    return (entered.get() or (None,))[-1]


def use(backend: str | Backend) -> Backend:
    """Make `backend` the process-wide default for inputs that are no arrays, and return it.

    Args:
        backend: a backend or its name, such as "torch".

    Raises:
        NoBackendFound: no backend has this name, or its library is not installed.

    Examples:
        >>> import krylix
        >>> krylix.use("numpy").name  # "jax", "torch", "tensorflow"
        'numpy'
    """
    _chosen[:] = [get_backend(backend)]
    return _chosen[0]


def backend_name(x: Any) -> str | None:
    """Name of the backend that `x` (array, sparse matrix, SciPy LinearOperator) belongs to, or None.

    Frameworks not yet imported own no object.
    """
    try:
        return _known_types[type(x)]
    except KeyError:
        found = _known_types[type(x)] = _find_owner(x)
        return found


def _find_owner(x: Any) -> str | None:
    """The name for objects of the type of x; an array of an unknown library makes that known."""
    found = _owner_of(x)
    namespace = namespace_of(x) if found is None and not is_foreign(type(x)) else None
    if namespace is None or _owner_of(namespace.zeros(1)) is not None:  # no array of its own namespace
        return found
    return _added(of_namespace(namespace, getattr(namespace, "__name__", type(x).__name__))).name


def _owner_of(x: Any) -> str | None:
    """The name of the backend, of those that are known, that x belongs to."""
    for name, backend in list(_loaded.items()):
        if name not in _CLASSES and backend.is_array(x):
            return name
    return None if is_foreign(type(x)) else _find_type(type(x))


def _find_type(cls: type) -> str | None:
    root = cls.__module__.partition(".")[0]
    if root in ("numpy", "scipy"):
        return "numpy"
    if root in ("jax", "jaxlib"):
        return "jax"
    if root in ("tensorflow", "torch"):
        return root
    for base in cls.__mro__[1:]:
        found = _find_type(base) if base not in _NO_ARRAYS else None
        if found:
            return found
    return None


def choose_backend(*objects: Any, prefer_default: bool = False) -> Backend:
    """The backend common to `objects`, or the one of a given name.

    NumPy and SciPy objects are constants to every framework and mix with any; lists, numbers, callables and None
    have no say. Containers are searched.

    Args:
        objects: arrays, sparse matrices, containers of them; or one name such as "torch".
        prefer_default: where all arrays are of NumPy, choose `default_backend()`, which takes them as constants.

    Raises:
        NoBackendFound: arrays of two frameworks are among them, or a name that no backend has.
        TypeError: an array of a library that krylix does not compute with, such as xarray.

    Examples:
        >>> import numpy as np, krylix
        >>> krylix.choose_backend(np.ones(3)).xp.sum(np.ones(3))
        np.float64(3.0)
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
    return _load("numpy") if found and not prefer_default else default_backend()


def libraries_of(*objects: Any) -> list[str]:
    """Names of the backends whose arrays are among `objects` and in their containers, callable ones included."""
    return list(dict.fromkeys(name for x in objects for name in _names(x, in_callables=True)))


def _names(x: Any, in_callables: bool) -> list[str]:
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise TypeError(
            "A masked array was given, whose mask a solver cannot follow; expected an array of numbers. Give "
            "`array.filled(value)`, or the system of the entries that are not masked."
        )
    name = backend_name(x)
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
    if not in_callables:
        refuse_foreign(x)
    return []


def of_libraries(args: Sequence[Any]) -> list[Any]:
    """Those of a function's arguments that hold arrays of the libraries; the others are the function's own affair."""
    return [x for x in args if libraries_of(x)]


# --- Arrays of libraries that krylix does not compute with: refused by name, never taken for NumPy's ------------------

# By the package that a type comes from: what krylix can take of it.
_INSTEAD = {
    "xarray": "x.data, the array inside",
    "dask": "x.compute()",
    "pandas": "x.to_numpy()",
    "polars": "x.to_numpy()",
    "cudf": "x.to_cupy()",
    "pyarrow": "x.to_numpy()",
    "awkward": "awkward.to_numpy(x)",
    "sparse": "x.to_scipy_sparse()",
    "pint": "x.magnitude, the numbers without their unit",
    "astropy": "x.value, the numbers without their unit",
    "unyt": "x.value, the numbers without their unit",
    "h5py": "x[...], which reads it",
    "zarr": "x[...], which reads it",
    "netCDF4": "x[...], which reads it",
}
_OURS = __name__.partition(".")[0]


def package_of(cls: type) -> str:
    """The package that a type, or the first of its bases that is named here, comes from."""
    roots = [base.__module__.partition(".")[0] for base in cls.__mro__]
    return next((root for root in roots if root in _INSTEAD), roots[0])


def is_foreign(cls: type) -> bool:
    """Is it a type of one of these libraries?"""
    return package_of(cls) in _INSTEAD


def refuse_foreign(x: Any) -> None:
    """Refuse an object that is an array to others, as it could become NumPy's; anything else passes.

    Raises:
        TypeError: it has `__array__` or the like, or is of a library named here and has a shape.
    """
    package, cls = package_of(type(x)), type(x)
    acts_as_array = any(hasattr(cls, f"__array{how}__") for how in ("", "_interface", "_namespace"))
    if isinstance(x, type) or package == _OURS or not (acts_as_array or (package in _INSTEAD and hasattr(x, "shape"))):
        return
    # CuPy's name for the copy on the host: such libraries refuse `numpy.asarray`
    own_way = "x.get(), or a newer version of the library" if callable(getattr(cls, "get", None)) else None
    raise TypeError(
        f"A {cls.__name__} of {package} was given, whose arrays krylix does not compute with; expected an array of "
        f"NumPy, JAX, PyTorch, TensorFlow or a library of the array API standard. Give "
        f"{_INSTEAD.get(package, own_way or 'numpy.asarray(x)')}."
    )


# --- Backends of libraries that have no folder here: made of a namespace of the array API standard, or given ready ----

_NEEDED = ("asarray", "astype", "concat", "matmul", "permute_dims", "take", "where")


def namespace_of(x: Any) -> Any:
    """The namespace of the standard that an array names as its own, if that is not NumPy's and complete; else None."""
    own = getattr(type(x), "__array_namespace__", None)
    try:
        namespace = None if own is None else own(x)
    except Exception:  # of another version of the standard, say: no array that can be computed with
        return None
    return None if namespace is np or not _has_all(namespace) else namespace


def imported_namespace(name: str) -> Any:
    """The module of this name, if it is imported and of the standard; else None."""
    module = sys.modules.get(name)
    return module if hasattr(module, "__array_namespace_info__") and _has_all(module) else None


def of_namespace(namespace: Any, name: str) -> Backend:
    """A backend made of the functions of the namespace.

    Raises:
        TypeError: it has not all that is needed.
    """
    if not _has_all(namespace):
        raise TypeError(
            f"{namespace!r:.80} was given; expected a namespace of the array API standard, such as a module, or a "
            f"krylix.backends.Backend. It has no {', '.join(n for n in _NEEDED if not hasattr(namespace, n))}."
        )
    # by name, as only those who have such arrays need it
    found: Backend = import_module(".array_api.backend", __package__).ArrayApiBackend(namespace, name)
    return found


def _has_all(namespace: Any) -> bool:
    return all(callable(getattr(namespace, name, None)) for name in _NEEDED)
