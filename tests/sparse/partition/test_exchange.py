"""Exchange plans and local rows, played through by NumPy in the place of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from irregular_matrices import triangulated, with_hubs
from krylix.backends import get_backend
from krylix.sparse.partition.exchange import Exchange, exchange_of, redistribution
from krylix.sparse.partition.local_rows import local_rows
from krylix.sparse.partition.row_partition import row_partition


def received(plan: Exchange, x: np.ndarray) -> np.ndarray:
    """`(parts, size)` -> `(parts, count)`: what the messages bring."""
    out = np.take_along_axis(x, plan.send, axis=1)
    if plan.rounds is None:
        return out.reshape(plan.parts, plan.parts, -1).swapaxes(0, 1).reshape(plan.parts, -1)
    found, at = np.zeros_like(out), 0
    for pairs, length in plan.rounds:
        assert len({s for s, _ in pairs}) == len({t for _, t in pairs}) == len(pairs)
        for source, target in pairs:
            found[target, at : at + length] = out[source, at : at + length]
        at += length
    return found


def random_needs(parts: int, size: int, seed: int, share: float) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        np.array([k for k in range(parts * size) if k // size != p and rng.random() < share], int) for p in range(parts)
    ]


@pytest.mark.parametrize(("parts", "share"), [(1, 0.5), (2, 0.3), (5, 0.2), (12, 0.9), (4, 0.0)])
def test_everybody_gets_what_it_needs(parts: int, share: float) -> None:
    needs = random_needs(parts, 6, parts, share)
    plan, places = exchange_of(needs, 6)
    x = np.random.default_rng(0).normal(size=(parts, 6))
    got = received(plan, x)
    for p, (need, place) in enumerate(zip(needs, places, strict=True)):
        assert np.array_equal(got[p, place], x.reshape(-1)[need])
    assert (plan.rounds is None) == (parts == 12)  # many neighbours: all at once


@pytest.mark.needs("jax")
@pytest.mark.parametrize(("parts", "share"), [(5, 0.2), (12, 0.9)])
def test_messages_of_a_program(parts: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The product's own messages in lanes of `vmap`, and their transpose: one by one, and all at once."""
    import jax

    plan, _ = exchange_of(random_needs(parts, 6, parts, share), 6)
    bk, names, x = get_backend("jax"), ("p",), np.random.default_rng(0).normal(size=(parts, 1, 6))

    def permuted(_: Any, out: Any, names: Any, pairs: Any) -> Any:
        """`ppermute` in lanes takes whole permutations only."""
        sources = np.full(parts, parts)
        sources[[target for _, target in pairs]] = [source for source, _ in pairs]
        given = jax.numpy.pad(jax.lax.all_gather(out, *names), ((0, 1), (0, 0), (0, 0)))
        return given[jax.numpy.asarray(sources)[jax.lax.axis_index(*names)]]

    monkeypatch.setattr(type(bk), "permuted", permuted)
    there = jax.jit(jax.vmap(lambda x, send: plan.received(bk, names, send, x), axis_name="p"))(x, plan.send)
    used = np.zeros((parts, 1, plan.count))  # what is padding stays 0
    for p, places in enumerate(exchange_of(random_needs(parts, 6, parts, share), 6)[1]):
        used[p, 0, places] = 1
    np.testing.assert_array_equal(there * used, received(plan, x[:, 0])[:, None] * used)
    g = used * np.random.default_rng(1).normal(size=used.shape)
    back = jax.jit(jax.vmap(lambda g, send: plan.returned(bk, names, send, g), axis_name="p"))(g, plan.send)
    np.testing.assert_allclose(np.vdot(g, there), np.vdot(back, x))


def test_rounds_are_few() -> None:
    chain = [np.array([k for k in (6 * p - 1, 6 * p + 6) if 0 <= k < 48], int) for p in range(8)]
    plan, _ = exchange_of(chain, 6)
    assert plan.rounds is not None and len(plan.rounds) == plan.count == 2


@pytest.mark.parametrize("parts", [1, 3, 10])
def test_redistribution(parts: int) -> None:
    n, size = 5 * parts, 7
    order = np.random.default_rng(parts).permutation(n)
    sources = np.full((parts, size), -1)
    sources[:, :5] = order.reshape(parts, 5)
    plan = redistribution(sources, 5)
    x = np.random.default_rng(1).normal(size=n)
    own = x.reshape(parts, 5)
    pieces = np.concatenate([own, received(plan.exchange, own), np.zeros((parts, 1))], axis=1)
    found = np.take_along_axis(pieces, plan.places, axis=1)
    assert np.array_equal(found[:, :5].reshape(-1), x[order]) and not found[:, 5:].any()


def pieces_times(pieces: Any, values: np.ndarray, x: np.ndarray, size: int, p: int) -> np.ndarray:
    y = np.zeros(size)
    np.add.at(y, np.broadcast_to(pieces.rows[p], pieces.cols[p].shape), values * x[pieces.cols[p]])
    return y


def products(A: sp.csr_array, labels: np.ndarray, parts: int, x: np.ndarray) -> np.ndarray:
    """A x by parts."""
    rows, cols = A.nonzero()
    layout, data = local_rows(rows, cols, labels, parts), np.append(A[rows, cols], 0)
    padded = np.zeros(parts * layout.size)
    padded[layout.places] = x
    own = padded.reshape(parts, layout.size)
    ghosts = np.append(received(layout.exchange, own), np.zeros((parts, 1)), axis=1)
    y = np.stack([
        sum(
            pieces_times(pieces, data[pieces.sources[p]], values[p], layout.size, p)
            for pieces, values in ((layout.own, own), (layout.rest, own), (layout.away, ghosts))
        )
        for p in range(parts)
    ])  # fmt: skip
    at_row, _, slots = layout.coordinates()
    every = np.concatenate([pieces.sources.reshape(-1) for pieces in (layout.own, layout.rest, layout.away)])
    assert np.array_equal(np.sort(data[every[slots]]), np.sort(np.append(data[:-1], padding(layout, data))))
    assert np.array_equal(np.bincount(at_row, minlength=parts * layout.size) > 0, layout_rows(A, layout))
    return y.reshape(-1)[layout.places]


def padding(layout: Any, data: np.ndarray) -> Sequence[float]:
    filled = layout.unknowns.reshape(-1) < 0
    sources = layout.diagonal.reshape(-1)[filled]
    return data[sources[sources >= 0]]


def layout_rows(A: sp.csr_array, layout: Any) -> np.ndarray:
    found = np.full(layout.parts * layout.size, bool((layout.diagonal >= 0).any()))
    found[layout.places] = np.diff(A.indptr) > 0
    return found


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_products_by_parts(parts: int) -> None:
    rng = np.random.default_rng(0)
    mesh, _ = triangulated(200, wind=0.5)
    cases = [mesh, with_hubs(200, 2), sp.csr_array(sp.random_array((60, 60), density=0.05, rng=rng)), sp.eye_array(20)]
    for A in map(sp.csr_array, cases):
        x = rng.normal(size=A.shape[0])
        for labels in (row_partition(A, parts, method="graph"), rng.integers(0, parts, A.shape[0])):
            assert np.allclose(products(A, labels, parts, x), A @ x, rtol=1e-12, atol=1e-12)
