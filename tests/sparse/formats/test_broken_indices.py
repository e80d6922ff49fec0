"""Index arrays that do not fit the shape are refused wherever they come from, before memory is read with them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from frameworks import missing
from krylix import as_operator, linear_solve
from krylix.backends import get_backend
from krylix.sparse import block, hstack, save
from krylix.sparse.formats import from_scipy

V = np.ones(3)
b = np.ones(4)


def tridiagonal() -> sp.csr_array:
    return sp.diags_array([np.ones(3), np.full(4, 4.0), np.ones(3)], offsets=[-1, 0, 1]).tocsr()


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], None]:
    """Puts a changed copy in the place of an attribute."""
    return lambda A: setattr(A, name, change(getattr(A, name).copy()))


def with_number(at: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(x: np.ndarray) -> np.ndarray:
        x[at] = value
        return x

    return change


COMPRESSED = {
    "index too large": replaced("indices", with_number(2, 99)),
    "index far too large": replaced("indices", with_number(0, 2**31 - 1)),
    "index equal to the size": replaced("indices", with_number(-1, 4)),
    "index negative": replaced("indices", with_number(1, -1)),
    "index of 64 bits": replaced("indices", lambda x: x.astype(np.int64) + 2**40),
    "index unsigned": replaced("indices", lambda x: x.astype(np.uint64) + 2**63),
    "indices of floating numbers": replaced("indices", lambda x: x.astype(float)),
    "indices too few": replaced("indices", lambda x: x[:-1]),
    "values too few": replaced("data", lambda x: x[:-1]),
    "starts too few": replaced("indptr", lambda x: x[:-1]),
    "starts too many": replaced("indptr", lambda x: np.append(x, x[-1])),
    "first start not 0": replaced("indptr", with_number(0, 1)),
    "first start negative": replaced("indptr", with_number(0, -5)),
    "last start too large": replaced("indptr", with_number(-1, 10**6)),
    "last start too small": replaced("indptr", with_number(-1, 1)),
    "starts that fall": replaced("indptr", with_number(1, 10**6)),
    "starts that fall below 0": replaced("indptr", with_number(2, -(10**6))),
}


@pytest.mark.parametrize("case", COMPRESSED)
@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("old", [False, True])
def test_compressed_matrix_that_was_overwritten(kind: str, case: str, old: bool) -> None:
    A = tridiagonal().asformat(kind)
    A = (sp.csr_matrix if kind == "csr" else sp.csc_matrix)(A) if old else A
    _ = A.has_canonical_format  # which SciPy keeps
    COMPRESSED[case](A)
    with pytest.raises((ValueError, TypeError), match=r"\bA\b.*expected") as caught:
        linear_solve(A, b)
    assert "\n" not in str(caught.value)
    with pytest.raises((ValueError, TypeError), match="expected"):
        as_operator(A)


@pytest.mark.parametrize("case", COMPRESSED)
def test_block_matrix_that_was_overwritten(case: str) -> None:
    A = sp.kron(tridiagonal(), np.ones((2, 3)), format="bsr")
    assert A.format == "bsr" and A.blocksize == (2, 3)
    COMPRESSED[case](A)
    with pytest.raises((ValueError, TypeError), match="expected"):
        as_operator(A)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("value", [4, 10**6, -1, -(10**6)])
def test_coordinates_that_were_overwritten(at: int, value: int) -> None:
    A = tridiagonal().tocoo()
    A.coords[at][3] = value
    with pytest.raises(ValueError, match=rf"(row|column) indices of A contain {value}; expected numbers from 0 to 3"):
        linear_solve(A, b)
    A = tridiagonal().tocoo()
    A.coords = tuple(c[:-1] for c in A.coords)
    with pytest.raises(ValueError, match="10 values and 9"):
        as_operator(A)


def test_lists_and_diagonals_that_were_overwritten() -> None:
    A = tridiagonal().tolil()
    A.rows[1] = [0, 1, 10**6]
    with pytest.raises(ValueError, match="contain 1000000"):
        as_operator(A)
    D = tridiagonal().todia()
    D.offsets = D.offsets[:-1]
    with pytest.raises(ValueError, match="2 offsets"):
        as_operator(D)


def broken() -> sp.csr_array:
    A = tridiagonal()
    A.indices[2] = 10**6
    return A


PLACES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda A: from_scipy(get_backend("numpy"), tridiagonal()) + A,
    "difference": lambda A: from_scipy(get_backend("numpy"), tridiagonal()) - A,
    "product": lambda A: from_scipy(get_backend("numpy"), tridiagonal()) @ A,
    "product from the left": lambda A: A @ from_scipy(get_backend("numpy"), tridiagonal()),
    "dense sum": lambda A: as_operator(np.eye(4)) + A,
    "dense product": lambda A: as_operator(np.eye(4)) @ A,
    "blocks": lambda A: block([[A, None], [None, A]]),
    "side by side": lambda A: hstack([A, tridiagonal()]),
    "preconditioner": lambda A: linear_solve(tridiagonal(), b, method="CG", preconditioner=A),
    "file": lambda A: save("never.npz", A),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_that_takes_a_matrix_of_scipy(place: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="contain 1000000; expected numbers from 0 to 3"):
        PLACES[place](broken())


# ---- the libraries' own


def bcoo(rows: Any, cols: Any) -> Any:
    import jax.numpy as jnp
    from jax.experimental import sparse as jsp

    return jsp.BCOO((jnp.ones(3), jnp.stack([jnp.array(rows), jnp.array(cols)], 1)), shape=(3, 3))


def bcsr(cols: Any, starts: Any) -> Any:
    import jax.numpy as jnp
    from jax.experimental import sparse as jsp

    return jsp.BCSR((jnp.ones(3), jnp.array(cols), jnp.array(starts)), shape=(3, 3))


def torch_coo(rows: Any, cols: Any) -> Any:
    import torch

    return torch.sparse_coo_tensor(torch.tensor([rows, cols]), torch.ones(3), (3, 3), check_invariants=False)


def torch_compressed(kind: str, starts: Any, lines: Any, values: Any = V) -> Any:
    import torch

    make = getattr(torch, f"sparse_{kind}_tensor")
    size = (3, 3) if np.ndim(values) < 2 else (6, 6)
    starts, lines = torch.tensor(starts), torch.tensor(lines)
    return make(starts, lines, torch.tensor(np.asarray(values)), size, check_invariants=False)


def tensor(rows: Any, cols: Any) -> Any:
    import tensorflow as tf

    return tf.SparseTensor(np.stack([rows, cols], 1).astype(np.int64), tf.ones(3), (3, 3))


GOOD, STARTS = [0, 1, 2], [0, 1, 2, 3]
BLOCKS = np.ones((3, 2, 2))
NATIVE: dict[str, list[Callable[[], Any]]] = {
    "jax": [
        lambda: bcoo([0, -1, 2], GOOD),
        lambda: bcoo(GOOD, [0, 1, -7]),
        lambda: bcsr([0, -1, 2], STARTS),
        lambda: bcsr(GOOD, [0, 2, 1, 3]),
        lambda: bcsr(GOOD, [1, 1, 2, 3]),
        lambda: bcsr(GOOD, [0, 1, 2, 4]),
        lambda: bcsr(GOOD, [0, -1, 2, 3]),
    ],
    "torch": [
        lambda: torch_coo([0, 3, 2], GOOD),
        lambda: torch_coo(GOOD, [0, 1, 3]),
        lambda: torch_coo([0, -1, 2], GOOD),
        *[
            lambda kind=kind, starts=starts, lines=lines, values=values: torch_compressed(kind, starts, lines, values)
            for kinds, values in ((("csr", "csc"), V), (("bsr", "bsc"), BLOCKS))
            for kind in kinds
            for starts, lines in (
                (STARTS, [0, 1, 3]),
                (STARTS, [0, -1, 2]),
                ([0, 2, 1, 3], GOOD),
                ([1, 1, 2, 3], GOOD),
                ([0, 1, 2, 2], GOOD),
                ([0, 1, 2, 4], GOOD),
                ([0, 1, 3], GOOD),
            )
        ],
    ],
    "tensorflow": [
        lambda: tensor([0, 3, 2], GOOD),
        lambda: tensor(GOOD, [0, 1, 3]),
        lambda: tensor([0, -1, 2], GOOD),
        lambda: tensor(GOOD, [0, 1, -5]),
    ],
}


@pytest.mark.filterwarnings("ignore:Sparse (CSC|BSR|BSC) tensor support:UserWarning")
@pytest.mark.parametrize(
    ("framework", "case"), [(name, case) for name, cases in NATIVE.items() for case in range(len(cases))]
)
def test_native_matrices(framework: str, case: int) -> None:
    if missing(framework):
        pytest.skip(f"not installed: {framework}")
    with pytest.raises(ValueError, match="expected") as caught:
        as_operator(NATIVE[framework][case]())
    assert "\n" not in str(caught.value)


@pytest.mark.needs("jax")
def test_padding_of_jax_is_left_out() -> None:
    """Where an index is beyond the end, JAX itself leaves out the entry: it pads with such."""
    for A in (bcoo([0, 3, 2], [0, 3, 2]), bcoo([0, 1, 2], [0, 3, 2]), bcsr([0, 2, 3], [0, 1, 1, 2])):
        np.testing.assert_array_equal(as_operator(A).toarray(), np.diag([1.0, 0, 1]))


@pytest.mark.needs("tensorflow")
def test_constants_of_a_graph_are_looked_at_too() -> None:
    import tensorflow as tf

    @tf.function(autograph=False)
    def product(x: Any) -> Any:
        return as_operator(tensor([0, 3, 2], GOOD)) @ x

    with pytest.raises(ValueError, match="expected"):
        product(tf.ones(3))


@pytest.mark.needs("jax")
def test_constants_of_a_compiled_program_are_looked_at_too() -> None:
    import jax
    import jax.numpy as jnp

    A = bcoo([0, -1, 2], GOOD)
    with pytest.raises(ValueError, match="contain -1"):
        jax.jit(lambda x: as_operator(A) @ x)(jnp.ones(3))
