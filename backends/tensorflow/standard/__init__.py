"""The array API standard on TensorFlow, made of `tf.*`, `tf.math`, `tf.linalg` and `tf.signal`."""

import tensorflow as tf

from ...standard.namespace import Namespace
from . import fft, functions, linalg

xp = Namespace(
    functions.TensorflowLibrary(),
    {"": (functions, linalg, tf.math, tf.bitwise, tf), "linalg": (linalg, functions), "fft": (fft,)},
)
