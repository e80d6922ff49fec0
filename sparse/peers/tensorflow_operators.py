"""`tf.linalg.LinearOperator`s: dense ones as their matrix, all others as functions of vectors.

Importing this imports TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ...backends import get_backend
from .read import Read, Space, declared_facts


def read(A: Any) -> Read:
    """
    Raises:
        ValueError: its shape is not known yet.
    """
    shape: list[Any] = A.shape.as_list() if A.shape.rank is not None else [None]
    name = type(A).__name__
    if None in shape:
        raise ValueError(f"A {name} of shape {A.shape} was given; expected one that is known while a graph is made.")
    hermitian = A.is_self_adjoint is True
    declared = declared_facts(hermitian, hermitian and A.is_positive_definite is True)
    if name == "LinearOperatorFullMatrix" or len(shape) > 2:  # a batch is one of matrices
        return Read(A.to_dense(), declared=declared)
    dtype = np.dtype(A.dtype.as_numpy_dtype)
    rows, columns = (Space(((n,),), (dtype,)) for n in shape)
    return Read(VectorProduct(A), get_backend("tensorflow"), columns, rows, declared)


class VectorProduct:
    """`x -> A x` for vectors on the last axis, which it gets as columns: not all kinds take other batches."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def __call__(self, x: Any) -> Any:
        columns = tf.transpose(tf.reshape(x, (-1, x.shape[-1])))
        return tf.reshape(tf.transpose(self.operator.matmul(columns)), (*x.shape[:-1], self.operator.shape[0]))
