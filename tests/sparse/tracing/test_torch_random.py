"""Random linear PyTorch programs, with views and writes into them: their matrices against the programs themselves."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from frameworks import lazy
from krylix import matrix_from_function
from random_examples import random_examples
from unit_vectors import check_program

torch = lazy("torch")
F = lazy("torch.nn.functional")

MOST = 150  # elements of any array
Rng = np.random.Generator
Step = Callable[[Rng, Any], Any]
SHAPES = [(7,), (4, 5), (3, 4, 2), (1, 6), (12,), (2, 2, 3), (3, 1, 4), (), (2, 0)]
DTYPES = ["float64", "float64", "complex128", "float32"]


def numbers(rng: Rng, x: Any, shape: Any = None) -> Any:
    """Random constants in the dtype of x, some of them zero."""
    shape = tuple(x.shape) if shape is None else shape
    return torch.tensor(np.where(rng.random(shape) < 0.25, 0, rng.standard_normal(shape))).to(x.dtype)


def axis_of(rng: Rng, x: Any) -> int:
    return int(rng.integers(x.ndim))


def part(rng: Rng, x: Any) -> Any:
    """A view of some of the elements: slices, steps, single elements, axes in another order."""
    for axis in range(x.ndim):
        n = x.shape[axis]
        start = int(rng.integers(n))
        x = x.narrow(axis, start, int(rng.integers(1, n - start + 1)))
        x = x[(slice(None),) * axis + (slice(None, None, int(rng.integers(1, 3))),)]
    kind = rng.integers(4)
    if not x.ndim:
        return x
    if kind == 0:
        return x.permute(*(int(a) for a in rng.permutation(x.ndim)))
    if kind == 1 and x.ndim > 1:
        return x.diagonal(dim1=0, dim2=1)
    return x.select(axis_of(rng, x), 0) if kind == 2 else x


def same_shape(rng: Rng, x: Any, view: Any) -> Any:
    """Some linear function of x of the shape of a view."""
    flat = (x * numbers(rng, x)).reshape(-1)
    return flat[torch.as_tensor(rng.integers(0, x.numel(), tuple(view.shape)))]


def added_to_a_part(rng: Rng, x: Any) -> Any:
    y = x.clone()
    view = part(rng, y)
    view += same_shape(rng, x, view) if rng.integers(2) else 2.0
    return y


def assigned_to_a_part(rng: Rng, x: Any) -> Any:
    y = x * 2 if rng.integers(2) else torch.zeros_like(x)
    other = part(rng, y)
    view = part(rng, y)
    view.copy_(same_shape(rng, x, view))
    with_alias = part(rng, other)
    with_alias.mul_(0.5)
    return y


def shifted_in_itself(rng: Rng, x: Any) -> Any:
    """What is read was written before."""
    y = x.clone()
    for _ in range(3):
        if y.shape[0] > 1:
            y[1:] = y[:-1].clone() * 0.5 + y[1:]
            y[0] -= y[-1]
    return y


def workspace(rng: Rng, x: Any) -> Any:
    y = x.new_empty([n + 2 for n in x.shape])
    y.fill_(1.5)
    y[tuple(slice(1, -1) for _ in x.shape)] = x
    y.transpose(0, -1)[0] = y.transpose(0, -1)[-2]
    return y[tuple(slice(0, n) for n in x.shape)]


def unfolded(rng: Rng, x: Any) -> Any:
    axis = axis_of(rng, x)
    return x.unfold(axis, min(2, x.shape[axis]), 1)


def factored(rng: Rng, x: Any) -> Any:
    factors = [q for q in range(2, x.numel()) if x.numel() % q == 0]
    return x.reshape(int(rng.choice(factors)), -1) if factors else x.flatten()


def index_put(rng: Rng, x: Any) -> Any:
    index = torch.as_tensor(rng.integers(0, x.shape[0], 4))
    return x.index_put((index,), numbers(rng, x)[index] * x[:1], accumulate=True)


def scattered(rng: Rng, x: Any) -> Any:
    axis = axis_of(rng, x)
    index = torch.as_tensor(rng.integers(0, x.shape[axis], tuple(x.shape)))
    return numbers(rng, x).scatter_add(axis, index, x) + x.gather(axis, index)


def padded(rng: Rng, x: Any) -> Any:
    if x.ndim == 2 and min(x.shape) > 2 and not x.is_complex():
        mode = str(rng.choice(["replicate", "reflect", "circular"]))
        return F.pad(x[None, None], [int(n) for n in rng.integers(0, 3, 4)], mode=mode)[0, 0]
    return F.pad(x, [int(n) for n in rng.integers(0, 3, 2 * x.ndim)], value=1.0)


def convolved(rng: Rng, x: Any) -> Any:
    if x.is_complex():
        return x
    y = x.reshape(1, 1, *x.shape) if x.ndim < 3 else x[None]
    d = y.ndim - 2
    kernel = numbers(rng, x, (y.shape[1], 1, *[2] * d))
    groups = y.shape[1]
    settings = {"stride": int(rng.integers(1, 3)), "padding": 1, "dilation": int(rng.integers(1, 3)), "groups": groups}
    name = ("conv" if rng.integers(2) else "conv_transpose") + f"{d}d"
    if min(y.shape[2:]) < 3:
        return x
    return getattr(F, name)(y, kernel, **settings)[0]


def product(rng: Rng, x: Any) -> Any:
    axis = axis_of(rng, x)
    return torch.tensordot(numbers(rng, x, (3, x.shape[axis])), x, dims=([1], [axis]))


def mapped(rng: Rng, x: Any) -> Any:
    c = numbers(rng, x)
    return torch.vmap(lambda r, w: (r * w).sum() * w + r.cumsum(0) if r.ndim else r * w)(x, c)


def transformed(rng: Rng, x: Any) -> Any:
    axis = axis_of(rng, x)
    y = torch.fft.ifft(torch.fft.fft(x, dim=axis) * 2, dim=axis)
    return y if x.is_complex() else y.real.to(x.dtype)


def derivative(rng: Rng, x: Any) -> Any:
    c = numbers(rng, x)

    def f(z: Any) -> Any:
        y = z * z * c
        y[:1] += z[:1] * z[-1:]
        return y.roll(1, 0)

    at = numbers(rng, x)
    return torch.func.jvp(f, (at,), (x,))[1] if rng.integers(2) else torch.func.vjp(f, at)[1](x)[0]


STEPS: dict[str, Step] = {
    "add to a part": added_to_a_part,
    "assign to a part": assigned_to_a_part,
    "shift in itself": shifted_in_itself,
    "workspace": workspace,
    "part": part,
    "unfold": unfolded,
    "reshape": factored,
    "flatten": lambda rng, x: x.flatten(),
    "permute": lambda rng, x: x.permute(*(int(a) for a in rng.permutation(x.ndim))),
    "expand": lambda rng, x: x.unsqueeze(0).expand(2, *x.shape),
    "flip": lambda rng, x: x.flip(axis_of(rng, x)),
    "roll": lambda rng, x: x.roll(int(rng.integers(-4, 5)), axis_of(rng, x)),
    "pad": padded,
    "cat": lambda rng, x: torch.cat([x, numbers(rng, x), 2 * x], axis_of(rng, x)),
    "stack": lambda rng, x: torch.stack([x, x.flip(0)], int(rng.integers(x.ndim + 1))),
    "repeat": lambda rng, x: x.repeat(*[int(n) for n in rng.integers(1, 3, x.ndim)]),
    "scale": lambda rng, x: x * numbers(rng, x),
    "scale in place": lambda rng, x: x.clone().mul_(numbers(rng, x)).add_(1.0),
    "scale along an axis": lambda rng, x: numbers(rng, x, (x.shape[0], *[1] * (x.ndim - 1))) * x + 3,
    "where": lambda rng, x: torch.where(torch.as_tensor(rng.random(tuple(x.shape)) > 0.4), x, x.flip(0) * 0.5),
    "mask": lambda rng, x: x[torch.as_tensor(rng.random(tuple(x.shape)) > 0.2)],
    "index": lambda rng, x: x[torch.as_tensor(rng.integers(-x.shape[0], x.shape[0], (2, 2)))],
    "put": index_put,
    "scatter": scattered,
    "sum": lambda rng, x: x.sum(axis_of(rng, x), keepdim=bool(rng.integers(2))),
    "mean": lambda rng, x: x.mean(axis_of(rng, x)),
    "cumsum": lambda rng, x: x.cumsum(axis_of(rng, x)),
    "diff": lambda rng, x: torch.diff(x, dim=axis_of(rng, x)),
    "triangle": lambda rng, x: x.tril() if x.ndim > 1 else torch.diag(x),
    "product": product,
    "convolve": convolved,
    "vmap": mapped,
    "fft": transformed,
    "derivative": derivative,
    "conjugate": lambda rng, x: assigned_to_a_part(rng, x.conj() * numbers(rng, x)).conj(),
    "complex": lambda rng, x: x if x.is_complex() else (x * (1 + 2j)).conj().imag.to(x.dtype),
}


def run(seed: int, names: list[str], x: Any) -> Any:
    rng = np.random.default_rng(seed)
    for name in names:
        if x.ndim and x.numel() and x.numel() <= MOST:
            x = STEPS[name](rng, x)
    return x


@random_examples(
    60,
    400,
    3000,
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
    names=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
    seed=st.integers(0, 10**6),
    prune=st.booleans(),
)
def test_random_programs(shape: tuple[int, ...], dtype: str, names: list[str], seed: int, prune: bool) -> None:
    def f(x: Any) -> Any:
        return run(seed, names, x)

    matrix, bias = matrix_from_function(f, torch.zeros(shape, dtype=getattr(torch, dtype)), prune=prune)

    def on_arrays(x: np.ndarray) -> Any:
        return f(torch.tensor(x)).resolve_conj().resolve_neg().numpy()

    check_program(matrix, bias.numpy(), on_arrays, shape, dtype)
    assert bias.dtype == getattr(torch, dtype)
