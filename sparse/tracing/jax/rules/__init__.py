"""The first of three tables: what each operation of JAX does to an array that depends on the input.

A rule gets the equation and its operands, at least one of them a `Linear`, and returns the result, or a list where the
operation has several. Operations that are missing here are not linear, or say why they cannot be traced.

An operation may need an entry in each of three tables; the tests of tracing say where one is missing:

    RULES in rules/     what it does to a `Linear`: the parameters of JAX as a call of the engine
    RULES in known.py   what it does to known operands, by NumPy; without one XLA compiles it, which is right, but slow
    POINTS in sample.py  a few elements of the result from a few of the operands, for the test of large matrices;
                        without one the operands are computed whole

Operands that do not depend on the input are NumPy arrays where they are known (`known.is_known`), else tracers of
a transformation that is running. `static` gives the values of one that decides the structure, or refuses.
Programs inside an operation, loops and branches are entered in interpreter.py.

>>> import jax
>>> import numpy as np
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> (equation,) = jax.make_jaxpr(lambda u: jax.lax.rev(u, (0,)))(np.zeros(4)).eqns
>>> equation.primitive.name, equation.params["dimensions"]
('rev', (0,))
>>> u = identity(get_backend("jax"), (4,), float)
>>> RULES["rev"](equation, [u]).terms
(Box(lo=(0,), shape=(4,), offset=3, strides=(-1,), factor=1, values=None, mask=None),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .arithmetic import ARITHMETIC
from .products import PRODUCTS
from .structure import STRUCTURE

Rule = Callable[[Any, Sequence[Any]], Any]
RULES: dict[str, Rule] = {**ARITHMETIC, **STRUCTURE, **PRODUCTS}
