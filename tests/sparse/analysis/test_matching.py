"""Maximum matchings of rows with columns: as many pairs as SciPy finds, and a bound on the work."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import structural_rank

from krylix.sparse.analysis import graph
from krylix.sparse.analysis.graph import maximum_matching


@pytest.mark.parametrize("density", [0.0, 0.02, 0.08, 0.15, 0.3])
def test_as_many_pairs_as_scipy(density: float) -> None:
    rng = np.random.default_rng(0)
    for n in [*range(1, 25)] * 4:
        A = sp.csr_array(sp.random_array((n, n), density=density, rng=rng))
        columns = maximum_matching(A.indptr, A.indices, n)
        assert columns is not None
        rows = np.flatnonzero(columns >= 0)
        assert len(np.unique(columns[rows])) == len(rows) == structural_rank(sp.csr_matrix(A))
        assert np.all(A.toarray()[rows, columns[rows]] != 0)


def test_long_paths() -> None:
    """The greedy start takes the diagonal, and every row has to make room."""
    n = 2000
    rows, columns = np.r_[np.arange(n - 1), np.arange(n - 1), n - 1], np.r_[np.arange(n - 1), np.arange(1, n), 0]
    A = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    found = maximum_matching(A.indptr, A.indices, n)
    assert found is not None and sorted(found) == list(range(n))


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 300
    A = sp.csr_array(sp.random_array((n, n), density=0.01, rng=np.random.default_rng(1)))
    monkeypatch.setattr(graph, "_MOST_SCANNED", 10)
    assert maximum_matching(A.indptr, A.indices, n) is None
