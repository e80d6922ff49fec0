"""Operators of lineax: matrices, diagonals and tridiagonals as matrices, all others as functions of containers.

Importing this imports JAX and lineax.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np

from ...backends import Backend, get_backend
from ..formats import DIA
from .read import Declared, Read, Space, declared_facts


def read(A: lx.AbstractLinearOperator) -> Read:
    """Its tags are declared facts. Derivatives go on to the arrays that it holds."""
    declared, inner, bk = _declared(A), A, get_backend("jax")
    while isinstance(inner, lx.TaggedLinearOperator):
        inner = inner.operator
    if isinstance(inner, lx.MatrixLinearOperator):
        return Read(inner.matrix, declared=declared)
    if isinstance(inner, lx.TridiagonalLinearOperator):
        lower, upper = jnp.pad(inner.lower_diagonal, (1, 0)), jnp.pad(inner.upper_diagonal, (0, 1))
        return Read(_diagonals([lower, inner.diagonal, upper], (-1, 0, 1)), declared=declared)
    if isinstance(inner, lx.DiagonalLinearOperator) and jnp.ndim(inner.diagonal) == 1:
        return Read(_diagonals([inner.diagonal], (0,)), declared=declared)
    takes, gives = _space(bk, A.in_structure()), _space(bk, A.out_structure())
    with suppress(NotImplementedError):  # of a class of the user, which has its products only
        inner = lx.linearise(inner)
    return Read(LineaxProduct(inner, len(takes.shapes[0])), bk, takes, gives, declared)


class LineaxProduct:
    """`x -> A x` on containers of arrays, with any number of batch axes in front."""

    def __init__(self, operator: lx.AbstractLinearOperator, axes: int) -> None:
        self.operator, self.axes = operator, axes  # of the first array

    def __call__(self, x: Any) -> Any:
        product = self.operator.mv
        for _ in range(jnp.ndim(jax.tree.leaves(x)[0]) - self.axes):
            product = jax.vmap(product)
        return product(x)


def _diagonals(values: list[jax.Array], offsets: tuple[int, ...]) -> DIA:
    n = values[0].shape[0]
    return DIA(jnp.stack(values), offsets, (n, n)) if n > 1 else DIA(values[len(values) // 2][None], (0,), (n, n))


def _space(bk: Backend, structure: Any) -> Space:
    leaves, tree = jax.tree.flatten(structure)
    shapes, dtypes = tuple(leaf.shape for leaf in leaves), tuple(np.dtype(leaf.dtype) for leaf in leaves)
    if tree == jax.tree.structure(0):
        return Space(shapes, dtypes)
    zeros = jax.tree.unflatten(tree, [jnp.zeros((), dtype) for dtype in dtypes])
    return Space(shapes, dtypes, bk.leaves(zeros)[1])


def _declared(A: lx.AbstractLinearOperator) -> Declared:
    """Symmetric is not Hermitian where it is complex; semi-definite is, for lineax, too."""
    real = all(np.dtype(leaf.dtype).kind != "c" for leaf in jax.tree.leaves((A.in_structure(), A.out_structure())))
    facts = [_says(test, A) for test in (lx.is_symmetric, lx.is_positive_semidefinite, lx.is_negative_semidefinite)]
    return declared_facts(facts[0] and real, facts[1] or facts[2])


def _says(test: Any, A: lx.AbstractLinearOperator) -> bool:
    try:
        return bool(test(A))
    except NotImplementedError:  # a class of the user that says nothing
        return False
