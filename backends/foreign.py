"""Arrays of libraries that krylix does not compute with: refused by name, never taken for NumPy's."""

from __future__ import annotations

from typing import Any

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
