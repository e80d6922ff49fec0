"""Derivatives and `vmap` of the operations beyond the standard, by the same samples: beside differences, and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from called import check_none_wrong, failed, numbers
from frameworks import jax, tf, torch
from krylix.backends import get_backend
from krylix.backends.operations.table import OPERATIONS
from operation_samples import GROUPS, Sample, evaluate, of_group, operands

OPERANDS = operands("float64")
STEP = 1e-6


def variables(sample: Sample) -> list[str]:
    """The operands by which it has derivatives."""
    if not (OPERATIONS[sample.name].differentiable and sample.differentiable):
        return []
    if isinstance(sample.differentiable, str):
        return [sample.differentiable]
    return [name for name in sample.operands() if OPERANDS[name].dtype.kind == "f"]


def differentiable(group: str) -> list[Sample]:
    return [s for s in of_group(group) if variables(s)]


DIFFERENTIABLE = [group for group in GROUPS if differentiable(group)]


def direction(name: str) -> np.ndarray:
    return np.random.default_rng(len(name)).normal(size=OPERANDS[name].shape)


def value(bk: Any, sample: Sample, arrays: dict[str, Any]) -> Any:
    """The sum of the first result's squares with a weight each, complex or not."""
    own = {name: arrays[name] if name in arrays else bk.asarray(OPERANDS[name]) for name in sample.operands()}
    found = evaluate(sample.call, bk=bk, **own)
    found = found[0] if isinstance(found, (list, tuple)) else found
    flat = bk.xp.reshape(bk.xp.abs(found) if bk.dtype(found).kind == "c" else found, (-1,))
    weights = bk.asarray(1 + np.arange(int(flat.shape[0])) % 7 / 7)
    return bk.xp.sum(bk.xp.multiply(bk.xp.multiply(flat, flat), weights))


def slope(sample: Sample) -> float:
    """The derivative along the direction, by central differences in NumPy."""
    bk = get_backend("numpy")
    ends = []
    for sign in (1, -1):
        moved = {name: OPERANDS[name] + sign * STEP * direction(name) for name in variables(sample)}
        ends.append(float(value(bk, sample, moved)))
    return (ends[0] - ends[1]) / (2 * STEP)


def along(sample: Sample, gradients: Any) -> float:
    parts = zip(variables(sample), gradients, strict=True)
    return sum(0.0 if g is None else float(np.sum(np.asarray(g) * direction(name))) for name, g in parts)


def check(found: dict[Sample, float]) -> None:
    expected = {sample: slope(sample) for sample in found}
    check_none_wrong([
        f"{sample.call}: {own}, expected {expected[sample]}"
        for sample, own in found.items()
        if not abs(own - expected[sample]) <= 1e-5 * max(1, abs(expected[sample]))
    ])  # fmt: skip


@pytest.mark.needs("torch")
@pytest.mark.parametrize("group", DIFFERENTIABLE)
def test_torch(group: str) -> None:
    found = {}
    for sample in differentiable(group):
        leaves = {name: torch.tensor(OPERANDS[name], requires_grad=True) for name in variables(sample)}
        result = value(get_backend("torch"), sample, leaves)
        found[sample] = 0.0  # where all is lost, or an operand is only looked at
        if result.requires_grad:
            found[sample] = along(sample, torch.autograd.grad(result, [*leaves.values()], allow_unused=True))
    check(found)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("group", DIFFERENTIABLE)
def test_tensorflow(group: str) -> None:
    found = {}
    for sample in differentiable(group):
        leaves = {name: tf.constant(OPERANDS[name]) for name in variables(sample)}
        with tf.GradientTape() as tape:
            tape.watch([*leaves.values()])
            result = value(get_backend("tensorflow"), sample, leaves)
        gradients = tape.gradient(result, [*leaves.values()])
        found[sample] = along(sample, [g if g is None else tf.convert_to_tensor(g) for g in gradients])
    check({sample: own for sample, own in found.items() if sample.name != "variable"})


@pytest.mark.needs("jax")
@pytest.mark.parametrize("group", [pytest.param(g, marks=() if g == "gathering" else pytest.mark.merge)
                                   for g in DIFFERENTIABLE])  # fmt: skip
def test_jax(group: str) -> None:
    samples = [sample for sample in differentiable(group) if sample.compiles]

    @jax.jit
    def gradients(arrays: dict[str, Any]) -> list[Any]:
        bk = get_backend("jax")
        return [jax.grad(lambda own, s=s: value(bk, s, own))({n: arrays[n] for n in variables(s)}) for s in samples]

    own = {name: OPERANDS[name] for sample in samples for name in variables(sample)}
    found = gradients(own)
    check({s: along(s, [g[name] for name in variables(s)]) for s, g in zip(samples, found, strict=True)})


def rows(sample: Sample) -> list[dict[str, np.ndarray]]:
    """Two sets of operands; integers and conditions are the same in both."""
    first = {name: OPERANDS[name] for name in sample.operands()}
    return [first, {name: x * 0.5 if x.dtype.kind == "f" else x for name, x in first.items()}]


def of_rows(group: str) -> list[Sample]:
    """Those that return arrays."""
    of_shapes = ("broadcast_size", "shape", "staticshape", "size", "is_sparse", "get_sparse_format")
    return [s for s in of_group(group) if s.compiles and s.name not in of_shapes]


def compare_rows(bk: Any, sample: Sample, found: Any) -> list[str]:
    host, wrong = get_backend("numpy"), []
    for i, own in enumerate(rows(sample)):
        expected = numbers(host, evaluate(sample.call, bk=host, **own))
        for x, y in zip(numbers(bk, found), expected, strict=True):
            if x[i].shape != y.shape or not np.allclose(x[i], y, rtol=1e-6, atol=1e-6):
                wrong.append(f"{sample.call}: {x[i].tolist()}, expected {y.tolist()}")
    return wrong


def stacked(sample: Sample) -> dict[str, np.ndarray]:
    first, second = rows(sample)
    return {name: np.stack([first[name], second[name]]) for name in first}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("group", [g for g in GROUPS if of_rows(g)])
def test_torch_vmap(group: str) -> None:
    bk, wrong = get_backend("torch"), []
    for sample in of_rows(group):
        arrays = {name: torch.as_tensor(x) for name, x in stacked(sample).items()}
        try:
            found = torch.func.vmap(lambda own, s=sample: evaluate(s.call, bk=bk, **own))(arrays)
        except Exception as error:
            wrong.append(failed(sample.call, error))
            continue
        wrong += compare_rows(bk, sample, found)
    check_none_wrong(wrong)


@pytest.mark.merge
@pytest.mark.needs("jax")
@pytest.mark.parametrize("group", [g for g in GROUPS if of_rows(g)])
def test_jax_vmap(group: str) -> None:
    bk, samples = get_backend("jax"), of_rows(group)
    program = jax.jit(lambda every: [
        jax.vmap(lambda own, s=s: evaluate(s.call, bk=bk, **own))(own) for s, own in zip(samples, every, strict=True)
    ])  # fmt: skip
    found = program([stacked(sample) for sample in samples])
    wrong = [line for s, x in zip(samples, found, strict=True) for line in compare_rows(bk, s, x)]
    check_none_wrong(wrong)
