"""Operations beyond the standard: on every library what NumPy, SciPy or a loop gives, eagerly and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import krylix
from called import check_none_wrong, failed, numbers
from krylix.backends import get_backend
from krylix.backends.operations.table import OPERATIONS
from krylix.backends.standard.library import RULES
from modes import compiled, library
from operation_samples import GROUPS, SAMPLES, Sample, evaluate, of_group, operands

DTYPES = {"b": ("bool",), "i": ("int32", "int64"), "f": ("float32", "float64"), "c": ("complex64", "complex128")}


TESTED_APART = {  # group: where
    "functions": "test_custom_gradient.py, test_jacobians.py, test_whole_functions.py",
    "random": "test_random.py",
    "solves": "solvers/test_backend_solves.py",
}


def test_every_operation_beyond_the_standard_has_samples() -> None:
    beyond = {name for name, row in OPERATIONS.items() if row.module or name not in RULES}
    apart = {name for name in beyond if OPERATIONS[name].group in TESTED_APART}
    assert beyond - apart == {sample.name for sample in SAMPLES}
    assert not {name for name, row in OPERATIONS.items() if row.group == "standard" and name not in RULES}


def dtypes(sample: Sample) -> list[str]:
    return [dtype for kind in sample.kinds for dtype in DTYPES[kind]]


def alike(found: np.dtype, expected: np.dtype, given: list[np.dtype]) -> bool:
    """Has a result the kind that NumPy gives, and the precision of the real or complex operands?"""
    precisions = {np.finfo(dtype).bits for dtype in given if dtype.kind in "fc"}
    if not precisions:  # but of integers: NumPy's may be real, and the precision is the one in force
        return expected.kind in (found.kind, "f")
    return found.kind == expected.kind and (found.kind not in "fc" or {np.finfo(found).bits} == precisions)


def differences(bk: Any, sample: Sample, dtype: str, found: Any) -> Iterator[str]:
    own = operands(dtype)
    given = [own[name].dtype for name in sample.operands()]
    expected = numbers(get_backend("numpy"), evaluate(sample.expected, bk=bk, **own))
    found = numbers(bk, found)
    if len(found) != len(expected):
        yield f"{sample.call} of {dtype}: {len(found)} arrays, expected {len(expected)}"
    single = dtype in ("float32", "complex64")
    for x, y in zip(found, expected, strict=False):
        scale = np.max(np.abs(y), initial=1, where=np.isfinite(y)) if y.dtype.kind in "fc" else 1
        if x.shape != y.shape or not alike(x.dtype, y.dtype, given):
            yield f"{sample.call} of {dtype}: {x.dtype} {x.shape}, expected {y.dtype} {y.shape}"
        elif not np.allclose(x, y, rtol=1e-4 if single else 1e-6, atol=(1e-5 if single else 1e-6) * scale):
            yield f"{sample.call} of {dtype}: {x.tolist()}, expected {y.tolist()}"


def arrays(sample: Sample, backend: str, dtype: str) -> dict[str, Any]:
    own = operands(dtype)
    return {name: krylix.convert(own[name], backend) for name in sample.operands()}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    "backend",
    ("numpy", "torch", "tensorflow", pytest.param("jax", marks=pytest.mark.merge)),
)
def test_eager(backend: str, group: str) -> None:
    bk, wrong = get_backend(backend), []
    samples = of_group(group)
    if (
        backend == "jax"
    ):  # which compiles what it runs eagerly: one sample of each operation, and those without programs
        samples = [*{s.name: s for s in reversed(samples)}.values(), *(s for s in samples if not s.compiles)]
    for sample in samples:
        for dtype in dtypes(sample)[-1:] if backend == "jax" else dtypes(sample):
            try:
                found = evaluate(sample.call, bk=bk, **arrays(sample, backend, dtype))
            except Exception as error:
                wrong.append(failed(f"{sample.call} of {dtype}", error))
                continue
            wrong += differences(bk, sample, dtype, found)
    check_none_wrong(wrong)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("mode", ("jax-jit", "tf-function"))
def test_compiled(mode: str, group: str) -> None:
    """All of a group in one program."""
    bk, samples = get_backend(library(mode)), [s for s in of_group(group) if s.compiles]
    names = sorted({name for s in samples for name in s.operands()})

    def program(*values: Any) -> list[Any]:
        own = dict(zip(names, values, strict=True))
        return [evaluate(s.call, bk=bk, **{name: own[name] for name in s.operands()}) for s in samples]

    found = compiled(mode, program)(*(krylix.convert(operands("float64")[name], bk) for name in names))
    check_none_wrong([d for s, x in zip(samples, found, strict=True) for d in differences(bk, s, "float64", x)])
