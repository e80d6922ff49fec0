"""Products of SciPy's matrices by its loops: to the last digit what `@` gives, in every format and dtype."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cells import DTYPES
from krylix.backends.host_math import product_of, rows_times, transposed_times

SHAPES = ((1, 1), (5, 7), (40, 30), (30, 0))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products(form: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for n, m in SHAPES:
        numbers = sp.random_array((n, m), density=0.3, rng=rng) * (1 + (1j if dtype[0] == "c" else 0))
        for A in (numbers.astype(dtype).asformat(form), getattr(sp, f"{form}_matrix")(numbers.astype(dtype))):
            for other in DTYPES:
                v, w = (rng.normal(size=size).astype(other) for size in (m, n))
                for x in (v, np.repeat(v, 2)[::2]):
                    expected = A @ x
                    for found in (product_of(A)(x), rows_times(A, x)):
                        assert found.dtype == expected.dtype
                        np.testing.assert_array_equal(found, expected)
                expected, found = A.T @ w, transposed_times(A, w)
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_numbers_that_are_written_count_at_once(form: str) -> None:
    A = sp.random_array((9, 9), density=0.5, rng=1).asformat(form)
    product, v = product_of(A), np.arange(9.0)
    before = product(v)
    A.data *= 2
    np.testing.assert_array_equal(product(v), 2 * before)
    assert product(v) is not product(v)
    with pytest.raises(ValueError, match="mismatch"):
        product(np.ones(8))
