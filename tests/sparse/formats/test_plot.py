"""Pictures of matrices: what their pixels, labels and colours say."""

import io
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cells import in_turn
from frameworks import FRAMEWORKS, lazy
from krylix import UnsupportedOperation
from krylix.backends import convert, get_backend
from krylix.sparse.analysis.canonical import canonical
from krylix.sparse.formats import from_entries
from krylix.sparse.plot import count_entries, find_neighbours, plot, round_numbers

pyplot = lazy("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    yield
    pyplot.close("all")


def poisson(*shape: int) -> sp.csr_array:
    total = sp.csr_array((1, 1))
    for k, size in enumerate(shape):
        one = sp.diags_array([np.full(size, 2.0), -np.ones(size - 1), -np.ones(size - 1)], offsets=[0, 1, -1])
        # the last axis is the fastest
        total = sp.kronsum(one, total) if k else one
    return sp.csr_array(total)


def render(ax: Any) -> None:
    stream = io.BytesIO()
    ax.figure.savefig(stream, dpi=50)
    assert stream.tell() > 500


def pixels(ax: Any) -> np.ma.MaskedArray:
    (image,) = ax.images
    return image.get_array()


def texts(ax: Any) -> dict[tuple[float, float], str]:
    """What is written where (column, row)."""
    return {text.get_position(): text.get_text() for text in ax.texts}


# ---- the pattern


@pytest.mark.parametrize(
    ("shape", "dtype"),
    in_turn(
        [(30, 30), (20, 33), (33, 20), (2, 90), (90, 2), (1, 1)],
        [np.float32, np.float64, np.complex128, np.int64, bool],
    ),
)
def test_one_pixel_per_entry(shape: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(0)
    A = np.where(rng.random(shape) < 0.3, rng.standard_normal(shape) + 3, 0).astype(dtype)
    A[0, 0] = 1
    ax = plot(sp.csr_array(A))
    assert np.array_equal(~np.ma.getmaskarray(pixels(ax)), A != 0)
    assert f"{shape[0]} x {shape[1]}, {np.count_nonzero(A)} non-zeros, csr" == ax.get_title()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("column", "row")
    assert ax.get_xlim() == (-0.5, shape[1] - 0.5) and ax.get_ylim() == (shape[0] - 0.5, -0.5)
    render(ax)


def test_numbers_in_small_matrices() -> None:
    ax = plot(np.array([[2.0, -1, 0], [-1e-3, 2, np.nan], [0, 0, 1 / 3]]))
    assert texts(ax) == {(0, 0): "2", (1, 0): "-1", (0, 1): "-0.001", (1, 1): "2", (2, 1): "nan", (2, 2): "0.333"}
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2"]
    render(ax)


def test_colours_tell_sign_and_size() -> None:
    def places_of(values: np.ndarray) -> np.ndarray:
        return pixels(plot(values[None])).filled(0)[0]

    values = np.array([-100.0, -1, -1e-30, 0, 1e-30, 1, 100, np.nan, np.inf])
    assert np.ma.getmaskarray(pixels(plot(values[None])))[0].tolist() == [v == 0 for v in values]
    places = places_of(values)
    assert np.all(np.diff(places[:7]) > 0)
    assert places[0] == -1 and places[6] == 1
    assert np.all(places[7:] > 1)  # beyond the scale: its own colour
    assert np.all(np.abs(places[[2, 4]]) >= 0.29)  # the smallest can still be seen
    sizes = places_of(values[:7] * 1j)
    assert np.all(sizes >= 0) and np.allclose(sizes, np.abs(places[:7]))
    assert places_of(np.array([3.0, -3.0])).tolist() == [0.75, -0.75]


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (7, 5), (3000, 3000), (1, 9000)])
def test_no_entries(shape: tuple[int, int]) -> None:
    ax = plot(sp.csr_array(shape))
    assert "no entries" in texts(ax).values()
    assert "0 non-zeros" in ax.get_title()
    render(ax)


@pytest.mark.parametrize("shape", [(501, 501), (1200, 700), (40, 3001), (2750, 9)])
@pytest.mark.parametrize("limit", [500, 137])
def test_counts(shape: tuple[int, int], limit: int) -> None:
    A = sp.random_array(shape, density=0.01, rng=np.random.default_rng(1), format="csr")
    counts, (height, width) = count_entries(A, limit)
    assert max(counts.shape) <= limit
    truth = np.zeros_like(counts)
    np.add.at(truth, (A.tocoo().row // height, A.tocoo().col // width), 1)
    assert np.array_equal(counts, truth) and counts.sum() == A.nnz
    assert (counts.shape[0] - 1) * height < shape[0] <= counts.shape[0] * height


def test_large_matrix() -> None:
    n = 10**6
    A = sp.diags_array([np.ones(n), np.ones(n - 5000)], offsets=[0, 5000], format="csr")
    ax = plot(A)
    image = pixels(ax)
    assert max(image.shape) <= 500
    assert image.sum() == A.nnz
    assert ax.get_xlim() == (-0.5, n - 0.5)
    assert ax.get_title().startswith("1,000,000 x 1,000,000, 1,995,000 non-zeros")
    render(ax)


def test_small_axes_have_fewer_pixels() -> None:
    """Else the screen would leave out some of them, and thin lines with these."""
    axes = pyplot.figure(figsize=(6, 4), dpi=100).subplots(2, 3)
    ax = plot(poisson(20, 20), ax=axes[0, 1])
    assert ax is axes[0, 1]
    assert max(pixels(ax).shape) <= 180
    render(ax)


GRIDS: dict[tuple[int, ...], int | None] = {(6, 6): 6, (4, 3, 3): 3, (36,): None, (36, 1): None, (1, 36): None}


@pytest.mark.parametrize(("grid", "size"), GRIDS.items())
def test_lines_between_blocks(grid: tuple[int, ...], size: int | None) -> None:
    matrix = SimpleNamespace(to_scipy=lambda: poisson(6, 6), in_shape=grid, format="dia")
    ax = plot(matrix)
    lines = {line.get_xdata()[0] for line in ax.lines if line.get_color() == "0.6" and np.ptp(line.get_xdata()) == 0}
    assert lines == (set(np.arange(size, 36, size) - 0.5) if size else set())
    assert ax.get_title().endswith("dia")


def test_finest_blocks_that_can_be_seen() -> None:
    ax = plot(poisson(100, 8), grid=(10, 10, 8))
    assert len([line for line in ax.lines if line.get_color() == "0.6"]) == 2 * 9
    ax = plot(poisson(100, 8), grid=(100, 8))
    assert not ax.lines


def test_stored_zeros_and_duplicates_do_not_count() -> None:
    A = sp.coo_array(([1.0, 1, 0, -2, 2], ([0, 0, 1, 2, 2], [0, 0, 1, 2, 2])), (3, 3))
    ax = plot(A)
    assert texts(ax) == {(0, 0): "2"}
    assert ax.get_title() == "3 x 3, 1 non-zeros, coo"
    assert A.nnz == 5


# ---- matrices of krylix


@pytest.mark.parametrize("backend", ["numpy", *FRAMEWORKS])
def test_sparse_matrix(backend: str) -> None:
    bk, A = get_backend(backend), poisson(6, 7).tocoo()
    values = convert(A.data, backend)
    matrix = from_entries(bk, *A.coords, values, A.shape, in_shape=(6, 7), out_shape=(6, 7), sum_duplicates=False)
    ax = plot(matrix)
    assert np.array_equal(~np.ma.getmaskarray(pixels(ax)), A.toarray() != 0)
    assert ax.get_title() == f"42 x 42, 184 non-zeros, {matrix.format}"
    assert [line for line in ax.lines if line.get_color() == "0.6"]  # blocks of 7 rows
    assert len(cells(plot(matrix, "stencil"))) == 5


@pytest.mark.needs("jax")
def test_not_while_compiling() -> None:
    import jax

    bk, A = get_backend("jax"), poisson(5).tocoo()

    @jax.jit
    def compiled(values: Any) -> Any:
        plot(from_entries(bk, *A.coords, values, A.shape, sum_duplicates=False))
        return values

    with pytest.raises((ValueError, UnsupportedOperation)):
        compiled(A.data)


# ---- the stencil


def cells(ax: Any) -> dict[tuple[str, str], str]:
    """What is written at which offset (vertical, horizontal), by the labels of the axes."""
    columns = dict(zip(ax.get_xticks(), [t.get_text() for t in ax.get_xticklabels()]))
    rows = dict(zip(ax.get_yticks(), [t.get_text() for t in ax.get_yticklabels()]))
    return {(rows[j], columns[i]): text for (i, j), text in texts(ax).items() if j in rows and i in columns}


def test_five_points() -> None:
    ax = plot(poisson(9, 7), "stencil", grid=(9, 7))
    cross = {("-1", "0"): "-1", ("0", "-1"): "-1", ("0", "0"): "4", ("0", "+1"): "-1", ("+1", "0"): "-1"}
    assert cells(ax) == cross
    assert ax.get_title() == "stencil on a grid 9 x 7\nrow at (4, 3), coefficients of 35 rows"
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("offset along axis 0", "offset along axis 1")
    render(ax)


def test_offsets_are_not_mirrored() -> None:
    """y[i, j] = 2 x[i + 1, j] - 3 x[i, j - 2]."""
    below, left = sp.eye_array(8, k=1), sp.eye_array(6, k=-2)
    A = 2 * sp.kron(below, sp.eye_array(6)) - 3 * sp.kron(sp.eye_array(8), left)
    assert cells(plot(A, "stencil", grid=(8, 6))) == {("+1", "0"): "2", ("0", "-2"): "-3"}


def test_range_of_coefficients() -> None:
    rng = np.random.default_rng(2)
    c = rng.random(63) + 1
    A = sp.csr_array(sp.diags_array(c) @ poisson(9, 7))
    inner = c.reshape(9, 7)[1:-1, 1:-1]
    written = cells(plot(A, "stencil", grid=(9, 7)))
    assert written["0", "0"] == f"{4 * inner.min():.3g}\nto {4 * inner.max():.3g}"
    assert written["0", "+1"] == f"{-inner.max():.3g}\nto {-inner.min():.3g}"
    mean = cells(plot(A * (1 + 1j), "stencil", grid=(9, 7)))["0", "0"]
    assert mean.startswith("mean\n") and mean.endswith("j")
    assert cells(plot(poisson(9, 7) * 1j, "stencil", grid=(9, 7)))["0", "0"] == "4j"


@pytest.mark.parametrize("shape", [(7,), (6, 5), (5, 4, 6)])
def test_neighbours_against_a_loop(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    A = canonical(poisson(*shape))
    A.data *= rng.random(A.nnz)
    found = find_neighbours(A, shape)
    dense = A.toarray().reshape(*shape, *shape)
    inner = [p for p in np.ndindex(*shape) if all(0 < i < size - 1 for i, size in zip(p, shape))]
    assert found.complete and len(found.coefficients) == len(inner) and len(found.offsets) == 2 * len(shape) + 1
    for row, point in zip(found.coefficients, inner):
        expected = [dense[(*point, *(np.array(point) + offset))] for offset in found.offsets]
        assert np.array_equal(row, expected)


def test_three_dimensions_as_slices() -> None:
    ax = plot(poisson(5, 6, 7), "stencil", grid=(5, 6, 7))
    names = [text for text in texts(ax).values() if text.startswith("axis")]
    assert names == ["axis 0: -1", "axis 0: 0", "axis 0: +1"]
    assert sorted(text for text in texts(ax).values() if text not in names) == ["-1"] * 6 + ["6"]
    render(ax)
    flat = plot(poisson(5, 6), "stencil", grid=(5, 1, 6))
    assert (flat.get_ylabel(), flat.get_xlabel()) == ("offset along axis 0", "offset along axis 2")


def test_one_dimension_and_wide_stencils() -> None:
    assert sorted(texts(plot(poisson(9), "stencil", grid=(9,))).values()) == ["-1", "-1", "2"]
    matrix = SimpleNamespace(to_scipy=lambda: poisson(9), in_shape=(9,))
    assert len(texts(plot(matrix, "stencil"))) == 3
    wide = sp.diags_array([np.full(60, float(k + 1)) for k in range(31)], offsets=range(-15, 16), shape=(60, 60))
    ax = plot(wide, "stencil", grid=(60,))
    assert pixels(ax).count() == 31 and not texts(ax)  # colours only
    render(ax)


def test_obstacles_are_passed_by() -> None:
    A = poisson(9, 9).tolil()
    A[40] = 0
    A[40, 40] = 1  # the middle of the grid
    ax = plot(A.tocsr(), "stencil", grid=(9, 9))
    assert len(cells(ax)) == 5
    assert "some have other neighbours" in ax.get_title()
    assert cells(ax)["0", "0"] == "1\nto 4"


@pytest.mark.parametrize(("A", "grid"), [(np.zeros((12, 12)), (3, 4)), (np.eye(12), (3, 4)), (np.eye(1), (1, 1))])
def test_hardly_a_stencil(A: np.ndarray, grid: tuple[int, ...]) -> None:
    render(plot(A, "stencil", grid=grid))


# ---- refused


def test_errors() -> None:
    A = poisson(30, 30)
    with pytest.raises(ValueError, match="got kind='Spy'; expected one of spy, stencil"):
        plot(A, "Spy")
    with pytest.raises(ValueError, match=r"needs a square matrix on a known grid.*Give grid=\(ny, nx\)"):
        plot(A, "stencil")
    vector = SimpleNamespace(to_scipy=lambda: A, in_shape=(900,))
    with pytest.raises(ValueError, match="known grid"):
        plot(vector, "stencil")  # neighbours 30 apart: vectors are not the grid
    with pytest.raises(ValueError, match=r"got grid=\(30, 31\), 930 points, for a matrix with 900 columns"):
        plot(A, "stencil", grid=(30, 31))
    with pytest.raises(ValueError, match="square"):
        plot(A[:5], "stencil", grid=(30, 30))
    with pytest.raises(ValueError, match="square"):
        plot(np.zeros((0, 0)), "stencil")
    with pytest.raises(ValueError, match="at most 3 axes"):
        plot(poisson(2, 2, 2, 2), "stencil", grid=(2, 2, 2, 2))
    with pytest.raises(ValueError, match="reaches over 20 slices"):
        plot(np.ones((80, 80)), "stencil", grid=(20, 2, 2))
    with pytest.raises(ValueError, match="1600 neighbours"):
        plot(np.ones((1600, 1600)), "stencil", grid=(40, 40))
    with pytest.raises(ValueError, match="plot it outside"):
        plot(SimpleNamespace(known=lambda: None))
    with pytest.raises(ValueError, match=r"shape \(3,\); expected a matrix"):
        plot(np.ones(3))
    assert not pyplot.get_fignums()


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        plot(poisson(3))


def test_labels_of_counts() -> None:
    for largest in (1, 2, 3, 9, 10, 77, 100, 12345, 10**9):
        found = round_numbers(largest)
        assert found[-1] == largest and found == sorted(set(found)) and len(found) <= 10
