"""Loops, branches, frozen systems, host calls and whole functions: the primitives with behaviour, in every mode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from contract import EAGER_FLAGS, MODES, backend, covers, rows, run
from frameworks import jax, jnp, tf, torch
from gradients import derivatives
from krylix.backends import Backend, LinearSystem, select
from modes import EAGER, array, compiled, library, to_numpy

modes = pytest.mark.parametrize("mode", MODES)
eager = pytest.mark.parametrize("mode", EAGER)
COMPILED = ("jax-jit", "tf-function")


class State(NamedTuple):
    """As a solver's: arrays, something empty, and a nested tuple."""

    x: Any
    count: Any
    nothing: tuple[()]
    pair: tuple[Any, Any]


def state_of(bk: Backend, x: Any, count: Any) -> State:
    return State(bk.copy(x), count, (), (bk.copy(x), bk.square_norm(x)))


# ---- control flow


@covers("while_loop", "cond")
@modes
def test_while_loop(mode: str) -> None:
    """Collatz steps, whose number depends on the values; a branch inside of the loop."""

    def collatz(bk: Backend, n: Any) -> tuple[Any, Any]:
        def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
            n, steps = state
            return bk.cond((n % 2 == 0)[0], lambda n: n // 2, lambda n: 3 * n + 1, n), steps + 1

        return bk.while_loop(lambda state: bk.any(state[0] != 1), body, (n, 0 * n))

    end, steps = run(mode, collatz, np.array([27], np.int32))
    assert (end, steps) == (1, 111)
    assert run(mode, collatz, np.array([1], np.int32))[1] == 0  # no step at all


@covers("where_needed")
@modes
def test_where_needed(mode: str) -> None:
    """Several arrays of what the function closes over; where they are not needed, their shapes are right."""

    def found(bk: Backend, x: Any) -> tuple[Any, ...]:
        a, b = bk.where_needed((x > 0)[0, 0], lambda: [2 * x, bk.square_norm(x)])
        c, d = bk.where_needed((x < 0)[0, 0], lambda: [2 * x, bk.square_norm(x)])
        return a, b, bk.astype(bk.full_like(c, 1), bk.dtype(c)), bk.astype(bk.full_like(d, 1), bk.dtype(d))

    x = 1 + abs(rows(np.float64, (2, 3), 1))
    twice, squares, like_x, like_squares = run(mode, found, x)
    np.testing.assert_allclose(twice, 2 * x)
    np.testing.assert_allclose(squares, np.sum(x**2, axis=1, keepdims=True))
    assert (like_x.shape, like_squares.shape) == ((2, 3), (2, 1))
    assert like_x.dtype == like_squares.dtype == x.dtype


@covers("negated")
@modes
def test_negated(mode: str) -> None:
    """Of a comparison with NaN it is true: TensorFlow's graphs take `~(a < b)` for `a >= b`."""
    x = np.array([np.nan, 1.0, 3.0])
    found = run(mode, lambda bk, x: (bk.negated(x < 2), bk.negated(x > 2)), x)
    np.testing.assert_array_equal(found, [[True, False, True], [True, True, False]])


@covers("by_host", "sets_up_by_host")
@modes
def test_by_host(mode: str) -> None:
    """The same either way; in a compiled program of JAX it is the host that finds it, once for each lane."""
    calls = []

    def on_host(x: np.ndarray) -> list[np.ndarray]:
        calls.append(x.shape)
        return [2 * x, np.sum(x, 1, keepdims=True)]

    def found(bk: Backend, x: Any) -> list[Any]:
        assert bk.sets_up_by_host() == (bk.name == "jax")
        returns = [((2, 3), np.dtype(np.float64)), ((2, 1), np.dtype(np.float64))]
        return bk.by_host(on_host, lambda x: [2 * x, bk.sum(x, (1,), keepdims=True)], returns, x)

    x = rows(np.float64, (2, 3), 1)
    twice, sums = run(mode, found, x)
    np.testing.assert_allclose(twice, 2 * x)
    np.testing.assert_allclose(sums, np.sum(x, 1, keepdims=True))
    assert calls == ([x.shape] if mode == "jax-jit" else [])


def test_by_host_leaves_the_process_and_is_mapped() -> None:
    """An exported program does not call back; lanes and derivatives of other things go on around it."""
    bk = backend("jax")

    def never(x: np.ndarray) -> list[np.ndarray]:
        raise RuntimeError("called")

    def doubled(on_host: Any) -> Any:
        return lambda x: bk.by_host(on_host, lambda x: [2 * x], [(x.shape, bk.dtype(x))], x)[0]

    with jax.enable_x64(True):
        x = jnp.asarray(rows(np.float64, (4, 3), 1))
        exported = jax.export.export(jax.jit(doubled(never)))(x)
        np.testing.assert_allclose(jax.export.deserialize(exported.serialize()).call(x), 2 * x)
        lanes = jax.jit(jax.vmap(doubled(lambda x: [2 * np.asarray(x)])))(x[:, None])
        np.testing.assert_allclose(lanes[:, 0], 2 * x)
        around = jax.jit(jax.grad(lambda x: jnp.sum(doubled(lambda x: [2 * x])(bk.constant(x)) * x)))
        np.testing.assert_allclose(around(x), 2 * x)


@covers("rows_on_host", "from_host")
@eager
def test_rows_of_numpy(mode: str) -> None:
    """There and back, where small operations take the library longer than NumPy; never of what is watched."""
    bk, known = backend(mode), rows(np.float64, (2, 300), 1)
    there, back = bk.rows_on_host(array(mode, known)), bk.from_host(known.copy())
    assert (there is not None) == (mode in ("torch", "tf"))
    assert bk.is_array(back) and bk.dtype(back) == known.dtype
    np.testing.assert_array_equal(to_numpy(back), known)
    if there is not None:
        np.testing.assert_array_equal(there, known)
    if mode == "torch":
        x = torch.tensor(known)
        assert bk.rows_on_host(torch.zeros(1, 2**17, dtype=torch.float64)) is None
        assert np.shares_memory(there, bk.rows_on_host(torch.from_numpy(there)))
        assert bk.rows_on_host(x.clone().requires_grad_()) is None
        asked: list[Any] = []

        def ask(v: Any) -> Any:
            asked.append(bk.rows_on_host(x))
            return v

        torch.func.vmap(ask)(x)
        with torch.device("cpu"):
            ask(x)
        assert asked == [None, None]


@covers("uncut", "apart")
@modes
def test_known_arrays_in_parts(mode: str) -> None:
    """Large ones and small ones; parts are those of the array."""
    for shape in ((3, 4), (3, 20000), (0, 5)):
        known = rows(np.float64, shape, 2)

        def parts(bk: Backend, x: Any, known: np.ndarray = known) -> tuple[Any, ...]:
            cut = bk.apart(known)
            return (x, *(cut[k] for k in range(len(known))), bk.uncut(bk.asarray(known)))

        _, *each, whole = run(mode, parts, rows(np.float64, (1, 1), 1))
        np.testing.assert_array_equal(np.reshape(each, shape), known)
        np.testing.assert_array_equal(whole, known)


@modes
def test_nested_loops_over_a_named_tuple(mode: str) -> None:
    def power(bk: Backend, x: Any) -> Any:
        def outer(state: State) -> State:
            inner = bk.while_loop(
                lambda s: bk.any(s[1] < 3), lambda s: (2 * s[0], s[1] + 1), (state.x, 0 * state.count)
            )
            return State(inner[0], state.count + 1, (), (state.pair[0] + 1, state.pair[1]))

        return bk.while_loop(lambda s: bk.any(s.count < 4), outer, state_of(bk, x, bk.zeros_like(x)))

    found = run(mode, power, np.ones((1, 1)))
    assert type(found) is State and found.nothing == ()
    assert (found.x, found.count, found.pair[0]) == (2.0**12, 4, 5)


@pytest.mark.parametrize("mode", ("numpy", "torch", "tf"))
def test_eager_branches_run_alone(mode: str) -> None:
    bk, one = backend(mode), array(mode, np.ones(1))
    assert to_numpy(bk.cond(True, lambda x: 2 * x, lambda x: 1 / 0, one)) == 2
    assert to_numpy(bk.cond(one[0] > 3, lambda x: 1 / 0, lambda x: 3 * x, one)) == 3


@covers("step_active")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@modes
def test_frozen_systems_keep_every_bit(mode: str, dtype: str) -> None:
    """Beside a system whose step gives NaN, and with steps that overwrite the state in place."""

    def step(bk: Backend, state: State) -> State:
        a = bk.astype(state.count + 1, bk.dtype(state.x))
        x = bk.axpy(a, bk.copy(state.pair[0]), state.x)
        y = bk.xpay(x, a, state.pair[0])
        return State(x, state.count + 1, (), (y, bk.square_norm(y)))

    for flags in ([True, False, True, False], [False, True, True, True], [True] * 4, [True]):
        active = np.array(flags)[:, None]
        x = rows(dtype, (len(active), 6))
        x[0, 2] = np.nan
        count = np.arange(float(len(x)), dtype=x.real.dtype)[:, None]
        count[-1] = -0.0

        def one_step(bk: Backend, x: Any, count: Any, active: Any) -> State:
            with bk.errstate():
                return bk.step_active(lambda s: step(bk, s), state_of(bk, x, bk.copy(count)), active)

        found = run(mode, one_step, x, count, active)
        moved = (x + (count + 1) * x).astype(dtype)
        on = active[:, 0]
        assert found.x.dtype == np.dtype(dtype)
        np.testing.assert_allclose(found.x[on], moved[on], rtol=1e-5)
        np.testing.assert_allclose(found.pair[0][on], (moved + (count + 1) * x)[on], rtol=1e-5)
        np.testing.assert_array_equal(found.count, np.where(active, count + 1, count))
        for got, old in ((found.x, x), (found.pair[0], x), (found.count, count)):
            assert got[~on].tobytes() == old[~on].tobytes()


@covers("for_loop")
@modes
def test_repeat(mode: str) -> None:
    x, counts = rows("float64", (2, 3)), (0, 1, 7)

    def powers(bk: Backend, x: Any) -> Any:
        return tuple(bk.for_loop(n, lambda s: (2 * s[0] + x, (s[1][0] * x,)), (x, (x,))) for n in counts)

    for count, (doubled, (power,)) in zip(counts, run(mode, powers, x), strict=True):
        np.testing.assert_allclose(doubled, (2 ** (count + 1) - 1) * x, rtol=1e-12)
        np.testing.assert_allclose(power, x ** (count + 1), rtol=1e-12)


@modes
def test_select(mode: str) -> None:
    new, old, active = rows("float64", (3, 4)), rows("float64", (3, 4), 1), np.array([[True], [False], [True]])
    old[1, 0], new[1] = np.inf, np.nan
    found = run(mode, lambda bk, n, o, a: select(bk, a, (n, (), (2 * n,)), (o, (), (2 * o,))), new, old, active)
    np.testing.assert_array_equal(found[0], np.where(active, new, old))
    np.testing.assert_array_equal(found[2][0], 2 * np.where(active, new, old))


@covers("put")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@modes
def test_put(mode: str, dtype: str) -> None:
    """Also where a system that is not active has a row beyond the end, and into a buffer of another precision."""
    buffer, values = rows(dtype, (5, 4)), rows(dtype, (4, 1), 1)
    row, active = np.array([[4], [0], [99], [2]], np.int32), np.array([[True], [True], [False], [False]])
    expected = buffer.copy()
    expected[4, 0], expected[0, 1] = values[0, 0], values[1, 0]
    put = run(mode, lambda bk, *a: bk.put(bk.copy(a[0]), *a[1:]), buffer, row, values, active)
    np.testing.assert_array_equal(put, expected)
    assert put.dtype == np.dtype(dtype)
    single = run(mode, lambda bk, *a: bk.put(bk.copy(a[0]), *a[1:]), buffer[:, :1], row[:1], values[:1], active[:1])
    np.testing.assert_array_equal(single, expected[:, :1])


@covers("put_block")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@modes
def test_put_block(mode: str, dtype: str) -> None:
    """At the start, inside and at the end."""
    x, values = rows(dtype, (2, 7)), rows(dtype, (2, 3), 1)
    put_block = compiled(mode, lambda x, *a: backend(mode).put_block(backend(mode).copy(x), *a))
    for start in (0, 2, 4):
        given = (x, np.array([start], np.int32), values)
        put = to_numpy(put_block(*(array(mode, a) for a in given)))
        expected = x.copy()
        expected[:, start : start + 3] = values
        assert put.dtype == x.dtype
        np.testing.assert_array_equal(put, expected)


@covers("put_row")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@modes
def test_put_row(mode: str, dtype: str) -> None:
    """Another row of each stack, none where it lies beyond the end."""
    stack, values = rows(dtype, (4, 3, 7)), rows(dtype, (4, 7), 1)
    row = np.array([[2], [0], [3], [1]], np.int32)
    expected = stack.copy()
    expected[0, 2], expected[1, 0], expected[3, 1] = values[0], values[1], values[3]
    put = run(mode, lambda bk, *a: bk.put_row(bk.copy(a[0]), *a[1:]), stack, row, values)
    np.testing.assert_array_equal(put, expected)
    assert put.dtype == np.dtype(dtype)
    for i in (1, 2):
        one = slice(i, i + 1)
        single = run(mode, lambda bk, *a: bk.put_row(bk.copy(a[0]), *a[1:]), stack[one], row[one], values[one])
        np.testing.assert_array_equal(single, expected[one])


@covers("errstate")
@modes
def test_errstate(mode: str) -> None:
    """Warnings are errors in the tests."""

    def overflow(bk: Backend, x: Any) -> tuple[Any, Any]:
        with bk.errstate():
            return 1 / (x * 0), x * 1e300 * x

    found = run(mode, overflow, np.array([1e200]))
    assert found == (np.inf, np.inf)


# ---- the host


@covers("host_call")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@modes
def test_host_call(mode: str, dtype: str) -> None:
    """Several arrays, another dtype, a 0-d and an empty array come back; the function gets NumPy arrays."""
    kinds = []

    def on_host(a: np.ndarray, b: np.ndarray) -> tuple[Any, ...]:
        kinds.append((type(a), a.dtype, b.shape))
        return (a @ b, [1, 2, 3], np.abs(a).sum(), np.zeros((0, 2)))

    shapes, kinds_back = ((2, 2), (3,), (), (0, 2)), (dtype, "int32", "float64", "float32")
    returns = [(shape, np.dtype(kind)) for shape, kind in zip(shapes, kinds_back, strict=True)]
    a, b = rows(dtype, (2, 3)), rows(dtype, (3, 2), 1)
    product, numbers, total, nothing = run(mode, lambda bk, a, b: bk.host_call(on_host, returns, a, b), a, b)
    assert set(kinds) == {(np.ndarray, np.dtype(dtype), (3, 2))}
    assert (product.dtype, numbers.dtype, total.dtype, nothing.dtype) == tuple(d for _, d in returns)
    np.testing.assert_allclose(product, a @ b, rtol=1e-5)
    assert numbers.tolist() == [1, 2, 3] and total.shape == () and nothing.shape == (0, 2)


@modes
def test_host_call_inside_a_loop(mode: str) -> None:
    def twice(x: np.ndarray) -> tuple[np.ndarray]:
        return (2 * x,)

    def loop(bk: Backend, x: Any) -> Any:
        spec = [((1, 2), np.dtype("float64"))]
        return bk.while_loop(lambda x: bk.any(x < 100), lambda x: bk.host_call(twice, spec, x)[0], x)

    np.testing.assert_array_equal(run(mode, loop, np.array([[1.0, 3.0]])), [[128, 384]])


@modes
def test_host_call_refuses_other_shapes_and_passes_errors_on(mode: str) -> None:
    def on_host(x: np.ndarray) -> tuple[np.ndarray]:
        if wrong is None:
            raise ValueError("no such thing on the host")
        return (np.ones(wrong),)

    spec = [((2, 3), np.dtype("float64"))]
    call = compiled(mode, lambda x: backend(mode).host_call(on_host, spec, x)[0])
    for wrong in ((3, 2), (6,), (2, 3, 1), (), None):
        with pytest.raises(Exception, match=r"declared|shape" if wrong is not None else "no such thing on the host"):
            to_numpy(call(array(mode, np.ones((2, 3)))))


def complain(norm: np.ndarray, *_: np.ndarray) -> None:
    raise ValueError(f"the norm is {float(np.max(norm)):.1f}")


@covers("guard")
@modes
def test_guard(mode: str) -> None:
    """Raises when the program runs, if at all; compiled once for both."""

    def guarded(bk: Backend, x: Any) -> tuple[Any, Any]:
        norm = bk.norm(x)
        return bk.guard(bk.any(norm > 10), complain, (2 * x, norm), norm)

    function = compiled(mode, lambda x: guarded(backend(mode), x))
    doubled, norm = function(array(mode, np.array([[3.0, 4.0]])))
    np.testing.assert_array_equal(to_numpy(doubled), [[6, 8]])
    assert to_numpy(norm) == 5
    with pytest.raises(Exception, match=r"the norm is 50\.0"):
        to_numpy(function(array(mode, np.array([[30.0, 40.0]])))[0])
    np.testing.assert_array_equal(to_numpy(function(array(mode, np.array([[0.0, 4.0]])))[0]), [[0, 8]])


@modes
def test_guard_costs_no_call_on_success(mode: str) -> None:
    calls = []

    def guarded(bk: Backend, x: Any) -> Any:
        return bk.guard(bk.any(x > 10), lambda *values: calls.append(values), x, x)

    np.testing.assert_array_equal(run(mode, guarded, np.ones(3)), np.ones(3))
    assert not calls
    found = run(mode, guarded, np.array([20.0, 1, np.nan]))  # the handler may return
    np.testing.assert_array_equal(found, [20, 1, np.nan])
    assert len(calls) == 1 and isinstance(calls[0][0], np.ndarray)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("jit", [False, True])
def test_guard_under_vmap(jit: bool) -> None:
    """Both branches of a `cond` run then, yet only a failure of some row is reported."""
    bk, seen = backend("jax"), []

    def guarded(x: Any) -> Any:
        return bk.guard(jnp.sum(x) > 10, lambda v: seen.append(float(v[0])), 2 * x, x)

    function = jax.vmap(guarded)
    function = jax.jit(function) if jit else function
    np.testing.assert_array_equal(function(jnp.ones((4, 2))), 2 * np.ones((4, 2)))
    assert not seen
    values = jnp.array([[1.0, 2], [30, 40], [5, 5], [60, 1]])
    np.testing.assert_array_equal(function(values), 2 * values)
    assert sorted(seen) == [30, 60]


@pytest.mark.needs("jax")
def test_guard_is_differentiable() -> None:
    bk = backend("jax")
    gradient = jax.jit(jax.grad(lambda x: bk.guard(x > 10, complain, x * x, x)))
    assert gradient(3.0) == 6


@modes
def test_host_call_for_its_side_effect(mode: str) -> None:
    """Nothing is returned; in a loop it is called in each step, in order."""
    seen: list[tuple[float, int]] = []

    def note(value: np.ndarray, step: np.ndarray) -> None:
        assert isinstance(value, np.ndarray | np.generic)
        seen.append((float(value[0]), int(step[0])))

    def loop(bk: Backend, x: Any, step: Any) -> Any:
        def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
            assert bk.host_call(note, (), *state) == ()
            return 2 * state[0], state[1] + 1

        return bk.while_loop(lambda s: bk.any(s[1] < 4), body, (x, step))[0]

    assert run(mode, loop, np.ones(1), np.zeros(1, np.int32)) == 16
    if mode.startswith("jax"):
        jax.effects_barrier()
    assert seen == [(1, 0), (2, 1), (4, 2), (8, 3)]


@covers("is_concrete", "in_program")
@pytest.mark.parametrize("mode", [m for m in MODES if m != "torch-compile"])
def test_when_values_are_there(mode: str) -> None:
    """Outside of programs, and not inside; a transformation of JAX by itself records no program."""
    found: list[tuple[bool, bool]] = []

    def look(bk: Backend, x: Any) -> Any:
        found.append((bk.is_concrete(x), bk.in_program()))
        return x

    run(mode, look, np.ones((1, 2)))
    assert found == [(mode in EAGER, mode == "jax-jit")]
    if mode == "jax":
        for transform in (jax.vmap, jax.jacrev):
            transform(lambda x: look(backend("jax"), x))(jax.numpy.ones(2))
        assert found[1:] == [(False, False)] * 2


@covers("concrete_value")
@modes
def test_concrete_value(mode: str) -> None:
    """Values that do not depend on the compiled function's arguments are known in JAX, in TensorFlow none are."""
    constant, found = array(mode, np.arange(3.0)), {}

    def function(bk: Backend, x: Any) -> Any:
        found["constant"] = bk.concrete_value(lambda: 2 * constant)
        found["argument"] = bk.concrete_value(lambda: 2 * x)
        return x

    run(mode, function, np.ones(3))
    if mode != "tf-function":
        np.testing.assert_array_equal(found["constant"], [0, 2, 4])
    assert (found["argument"] is None) == EAGER_FLAGS[mode]
    assert found["constant"] is None or isinstance(found["constant"], np.ndarray)


# ---- derivatives


class Inverse(LinearSystem):
    """Solves with a matrix by its inverse."""

    differentiable = (True, False)

    def __init__(self, bk: Backend, arrays: Any, transposed: bool = False) -> None:
        self.bk, self.arrays, self.transposed = bk, tuple(arrays), transposed

    def _times(self, i: int, x: Any) -> Any:
        a = self.arrays[i]
        return self.bk.product(self.bk.matrix_transpose(a) if self.transposed else a, x)

    def product(self, x: Any) -> Any:
        return self._times(0, x)

    def solve(self, b: Any, given: Any = None) -> tuple[Any, tuple[Any, ...]]:
        return self._times(1, b), (self.bk.full_like(b, 7),)

    def tangent(self) -> Inverse:
        return self

    def transpose(self) -> Inverse:
        return Inverse(self.bk, self.arrays, not self.transposed)

    def with_arrays(self, arrays: Any) -> Inverse:
        return Inverse(self.bk, arrays, self.transposed)

    def started_at(self, x: Any) -> Inverse:
        return self

    def mapped(self, size: int, axes: Any) -> Inverse:
        raise ValueError("not here")


@covers("implicit_solve", "constant")
@modes
def test_implicit_solve(mode: str) -> None:
    """What the solver returns, with derivatives for b and the matrix where the library has such a thing."""
    m, b = rows("float64", (4, 4)) + 3 * np.eye(4), rows("float64", (2, 4), 1)
    inverse = np.linalg.inv(m)

    def solved(bk: Backend, b: Any, matrix: Any) -> tuple[Any, Any]:
        x, (extra,) = bk.implicit_solve(Inverse(bk, (matrix, bk.constant(bk.asarray(inverse)))), b)
        return x, extra

    x, extra = run(mode, solved, b, m)
    np.testing.assert_allclose(x, b @ inverse.T)
    np.testing.assert_array_equal(extra, np.full((2, 4), 7))
    if mode == "numpy":
        return
    bk = backend(mode)
    derived = compiled(mode, lambda *p: derivatives(lambda *p: bk.sum(solved(bk, *p)[0], (0, 1)), *p))
    wanted = (np.ones((2, 4)) @ inverse, -(inverse.T @ np.ones((4, 2))) @ x)
    for found, expected in zip(derived(array(mode, b), array(mode, m)), wanted, strict=True):
        np.testing.assert_allclose(to_numpy(found), expected)


@pytest.mark.needs("jax")
def test_implicit_solve_that_closes_over_a_traced_array() -> None:
    """x depends on it though it is none of the arrays of the system: its derivative is not lost."""
    m, b = rows("float64", (4, 4)) + 3 * np.eye(4), rows("float64", (2, 4), 1)
    bk = backend("jax-jit")

    def total(scale: Any) -> Any:
        class Scaled(Inverse):
            def product(self, x: Any) -> Any:
                return scale * super().product(x)

            def solve(self, b: Any, given: Any = None) -> Any:
                x, rest = super().solve(b, given)
                return x / scale, rest

            def transpose(self) -> Inverse:
                return Scaled(self.bk, self.arrays, not self.transposed)

            def with_arrays(self, arrays: Any) -> Inverse:
                return Scaled(self.bk, arrays, self.transposed)

        return bk.implicit_solve(Scaled(bk, (bk.asarray(m), bk.asarray(np.linalg.inv(m)))), bk.asarray(b))[0].sum()

    wanted = -(b @ np.linalg.inv(m).T).sum() / 4
    np.testing.assert_allclose(jax.jit(jax.grad(total))(2.0), wanted)


@covers("refuse_derivatives", "tracks")
@modes
def test_refused_derivatives_by_sources(mode: str) -> None:
    """x passes unchanged; a derivative that would silently be nothing is an error."""
    x = rows("float64", (2, 3))
    same = run(mode, lambda bk, x: bk.refuse_derivatives(x, "no derivatives", RuntimeError, (x,)), x)
    np.testing.assert_array_equal(same, x)
    bk = backend(mode)
    assert not bk.tracks(array(mode, x))
    if mode == "torch":
        source = torch.ones(3, requires_grad=True)
        assert bk.tracks(2 * source) and not bk.tracks(source.detach())
        with torch.no_grad():
            assert not bk.tracks(source)
        with pytest.raises(RuntimeError, match="no derivatives"):
            bk.refuse_derivatives(torch.ones(3), "no derivatives", RuntimeError, (source,)).sum().backward()
        assert torch.func.grad(lambda w: w.sum() * float(bk.tracks(2 * w)))(source.detach()).tolist() == [1, 1, 1]
        with torch.autograd.forward_ad.dual_level():
            assert bk.tracks(torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2)))
    if mode == "tf":
        with tf.GradientTape() as tape:
            source = tf.Variable([1.0, 2.0])
            assert bk.tracks(source) and bk.tracks(2 * source) and not bk.tracks(tf.ones(2))
            refused = bk.refuse_derivatives(tf.ones(2), "no derivatives", RuntimeError, (source,))
            refused = tf.reduce_sum(refused)
        with pytest.raises(RuntimeError, match="no derivatives"):
            tape.gradient(refused, source)
        ones = tf.ones(2)
        with tf.autodiff.ForwardAccumulator(ones, ones):
            assert bk.tracks(2 * ones)


@modes
def test_refused_derivatives_by_x(mode: str) -> None:
    """x passes unchanged, and its derivative is an error with the given reason, in every mode."""
    x = rows("float64", (2, 3))
    np.testing.assert_array_equal(run(mode, lambda bk, x: bk.refuse_derivatives(x, "the reason"), x), x)
    if mode != "numpy":
        refused = lambda x: backend(mode).sum(backend(mode).refuse_derivatives(x, "the reason"), (0, 1))  # noqa: E731
        with pytest.raises(TypeError, match="the reason"):
            compiled(mode, lambda x: derivatives(refused, x))(array(mode, x))


# ---- whole functions


@covers("compile_if_faster")
@eager
def test_compile_if_faster(mode: str) -> None:
    bk, calls = backend(mode), []

    def power(x: Any, exponent: int) -> Any:
        calls.append(exponent)
        return x**exponent

    function = bk.compile_if_faster(power, ("exponent",))
    x = array(mode, np.array([1.0, 2, 3]))
    for exponent in (2, 3, 2, 3):
        np.testing.assert_array_equal(to_numpy(function(x, exponent=exponent)), np.array([1.0, 2, 3]) ** exponent)
    assert len(calls) == (2 if mode == "jax" else 4)


@covers("trace")
@eager
def test_trace(mode: str) -> None:
    """The arrays that a function depends on become arguments; in JAX functions with the same program are equal."""
    bk, x = backend(mode), array(mode, np.arange(3.0))

    def scaled(factor: Any) -> Callable[[Any], Any]:
        return lambda x: factor * x + 1

    first, second, other = (bk.trace(f, x, ()) for f in (scaled(x), scaled(2 * x), lambda x: x * x * x))
    if mode == "numpy":
        assert first is second is other is None
        return
    for function, arrays in (first, bk.trace(lambda x, c: c * x + 1, x, (x,))):
        np.testing.assert_array_equal(to_numpy(function(x, *arrays)), np.arange(3.0) ** 2 + 1)
    if mode == "torch":
        _check_trace_of_torch(bk)
    if mode == "tf":
        variable = tf.Variable(3.0)
        program, arrays = bk.trace(lambda v: variable * v, tf.ones(2), ())
        variable.assign(5.0)  # the program has the value that it was recorded with
        assert [float(a) for a in arrays] == [3] and to_numpy(program(tf.ones(2), *arrays)).tolist() == [3, 3]
        assert any(a is x for a in bk.trace(lambda v: x * v, x, ())[1])
    if mode == "jax":
        assert first[0] == second[0] and hash(first[0]) == hash(second[0]) and first[0] != other[0]
        np.testing.assert_array_equal(second[0](x, *second[1]), 2 * np.arange(3.0) ** 2 + 1)
        two, three = (bk.trace(scaled(factor), x, ()) for factor in (2.0, 3.0))  # numbers are arguments, too
        assert two[0] == three[0]
        np.testing.assert_array_equal(three[0](x, *two[1]), 2 * np.arange(3.0) + 1)
        np.testing.assert_array_equal(two[0](x, *three[1]), 3 * np.arange(3.0) + 1)
        assert bk.trace(scaled(x), x, ())[0] != bk.trace(scaled(x.astype(np.float32)), x, ())[0]


def _check_trace_of_torch(bk: Backend) -> None:
    """Tensors with derivatives are found wherever a torch function meets them, and replaced."""
    w, layer = torch.ones(3, requires_grad=True), torch.nn.Linear(3, 3, bias=False)

    def function(v: Any, c: Any) -> Any:
        out = v * w.sum() + layer(c * v)
        out += torch.stack([w, w]).sum(0) * v
        return out + torch.func.vjp(lambda u: u * w, v)[1](v)[0]

    v, c = torch.ones(3), torch.tensor(2.0)
    found, arrays = bk.trace(function, v, (c,))
    assert [id(a) for a in arrays[:1]] == [id(c)] and {id(a) for a in arrays[1:]} == {id(w), id(layer.weight)}
    values = {id(c): torch.tensor(0.5), id(w): torch.full((3,), 7.0), id(layer.weight): torch.eye(3)}
    changed = found(v, *(values[id(a)] for a in arrays))
    assert changed.tolist() == [21 + 0.5 + 14 + 7] * 3

    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, v: Any, w: Any) -> Any:
            return torch.from_numpy(v.detach().numpy() * w.detach().numpy())

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, g

    with pytest.raises(RuntimeError, match="Pass this tensor on"):
        bk.trace(lambda v: Hidden.apply(v, w), v, ())


@covers("vmap")
@modes
def test_vmap(mode: str) -> None:
    m, x = rows("float64", (3, 4, 4)), rows("float64", (3, 2, 4), 1)
    found = run(mode, lambda bk, m, x: bk.vmap(bk.product, (0, 0))(m, x), m, x)
    np.testing.assert_allclose(found, x @ m.transpose(0, 2, 1))
    shared = run(mode, lambda bk, m, x: bk.vmap(bk.product, (None, 0))(m, x), m[0], x)
    np.testing.assert_allclose(shared, x @ m[0].T)


@covers("one_by_one")
@modes
def test_one_by_one(mode: str) -> None:
    """In TensorFlow; the others have no arrays of unknown size."""
    bk, b = backend(mode), rows("float64", (3, 2, 4))
    if library(mode) != "tensorflow":
        with pytest.raises(TypeError, match="no arrays of unknown size"):
            bk.one_by_one(lambda a: (a,), (array(mode, b),), 2)
        return

    def solve(bk: Backend, b: Any) -> Any:
        return bk.one_by_one(lambda a: (2 * a, bk.any(a > 0)), (b,), 2)

    doubled, positive = run(mode, solve, b)
    np.testing.assert_array_equal(doubled, 2 * b)
    np.testing.assert_array_equal(positive, (b > 0).any(-1))


@covers("map_columns")
@modes
def test_map_columns(mode: str) -> None:
    m, columns = rows("complex128", (3, 4)), rows("complex128", (5, 4), 1)
    found = run(mode, lambda bk, m, c: bk.map_columns(lambda v: bk.product(m, v[None])[0], c), m, columns)
    np.testing.assert_allclose(found, columns @ m.T)


@pytest.mark.parametrize("mode", ("numpy", "torch"))
def test_map_columns_of_a_function_that_reuses_its_buffer(mode: str) -> None:
    columns, buffer = array(mode, np.eye(3)), array(mode, np.zeros(3))

    def into_buffer(v: Any) -> Any:
        buffer[:] = 2 * v
        return buffer

    np.testing.assert_array_equal(to_numpy(backend(mode).map_columns(into_buffer, columns)), 2 * np.eye(3))


LINEAR: tuple[Callable[[Backend, Any, Any], Any], ...] = (
    lambda bk, m, x: bk.product(m, x),
    lambda bk, m, x: x,
    lambda bk, m, x: bk.zeros_like(x),
    lambda bk, m, x: bk.concat([x[:, 1:], 2 * x[:, :1]], 1),
    lambda bk, m, x: bk.product(m, x + 3 * bk.product(m, x)),
)


@covers("transpose_function")
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("mode", MODES[1:])
def test_transpose_function(mode: str, dtype: str) -> None:
    """Not conjugated, for a batch; and its own transpose is the function again."""
    m, x = rows(dtype, (4, 4)), rows(dtype, (2, 4), 1)

    def each(bk: Backend, m: Any, x: Any) -> tuple[Any, ...]:
        transposes = [bk.transpose_function(lambda v, f=f: f(bk, m, v), x) for f in LINEAR]
        return tuple((t(x), t(2 * x), bk.transpose_function(t, x)(x)) for t in transposes)

    for function, (once, scaled, twice) in zip(LINEAR, run(mode, each, m, x), strict=True):
        units = np.eye(4, dtype=dtype)
        dense = np.stack([function(backend("numpy"), m, unit[None])[0] for unit in units])  # its columns are its rows
        np.testing.assert_allclose(once, x @ dense.T, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scaled, 2 * once, rtol=1e-5)
        np.testing.assert_allclose(twice, x @ dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["jax", "tf", "tf-function"])
def test_transpose_of_a_gather(mode: str) -> None:
    index = np.array([2, 0, 0, 1])

    def transposed(bk: Backend, x: Any) -> Any:
        if bk.name == "jax":
            return bk.transpose_function(lambda v: v[index], x)(x)

        return bk.transpose_function(lambda v: tf.gather(v, index), x)(x)

    x = rows("float64", (4, 3))
    np.testing.assert_allclose(run(mode, transposed, x), np.eye(4)[index].T @ x)


def test_numpy_functions_have_no_transpose() -> None:
    with pytest.raises(TypeError, match="Give the matrix"):
        backend("numpy").transpose_function(lambda x: x, np.ones(3))


class Pair:
    """A container that a backend may look into."""

    def __init__(self, a: Any, b: Any, note: str) -> None:
        self.a, self.b, self.note = a, b, note


@covers("register", "flatten")
@modes
def test_register(mode: str) -> None:
    bk = backend(mode)
    for _ in range(2):  # a second time does nothing
        bk.register(Pair, lambda p: ((p.a, p.b), p.note), lambda note, ab: Pair(*ab, note))
    one, two = array(mode, np.ones(2)), array(mode, np.zeros(3))
    for container in (dict, partial(defaultdict, list)):
        leaves, make = bk.flatten((container({"first": Pair(one, [two, None], "kept")}), 3.5))
        assert leaves[0] is one and leaves[1] is two and len(leaves) == 2
        made, number = make([two, one])
        again = made["first"]
        assert type(made) is type(container())
    assert again.a is two and again.b[0] is one and again.b[1] is None and again.note == "kept" and number == 3.5
    if library(mode) != "jax":
        return

    pair = jax.jit(lambda p: jax.tree.map(lambda x: 2 * x, p))(Pair(np.ones(2), np.zeros(3), "kept"))
    assert pair.note == "kept"
    np.testing.assert_array_equal(pair.a, [2, 2])


@eager
def test_threads(mode: str) -> None:
    """Backends hold no state between calls."""
    bk, m = backend(mode), rows("float64", (8, 6, 6))

    def work(i: int) -> np.ndarray:
        factors = bk.linalg.lu_factor(array(mode, m[i]))
        return to_numpy(bk.linalg.lu_solve(factors, array(mode, np.ones((2, 6)))))

    with ThreadPoolExecutor(8) as pool:
        for matrix, found in zip(m, pool.map(work, range(8)), strict=True):
            np.testing.assert_allclose(found, np.linalg.solve(matrix, np.ones((6, 2))).T, rtol=1e-8)


@covers("rescued", "can_rescue")
@pytest.mark.parametrize("mode", MODES)
def test_rescued(mode: str) -> None:
    """What the host finds where it is asked, in the dtypes of what there was; nothing is called otherwise."""
    calls: list[np.ndarray] = []

    def on_host(x: np.ndarray) -> tuple[np.ndarray, ...]:
        calls.append(x)
        return -x.astype(float), np.sum(x)

    def found(bk: Backend, x: Any) -> Any:
        return bk.rescued(bk.any(x > 10), on_host, (2 * x, bk.sum(x, 0)), x)

    good, bad = np.ones(3, np.float32), np.array([20.0, 1, 2], np.float32)
    for got, expected in zip(run(mode, found, good), (2 * good, good.sum()), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert not calls
    for got, expected in zip(run(mode, found, bad), (-bad, bad.sum()), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == np.float32
    assert len(calls) == 1


@pytest.mark.needs("jax")
def test_rescued_lanes_ask_together() -> None:
    """Of `jax.vmap`, nested and with arrays that are the same for all: the host sees the failed ones only."""
    calls: list[np.ndarray] = []

    def on_host(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray]:
        calls.append(x)
        return (x - y,)

    def found(x: Any, y: Any) -> Any:
        return backend("jax").rescued(jnp.any(x > 10), on_host, (2 * x,), x, y)[0]

    x, y = np.arange(24.0).reshape(2, 3, 4), np.ones(4)
    lanes = jax.jit(jax.vmap(jax.vmap(found, (0, None)), (0, None)))
    np.testing.assert_array_equal(lanes(x, y), np.where((x > 10).any(2, keepdims=True), x - y, 2 * x))
    assert len(calls) == 4
    np.testing.assert_array_equal(lanes(x / 10, y), x / 5)
    assert len(calls) == 4


@covers("constant_folded")
@pytest.mark.parametrize("mode", MODES)
def test_constant_folded(mode: str) -> None:
    """An argument is not; what a program of JAX or TensorFlow closes over is, unless it is a variable."""
    seen: list[Any] = []

    def look(bk: Backend, x: Any) -> Any:
        seen.append(None if bk.on_host or not bk.compiled(x) else bk.constant_folded(x))
        return x

    run(mode, look, np.ones(3))
    assert seen[0] is None
    if mode == "jax-jit":
        closed, seen[:] = jax.numpy.arange(3.0), []
        jax.jit(lambda x: seen.extend(backend(mode).constant_folded(a) for a in (x, closed)))(closed)
        assert seen[0] is None
        np.testing.assert_array_equal(seen[1], [0.0, 1.0, 2.0])
    if mode == "tf-function":
        closed, variable = tf.constant([1.0, 2.0]), tf.Variable([3.0])

        @tf.function
        def program() -> Any:
            seen[:] = [backend(mode).constant_folded(2 * closed), backend(mode).constant_folded(2 * variable)]
            return closed

        program()
        np.testing.assert_array_equal(seen[0], [2.0, 4.0])
        assert seen[1] is None
