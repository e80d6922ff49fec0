"""`backend.xp` has every function of the array API standard 2024.12, which does on each library what NumPy's does."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import krylix
from called import check_none_wrong, code_of, failed, numbers, run_in_jax
from krylix.backends import Backend, get_backend
from krylix.backends.standard.library import RULES
from standard import GROUPS, Call, calls_of, environment, operands, signatures

# PyTorch has hardly any operation on these.
LACKING = {"torch": ("uint16",)}
# What JAX runs eagerly it compiles, so by default it runs one call of each function.
FEW = ("float32", "int32", "complex64", "bool")
# PyTorch and TensorFlow give -2.0 % 1.0 the sign of the first.
SIGNED = {call.name for call in calls_of("elementwise")} - {"remainder"}


def test_table_has_the_whole_standard() -> None:
    assert set(signatures()) == set(RULES)


@pytest.mark.parametrize("group", GROUPS)
def test_calls_use_every_argument(group: str) -> None:
    """So that none is missing in a library; those that have only a place are given by place."""
    used: dict[str, set[str]] = {}
    for call in calls_of(group):
        parameters = inspect.signature(eval(f"lambda {signatures()[call.name]}: None")).parameters
        for node in ast.walk(ast.parse(call.expression)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == f"xp.{call.name}":
                places = [name for name, p in parameters.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
                given = {*places[: len(node.args)], *(k.arg for k in node.keywords if k.arg)}
                assert given <= set(parameters), call
                used.setdefault(call.name, set()).update(given)
    for name in {call.name for call in calls_of(group)}:
        parameters = inspect.signature(eval(f"lambda {signatures()[name]}: None")).parameters
        assert used[name] == set(parameters), f"no call of {name} gives {set(parameters) - used[name]}"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("backend", ("numpy", "torch", "tensorflow"))
def test_like_numpy(backend: str, group: str) -> None:
    check_none_wrong([
        difference
        for call in calls_of(group)
        for dtype in call.dtypes()
        if dtype not in LACKING.get(backend, ())
        for difference in differences(backend, call, dtype)
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.needs("jax")
@pytest.mark.parametrize("group", GROUPS)
def test_all_calls_of_jax_like_numpy(group: str) -> None:
    check_none_wrong(
        [d for call in calls_of(group) for dtype in call.dtypes() for d in differences("jax", call, dtype)]
    )


@pytest.mark.needs("jax")
@pytest.mark.parametrize("group", GROUPS)
def test_jax_like_numpy(group: str) -> None:
    """One call of each function, in one program where that can be; the first one eagerly, too."""
    cases = {call.name: (call, _one_dtype(call)) for call in reversed(calls_of(group))}
    check_none_wrong([*differences_in_jax([*cases.values()]), *differences("jax", *next(reversed(cases.values())))])


def differences_in_jax(cases: list[tuple[Call, str]], names: Any = None) -> Iterator[str]:
    bk = get_backend("jax")

    def function(call: Call, dtype: str) -> Any:
        return lambda given: eval(code_of(call.expression), environment(names or bk.xp, dtype, given[dtype]))

    arrays = {dtype: own_operands("jax", dtype) for _, dtype in cases}
    for case, found in zip(cases, run_in_jax([function(*case) for case in cases], arrays), strict=True):
        if isinstance(found, Exception):
            yield failed(f"{case[0].expression} of {case[1]}", found)
        else:
            yield from unequal(*case, numbers(bk, found), "jax")


def _one_dtype(call: Call) -> str:
    return next((dtype for dtype in FEW if dtype in call.dtypes()), call.dtypes()[0])


class NamesOfBackend:
    """Functions that a backend's class defines for solvers, as a namespace of the standard with the other names."""

    def __init__(self, bk: Any) -> None:
        self.bk = bk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bk if name in OWN else self.bk.xp, name)


# `bk.asarray` keeps the dtype of NumPy's numbers, `bk.zeros` has `like=`, `bk.astype` and `bk.reshape` have no `copy=`.
OWN = {name for name in RULES if hasattr(Backend, name)} - {"asarray"}
_OTHER_ARGUMENTS = re.compile("copy=|device=")


@pytest.mark.parametrize("backend", ("numpy", "torch", "tensorflow", pytest.param("jax", marks=pytest.mark.merge)))
def test_names_of_backends_like_numpy(backend: str) -> None:
    names = NamesOfBackend(get_backend(backend))
    calls = [call for group in GROUPS for call in calls_of(group)]
    calls = [call for call in calls if call.name in OWN and not _OTHER_ARGUMENTS.search(call.expression)]
    if backend == "jax":
        check_none_wrong([*differences_in_jax([(call, _one_dtype(call)) for call in calls], names)])
        return
    cases = ((c, dtype) for c in calls for dtype in c.dtypes() if dtype not in LACKING.get(backend, ()))
    check_none_wrong([d for case in cases for d in differences(backend, *case, names)])


@cache
def own_operands(backend: str, dtype: str) -> dict[str, Any]:
    return {name: krylix.convert(x, backend) for name, x in operands(dtype).items()}


@cache
def expected_of(call: Call, dtype: str) -> list[np.ndarray]:
    return evaluate(call.reference, np, dtype, operands(dtype), get_backend("numpy"))


def differences(backend: str, call: Call, dtype: str, names: Any = None) -> Iterator[str]:
    """What a call gives that NumPy does not; nothing, or one line."""
    bk = get_backend(backend)
    try:
        found = evaluate(call.expression, names or bk.xp, dtype, own_operands(backend, dtype), bk)
    except Exception as error:
        yield failed(f"{call.expression} of {dtype}", error)
        return
    yield from unequal(call, dtype, found, backend)


def unequal(call: Call, dtype: str, found: list[np.ndarray], backend: str) -> Iterator[str]:
    expected = expected_of(call, dtype)
    without_dtype = not call.operands() and "dt" not in call.expression and "fl" not in call.expression
    single = without_dtype or dtype in ("float32", "complex64")
    if len(found) != len(expected):
        yield f"{call.expression} of {dtype}: {len(found)} arrays, expected {len(expected)}"
    for x, y in zip(found, expected, strict=False):
        signed = backend == "torch" and y.dtype == np.uint64  # PyTorch has no sums of such integers
        same_dtype = x.dtype.kind == y.dtype.kind if without_dtype else x.dtype == y.dtype or signed
        scale = np.max(np.abs(y), initial=1, where=np.isfinite(y)) if y.dtype.kind in "fc" else 1
        tolerance = (3e-6 if single else 1e-13) * scale
        if x.shape != y.shape or not same_dtype:
            yield f"{call.expression} of {dtype}: {x.dtype} {x.shape}, expected {y.dtype} {y.shape}"
        elif not np.allclose(x, y, rtol=1e-5 if single else 1e-12, atol=tolerance, equal_nan=True):
            yield f"{call.expression} of {dtype}: {x.tolist()}, expected {y.tolist()}"
        elif call.name in SIGNED and x.dtype.kind == "f" and np.any((np.signbit(x) != np.signbit(y))[x == 0]):
            yield f"{call.expression} of {dtype}: the signs of zeros of {x.tolist()}, expected {y.tolist()}"


def evaluate(expression: str, xp: Any, dtype: str, arrays: dict[str, Any], bk: Any) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return numbers(bk, eval(code_of(expression), environment(xp, dtype, arrays)))
