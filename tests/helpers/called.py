"""Calls written as expressions: which names they use, and what they give as arrays of NumPy."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from frameworks import jax


@cache
def names_in(expression: str) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name))


@cache
def code_of(expression: str) -> CodeType:
    return compile(expression, expression, "eval")


def numbers(bk: Any, found: Any) -> list[np.ndarray]:
    """Results as arrays of NumPy, one for each in a container."""
    if isinstance(found, (list, tuple)):
        return [x for part in found for x in numbers(bk, part)]
    return [np.asarray(bk.to_numpy(found) if bk.is_array(found) else found)]


def failed(call: object, error: BaseException) -> str:
    return f"{call}: {type(error).__name__}: {str(error)[:200]}"


def check_none_wrong(wrong: list[str]) -> None:
    assert not wrong, f"{len(wrong)} calls:\n" + "\n".join(wrong)


def run_in_jax(functions: Sequence[Callable[[Any], Any]], arrays: Any) -> list[Any]:
    """What each function of the arrays gives in JAX: in one program where it can be traced, else eagerly; or its error.

    What JAX runs eagerly it compiles, too, operation by operation.
    """
    found: dict[int, Any] = {}
    for i, function in enumerate(functions):
        try:
            jax.eval_shape(function, arrays)
        except Exception:
            try:
                found[i] = function(arrays)
            except Exception as error:
                found[i] = error
    traced = [i for i in range(len(functions)) if i not in found]
    results = jax.jit(lambda given: [functions[i](given) for i in traced])(arrays)
    found.update(zip(traced, results, strict=True))
    return [found[i] for i in range(len(functions))]
