"""Products by `bilinear` in every library; test_bilinear_derivatives.py has their derivatives."""

from typing import Any

import numpy as np
import pytest

from bilinear_forms import FORMS, M, N, close, dense, dtypes, indices_of, native, values_of
from contract import MODES, backend, rows
from krylix.backends.interface.kernels import Each
from modes import compiled

# The sum of both forms covers each; where programs are compiled, the single ones run on demand.
forms_and_modes = pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=() if name == "both" or mode in ("numpy", "torch") else pytest.mark.slow)
        for name in FORMS
        for mode in MODES
    ],
)


@forms_and_modes
@dtypes
def test_products(name: str, dtype: str, mode: str) -> None:
    values = values_of(name, dtype)
    vectors = [(rows(dtype, (batch, M)), rows(dtype, (batch, N))) for batch in (1, 3)]

    def products(*given: Any) -> list[Any]:
        bk, (x, y, several_x, several_y, *own) = backend(mode), given
        found = [bk.bilinear(FORMS[name], own, indices_of(name), v) for v in (x, several_x)]
        return found + [bk.bilinear(FORMS[name], own, indices_of(name), v, transposed=True) for v in (y, several_y)]

    matrix = dense(name, values)
    expected = [x @ matrix.T for x, _ in vectors] + [y @ matrix for _, y in vectors]
    for found, want in zip(compiled(mode, products)(*native(mode, *sum(vectors, ()), *values)), expected, strict=True):
        close(found, want)


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@forms_and_modes
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
