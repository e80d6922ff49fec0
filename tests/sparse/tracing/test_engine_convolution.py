"""Convolutions of traced arrays against loops over dense arrays."""

import numpy as np
import pytest
import scipy.sparse as sp

import tracing_engine as t
from krylix.backends import get_backend
from krylix.sparse import UnsupportedOperation
from krylix.sparse.tracing.engine.terms import Box
from krylix.sparse.tracing.engine.to_matrix import blocks_of, entries_of

BK = get_backend("numpy")


def dense(x, columns):
    found = entries_of(BK, blocks_of([x]), x.dtype)
    return sp.coo_array((found.values, (found.rows, found.columns)), (x.size, columns)).toarray()


def spread(image, padding, dilation):
    """Dilate and pad (or cut) the axes of space."""
    for axis, ((lo, hi), d) in enumerate(zip(padding, dilation), 2):
        n = image.shape[axis]
        shape = list(image.shape)
        shape[axis] = max((n - 1) * d + 1, 0)
        wide = np.zeros(shape)
        index = [slice(None)] * image.ndim
        index[axis] = slice(None, None, d)
        wide[tuple(index)] = image
        widths = [(0, 0)] * image.ndim
        widths[axis] = (max(lo, 0), max(hi, 0))
        wide = np.pad(wide, widths)
        index[axis] = slice(max(-lo, 0), wide.shape[axis] - max(-hi, 0))
        image = wide[tuple(index)]
    return image


def reference(image, kernel, strides, padding, image_dilation, kernel_dilation, feature_groups, batch_groups):
    """The definition, one element of the result after the other."""
    image = spread(image, padding, image_dilation)
    out, features, *taps = kernel.shape
    sizes = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(image.shape[2:], taps, kernel_dilation, strides)]
    batch = image.shape[0] // batch_groups
    result = np.zeros((batch, out, *sizes))
    for n, o in np.ndindex(batch, out):
        row = n + batch * (o // (out // batch_groups))
        first = features * (o // (out // feature_groups))
        for place in np.ndindex(*sizes):
            for tap in np.ndindex(*taps):
                at = tuple(p * s + i * d for p, s, i, d in zip(place, strides, tap, kernel_dilation))
                result[(n, o, *place)] += (
                    image[(row, slice(first, first + features), *at)] @ kernel[(o, slice(None), *tap)]
                )
    return result


CASES = {
    "five_point": ((1, 1, 5, 6), (1, 1, 3, 3), {"padding": [(1, 1), (1, 1)]}),
    "strided": ((2, 1, 9), (1, 1, 3), {"strides": [2], "padding": [(1, 0)]}),
    "channels": ((2, 3, 4, 4), (2, 3, 2, 2), {}),
    "many_channels": ((1, 9, 4), (10, 9, 2), {"padding": [(1, 1)]}),
    "feature_groups": ((2, 4, 5), (6, 2, 3), {"feature_groups": 2, "padding": [(2, 1)]}),
    "depthwise": ((1, 3, 4, 5), (3, 1, 2, 2), {"feature_groups": 3}),
    "batch_groups": ((4, 3, 5), (4, 3, 2), {"batch_groups": 2}),
    "image_dilation": ((1, 2, 4), (2, 2, 3), {"image_dilation": [2], "padding": [(1, 2)]}),
    "kernel_dilation": ((1, 1, 7, 6), (2, 1, 2, 2), {"kernel_dilation": [3, 2], "strides": [1, 2]}),
    "negative_padding": ((1, 1, 7), (1, 1, 2), {"padding": [(-2, 1)]}),
    "no_space": ((2, 3), (4, 3), {}),
}


def settings(name):
    image, kernel, given = CASES[name]
    nd = len(image) - 2
    one = [1] * nd
    return (
        image,
        kernel,
        (
            given.get("strides", one),
            given.get("padding", [(0, 0)] * nd),
            given.get("image_dilation", one),
            given.get("kernel_dilation", one),
            given.get("feature_groups", 1),
            given.get("batch_groups", 1),
        ),
    )


@pytest.mark.parametrize("zeros", [0.0, 0.5])
@pytest.mark.parametrize("name", CASES)
def test_image_depends_on_the_input(name, zeros):
    image, kernel, options = settings(name)
    rng = np.random.default_rng(0)
    weights = np.where(rng.random(kernel) < zeros, 0, rng.standard_normal(kernel))
    x = t.convolve(t.identity(BK, image, np.float64), weights, *options)
    size = int(np.prod(image))
    columns = [reference(e.reshape(image), weights, *options) for e in np.eye(size)]
    assert x.shape == columns[0].shape
    np.testing.assert_allclose(dense(x, size), np.array([c.reshape(-1) for c in columns]).T, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_kernel_depends_on_the_input(name):
    image, kernel, options = settings(name)
    values = np.random.default_rng(0).standard_normal(image)
    x = t.convolve(values, t.identity(BK, kernel, np.float64), *options)
    size = int(np.prod(kernel))
    columns = [reference(values, e.reshape(kernel), *options) for e in np.eye(size)]
    assert x.shape == columns[0].shape
    np.testing.assert_allclose(dense(x, size), np.array([c.reshape(-1) for c in columns]).T, atol=1e-13)


def test_bias_is_convolved_too():
    rng = np.random.default_rng(0)
    b, w = rng.standard_normal((1, 2, 5)), rng.standard_normal((3, 2, 2))
    x = t.convolve(t.add(t.identity(BK, (1, 2, 5), np.float64), b), w, [1], [(1, 0)], [1], [1])
    np.testing.assert_allclose(x.bias, reference(b, w, [1], [(1, 0)], [1], [1], 1, 1), atol=1e-13)


def test_stencil_stays_boxes():
    kernel = np.array([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]
    x = t.convolve(t.identity(BK, (1, 1, 10**4, 10**4), np.float32), kernel, [1, 1], [(1, 1)] * 2, [1, 1], [1, 1])
    assert len(x.terms) == 5
    assert all(isinstance(term, Box) and term.values is None for term in x.terms)


def test_zero_kernel_and_empty_result():
    x = t.identity(BK, (1, 1, 4), np.float64)
    zero = t.convolve(x, np.zeros((2, 1, 3)), [1], [(0, 0)], [1], [1])
    assert zero.is_zero and zero.shape == (1, 2, 2)
    empty = t.convolve(x, np.ones((2, 1, 6)), [1], [(0, 0)], [1], [1])
    assert empty.shape == (1, 2, 0) and not empty.terms


def test_needs_one_linear_operand():
    with pytest.raises(TypeError, match="one Linear"):
        t.convolve(np.ones((1, 1, 3)), np.ones((1, 1, 3)), [1], [(0, 0)], [1], [1])


def test_too_many_entries():
    image = t.identity(BK, (1, 64, 1024, 1024), np.float32)
    with pytest.raises(UnsupportedOperation, match="entries"):
        t.convolve(image, np.ones((64, 64, 1, 1)), [1, 1], [(0, 0)] * 2, [1, 1], [1, 1])
