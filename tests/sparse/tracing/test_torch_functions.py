"""Linear PyTorch functions as matrices: against the functions themselves, applied to unit vectors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import jacobian_matrix, matrix_from_function
from unit_vectors import matrix_of

torch = lazy("torch")
F = lazy("torch.nn.functional")

N = 6
rng = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Tensors that the functions close over: collecting tests imports no framework."""
    global X, W, KERNEL, MANY, INDEX, ORDER, TABLE, MASK, PLACES, DOMINANT, MODULE, SPARSE
    X = torch.zeros(N, N, dtype=torch.float64)
    W = torch.tensor(rng.standard_normal((N, N)))
    KERNEL = torch.tensor(rng.standard_normal((1, 1, 3, 3)))
    MANY = torch.tensor(rng.standard_normal((4, 2, 3, 2)))
    INDEX = torch.tensor(rng.integers(0, N, N))
    ORDER = torch.tensor(rng.permutation(N))
    TABLE = torch.tensor(rng.integers(0, N, (N, N)))
    MASK = W > 0
    PLACES = torch.tensor([[[0, 3, 5], [13, 14, 16], [24, 27, 35]]])
    DOMINANT = W + 5 * torch.eye(N, dtype=X.dtype)
    MODULE = torch.nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular").double().requires_grad_(False)
    SPARSE = torch.where(MASK, W, 0.0)


def image(x: Any) -> Any:
    return x[None, None]


def in_place(x: Any) -> Any:
    y = 4 * x
    y[1:] -= x[:-1]
    y[:-1] -= x[1:]
    y[:, 1:] -= x[:, :-1]
    y[:, :-1] -= x[:, 1:]
    return y


def through_views(x: Any) -> Any:
    y = x.clone()
    y[1:-1] += W[1:-1] * (x[2:] - 2 * x[1:-1] + x[:-2])
    y[0] = 3 * x[0]
    v = y[:, 2:5]
    v.mul_(2.0)
    v[::2].T[1:].add_(x[:3, :2].T)
    y.view(-1)[::7] = 1.0
    y.T[2].copy_(x[2])
    return y


def of_the_shape(x: Any) -> Any:
    """Derivatives at x of functions that are linear: known vectors go in and do not meet x; all but the last."""
    by_small, by_large = W[:3, :3], W.repeat(2, 2)[:8, :8]
    of_pools = (lambda z: F.avg_pool2d(image(z), 2)[0, 0], lambda z: F.adaptive_avg_pool2d(image(z), 3)[0, 0])
    of_pads = (lambda z, mode=mode: F.pad(image(z), (1,) * 4, mode=mode)[0, 0] for mode in ("replicate", "reflect"))
    found = [torch.func.vjp(f, x)[1](by_small)[0] for f in of_pools]
    found += [torch.func.vjp(f, x)[1](by_large)[0] for f in of_pads]
    found += [torch.func.vjp(lambda z: F.conv2d(image(z), KERNEL, padding=1)[0, 0], x)[1](W)[0]]
    return sum(found) + torch.func.vjp(of_pools[1], x)[1](x[3:, :3])[0] + x


def workspace(x: Any) -> Any:
    y = torch.empty(N + 2, N + 2, dtype=x.dtype)
    y.zero_()
    y[1:-1, 1:-1] = x
    flat = y.reshape(-1)
    y[0], y[-1] = y[1], 2 * y[-2]
    return y[2:, 1:-1] + y[:-2, 1:-1] + flat[: N * N].view(N, N)


def writes_to_the_input(x: Any) -> Any:
    x[0] = 0
    x[:, 1] *= 3
    return x + x.T


def swapped(x: Any) -> Any:
    y = x.clone()
    y[[0, 1]] = y[[1, 0]]
    a, b = y.split(3)
    a += b
    return torch.cat([b, a.flip(0)])


def overwritten(x: Any) -> Any:
    y = torch.relu(x)
    y.copy_(x)
    z = torch.zeros(N, N, dtype=x.dtype)
    z[2:4] = x[:2]
    z.fill_(2.0)
    return y + z


def looped(x: Any) -> Any:
    rows = [x[0]]
    for i in range(1, N):
        rows.append(0.5 * rows[-1] + x[i])
    return torch.stack(rows, 1)


def energy(z: Any) -> Any:
    return (W * z**2).sum() + (z[1:] * z[:-1]).sum()


def with_own_gradient(x: Any) -> Any:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return 3 * x.flip(0)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 3 * g.flip(0)

    return Own.apply(x) + x


def added_to_lists(x: Any) -> Any:
    """One tensor is in the list twice, and gets both sums."""
    y, z = x.clone(), 2 * W
    torch._foreach_add_([y, y, z], [x.T, W, x], alpha=3)
    torch._foreach_mul_([y, z], 2.0)
    torch._foreach_copy_([z[0]], [x[1]])
    return y + z


def gradient_of_energy(x: Any) -> Any:
    z = x.detach().requires_grad_()
    return torch.autograd.grad(energy(z), z)[0]


def transpose_of_convolution(x: Any) -> Any:
    return torch.func.vjp(lambda z: F.conv2d(image(z), KERNEL, stride=2, padding=1, dilation=2), X)[1](
        image(x[:2, :2])
    )[0]


def diagonals(x: Any) -> Any:
    return torch.tril(x, 1) + torch.triu(x) + torch.diag(x[0]) + torch.diag_embed(x)[2] + x.diagonal()


def unfolded(x: Any) -> Any:
    return x.unfold(0, 3, 1).sum(-1) + x.unfold(0, 3, 1)[:, :, 1]


def strided(x: Any) -> Any:
    return x.as_strided((3, 4), (2, 5), 1) + x.t()[1:4, :4] + x[::2, ::2].repeat(1, 2)[:, :4]


def parts_of_complex_memory(x: Any) -> Any:
    y = x + 0j
    y.real.mul_(2)
    y.imag += x.T
    y.real[0] = x[1]
    pairs = torch.stack([x, x.T], -1)
    numbers = torch.view_as_complex(pairs)
    numbers *= 1j
    numbers[0] = 0
    return torch.cat([y * (1 + 1j), numbers]).real + pairs.repeat(2, 1, 1)[..., 1]


def written_out(x: Any) -> Any:
    """Into tensors that are given, and made larger where they are empty."""
    larger = torch.empty(0, dtype=x.dtype)
    torch.add(x, 1, out=larger)
    y = torch.zeros(12, 12, dtype=x.dtype)
    torch.mul(x, W, out=y[::2, 1:12:2])
    torch.cat([x, x], out=y[:, :6])
    return torch.cat([larger.repeat(2, 2) * 2, y])


def of_elements(x: Any) -> Any:
    y = torch.zeros(N, N, dtype=x.dtype)
    for i in range(N):
        for j in range(3):
            y[i, j] = x[j, i] * (i + 1)
    return y


def by_masks(x: Any) -> Any:
    y = x.clone()
    y[W > 0] *= 3
    y[W < -0.5] = x.T[W < -0.5]
    y[0].masked_fill_(W[0] > 0, 1.0)
    torch.where(MASK[1], y[1], 2 * y[2], out=y[1])
    return y


def exchanged(x: Any) -> Any:
    y = torch.empty(2 * N, N, dtype=x.dtype)
    a, b = y[:N], y[N:]
    a.copy_(x)
    b.copy_(a)
    a.add_(b.T)
    b.mul_(2)
    return y


def second_derivative(x: Any) -> Any:
    z = W.clone().requires_grad_()
    (g,) = torch.autograd.grad((torch.tanh(z) * torch.sigmoid(z) + torch.relu(z)).sum(), z, create_graph=True)
    return torch.autograd.grad(g, z, x)[0]


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "in place": in_place,
    "through views": through_views,
    "workspace": workspace,
    "writes to the input": writes_to_the_input,
    "swapped": swapped,
    "overwritten": overwritten,
    "looped": looped,
    "parts of complex memory": parts_of_complex_memory,
    "written out": written_out,
    "of elements": of_elements,
    "by masks": by_masks,
    "exchanged": exchanged,
    "second derivative": second_derivative,
    "compiled": lambda x: torch.compile(lambda y: 2 * y + y.roll(1, 0), backend="eager")(x),
    "module": lambda x: MODULE(image(x))[0, 0],
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: 2 * y.roll(1, 0), x, use_reentrant=False),
    "strided": strided,
    "affine": lambda x: 2 * x + W - 1,
    "numbers": lambda x: (3 - x) / 2 + torch.rsub(x, 4, alpha=2) - 0.5 * x.sub(W, alpha=3),
    "broadcast": lambda x: x[0] * W[:, :1] + x[:, 1:2] / (W[1] + 4) + x.sum(),
    "identity": lambda x: x,
    "constant": lambda x: torch.ones(3, dtype=x.dtype),
    "zero of it": lambda x: 0 * x,
    "addcmul": lambda x: torch.addcmul(W, x, W, value=2) + torch.addcdiv(x, x, W + 4) + torch.lerp(x, W, 0.3),
    "lerp": lambda x: torch.lerp(W, x, torch.abs(W)),
    "power": lambda x: x**1,
    "negated": lambda x: torch.neg(x) + torch.positive(x[0]) - -x,
    **{
        f"pad-{mode}": lambda x, mode=mode: F.pad(image(x), (2, 1, 1, 3), mode=mode)[0, 0]
        for mode in ("constant", "circular", "replicate", "reflect")
    },
    "pad-cut": lambda x: F.pad(x, (-1, 2, 1, -2), value=3.0),
    "pad1d": lambda x: F.pad(x[None], (1, 2), mode="replicate") + F.pad(x[None], (2, 1), mode="reflect"),
    "roll": lambda x: torch.roll(x, (1, -2), (0, 1)) - x.roll(3) + x.roll(-7, 1),
    "flips": lambda x: x.flip(0) + x.fliplr() + torch.rot90(x) + x.flip((0, 1)),
    "cat": lambda x: torch.cat([x[1:] - x[:-1], W, x[:1], torch.zeros(0, dtype=x.dtype)]),
    "stack": lambda x: torch.stack([x, 2 * x, W], -1).mean(-1),
    "hstack": lambda x: torch.hstack([x, x.T, W]) + torch.block_diag(x, x, x)[:N],
    "split": lambda x: torch.cat(x.split((1, 2, 3), 1)[::-1], 1) + torch.cat(x.chunk(3)) + x.unbind(0)[2],
    "repeat": lambda x: x.repeat(2, 1) + torch.tile(x, (2, 1)) + x.repeat_interleave(2, 0),
    "many copies": lambda x: x[0].expand(20, N) + x[1].repeat(20, 1),
    "permuted": lambda x: x.reshape(2, 3, N).permute(2, 0, 1).contiguous().view(N, 2, 3).movedim(0, 1) + 1,
    "added transposed": lambda x: (x.T + x.T).reshape(-1)[1:] + (x.T * W).T.reshape(-1)[1:],
    "squeezed": lambda x: x[:, None, :, None].squeeze().unsqueeze(0).flatten(),
    "diagonals": diagonals,
    "unfold": unfolded,
    "slice_scatter": lambda x: x.slice_scatter(x[1:], 0, 0, 5) + W.slice_scatter(x[::2, :], 0, 0, None, 2),
    "select_scatter": lambda x: x.select_scatter(x[0], 0, 2) + x.diagonal_scatter(x[0]),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, x[0], (N,), (7,), 0),
    "index": lambda x: x[INDEX] * W + x[INDEX, ORDER] + x[:, INDEX] + x[-1] + x[..., None][0],
    "index two apart": lambda x: x.reshape(2, 3, N)[torch.tensor([0, 1]), :, torch.tensor([1, -1])],
    "bool index": lambda x: x[MASK].sum() * W[0] + x[MASK[0]].sum(0),
    "bool assignment": lambda x: torch.where(MASK, x, 0.0) + torch.zeros_like(x).masked_scatter(MASK, x),
    "masks": lambda x: x.masked_fill(MASK, 3.0) + x.masked_select(MASK)[0] + torch.where(MASK, 2.0, x.T),
    "assign by mask": lambda x: torch.clone(x).index_put_((MASK,), torch.tensor(2.0, dtype=x.dtype)),
    "index_put": lambda x: x.index_put((INDEX,), x[ORDER], accumulate=True) + W.index_put((ORDER,), x),
    "take": lambda x: x.take(TABLE) + x.take_along_dim(TABLE, 1) + torch.take(x, torch.tensor(-3)),
    "put": lambda x: x.put(TABLE[0] + 1, x[0], accumulate=True) + W.put(ORDER, x[1]),
    "gather": lambda x: x.gather(1, TABLE) + x.gather(0, TABLE[:, :]).T,
    "index_select": lambda x: (
        x.index_select(0, INDEX) + x.index_select(1, torch.arange(N)) + x[0].index_select(0, INDEX)
    ),
    "index_add": lambda x: x.index_add(0, INDEX, x, alpha=2) + W.index_add(1, INDEX, x),
    "index_copy": lambda x: x.index_copy(0, ORDER, 2 * x) + x.index_fill(1, INDEX, 3.0),
    "scatter": lambda x: x.scatter(0, ORDER[:, None].expand(N, N), W) + W.scatter(1, ORDER[None], x[:1]),
    "scatter_add": lambda x: x.scatter_add(0, TABLE, x) + torch.zeros(N, N, dtype=x.dtype).scatter_add(1, TABLE[:3], x),
    "scatter_reduce": lambda x: (
        x.scatter_reduce(0, TABLE, x, "sum") + x.scatter_reduce(0, TABLE, x, "mean", include_self=False)
    ),
    "scatter numbers": lambda x: x.scatter(0, TABLE[:1], 2.5).scatter_(1, TABLE[:, :1], 2.0, reduce="multiply"),
    "embedding": lambda x: F.embedding(TABLE, x),
    "diff": lambda x: torch.diff(x, dim=0) @ W + torch.gradient(x, dim=1)[0][1:],
    "sums": lambda x: x.mean(0) + x.mean() + x.sum(1, keepdim=True) + x.sum((0, 1)) + torch.trace(x),
    "cumsum": lambda x: x.cumsum(0) - x.flip(1).cumsum(1) + torch.cumulative_trapezoid(x, dim=0)[:1],
    "trapezoid": lambda x: torch.trapezoid(x, dx=0.3),
    "products": lambda x: W @ x + x @ W[:3].T @ W[:3] + torch.outer(x[0], W[0]) + torch.kron(x, W[:1, :1]),
    "vectors": lambda x: W @ x[0] + x @ W[0] + torch.dot(x[0], W[1]) + torch.addmv(W[0], x, W[1], beta=2, alpha=3),
    "addmm": lambda x: torch.addmm(W, x, W, beta=0.5, alpha=2) + torch.addmm(x, W, W) + F.linear(x, W, W[0]),
    "addr": lambda x: torch.addr(x, W[0], W[1]) + torch.addr(W, x[0], W[1], alpha=2),
    "batches": lambda x: (
        torch.bmm(W.reshape(2, 3, N), x.expand(2, N, N)).reshape(N, N) + torch.baddbmm(x[None], W[None], x[None])[0]
    ),
    "einsum": lambda x: torch.einsum("ij,jk->ik", W, x) + torch.einsum("ij,ij->j", W, x) + torch.tensordot(x, W, 1),
    "cross": lambda x: torch.linalg.cross(x[:, :3], W[:, :3]) + torch.linalg.cross(W[:, :3], x[:1, 3:]),
    "convolution": lambda x: F.conv2d(image(x), KERNEL, padding=1)[0, 0] + F.conv2d(image(x), KERNEL, padding="same"),
    "convolution strided": lambda x: F.conv2d(image(x), KERNEL, W[0, :1], stride=(2, 1), dilation=(1, 2), padding=2),
    "convolution groups": lambda x: F.conv2d(x.reshape(1, 4, 3, 3), MANY, groups=2, padding=(1, 0)),
    "convolution 1d": lambda x: F.conv1d(x[None], W[:4, :, None].repeat(1, 1, 2), stride=2),
    "convolution 3d": lambda x: F.conv3d(x.reshape(1, 1, 4, 3, 3), KERNEL[None], padding=1),
    "convolution transposed": lambda x: F.conv_transpose2d(
        image(x), KERNEL, stride=2, padding=1, output_padding=1, dilation=2
    ),
    "convolution transposed groups": lambda x: F.conv_transpose2d(x.reshape(1, 4, 3, 3), MANY, groups=2, stride=(1, 2)),
    "convolution with the kernel": lambda x: (
        F.conv2d(image(W), x[None, None, :2, :3], padding=1)
        + F.conv_transpose2d(image(W[:5, :5]), image(x)[..., :3, :2])
    ),
    "transpose of a convolution": transpose_of_convolution,
    "bias": lambda x: F.conv2d(image(W), KERNEL, x[0, :1]),
    "fft": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * W[:, : N // 2 + 1], s=(N, N)),
    "fft odd": lambda x: (
        torch.fft.irfft(torch.fft.rfft(x, norm="ortho", n=5), n=5, norm="ortho")
        + torch.fft.ifft(torch.fft.fftn(x, norm="forward")).real[:, :5]
    ),
    "complex": lambda x: (torch.complex(x, 2 * x) * (1 + 2j)).conj().imag + torch.view_as_real(x + 1j * W)[..., 1],
    "complex results": lambda x: x * (W + 1j * W.T) + torch.view_as_complex(torch.stack([x, 2 * x], -1)),
    "conjugate products": lambda x: torch.vdot(x[0] * 1j, W[0] * (1 + 1j)) + (W * 1j).mH @ (x * (1 + 2j)).adjoint(),
    "sparse": lambda x: SPARSE.to_sparse() @ x + SPARSE.to_sparse_csr() @ x + torch.sparse.mm(SPARSE.to_sparse(), x),
    "sparse vector": lambda x: SPARSE.to_sparse_csr() @ x[0],
    "pooling": lambda x: F.avg_pool2d(x[None], 3, 2, padding=1, ceil_mode=True, count_include_pad=False)[0],
    "pooling all": lambda x: F.avg_pool2d(image(x), (2, 3), divisor_override=5).sum() + F.avg_pool1d(x[None], 2, 1, 1),
    "pooling 3d": lambda x: F.avg_pool3d(x.reshape(1, 1, 3, 4, 3), 2, 1, 1) + F.adaptive_avg_pool2d(image(x), 1)[0, 0],
    "adaptive": lambda x: F.adaptive_avg_pool2d(x[None], (4, 5)) + F.adaptive_avg_pool1d(x, 5)[:4],
    "interpolation": lambda x: (
        F.interpolate(image(x), scale_factor=(2, 1.5), mode="bilinear")
        + F.interpolate(image(x), (12, 9), mode="bilinear", align_corners=True)
    ),
    "interpolation cubic": lambda x: (
        F.interpolate(image(x), (4, 9), mode="bicubic") + F.interpolate(image(x), (4, 9), mode="nearest")
    ),
    "interpolation 1d": lambda x: (
        F.interpolate(x[None], 9, mode="linear")
        + F.interpolate(x.reshape(1, 1, 3, 4, 3), (2, 3, 9), mode="trilinear")[0, :1, 0, :1]
    ),
    "grid": lambda x: F.grid_sample(image(x), W[:, :2].tanh().reshape(1, 3, 2, 2), align_corners=False),
    "patches": lambda x: F.unfold(image(x), 3).sum(-1) + F.fold(F.unfold(image(x), 3), (N, N), 3)[0, 0, 0, :1],
    "shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 4, 3, 3), 2) + F.pixel_unshuffle(image(x), 3)[:, :1, :1, :1],
    "solve": lambda x: torch.linalg.solve(DOMINANT, x) + torch.linalg.solve_triangular(DOMINANT, x, upper=True),
    "reflections": lambda x: (
        torch.ormqr(*torch.geqrf(W), x) + torch.ormqr(*torch.geqrf(W), x, left=False, transpose=True)
    ),
    "inverse": lambda x: torch.linalg.inv(DOMINANT) @ x,
    "vmap": lambda x: torch.vmap(lambda r, w: torch.roll(r, 1) * w - r.flip(0) + w @ r)(x, W),
    "vmap twice": lambda x: torch.vmap(torch.vmap(lambda s, w: s * w + 1))(x, W),
    "vmap along axis": lambda x: torch.vmap(lambda c: c.cumsum(0) + W @ c, in_dims=1, out_dims=1)(x),
    "jvp": lambda x: torch.func.jvp(torch.func.grad(energy), (W,), (x,))[1],
    "jvp of in place": lambda x: torch.func.jvp(in_place, (W,), (x,))[1],
    "vjp": lambda x: torch.func.vjp(lambda z: z**3 + z.roll(1, 0) * W, W)[1](x)[0],
    "vjp of indices": lambda x: torch.func.vjp(lambda z: z[INDEX] + z[1:].unfold(0, 2, 1).sum() + z.diagonal(), W)[1](
        x
    )[0],
    "vjp of pads": lambda x: torch.func.vjp(
        lambda z: F.pad(image(z), (1, 1, 1, 1), mode="replicate") + F.pad(image(z), (1, 1, 1, 1), mode="reflect"), W
    )[1](F.pad(image(x), (1, 1, 1, 1)))[0],
    "vjp of resampling": lambda x: torch.func.vjp(
        lambda z: F.avg_pool2d(image(z), 2) + F.interpolate(image(z), (3, 3), mode="bilinear"), W
    )[1](image(x[:3, :3]))[0],
    "vjp of a kernel": lambda x: torch.func.vjp(
        lambda w: F.conv2d(image(W), w, stride=2, padding=1, dilation=(1, 2)), KERNEL
    )[1](image(x[:3, :2]))[0],
    "vjp of a transposed kernel": lambda x: torch.func.vjp(
        lambda w: F.conv_transpose2d(MANY.reshape(2, 4, 3, 2), w, stride=2, padding=1, output_padding=1), MANY
    )[1](x[None, None, :2].expand(2, 2, 2, 6)[..., :3].repeat(1, 1, 3, 1))[0],
    "vjp of a bias": lambda x: torch.func.vjp(lambda b: F.conv2d(image(W), KERNEL, b), W[0, :1])[1](image(x[:4, :4]))[
        0
    ],
    "conv of a kernel's gradient": lambda x: torch.func.vjp(lambda w: F.conv2d(image(x), w), KERNEL)[1](
        image(W[:4, :4])
    )[0],
    "vjp of means": lambda x: torch.func.vjp(
        lambda z: F.avg_pool2d(image(z), 3, 2, padding=1, ceil_mode=True, count_include_pad=False), W
    )[1](image(x[:4, :4]))[0],
    "vjp of means 3d": lambda x: torch.func.vjp(
        lambda z: F.avg_pool3d(z.reshape(1, 3, 4, 3), 2, 1, divisor_override=3), W
    )[1](x[:2].reshape(1, 2, 3, 2))[0],
    "vjp of negative pads": lambda x: torch.func.vjp(
        lambda z: F.pad(image(z), (2, -1, -2, 1), mode="replicate") + F.pad(image(z), (-1, 2, 1, -2), mode="reflect"), W
    )[1](image(torch.cat([x[:5], x[:5, :1]], 1)))[0],
    "vjp where the shape counts": of_the_shape,
    "vjp of a padded output": lambda x: torch.func.vjp(
        lambda z: F.conv_transpose2d(image(z), KERNEL[..., :2, :2], stride=2, output_padding=2, dilation=3), W[:3, :3]
    )[1](image(x.repeat(2, 2)[:10, :10]))[0],
    "diagonal": lambda x: torch.diag(x, 1) + torch.diagonal_copy(x, -1) + torch.permute_copy(x, (1, 0))[1, :5],
    "factors": lambda x: (
        torch.deg2rad(x) + torch.rad2deg(x) + torch.ldexp(x, INDEX) + torch.special.xlog1py(x, W.abs())
    ),
    "likelihood": lambda x: F.nll_loss(x, INDEX, W[0].abs()) + F.nll_loss(x, INDEX, reduction="none"),
    "unpooling": lambda x: (
        F.max_unpool2d(x[None, :3, :3], PLACES, 2)[0] + F.max_unpool1d(x[None, 0, :3], PLACES[:, 0], 2)[0]
    ),
    "unpooling 3d": lambda x: F.max_unpool3d(
        x[:2, :4].reshape(1, 2, 2, 2), torch.tensor([0, 9, 5, 22, 33, 63, 40, 3]).reshape(1, 2, 2, 2), 2
    ),
    "bags": lambda x: F.embedding_bag(INDEX.reshape(2, 3), x, mode="sum", padding_idx=2),
    "bags of means": lambda x: (
        F.embedding_bag(INDEX, x, torch.tensor([0, 3, 3]), mode="mean", padding_idx=int(INDEX[0]))
        + F.embedding_bag(INDEX, x, torch.tensor([0, 3, 4, 6]), mode="mean", include_last_offset=True)
    ),
    "bags of weights": lambda x: (
        F.embedding_bag(INDEX, W, torch.tensor([0, 2]), mode="sum", per_sample_weights=x[1])
        + F.embedding_bag(INDEX, x, torch.tensor([0, 2]), mode="sum", per_sample_weights=W[1])
    ),
    "segments": lambda x: (
        torch.segment_reduce(x, "sum", lengths=torch.tensor([2, 0, 4]))
        + torch.segment_reduce(x, "mean", offsets=torch.tensor([0, 1, 3, 6]))
        + torch.segment_reduce(x, "mean", lengths=torch.tensor([2, 0, 4]), initial=1.5)
    ),
    "segments of rows": lambda x: torch.segment_reduce(
        x.reshape(2, 6, 3), "sum", lengths=torch.tensor([[1, 5], [4, 2]]), axis=1, initial=2
    ),
    "segments of the last axis": lambda x: (
        torch.segment_reduce(x, "sum", lengths=torch.tensor([[2, 4]] * 3 + [[5, 1]] * 3), axis=-1)
        + torch.segment_reduce(x, "mean", offsets=torch.tensor([[0, 2, 6], [1, 3, 6]] * 3), axis=-1)
    ),
    "segments by offsets and lengths": lambda x: torch.segment_reduce(
        x, "sum", lengths=torch.tensor([5, 1]), offsets=torch.tensor([1, 2, 6])
    ),
    "batch norm": lambda x: (
        F.batch_norm(x, W[0], W[1].abs() + 1) + F.batch_norm(x.T, W[0], W[1].abs() + 1, W[2], W[3], eps=0.1)
    ),
    "instance norm": lambda x: F.instance_norm(
        x.reshape(2, 3, 6), W[0, :3], W[1, :3].abs(), W[2, :3], W[3, :3], use_input_stats=False
    ),
    "batch norm of means": lambda x: F.batch_norm(W, x[0], W[1].abs(), W[2], x[1]),
    "vjp of batch norm": lambda x: torch.func.vjp(lambda z: F.batch_norm(z, W[0], W[1].abs(), W[2], W[3]), W)[1](x)[0],
    "bilinear": lambda x: (
        F.bilinear(x, W[:, :2], MANY.reshape(4, 6, 2)) + F.bilinear(W, x[:, :2], MANY.reshape(4, 6, 2))
    ),
    "bilinear weight": lambda x: F.bilinear(W, W.T, x.reshape(1, 6, 6)),
    "lists": lambda x: torch.stack(
        [
            *torch._foreach_add([x, x.T], [x, W], alpha=2),
            *torch._foreach_mul([x, x.T], [2.0, 3.0]),
            *torch._foreach_lerp([x, W], [x.T, x], 0.25),
            *torch._foreach_addcmul([x, W], [W, x], [W, W], 0.5),
            *torch._foreach_div(torch._foreach_neg([x]), 4.0),
            *torch._foreach_addcmul([x, W], [W, x], [W, W], W[0, :2]),
            *torch._foreach_addcdiv([x, W], [W, x], [DOMINANT.exp(), W], torch.tensor([2.0, 3.0])),
            *torch._foreach_mul([x, W], torch.tensor(2.0)),
        ]
    ),
    "lists in place": added_to_lists,
    "antialiased": lambda x: (
        F.interpolate(image(x), (3, 4), mode="bilinear", antialias=True)
        + F.interpolate(image(x), (3, 4), mode="bicubic", antialias=True)
    ),
    "antialiased columns": lambda x: sum(
        F.interpolate(image(x[:, :width]), (rows, 1), mode=mode, antialias=True).sum() * W[rows - 3, width]
        + F.interpolate(x[None, :4].reshape(1, 2, -1, width), (rows, 1), mode=mode, antialias=True)[0, 1, 2]
        + F.interpolate(image(x[:1, :5]), (1, 3), mode=mode, antialias=True)[0, 0, 0]
        for mode in ("bilinear", "bicubic")
        for width in (1, 2, 3)
        for rows in (3, 7)
    ),
    "vjp of antialiased": lambda x: torch.func.vjp(
        lambda z: F.interpolate(image(z), (3, 4), mode="bilinear", antialias=True), W
    )[1](image(x[:3, :4]))[0],
    "gradient of an energy": gradient_of_energy,
    "func.grad of an energy": lambda x: torch.func.grad(energy)(x),
    "autograd.Function": with_own_gradient,
    "no_grad": lambda x: torch.no_grad()(lambda y: 2 * y)(x) + x.detach(),
    "unused": lambda x: (x, (x * x).sum(), torch.relu(x))[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    f = FUNCTIONS[name]
    A, b = matrix_of(lambda x: f(torch.tensor(x)).detach().resolve_conj().numpy(), (N, N))
    for prune in (True, False):
        matrix, bias = matrix_from_function(f, X, prune=prune)
        assert matrix.shape == A.shape and matrix.constant is not None
        np.testing.assert_allclose(matrix.toarray(), A, atol=1e-12)
        assert bias.shape == b.shape
        np.testing.assert_allclose(bias, b, atol=1e-12)


def test_jacobian_of_operators_on_lists() -> None:
    """PyTorch crashes in their forward mode where a tensor is constant, so the reverse one is taken."""
    x, c = torch.arange(3.0, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    J = jacobian_matrix(lambda x: torch.stack(torch._foreach_addcdiv([x, c], [c, x], [c, 2 * c], value=-2.0)), x)
    np.testing.assert_allclose(J.known().toarray(), np.concatenate([np.eye(3), -np.eye(3)]))
