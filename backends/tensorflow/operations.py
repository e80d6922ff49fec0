"""TensorFlow's own functions for operations that the standard does not have."""

import tensorflow as tf

erf, lgamma = tf.math.erf, tf.math.lgamma
gammainc, gammaincc = tf.math.igamma, tf.math.igammac
