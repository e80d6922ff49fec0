"""`backend.xp` beside array_api_strict, an implementation of the standard by its own authors."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pytest

from called import check_none_wrong, numbers
from frameworks import lazy
from krylix.backends import choose_backend, get_backend
from standard import GROUPS, Call, calls_of, environment, operands, signatures

strict = lazy("array_api_strict")
from standard_samples import Sample, drawn, function_of, samples  # noqa: E402

# What our promotion rule, or a library, gives otherwise; `docs/backends.md` says so.
OTHERWISE = {
    "xp.can_cast(x, xp.complex128)": "integers become complex numbers by promotion, which the standard leaves open",
    "xp.asarray([[s, 2 * s], [s, 1]])": "arrays in a list keep their dtype",
}
# Beyond the standard: kinds of dtypes that it refuses.
BEYOND = ("Only ", "Expected Python scalar fill_value", "The Array API standard stipulates")
UNSIGNED_SUMS = ("sum", "prod", "cumulative_sum", "cumulative_prod", "linalg.trace")  # int64 in PyTorch
NO_ELEMENTS = "oneMKL"  # refuses to transform arrays without elements, in PyTorch


@pytest.fixture(autouse=True)
def version_of_xp() -> Iterator[None]:
    with strict.ArrayAPIStrictFlags(api_version="2024.12"), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_table_has_the_signatures_of_the_standard() -> None:
    """Names, places and defaults; `test_standard.py` gives each library every parameter of the table."""
    for name, text in signatures().items():
        own = inspect.signature(eval(f"lambda {text}: None")).parameters
        theirs = inspect.signature(function_of(name)).parameters
        assert [(p.name, p.kind) for p in own.values()] == [(p.name, p.kind) for p in theirs.values()], name
        given = {key: p.default for key, p in theirs.items() if "Undef" not in str(p.default)}
        assert given == {key: own[key].default for key in given}, name


def in_strict(x: Any) -> Any:
    return strict.asarray(x) if isinstance(x, np.ndarray) else x


def strict_numbers(found: Any) -> list[np.ndarray]:
    return numbers(choose_backend(strict.asarray(0)), found)


def unequal(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return len(found) != len(expected) or any(
        x.shape != y.shape or x.dtype != y.dtype or not np.allclose(x, y, rtol=2e-5, atol=1e-5, equal_nan=True)
        for x, y in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("group", GROUPS)
def test_what_numpy_is_asked_for_is_the_standard(group: str) -> None:
    """The references in NumPy of the table of calls, with which all libraries are compared."""
    wrong, compared = [], set()
    for call in calls_of(group):
        for dtype in call.dtypes():
            found = in_the_standard(call, dtype)
            if found is None or call.expression in OTHERWISE:
                continue
            compared.add(call.name)
            expected = numbers(get_backend("numpy"), eval(call.reference, environment(np, dtype, operands(dtype))))
            wrong += [f"{call.expression} of {dtype}"] if unequal(expected, found) else []
    check_none_wrong(wrong)
    assert compared == {call.name for call in calls_of(group)}


def in_the_standard(call: Call, dtype: str) -> list[np.ndarray] | None:
    """What array_api_strict gives; None for kinds of dtypes beyond the standard."""
    own = environment(strict, dtype, {name: in_strict(x) for name, x in operands(dtype).items()})
    try:
        return strict_numbers(eval(call.expression, {**own, "dt": getattr(strict, dtype)}))
    except TypeError as error:
        assert str(error).startswith(BEYOND), call
        return None


@pytest.mark.parametrize(
    ("backend", "count"),
    [("numpy", 24), ("torch", 16), ("tensorflow", 6), pytest.param("jax", 1, marks=pytest.mark.merge)],
)
def test_random_calls(backend: str, count: int) -> None:
    """Arrays without axes and without elements, NaN, infinities, negative axes; errors where the standard has them."""
    bk = get_backend(backend)
    wrong: list[str] = []
    compared: set[str] = set()
    for sample in samples(drawn(), count):
        expected = given(sample, function_of(sample.name), in_strict, choose_backend(strict.asarray(0)), strict)
        if isinstance(expected, TypeError):
            continue
        function: Any = reduce(getattr, sample.name.split("."), bk.xp)
        found = given(sample, function, lambda x: bk.asarray(x) if isinstance(x, np.ndarray) else x, bk, bk.xp)
        compared.add(sample.name)
        if differ(backend, sample, found, expected):
            wrong.append(f"{sample}: {found}, expected {expected}"[:600])
    check_none_wrong(wrong)
    assert len(compared) > 100


def given(
    sample: Sample, function: Any, convert: Callable[[Any], Any], bk: Any, xp: Any
) -> list[np.ndarray] | Exception:
    """What the function gives, or raises."""
    args = [[convert(x) for x in a] if isinstance(a, list) else convert(a) for a in sample.args]
    keywords = {key: convert(x) for key, x in sample.keywords.items()}
    if isinstance(keywords.get("dtype"), str):
        keywords["dtype"] = getattr(xp, keywords["dtype"])
    try:
        return numbers(bk, function(*args, **keywords))
    except Exception as error:
        return error


def differ(backend: str, sample: Sample, found: list[np.ndarray] | Exception, expected: Any) -> bool:
    if isinstance(found, Exception) or isinstance(expected, Exception):
        return type(found) is list or (type(expected) is list and NO_ELEMENTS not in str(found))
    if sample.name == "unique_values":  # in any order
        found, expected = ([np.sort(x) for x in arrays] for arrays in (found, expected))
    if backend == "torch" and sample.name in UNSIGNED_SUMS:
        expected = [y.astype(np.int64) if y.dtype == np.uint64 else y for y in expected]
    return unequal(found, expected)
