"""Derivatives and `vmap` of the operations beyond the standard, by the same samples: beside differences, and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from krylix.backends import get_backend
from krylix.backends.operations.table import OPERATIONS
from operation_samples import SAMPLES, Sample, evaluate, operands

GROUPS = sorted({OPERATIONS[sample.name].group for sample in SAMPLES})
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
    return [s for s in SAMPLES if OPERATIONS[s.name].group == group and variables(s)]


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
    wrong = [
        f"{sample.call}: {own}, expected {expected[sample]}"
        for sample, own in found.items()
        if not abs(own - expected[sample]) <= 1e-5 * max(1, abs(expected[sample]))
    ]
    assert not wrong, f"{len(wrong)} calls:\n" + "\n".join(wrong)


def differentiable_groups() -> list[str]:
    return [group for group in GROUPS if differentiable(group)]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("group", differentiable_groups())
def test_torch(group: str) -> None:
    import torch

    found = {}
    for sample in differentiable(group):
        leaves = {name: torch.tensor(OPERANDS[name], requires_grad=True) for name in variables(sample)}
        result = value(get_backend("torch"), sample, leaves)
        found[sample] = 0.0  # where all is lost, or an operand is only looked at
        if result.requires_grad:
            found[sample] = along(sample, torch.autograd.grad(result, [*leaves.values()], allow_unused=True))
    check(found)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("group", differentiable_groups())
def test_tensorflow(group: str) -> None:
    import tensorflow as tf

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
                                   for g in differentiable_groups()])  # fmt: skip
def test_jax(group: str) -> None:
    import jax

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
    return [s for s in SAMPLES if OPERATIONS[s.name].group == group and s.compiles and s.name not in of_shapes]


def compare_rows(bk: Any, sample: Sample, found: Any) -> list[str]:
    leaves = lambda x: [y for part in x for y in leaves(part)] if isinstance(x, (list, tuple)) else [x]  # noqa: E731
    found = [bk.to_numpy(x) for x in leaves(found)]
    wrong = []
    for i, own in enumerate(rows(sample)):
        expected = leaves(evaluate(sample.call, bk=get_backend("numpy"), **own))
        for x, y in zip(found, expected, strict=True):
            if x[i].shape != np.shape(y) or not np.allclose(x[i], y, rtol=1e-6, atol=1e-6):
                wrong.append(f"{sample.call}: {x[i].tolist()}, expected {np.asarray(y).tolist()}")
    return wrong


def stacked(sample: Sample) -> dict[str, np.ndarray]:
    first, second = rows(sample)
    return {name: np.stack([first[name], second[name]]) for name in first}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("group", [g for g in GROUPS if of_rows(g)])
def test_torch_vmap(group: str) -> None:
    import torch

    bk, wrong = get_backend("torch"), []
    for sample in of_rows(group):
        arrays = {name: torch.as_tensor(x) for name, x in stacked(sample).items()}
        try:
            found = torch.func.vmap(lambda own, s=sample: evaluate(s.call, bk=bk, **own))(arrays)
        except Exception as error:
            wrong.append(f"{sample.call}: {type(error).__name__}: {str(error)[:200]}")
            continue
        wrong += compare_rows(bk, sample, found)
    assert not wrong, f"{len(wrong)} calls:\n" + "\n".join(wrong)


@pytest.mark.merge
@pytest.mark.needs("jax")
@pytest.mark.parametrize("group", [g for g in GROUPS if of_rows(g)])
def test_jax_vmap(group: str) -> None:
    import jax

    bk, samples = get_backend("jax"), of_rows(group)
    program = jax.jit(lambda every: [
        jax.vmap(lambda own, s=s: evaluate(s.call, bk=bk, **own))(own) for s, own in zip(samples, every, strict=True)
    ])  # fmt: skip
    found = program([stacked(sample) for sample in samples])
    wrong = [line for s, x in zip(samples, found, strict=True) for line in compare_rows(bk, s, x)]
    assert not wrong, f"{len(wrong)} calls:\n" + "\n".join(wrong)
