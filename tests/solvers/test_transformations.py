"""Eager transformations: `auto` whatever holds the matrix, nothing of one trace in another, JAX's strict modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import as_operator, linear_solve
from krylix.backends import get_backend
from krylix.solvers import METHODS
from modes import array, native_sparse, product
from tiers import BEFORE_A_MERGE

N = 24
MATRIX = 2.5 * np.eye(N) - np.eye(N, k=1) - 1.2 * np.eye(N, k=-1)
B, INVERSE = np.cos(np.arange(N)), np.linalg.inv(MATRIX)
WEIGHTS = np.linspace(-1, 2, N)


def operand(form: str, mode: str) -> tuple[Any, tuple[Any, ...]]:
    """A times s, of what holds the matrix, as a function A(x, s, *others) or a matrix; and the others."""
    dense, sparse = array(mode, MATRIX), native_sparse(mode, MATRIX)
    forms: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
        "dense in a closure": lambda: (lambda x, s: s * product(mode, dense)(x), ()),
        "NumPy's in a closure": lambda: (lambda x, s: s * (MATRIX @ x), ()),
        "sparse in a closure": lambda: (lambda x, s: s * (sparse @ x), ()),
        "dense in args": lambda: (lambda x, s, A: s * product(mode, A)(x), (dense,)),
        "sparse in args": lambda: (lambda x, s, A: s * (A @ x), (sparse,)),
        "krylix format in a closure": lambda: (
            (lambda A: lambda x, s: s * (A @ x))(as_operator(sp.csr_array(MATRIX), array(mode, B)).to("ell")), ()),
        "SciPy": lambda: (sp.csr_array(MATRIX), ()),
        "sparse": lambda: (sparse, ()),
        "krylix format": lambda: (as_operator(sp.csr_array(MATRIX), array(mode, B)).to("dia"), ()),
    }  # fmt: skip
    return forms[form]()


FORMS = ("dense in a closure", "sparse in args", "dense in args", "sparse in a closure", "NumPy's in a closure",
         "krylix format in a closure", "SciPy", "sparse", "krylix format")  # fmt: skip


def solver(form: str, mode: str) -> Callable[[Any, Any], Any]:
    """x of `s A x = b`, by `auto`."""
    A, others = operand(form, mode)
    if callable(A) and not hasattr(A, "shape"):
        return lambda s, b: linear_solve(A, b, args=(s, *others)).x
    return lambda s, b: linear_solve(A, b / s).x


S = 1.3
X = INVERSE @ B / S


def _jax_transforms() -> dict[str, tuple[Callable[[Any], Any], Any]]:
    import jax

    loss = {"s": -WEIGHTS @ X / S, "b": INVERSE.T @ WEIGHTS / S}

    def scalar(solve: Any) -> Any:
        return lambda s, b: (array("jax", WEIGHTS) * solve(s, b)).sum()

    one, b = array("jax", np.array(S)), array("jax", B)
    many = jax.numpy.stack([b, 2 * b])
    return {
        "grad": (lambda f: jax.grad(scalar(f), (0, 1))(one, b), (loss["s"], loss["b"])),
        "vmap": (lambda f: jax.vmap(f, (None, 0))(one, many), np.stack([X, 2 * X])),
        "jvp": (lambda f: jax.jvp(f, (one, b), (one, b))[1], X - X),
        "linearize": (lambda f: jax.linearize(lambda b: f(one, b), b)[1](b), X),
        "jacfwd": (lambda f: jax.jacfwd(lambda s: f(s, b))(one), -X / S),
        "jacrev": (lambda f: jax.jacrev(lambda b: f(one, b)[:2])(b), INVERSE[:2] / S),
        "hessian": (lambda f: jax.hessian(lambda s: scalar(f)(s, b))(one), 2 * WEIGHTS @ X / S**2),
        "checkpoint": (lambda f: jax.grad(jax.checkpoint(scalar(f)), 1)(one, b), loss["b"]),
        "vmap over A": (lambda f: jax.vmap(f, (0, None))(jax.numpy.stack([one, 2 * one]), b), np.stack([X, X / 2])),
    }  # fmt: skip


TRANSFORMS = ("grad", "vmap", "jvp", "linearize", "jacfwd", "jacrev", "hessian", "checkpoint", "vmap over A")
NOW = (("grad", "dense in a closure"), ("vmap", "sparse in args"))


def _cells() -> list[Any]:
    """Every value in one cell before a merge, two by default, all pairs on demand."""
    turns = {(TRANSFORMS[k], FORMS[k]) for k in range(len(FORMS))}
    marks = {True: pytest.mark.merge, False: pytest.mark.slow}
    return [
        pytest.param(t, f, marks=() if (t, f) in NOW else marks[(t, f) in turns]) for t in TRANSFORMS for f in FORMS
    ]


@pytest.mark.needs("jax")
@pytest.mark.parametrize(("transform", "form"), _cells())
def test_auto_in_eager_jax(transform: str, form: str) -> None:
    import jax

    run, wanted = _jax_transforms()[transform]
    found = run(solver(form, "jax"))
    for one, exact in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, exact, rtol=1e-7, atol=1e-8)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("form", ["dense in a closure", "SciPy", "dense in args", "krylix format"])
def test_auto_in_torch_func(form: str) -> None:
    import torch

    solve, s, b = solver(form, "torch"), torch.tensor(S, dtype=torch.float64), torch.tensor(B)
    weights = torch.tensor(WEIGHTS)
    gradients = torch.func.grad(lambda s, b: weights @ solve(s, b), (0, 1))(s, b)
    np.testing.assert_allclose(gradients[0], -WEIGHTS @ X / S, rtol=1e-8)
    np.testing.assert_allclose(gradients[1], INVERSE.T @ WEIGHTS / S, rtol=1e-8)
    tangent = torch.func.jvp(lambda b: solve(s, b), (b,), (b,))[1]
    np.testing.assert_allclose(tangent, X, rtol=1e-8)
    np.testing.assert_allclose(torch.func.vmap(lambda b: solve(s, b))(torch.stack([b, 2 * b])), [X, 2 * X], rtol=1e-8)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("form", [
    pytest.param(f, marks=pytest.mark.merge) for f in ("dense in a closure", "SciPy", "sparse", "dense in args")
])  # fmt: skip
def test_auto_in_a_tape(form: str) -> None:
    import tensorflow as tf

    solve, s, b = solver(form, "tf"), tf.constant(S, tf.float64), tf.constant(B)
    with tf.GradientTape() as tape:
        tape.watch([s, b])
        loss = tf.tensordot(tf.constant(WEIGHTS), solve(s, b), 1)
    by_s, by_b = tape.gradient(loss, [s, b])
    np.testing.assert_allclose(by_s, -WEIGHTS @ X / S, rtol=1e-8)
    np.testing.assert_allclose(by_b, INVERSE.T @ WEIGHTS / S, rtol=1e-8)


def test_a_choice_that_refuses_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its set-up, and in the solve; the last one's refusal is the user's."""
    from krylix import UnsupportedOperation
    from krylix.solvers import ladder
    from krylix.solvers.methods.direct import ScipyDirect

    A = sp.csr_array(MATRIX)
    assert linear_solve(A, B).method == "scipy-direct"

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedOperation("not here")

    monkeypatch.setattr(ScipyDirect, "factorise", refuse)
    result = linear_solve(A, B)
    assert result.converged and result.method.startswith("biCG-stab(2)")
    np.testing.assert_allclose(result.x, INVERSE @ B, rtol=1e-7)
    monkeypatch.setattr(ladder, "run", refuse)
    with pytest.raises(UnsupportedOperation, match="not here"):
        linear_solve(A, B)


def test_auto_with_a_preconditioner_that_is_not_symmetric() -> None:
    """Conjugate gradients refuse it: the next row takes it."""
    A = sp.csr_array(4 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1))
    M = np.linalg.inv(A.toarray() + 0.1 * np.eye(N, k=1))
    assert linear_solve(A, B, preconditioner=M).converged


# --- nothing outlives its trace ---


@pytest.fixture
def _programs_are_only_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager derivatives are one program, which is traced in here and not compiled."""
    pytest.importorskip("jax")
    monkeypatch.setattr(type(get_backend("jax")), "in_program", lambda self: False)


def _methods_and_forms() -> list[Any]:
    """(method, form): before a merge every form with one of each kind of loop, and one form with each other method."""
    found, forms = [], ("dense", "sparse", "function")
    for k, method in enumerate(m for m in METHODS if not METHODS[m].needs_known):  # no program is made of arguments
        for i, form in enumerate(forms):
            now = () if METHODS[method].least_squares else pytest.mark.merge
            turn = method in BEFORE_A_MERGE or i == k % len(forms)
            found.append(pytest.param(method, form, marks=now if turn else pytest.mark.slow))
    return found


@pytest.mark.needs("jax")
@pytest.mark.usefixtures("_programs_are_only_traced")
@pytest.mark.parametrize(("method", "form"), _methods_and_forms())
def test_every_method_is_traced_twice(method: str, form: str) -> None:
    """With one matrix, which the traces share."""
    import jax

    symmetric = 4 * np.eye(6) - np.eye(6, k=1) - np.eye(6, k=-1)
    dense, b = jax.numpy.asarray(symmetric), jax.numpy.ones(6)
    sparse = as_operator(sp.csr_array(symmetric), b)
    A: Any = {"dense": dense, "sparse": sparse, "function": lambda x: dense @ x}[form]

    def loss(b: Any) -> Any:
        return linear_solve(A, b, method=method).x.sum()

    jax.eval_shape(jax.grad(loss), b)
    jax.eval_shape(jax.vmap(loss), jax.numpy.stack([b, b]))


# --- modes in which JAX refuses what it does by itself elsewhere ---


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", [
    "biCG-stab(2)",
    *(pytest.param(m, marks=pytest.mark.merge) for m in ("GMRES", "auto", "LSMR", "direct", "scipy-direct")),
    *(pytest.param(m, marks=pytest.mark.slow) for m in METHODS if m not in ("biCG-stab(2)", "GMRES", "LSMR", "direct")),
])  # fmt: skip
def test_ranks_are_promoted_for_the_library(method: str) -> None:
    import jax

    dense, b = jax.numpy.asarray(4 * np.eye(6) - np.eye(6, k=1) - np.eye(6, k=-1)), jax.numpy.ones(6)
    grid = method in METHODS and METHODS[method].needs_known
    with jax.numpy_rank_promotion("raise"):
        for A, args in ((lambda x: dense @ x, ()), (lambda x, A: A @ x, (dense,)), (sp.csr_array(dense), ())):
            if grid and not sp.issparse(A):
                continue

            def loss(b: Any, A: Any = A, args: Any = args) -> Any:
                return linear_solve(A, b, method=method, args=args).x.sum()

            jax.eval_shape(loss, b)
            if method in METHODS and not METHODS[method].on_host:
                jax.eval_shape(jax.grad(loss), b)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", [
    "biCG-stab(2)", *(pytest.param(m, marks=pytest.mark.merge) for m in ("GMRES", "auto", "scipy-direct")),
])  # fmt: skip
def test_transfers_are_allowed_to_the_library(method: str) -> None:
    import jax

    matrix = 4 * np.eye(6) - np.eye(6, k=1) - np.eye(6, k=-1)
    dense, b = jax.numpy.asarray(matrix), jax.numpy.ones(6)
    with jax.transfer_guard("disallow"):
        found = linear_solve(lambda x, A: A @ x, b, method=method, args=(dense,)).x
        again = jax.jvp(lambda b: linear_solve(lambda x: dense @ x, b, method=method).x, (b,), (b,))[1]
    for x in (found, again):
        np.testing.assert_allclose(x, np.linalg.solve(matrix, np.ones(6)), rtol=1e-7)
