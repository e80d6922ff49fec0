"""The array API standard on TensorFlow, made of `tf.*`, `tf.math`, `tf.linalg` and `tf.signal`, an idea a file."""

import tensorflow as tf

from ...standard.namespace import Namespace
from . import creation, elementwise, fft, linalg, manipulation, norms, ordering, products, reductions
from .library import TensorflowLibrary

xp = Namespace(
    TensorflowLibrary(),
    {
        "": (creation, elementwise, reductions, ordering, manipulation, products, tf.math, tf.bitwise, tf),
        "linalg": (linalg, norms, products, manipulation),
        "fft": (fft,),
    },
)
