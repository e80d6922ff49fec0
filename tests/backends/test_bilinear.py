"""Products by `bilinear` in every library; the derivatives in one file for each."""

from typing import Any

import pytest

from bilinear_forms import FORMS, M, N, close, dense, dtypes, forms, indices_of, native, values_of
from contract import backend, rows
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
