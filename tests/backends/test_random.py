"""Random numbers: functions of a key, eagerly and compiled; streams; distributions, whose tests use fixed keys."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import jax, tf, torch
from krylix.backends import get_backend
from modes import COMPILED, EAGER, compiled, library, to_numpy

eagerly = pytest.mark.parametrize("mode", EAGER)
COUNT = 20_000
DRAWS: dict[str, Callable[..., Any]] = {
    "uniform": lambda bk, key: bk.random_uniform((4, 3), key=key),
    "normal": lambda bk, key: bk.random_normal((4, 3), key=key),
    "integers": lambda bk, key: bk.random_uniform((4, 3), -50, 1000, np.int32, key=key),
    "permutations": lambda bk, key: bk.random_permutations(4, 30, key=key),
}


def moments(x: np.ndarray) -> np.ndarray:
    return np.array([(x**k).mean() for k in (1, 2, 3, 4)])


@eagerly
def test_distributions(mode: str) -> None:
    """Moments, to four standard deviations of what so many numbers give, and a fit of all numbers at once."""
    bk = get_backend(library(mode))
    uniform = to_numpy(bk.random_uniform(COUNT, key=11)).astype(np.float64)
    normal = to_numpy(bk.random_normal((COUNT,), key=12)).astype(np.float64)
    dice = to_numpy(bk.random_uniform(COUNT, 1, 7, np.int64, key=13))
    k = np.arange(1, 5)
    np.testing.assert_array_less(abs(moments(uniform) - 1 / (k + 1)), 4 * np.sqrt(1 / (2 * k + 1) / COUNT))
    np.testing.assert_array_less(abs(moments(normal) - [0, 1, 0, 3]), 4 * np.sqrt(np.array([1, 3, 15, 105]) / COUNT))
    assert uniform.min() >= 0 and uniform.max() < 1 and {*dice.tolist()} == {1, 2, 3, 4, 5, 6}
    for share in ((np.histogram(uniform, 20, (0, 1))[0] / COUNT - 1 / 20), np.bincount(dice)[1:] / COUNT - 1 / 6):
        assert abs(share).max() < 4 * np.sqrt(1 / 6 / COUNT)
    assert abs(np.corrcoef(uniform[:-1], uniform[1:])[0, 1]) < 4 / np.sqrt(COUNT)


@eagerly
def test_permutations(mode: str) -> None:
    bk = get_backend(library(mode))
    rows = to_numpy(bk.random_permutations(600, 5, key=3))
    assert rows.dtype.kind == "i" and rows.shape == (600, 5)
    np.testing.assert_array_equal(np.sort(rows, axis=1), np.broadcast_to(np.arange(5), (600, 5)))
    assert len({tuple(row) for row in rows}) > 100  # of the 120 that there are
    share = np.stack([np.bincount(column, minlength=5) for column in rows.T]) / 600
    assert abs(share - 0.2).max() < 4.5 * np.sqrt(0.16 / 600)
    assert to_numpy(bk.random_permutations(2, 0, key=3)).shape == (2, 0)


@pytest.mark.parametrize("mode", (*EAGER, *COMPILED))
def test_the_same_key_gives_the_same_numbers(mode: str) -> None:
    """Whatever was drawn before; in a compiled function those that are drawn eagerly; others with another key."""
    bk = get_backend(library(mode))

    def all_of(key: Any) -> list[Any]:
        parts = bk.random_split(key, 3)
        return [draw(bk, k) for draw in DRAWS.values() for k in (key, parts[2])]

    eager = [to_numpy(x) for x in all_of(bk.random_key(5))]
    bk.random_normal(3)
    bk.seed(1)
    found = [to_numpy(x) for x in compiled(mode, all_of)(bk.random_key(5))]
    for a, b in zip(eager, found, strict=True):
        np.testing.assert_array_equal(a, b)
    for of_key, of_part in zip(eager[::2], eager[1::2], strict=True):
        assert not np.array_equal(of_key, of_part)
    np.testing.assert_array_equal(to_numpy(DRAWS["uniform"](bk, 5)), eager[0])
    assert not np.array_equal(to_numpy(DRAWS["uniform"](bk, bk.random_key(6))), eager[0])


@eagerly
def test_parts_of_a_key_are_independent(mode: str) -> None:
    """Of each other, of the key itself, and of the parts of the next key."""
    bk = get_backend(library(mode))
    keys = [k for seed in (0, 1) for k in (bk.random_key(seed), *bk.random_split(bk.random_key(seed), 3))]
    rows = np.stack([to_numpy(bk.random_uniform(2000, key=k)) for k in keys])
    others = np.corrcoef(rows) - np.eye(len(keys))
    assert abs(others).max() < 4 / np.sqrt(2000)
    again = np.stack([to_numpy(bk.random_uniform(10, key=k)) for k in bk.random_split(bk.random_key(0), 3)])
    np.testing.assert_array_equal(again, rows[1:4, :10])


@eagerly
def test_streams(mode: str) -> None:
    """Without a key each draw is another one, and a seed begins anew; in this thread, where the library can."""
    bk = get_backend(library(mode))

    def draws() -> list[bytes]:
        return [to_numpy(draw(bk, None)).tobytes() for draw in DRAWS.values()] + [
            to_numpy(bk.random_uniform((4, 3))).tobytes()
        ]

    assert draws() != draws() and draws()[0] != draws()[-1]
    bk.seed(7)
    first, second = draws(), draws()
    bk.seed(7)
    assert draws() == first
    if mode in ("numpy", "jax"):
        thread = threading.Thread(target=lambda: (bk.seed(1), draws()))
        thread.start()
        thread.join()
    assert draws() == second
    assert first[0] != first[-1] and not set(first) & set(second)


@eagerly
def test_dtypes_and_bounds(mode: str) -> None:
    bk = get_backend(library(mode))
    assert bk.dtype(bk.random_normal(2)) == bk.float_type and bk.random_uniform().shape == ()
    with krylix.precision(32):
        assert bk.dtype(bk.random_uniform(2, key=1)) == np.float32

    def drawn(low: Any) -> list[Any]:
        made = [bk.random_uniform(5000, dtype=np.float16, key=1), bk.random_uniform(500, -3, 5.0, np.float32, key=4)]
        known = np.array([0.0, 10.0]), np.array([1.0, 12.0]), np.float32
        for limits in ((low, low + 2, np.float64), (low, 12, np.float32), known):
            made.append(bk.random_uniform((500, 2), *limits, key=4))
        return [*made, bk.random_uniform(4000, 0, 256, np.uint8, key=2)]

    run = compiled("jax-jit", drawn) if mode == "jax" else drawn  # one program: it compiles what it runs eagerly, too
    found = run(bk.asarray(np.array([0.0, 10.0])))
    half, numbers, rows, single, limits, byte = map(to_numpy, found)
    assert half.dtype == np.float16 and half.max() < 1 and half.min() >= 0
    assert ((rows >= [0, 10]) & (rows < [2, 12])).all() and np.ptp(rows, axis=0).min() > 1.9
    assert numbers.dtype == np.float32 and -3 <= numbers.min() < -2.8 and 4.8 < numbers.max() <= 5
    assert single.dtype == np.float32 and single[:, 1].min() >= 10
    assert limits.dtype == np.float32 and limits.shape == (500, 2)
    assert ((limits >= [0, 10]) & (limits <= [1, 12])).all() and limits.max() > 11.9
    assert bk.random_normal(found[4].shape).shape == found[4].shape  # TensorFlow's is no sequence
    assert byte.dtype == np.uint8 and byte.min() == 0 and byte.max() == 255
    made = bk.random_uniform(3, key=1, device="CPU")
    assert bk.get_device(made) == bk.list_devices("CPU")[0]


@eagerly
def test_full_ranges_of_integers(mode: str) -> None:
    """Drawn, or refused in words: never wrapped around."""
    bk, drawn = get_backend(library(mode)), 0
    for dtype in (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64):
        if mode == "torch" and dtype in (np.uint32, np.uint64):
            continue  # which its namespace has not
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max) + 1
        for key in (None, 3):
            try:
                x = to_numpy(bk.random_uniform(400, low, high, dtype, key=key)).astype(float)
            except ValueError as error:
                assert re.search(
                    rf"\[{low}, {high}\) .*; expected limits from .* to .*, which {bk.name} draws", str(error)
                )
                assert np.iinfo(dtype).bits >= 32
                continue
            drawn += 1
            assert low <= x.min() < low + 0.05 * (high - low) and low + 0.95 * (high - low) < x.max() < high
    assert drawn >= 6


@eagerly
def test_every_bit_of_a_seed_counts(mode: str) -> None:
    """Also where integers of JAX have 32 bits. No seed is a part of another one's key."""
    bk = get_backend(library(mode))
    seeds = (0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**63, 2**64)
    with without_x64() if mode == "jax" else nullcontext():
        keys = [*map(bk.random_key, seeds), *bk.random_split(bk.random_key(0), 5)]
        rows = np.stack([to_numpy(bk.random_uniform(4, key=key)) for key in keys])
    assert len({row.tobytes() for row in rows}) == len(keys)


@contextmanager
def without_x64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@eagerly
def test_refusals(mode: str) -> None:
    bk = get_backend(library(mode))
    for call, error, message in (
        (lambda: bk.random_uniform(3, 2, 2, np.int32), ValueError, r"integers \[2, 2\)"),
        (lambda: bk.random_uniform(3, 0, 300, np.uint8), ValueError, r"integers \[0, 300\)"),
        (lambda: bk.random_uniform(3, np.zeros(3, int), 5, np.int32), TypeError, "expected numbers for integers"),
        (lambda: bk.random_normal(3, np.int32), TypeError, "expected real numbers"),
        (lambda: bk.random_normal(3, np.complex128), TypeError, "part by part"),
        (lambda: bk.random_normal(3, key="x"), TypeError, "expected what random_key"),
        (lambda: bk.random_key(-1), ValueError, "expected an integer from 0 on"),
        (lambda: bk.random_key(0.5), TypeError, "integer"),
    ):
        with pytest.raises(error, match=message):
            call()
    if mode != "jax":
        with pytest.raises(TypeError, match=r"key= got an array .*; expected what random_key"):
            bk.random_normal(3, key=np.zeros(3, np.int64))


@pytest.mark.needs("jax")
def test_jax_programs_need_a_key() -> None:
    """Without one they would repeat themselves, and the stream would keep a tracer of theirs."""
    bk = get_backend("jax")
    for transformed in (jax.jit(lambda x: x + bk.random_normal(3)), jax.vmap(lambda x: x + bk.random_normal(3))):
        with pytest.raises(TypeError, match=r"without a key inside .*random_key\(seed\).*random_split"):
            transformed(np.zeros((2, 3)))
    gradient = jax.grad(lambda x: (x * bk.random_normal(3)).sum())
    assert not np.array_equal(gradient(np.zeros(3)), gradient(np.zeros(3)))
    assert bk.random_normal(3).shape == (3,)
    # Keys of its own: typed and raw, split in a program and in lanes of vmap.
    np.testing.assert_array_equal(bk.random_normal(3, key=jax.random.key(4)), bk.random_normal(3, key=4))
    assert bk.random_normal(3, key=jax.random.PRNGKey(4)).shape == (3,)
    rows = jax.jit(jax.vmap(lambda key: bk.random_normal(3, key=key)))(jax.random.split(jax.random.key(4), 2))
    assert not np.array_equal(rows[0], rows[1])


@pytest.mark.needs("tensorflow")
def test_tensorflow_draws_anew_at_each_run() -> None:
    bk = get_backend("tensorflow")
    draw = tf.function(lambda: [bk.random_normal(3), bk.random_permutations(2, 9)], autograph=False)
    one, two = draw(), draw()
    assert all(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    keyed = tf.function(lambda seed: bk.random_uniform(3, key=bk.random_key(seed)), autograph=False)
    np.testing.assert_array_equal(keyed(tf.constant(5)), bk.random_uniform(3, key=5))


@pytest.mark.needs("torch")
def test_torch_transformations() -> None:
    """Each element of `vmap` draws its own numbers; a key that is mapped has none to read."""
    bk = get_backend("torch")
    rows = bk.vmap(lambda x: x + bk.random_normal(3))(torch.zeros(2, 3))
    assert not torch.equal(rows[0], rows[1])
    with pytest.raises(TypeError, match="Draw the random numbers outside"):
        torch.func.vmap(lambda key: bk.random_normal(3, key=key))(torch.zeros(2, 2, dtype=torch.int64))
    torch.manual_seed(3)
    first = bk.random_normal(3)
    bk.seed(3)
    assert torch.equal(bk.random_normal(3), first)


@pytest.mark.needs("torch")
def test_torch_takes_numbers_of_a_key_from_numpy() -> None:
    numpy, torch = get_backend("numpy"), get_backend("torch")
    with krylix.precision(64):
        for draw in DRAWS.values():
            np.testing.assert_array_equal(to_numpy(draw(torch, 3)), draw(numpy, 3))
