"""Operations of zeros, infinities, NaN and the largest and smallest numbers: what NumPy gives, on every library.

`BY_LIBRARY` lists the operations whose values there are the library's own; `docs/backends.md` has the same table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import krylix
from called import check_none_wrong, code_of, failed, numbers, run_in_jax
from frameworks import tf
from krylix.backends import get_backend
from krylix.backends.operations.table import OPERATIONS
from standard import calls_of, signatures

DTYPES = ("bool", "uint8", "int32", "float32", "float64", "complex64", "complex128")
# Without values that could be at an edge, or with tests of their own; and dense algebra, which NaN makes undefined.
APART = {
    *(name for name, row in OPERATIONS.items() if row.group in ("functions", "random", "solves")),
    *("arange", "astype", "can_cast", "eig", "eigvals", "empty", "empty_like", "eye", "finfo", "from_dlpack"),
    *("full", "full_like", "iinfo", "isdtype", "linspace", "linspace_without_last", "ones", "ones_like", "result_type"),
    *("zeros", "zeros_like", "auto_cast", "broadcast_size", "copy_leaves", "get_sparse_format", "is_available"),
    *("is_sparse", "shape", "size", "stack_leaves", "staticshape", "take_apart", "variable", "to_complex", "to_float"),
    *("ravel_multi_index", "unravel_index", "bincount", "conv", "grid_sample", "fft", "ifft", "einsum", "matmul"),
    *("lstsq", "matrix_rank", "svd", "tensordot", "vecdot", "histogram"),
}
KINDS = {"factorial": "f", "floor_divide": "f", "remainder": "f", "pow": "fc"}  # 0 divides no integers
_MOVED = """xp.broadcast_arrays(x, x[:, None])|xp.broadcast_to(x, (2, *x.shape))|xp.concat([x, x])
xp.expand_dims(x, axis=0)|xp.flip(x)|xp.matrix_transpose(pairs)|xp.meshgrid(x, x)|xp.moveaxis(pairs, 0, 1)
xp.permute_dims(pairs, (1, 0))|xp.repeat(x, 2)|xp.reshape(x, (1, -1))|xp.roll(x, 1)|xp.squeeze(x[:, None], axis=1)
xp.stack([x, x])|xp.take(x, last, axis=0)|xp.take_along_axis(x, last)|xp.tile(x, (2,))|xp.tril(pairs)|xp.triu(pairs)
xp.unstack(pairs, axis=1)|xp.where(odd, x, x[:, None])|xp.count_nonzero(pairs, axis=1)|xp.nonzero(x)
xp.all(pairs, axis=1)|xp.any(pairs, axis=1)|bk.pad(x, [(1, 1)], 'periodic')|bk.pad(x, [(1, 1)], value=x[-1])
bk.pad_to(x, 0, 99)|bk.tile_to(x[:2], 0, 6)|bk.multi_slice(x, (slice(None, None, -2),))|bk.boolean_mask(x, odd, 0)
bk.gather_nd(pairs, last[:, None])|bk.batched_gather_nd(pairs[None], last[None, :, None])
bk.scatter(pairs[None], last[None, :, None], pairs[None, :2])|bk.scatter_nd(x, last, x[:2])""".replace("\n", "|")
_ORDERED = """xp.max(pairs, axis=1)|xp.min(pairs, axis=1)|xp.argmax(pairs, axis=1)|xp.argmin(pairs, axis=1)
xp.argsort(pairs, axis=1)|xp.sort(pairs, axis=1)|xp.sort(x)|xp.argsort(x)|xp.searchsorted(xp.sort(x), x)
xp.searchsorted(xp.sort(x), x, side='right')|xp.clip(x, min=1, max=2)|xp.clip(x[:, None], max=x)
xp.clip(x, min=x[:, None])|bk.scatter_nd(x, places, xp.flip(x), 'max')|bk.scatter_nd(x, places, xp.flip(x), 'min')
xp.sort(xp.unique_values(x))|xp.unique_counts(pairs[:, 0])[1]|xp.unique_inverse(x)[0]|xp.unique_all(x)[3]
bk.unique(x)""".replace("\n", "|")
_ADDED = """xp.sum(pairs, axis=1)|xp.prod(pairs, axis=1)|xp.mean(pairs, axis=1)|xp.cumulative_sum(pairs, axis=1)
xp.cumulative_prod(pairs, axis=1)|xp.diff(pairs, axis=1)|bk.scatter_nd(x, places, xp.flip(x), 'add')
bk.indexed_segment_sum(pairs[..., None], xp.asarray([[0, 1]]), 1)""".replace("\n", "|")
_REAL = """xp.std(pairs, axis=1)|xp.var(pairs, axis=1)|bk.quantile(pairs, 0.25)|bk.erf(x)|bk.lgamma(x)|bk.sigmoid(x)
bk.softplus(x)|bk.factorial(x)|bk.gammainc(plain[:, None], plain)|bk.gammaincc(plain[:, None], plain)""".replace(
    "\n", "|"
)
_WHOLE = """bk.to_int32(x)|bk.to_int64(x)|xp.pow(x[:, None], xp.abs(x[:3]))
xp.bitwise_left_shift(x[:, None], xp.abs(x[:3]))|xp.bitwise_right_shift(x[:, None], xp.abs(x[:3]))""".replace("\n", "|")


def _elementwise() -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys(call.name for call in calls_of("elementwise")):
        given = {"(x, /)": "x", "x, /": "x", "x1, x2, /": "x, x[:, None]"}.get(signatures()[name])
        kinds = KINDS.get(name) or "".join(
            {k for call in calls_of("elementwise") if call.name == name for k in call.kinds}
        )
        if given and "shift" not in name:
            yield name, kinds, f"xp.{name}({given})"


CALLS = [  # group, kinds of dtypes, call
    *(("elementwise", kinds, call) for _, kinds, call in _elementwise()),
    *(("moved", "bifc", call) for call in _MOVED.split("|")),
    *(("ordered", "iuf", call) for call in _ORDERED.split("|")),
    *(("added", "iufc", call) for call in _ADDED.split("|")),
    *(("real", "f", call) for call in _REAL.split("|")),
    *(("whole", "iu", call) for call in _WHOLE.split("|")),
]
GROUPS = list(dict.fromkeys(group for group, _, _ in CALLS))
# Names of operations, libraries, what differs there, and how: "zeros" is the sign of zeros only, else kinds of dtypes.
BY_LIBRARY = (
    ("maximum, minimum, max, min, clip", "torch, jax", "which of 0 and -0 is the larger one", "zeros"),
    ("unique_values, unique", "torch, tensorflow, jax", "which of 0 and -0 stands for both", "zeros"),
    ("remainder", "torch, tensorflow, jax", "the sign of a remainder of 0", "zeros"),
    ("cumulative_sum", "torch, tensorflow, jax", "the sign of a sum of zeros", "zeros"),
    ("pow", "torch, tensorflow, jax", "powers of complex zeros, and complex powers that overflow", "c"),
    ("remainder", "torch", "remainders of a quotient that overflows", "f"),
    ("sign", "jax", "the sign of a zero", "zeros"),
    ("sqrt, acos, asin, atan, acosh, asinh, atanh", "jax", "the side of a branch cut, which a zero's sign says", "c"),
    ("divide, floor_divide", "jax", "compiled quotients by numbers whose reciprocal is subnormal", "f"),
    ("lgamma", "jax", "the rounding at its zeros, 1 and 2", "iuf"),
    ("std, var", "torch", "values where the sum of squares overflows", "f"),
)


def edges(dtype: str, group: str) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, 2, info.max, *((-1, -3, info.min) if kind == "i" else ())], dtype)
    limits = np.finfo(dtype)
    finite = [0.0, -0.0, 1.0, -1.5, 2.0, float(limits.max), -float(limits.max), float(limits.tiny)]
    special = [np.inf, -np.inf, np.nan]
    if kind == "f":
        return np.array([*finite, -float(limits.tiny), *special], dtype)
    # Libraries define the arithmetic of complex numbers with an infinite part differently.
    parts = [*finite[:4], *finite[-3::2], *(special[::2] if group == "moved" else ())]
    made = np.empty(len(parts) ** 2, dtype)
    made.real, made.imag = np.transpose([*product(parts, parts)])
    return made[np.abs(made.real / 2) + np.abs(made.imag / 2) < limits.max * 0.9] if group != "moved" else made


def operands(dtype: str, group: str) -> dict[str, np.ndarray]:
    x = edges(dtype, group)
    n, several = len(x), np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    own = {"odd": np.arange(n) % 2 == 1, "places": np.roll(np.arange(n), 1), "last": np.array([n - 1, 0])}
    if np.dtype(dtype).kind == "f":  # neither huge nor tiny
        own["plain"] = x[(x == 0) | ((np.abs(x) >= 1) & (np.abs(x) < 9)) | ~np.isfinite(x)]
    return {"x": x, "pairs": several[:: 7 if np.dtype(dtype).kind == "c" else 1], **own}


def evaluate(bk: Any, call: str, arrays: dict[str, Any]) -> Any:
    with np.errstate(all="ignore"), krylix.precision(64):
        return eval(code_of(call), {**arrays, "bk": bk, "xp": bk.xp})


def cases(group: str, dtypes: tuple[str, ...] = DTYPES) -> list[tuple[str, str]]:
    return [(c, d) for own, kinds, c in CALLS if own == group for d in dtypes if np.dtype(d).kind in kinds]


def unequal(backend: str, group: str, call: str, dtype: str, found: Any) -> Iterator[str]:
    name = re.findall(r"(?:xp|bk)\.(\w+)", call or "")
    own = [row[3] for row in BY_LIBRARY if backend in row[1].split(", ") and {*name} & {*row[0].split(", ")}]
    if any(np.dtype(dtype).kind in kinds for kinds in own if kinds != "zeros"):
        return
    if isinstance(found, Exception):
        yield failed(f"{call} of {dtype}", found)
        return
    expected = numbers(get_backend("numpy"), evaluate(get_backend("numpy"), call, operands(dtype, group)))
    for x, y in zip(numbers(get_backend(backend), found), expected, strict=True):
        if x.shape != y.shape or x.dtype.kind.replace("u", "i") != y.dtype.kind.replace("u", "i"):
            yield f"{call} of {dtype}: {x.dtype} {x.shape}, expected {y.dtype} {y.shape}"
            continue
        wrong = ~alike(x, y, 1e-5 if "32" in dtype or (dtype[-2:] == "64" and "c" in dtype) else 1e-12)
        if x.dtype.kind == "f" and "zeros" not in own:
            wrong |= (x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y))
        if np.any(wrong):
            first = tuple(np.argwhere(wrong)[0])
            yield f"{call} of {dtype}: {np.sum(wrong)} wrong; {x[first]} at {first}, expected {y[first]}"


def alike(x: np.ndarray, y: np.ndarray, rtol: float) -> np.ndarray:
    """Complex numbers that are not finite are alike, whichever of their parts is infinite or NaN."""
    with np.errstate(all="ignore"):
        close = (x == y) | (np.abs(x / 2 - y / 2) <= rtol * np.abs(y / 2) + np.finfo(np.float32).tiny)
        both = ~np.isfinite(x) & ~np.isfinite(y) if x.dtype.kind == "c" else np.isnan(x) & np.isnan(y)
    return (close & np.isfinite(x) & np.isfinite(y)) | (x == y) | both


def test_every_operation_has_calls() -> None:
    used = {name for _, _, call in CALLS for name in re.findall(r"(?:xp|bk)\.(\w+)", call)}
    assert {*OPERATIONS} - used == APART
    for row in BY_LIBRARY:
        assert {*row[0].split(", ")} <= used, row


def test_documented() -> None:
    pages = (Path(krylix.__file__).parent.resolve() / "../../docs/backends.md").resolve()
    text = pages.read_text()
    for names, libraries, differs, _ in BY_LIBRARY:
        assert f"| `{'`, `'.join(names.split(', '))}` | {libraries} | {differs} |" in text


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("backend", ("torch", "tensorflow"))
def test_edge_values(backend: str, group: str) -> None:
    wrong: list[str] = []
    for call, dtype in cases(group):
        try:
            arrays = {name: krylix.convert(x, backend) for name, x in operands(dtype, group).items()}
            found = evaluate(get_backend(backend), call, arrays)
        except Exception as error:
            found = error
        wrong += unequal(backend, group, call, dtype, found)
    check_none_wrong(wrong)


@pytest.mark.merge
@pytest.mark.needs("jax")
@pytest.mark.parametrize("group", GROUPS)
def test_edge_values_in_jax(group: str) -> None:
    chosen = [case for case in cases(group, ("bool", "int32", "float64", "complex128")) if "gammainc" not in case[0]]
    functions = [lambda given, c=c, d=d: evaluate(get_backend("jax"), c, given[d]) for c, d in chosen]
    arrays = {d: {k: krylix.convert(x, "jax") for k, x in operands(d, group).items()} for _, d in chosen}
    results = zip(chosen, run_in_jax(functions, arrays), strict=True)
    check_none_wrong([w for (call, dtype), found in results for w in unequal("jax", group, call, dtype, found)])


@pytest.mark.parametrize("backend", ("numpy", "torch", "tensorflow"))
def test_quotients_and_powers(backend: str) -> None:
    bk = get_backend(backend)
    infinite = krylix.convert(np.array([np.inf, -np.inf + 2j, complex(1, np.inf), complex(0, -np.inf)]), bk)
    with np.errstate(all="ignore"):
        assert np.all(bk.to_numpy(bk.divide(bk.full_like(infinite, 1 - 2j), infinite)) == 0)
    for exponents in (krylix.convert(np.array([2, -1]), bk), np.array([2, -1]), np.int64(-1), -1):
        with pytest.raises(ValueError, match="got integers and the exponent -1; expected one that is not negative"):
            bk.pow(krylix.convert(np.array([2, 1]), bk), exponents)


@pytest.mark.needs("tensorflow")
def test_operations_themselves_in_a_graph() -> None:
    """`tf.function` of an operation takes its arguments from its signature."""
    bk, x = get_backend("tensorflow"), tf.constant([0.5, 0.25])
    for name in ("sin", "erf", "divide", "minimum", "pow", "floor_divide"):
        arrays = (x, x)[: 1 if name in ("sin", "erf") else 2]
        np.testing.assert_allclose(tf.function(getattr(bk, name))(*arrays), getattr(bk, name)(*arrays))
