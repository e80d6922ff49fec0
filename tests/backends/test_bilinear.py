"""Products by `bilinear` in every library; the derivatives in one file for each."""

from typing import Any

import numpy as np
import pytest

from bilinear_forms import FORMS, M, N, close, dense, dtypes, forms, indices_of, native, values_of
from contract import backend, rows
from krylix.backends.interface.bilinear import Each
from modes import compiled


@forms
@dtypes
@pytest.mark.parametrize("mode", ["numpy", "jax", "jax-jit", "torch", "tf", "tf-function"])
@pytest.mark.parametrize("batch", [1, 3])
def test_products(name: str, dtype: str, mode: str, batch: int) -> None:
    values, x, y = values_of(name, dtype), rows(dtype, (batch, M)), rows(dtype, (batch, N))

    def both(x: Any, y: Any, *values: Any) -> Any:
        bk = backend(mode)
        own = bk.bilinear(FORMS[name], values, indices_of(name), x)
        return own, bk.bilinear(FORMS[name], values, indices_of(name), y, transposed=True)

    forward, backward = compiled(mode, both)(*native(mode, x, y, *values))
    close(forward, x @ dense(name, values).T)
    close(backward, y @ dense(name, values))


@forms
@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["numpy", "jax", "jax-jit", "torch", "tf", "tf-function"])
def test_one_matrix_for_each_row(name: str, mode: str) -> None:
    """Products, and samples that are not summed, of values with an axis in front."""
    values, x, y = values_of(name, "float64"), rows("float64", (3, M)), rows("float64", (3, N))
    many = [np.stack([v, 2 * v, -v]) for v in values]
    matrices = [dense(name, [v[k] for v in many]) for k in range(3)]

    def all_three(x: Any, y: Any, *values: Any) -> Any:
        bk, form, indices = backend(mode), Each(FORMS[name]), indices_of(name)
        images = bk.bilinear(form, values, indices, x), bk.bilinear(form, values, indices, y, transposed=True)
        return *images, *form.sample(bk, indices, y, x)

    forward, backward, *samples = compiled(mode, all_three)(*native(mode, x, y, *many))
    close(forward, [A @ row for A, row in zip(matrices, x, strict=True)])
    close(backward, [A.T @ row for A, row in zip(matrices, y, strict=True)])
    for sample, value in zip(samples, values, strict=True):
        assert tuple(sample.shape) == (3, *value.shape)
    for k in range(3):
        alone = FORMS[name].sample(backend("numpy"), indices_of(name), y[k : k + 1], x[k : k + 1])
        for sample, want in zip(samples, alone, strict=True):
            close(sample[k], want)
