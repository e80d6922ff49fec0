"""Results as users hold them: Python's numbers of one system, dictionaries, lines, pictures, notebooks."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from time import sleep
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import Status, linear_solve, prepare
from krylix.solvers import Direct, ScipyDirect
from krylix.solvers.plan import Rung
from modes import EAGER, array, compiled, library, to_numpy

N = 12
MATRIX = np.diag(np.arange(2.0, 2.0 + N)) - np.eye(N, k=1) - np.eye(N, k=-1)
KINDS = {
    "residual_norm": float, "tolerance": float, "attainable": float, "null_part": float, "consistent": bool,
    "iterations": int, "function_evaluations": int, "converged": bool, "diverged": bool, "status": Status,
    "singular": bool,
}  # fmt: skip
METHODS = ("auto", "CG", "scipy-direct", "scipy-CG", "LSMR")


def check_python_numbers(result: Any) -> None:
    assert {name: type(getattr(result, name)) for name in KINDS} == KINDS
    assert result.at_limit_of_precision is False
    assert f"{result.iterations:d} {result.residual_norm:.1e}" and result.status.name == "CONVERGED"


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("method", METHODS)
def test_numbers_of_one_system(mode: str, method: str) -> None:
    """In the first solve and in those that reuse a set-up, of matrices, functions and prepared solvers."""
    A, b = array(mode, MATRIX), array(mode, np.ones(N))
    solves = [lambda: linear_solve(A, b, method=method)] * 3
    solves.append(lambda: linear_solve(A, b, method=method, history=True))
    if method != "LSMR":
        solver = prepare(A, b, method=method)
        solves += [lambda: solver.solve(b)] * 2
    for solve in solves:
        result = solve()
        check_python_numbers(result)
        assert {krylix.choose_backend(value).name for value in (result.x, result.residual)} == {library(mode)}
        norm = np.linalg.norm(np.ones(N) - MATRIX @ to_numpy(result.x))
        if method != "LSMR":
            assert result.residual_norm == pytest.approx(norm, abs=1e-13)
        assert result.converged and {result: 1}[result] == 1 and hash(result) == hash(result)


@pytest.mark.parametrize("mode", EAGER)
def test_batches_have_arrays(mode: str) -> None:
    A = array(mode, MATRIX)
    results = [linear_solve(A, array(mode, np.ones(shape)), method="CG", axis=-1) for shape in ((1, N), (3, N), (0, N))]
    results.append(linear_solve(A, array(mode, np.ones(N)), method="CG", max_iter=[2, 50]))
    for result, size in zip(results, ((1,), (3,), (0,), (2,)), strict=True):
        for name in KINDS:
            value = getattr(result, name)
            assert tuple(value.shape) == size and krylix.choose_backend(value).name == library(mode)
        json.dumps(result.to_dict(include_x=True), allow_nan=False)
        assert len(str(result).split("\n")) == 4


@pytest.mark.parametrize("mode", EAGER)
def test_numbers_in_errors(mode: str) -> None:
    A, b = array(mode, MATRIX), array(mode, np.ones(N))
    with pytest.raises(krylix.NotConverged) as caught:
        linear_solve(A, b, method="CG", max_iter=1)
    for result in (caught.value.result, pickle.loads(pickle.dumps(caught.value.result))):
        assert result.converged is False and result.status is Status.MAX_ITER and result.iterations == 1
        assert result.solve_time > 0 and str(caught.value) == result.message
        assert result.to_dict()["status"] == "MAX_ITER"


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("method", ["direct", "CG"])
def test_copies(mode: str, method: str) -> None:
    """They say the same, in the precision of the solve, also before a number was read."""
    A, b = array(mode, MATRIX.astype(np.float32)), array(mode, np.ones(N, np.float32))
    for copied in (copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r)), replace):
        result = linear_solve(A, b, method=method)
        other = copied(result)
        check_python_numbers(other)
        assert other.message == result.message and other.to_dict(include_x=True) == result.to_dict(include_x=True)


@pytest.mark.needs("jax")
def test_a_result_is_a_container_of_arrays() -> None:
    """In what transformations take and return, numbers are arrays, of the dtypes that they always had."""
    import jax
    import jax.numpy as jnp

    A, b = jnp.asarray(MATRIX), jnp.ones(N)

    def solve(b: Any) -> Any:
        return linear_solve(A, b, method="CG")

    eager, returned = solve(b), jax.jit(solve)(b)
    leaves = jax.tree.leaves(eager)
    assert len(leaves) == 2 + len(KINDS) and all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert [leaf.dtype.kind for leaf in leaves] == list("ff" + "ffffbiibbib")
    assert isinstance(returned.iterations, jax.Array) and returned.setup_time is returned.solve_time is None
    assert jax.tree.structure(returned) == jax.tree.structure(eager)
    assert len(str(returned).split("\n")) == 4 and "unknown" in str(returned)
    assert json.loads(json.dumps(returned.to_dict()))["iterations"] == eager.iterations
    shapes = jax.eval_shape(solve, b)
    assert "known when" in repr(shapes) and "known when" in str(shapes) and "known when" in shapes._repr_html_()
    numbers = jax.jit(lambda r, y: (r.iterations + 1, y * eager.iterations + eager.residual_norm))
    inside, closed_over = numbers(eager, 1.0)
    assert inside == eager.iterations + 1 and closed_over == pytest.approx(eager.iterations, abs=1e-6)
    assert jax.tree.map(lambda a: a + a, eager).iterations == 2 * eager.iterations


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_arrays_inside_transformations() -> None:
    import jax
    import jax.numpy as jnp

    A, b = jnp.asarray(MATRIX), jnp.ones(N)
    seen: list[Any] = []

    def steps(b: Any) -> Any:
        result = linear_solve(A, b, method="CG", on_failure="status")
        seen.append(result)
        return result.iterations

    each = jax.vmap(steps)(jnp.stack([b, 0 * b]))
    assert each.shape == (2,) and each[1] == 0 < each[0]
    constant = jax.eval_shape(jax.vmap(lambda _: steps(b)), jnp.ones(3))  # nothing depends on what is vectorised
    assert constant.shape == (3,)
    slope = jax.grad(lambda b: linear_solve(A, b, method="CG").residual_norm + b[0])(b)
    assert slope[0] == 1 and not slope[1:].any()
    assert not any(isinstance(result.iterations, int) for result in seen)
    with pytest.raises(TypeError, match="not known yet"):
        jax.jit(lambda b: linear_solve(A, b).to_dict()["iterations"])(b)


@pytest.mark.needs("torch")
def test_numbers_of_pytorch() -> None:
    import torch

    A, b = torch.as_tensor(MATRIX), torch.ones(N, dtype=torch.float64, requires_grad=True)
    result = linear_solve(A, b, method="CG")
    check_python_numbers(result)
    assert result.x.requires_grad
    batched = torch.func.vmap(lambda b: linear_solve(A, b, method="CG").iterations)(torch.ones(3, N).double())
    assert batched.shape == (3,)
    inside = torch.func.vmap(lambda y: y * result.iterations + result.residual_norm)(torch.ones(2))
    assert torch.allclose(inside, torch.full((2,), float(result.iterations)))
    run = torch.compile(lambda b: linear_solve(A, b, method="CG").iterations + 1, backend="eager")
    assert run(b.detach()) == result.iterations + 1
    grid = linear_solve(lambda x: 2 * x, torch.ones(2, 3), method="CG")
    check_python_numbers(grid)


@pytest.mark.needs("tensorflow")
def test_numbers_of_tensorflow() -> None:
    import tensorflow as tf

    A = tf.constant(MATRIX)
    b = tf.Variable(np.ones(N))
    with tf.GradientTape() as tape:
        result = linear_solve(A, b, method="CG")
        loss = result.residual_norm + b[0]
    np.testing.assert_array_equal(tape.gradient(loss, b), np.eye(N)[0])
    assert result.converged is True and type(result.iterations) is int
    assert not result.at_limit_of_precision and len(str(result).split("\n")) == 4
    inside = compiled("tf-function", lambda b: linear_solve(A, b, method="CG").iterations)(tf.constant(np.ones(N)))
    assert int(inside) == result.iterations


def test_a_dictionary_for_json() -> None:
    """Strict JSON, which has neither NaN nor infinity."""
    found = linear_solve(MATRIX, np.full(N, np.nan), method="CG", on_failure="status", history=True)
    said = json.loads(json.dumps(found.to_dict(include_x=True), allow_nan=False))
    assert np.isnan(float(said["residual_norm"])) and said["status"] == "DIVERGED" and said["diverged"] is True
    assert said["why"] == "it was asked for" and said["message"] == found.message and said["preconditioner"] is None
    batch = linear_solve(MATRIX * (1 + 0j), np.ones((2, N)), method="biCG-stab", axis=-1, history=True)
    said = json.loads(json.dumps(batch.to_dict(include_x=True), allow_nan=False))
    assert said["status"] == ["CONVERGED"] * 2 and said["converged"] == [True, True]
    np.testing.assert_array_equal(np.array(said["x"]["real"]) + 1j * np.array(said["x"]["imag"]), batch.x)
    np.testing.assert_array_equal(np.array(said["history"], float), batch.history)
    assert "x" not in batch.to_dict()
    container = linear_solve(lambda t: {k: 2 * v for k, v in t.items()}, {"u": np.ones(2), "v": np.ones((1, 2))})
    assert container.to_dict(include_x=True)["x"] == {"u": [0.5, 0.5], "v": [[0.5, 0.5]]}


def test_four_lines() -> None:
    A = sp.csr_array(MATRIX)
    lines = str(linear_solve(A, np.ones(N), method="CG", preconditioner="jacobi")).split("\n")
    assert lines[0] == "method: CG, preconditioner jacobi" and lines[1] == "why: it was asked for"
    assert lines[2].startswith("outcome: CG converged in") and lines[3].startswith("time: set-up ")
    with krylix.setup_cache(True):
        for _ in range(4):  # the last ones reuse the set-up
            why = str(linear_solve(A, np.ones(N))).split("\n")[1]
            assert why.startswith('why: "auto" chose it: ')
    why = 'why: "auto" chose it: sparse factors are made once and serve many solves'
    assert str(prepare(A).solve(np.ones(N))).split("\n")[1] == why
    result = linear_solve(A, np.ones(N))
    assert "\n" not in repr(result) and result.message in repr(result)
    failed = linear_solve(A, np.ones(N), method="CG", max_iter=1, on_failure="status")
    assert len(str(failed).split("\n")) == 4


def test_times() -> None:
    for solve in (lambda: linear_solve(MATRIX, np.ones(N)), lambda: prepare(MATRIX).solve(np.ones(N))):
        result = solve()
        assert type(result.setup_time) is type(result.solve_time) is float
        assert 0 <= result.setup_time < 60 and 0 < result.solve_time < 60


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize("method", [ScipyDirect, Direct])
def test_factors_are_part_of_the_set_up(method: Any, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are made within a solve, as of a method that takes over."""
    setup = method.setup

    def slow(*given: Any) -> Any:
        sleep(0.1)
        return setup(*given)

    monkeypatch.setattr(method, "setup", slow)
    A, b = sp.csr_array(MATRIX), array(mode, np.ones(N))
    solver = prepare(A, b, method="GMRES", max_iter=1, preconditioner=None)
    plan = solver._plan
    solver = replace(solver, _plan=replace(plan, rungs=(*plan.rungs, Rung(method()))))
    with krylix.setup_cache(False):
        for result in (linear_solve(A, b, method=method()), solver.solve(b)):
            assert result.setup_time is not None and result.setup_time >= 0.1
            assert result.solve_time is not None and 0 < result.solve_time < 0.1


@pytest.mark.parametrize("systems", [(), (3,), (150,), (2, 3)])
def test_plot(systems: tuple[int, ...]) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    b = np.random.default_rng(0).normal(size=(*systems, N))
    result = linear_solve(MATRIX, b, method="CG", axis=-1, history=True)
    axes = pyplot.figure().subplots()
    assert result.plot(axes) is axes
    drawn = [line for line in axes.lines if len(line.get_xdata()) == len(result.history)]
    assert len(drawn) == min(max(int(np.prod(systems)), 1), 100) and axes.get_yscale() == "log"
    np.testing.assert_array_equal(drawn[0].get_ydata(), result.history.reshape(len(result.history), -1)[:, 0])
    assert axes.get_xlabel() == "iteration" and axes.get_ylabel() == "residual norm"
    own = result.plot()
    assert own is not axes
    pyplot.close("all")


def test_plot_of_what_is_unusual() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    for result in (
        linear_solve(MATRIX, np.zeros(N), method="CG", history=True),
        linear_solve(MATRIX, np.full(N, np.nan), method="CG", history=True, on_failure="status"),
        linear_solve(MATRIX, np.ones((2, N)), method="CG", history=True, max_iter=[2, 4, 50], axis=-1),
        linear_solve(np.ones((4, 2)) + np.eye(4, 2), np.ones(4), method="LSMR", history=True),
    ):
        result.plot()
        pyplot.close("all")
    with pytest.raises(ValueError, match="history=True"):
        linear_solve(MATRIX, np.ones(N)).plot()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", [(0, N), (2, 0, N)])
@pytest.mark.parametrize("limits", [None, [2, 50]])
def test_plot_of_no_systems(shape: tuple[int, ...], limits: Any) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    result = linear_solve(MATRIX, np.zeros(shape), method="CG", history=True, axis=-1, max_iter=limits)
    axes = result.plot(pyplot.figure().subplots())
    assert len(axes.lines) == 0 and axes.get_xlabel() == "iteration"
    pyplot.close("all")


def test_notebooks() -> None:
    """HTML that is escaped, small, in the colours of the page, and never an error."""
    result = linear_solve(MATRIX, np.ones(N), method="CG", preconditioner=lambda r: r / 3)
    M = krylix.preconditioner(sp.csr_array(MATRIX), "ilu")
    page = result._repr_html_()
    assert "&lt;" in page or "<lambda>" not in page
    A = krylix.as_operator(sp.csr_array(MATRIX))
    dense, batch = krylix.as_operator(MATRIX), krylix.as_operator(np.stack([MATRIX, 2 * MATRIX]))
    huge = krylix.as_operator(sp.eye_array(2_000_001).tocsr())
    empty = krylix.as_operator(sp.csr_array((3, 0)))
    shown = [thing._repr_html_() for thing in (A, A.T, dense, batch, huge, empty, M)]
    for html in (page, *shown):
        assert html.startswith("<div") and html.count("<tr>") == html.count("</tr>") > 2 and len(html) < 10_000
        assert "color:black" not in html and "color:white" not in html
    assert "data:image/png" in shown[0] and "data:image/png" in shown[2] and "not drawn" in shown[4]


@pytest.mark.needs("jax")
def test_notebooks_inside_compiled_functions() -> None:
    import jax
    import jax.numpy as jnp

    def shown(values: Any, b: Any) -> Any:
        A = krylix.as_operator(sp.csr_array(MATRIX)).to("csr")
        assert "<div" in A._repr_html_() and "<div" in linear_solve(values, b)._repr_html_()
        return b

    jax.jit(shown)(jnp.asarray(MATRIX), jnp.ones(N))


def test_dir_shows_public_names_only() -> None:
    A = sp.csr_array(MATRIX)
    solver = prepare(A)
    things: tuple[Any, ...] = (
        krylix, linear_solve(A, np.ones(N)), linear_solve(MATRIX, np.ones(N)), krylix.as_operator(A),
        krylix.as_operator(lambda x: x, like=np.ones(3)), krylix.preconditioner(A, "ilu"), solver, solver.method,
    )  # fmt: skip
    for thing in things:
        names = dir(thing)
        assert [name for name in names if name.startswith("_") and name != "__version__"] == [], thing
        assert names == sorted(set(names)) and all(hasattr(thing, name) for name in names)
    assert {"iterations", "converged", "to_dict", "plot"} <= set(dir(things[1])) & set(dir(things[2]))
    assert set(krylix.__all__) <= set(dir(krylix))
