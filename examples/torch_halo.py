"""A gradient through a solve that is cut over PyTorch processes: `torchrun --nproc-per-node 2 examples/torch_halo.py`.

A plate conducts heat, and each process holds some rows of it: temperatures and conductivities. `Halo` fetches border
rows from the neighbours and, in the backward pass, carries their gradients back. A distributed simulation in PyTorch
has that anyway; with it and `over=`, the process group, a solve is differentiable by what each process holds. Started
by plain `python`, the example is one process.
"""

import torch
import torch.distributed as dist

from krylix import linear_solve

N = 48


class Halo(torch.autograd.Function):
    """The rows of this process between the last one above and the first one below; zeros at the rim."""

    @staticmethod
    def forward(ctx, u):
        above, below = exchanged(u[0], u[-1])
        return torch.cat([above[None], u, below[None]])

    @staticmethod
    def backward(ctx, g):
        above, below = exchanged(g[0], g[-1])  # gradients of the rows that were fetched go back to their owners
        inner = g[1:-1].clone()
        inner[0] += above
        inner[-1] += below
        return inner


def exchanged(first, last):
    """What the neighbours above and below send, who get `first` and `last`."""
    rank, size = dist.get_rank(), dist.get_world_size()
    from_above, from_below = torch.zeros_like(first), torch.zeros_like(last)
    pairs = [(first, from_above, rank - 1), (last, from_below, rank + 1)]
    calls = []
    for out, arriving, other in pairs:
        if 0 <= other < size:
            calls += [dist.P2POp(dist.isend, out.contiguous(), other), dist.P2POp(dist.irecv, arriving, other)]
    for request in dist.batch_isend_irecv(calls) if calls else []:
        request.wait()
    return from_above, from_below


def faces(k):
    """Conductivities between the cells of this process and their neighbours above and below, left and right."""
    wide = torch.nn.functional.pad(Halo.apply(k), (1, 1))
    across, along = wide[:, 1:-1], wide[1:-1]
    return (across[1:] + across[:-1]) / 2, (along[:, 1:] + along[:, :-1]) / 2


def diffusion(u, across, along):
    """-div(k grad u) of this process's rows, u = 0 outside."""
    wide = torch.nn.functional.pad(Halo.apply(u), (1, 1))
    flow_across, flow_along = across * torch.diff(wide[:, 1:-1], dim=0), along * torch.diff(wide[1:-1], dim=1)
    return -torch.diff(flow_across, dim=0) - torch.diff(flow_along, dim=1)


def total(x):
    """The sum over all processes, without derivatives."""
    found = x.detach().clone()
    dist.all_reduce(found)
    return found


def energy(k, b):
    """Of this process's part; that of the whole is the sum over all of them."""
    x = linear_solve(diffusion, b, args=faces(k), method="CG", rtol=1e-10, over=dist.group.WORLD).x
    return torch.sum(b * x)


def main():
    torch.set_num_threads(1)
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = slice(N * rank // size, N * (rank + 1) // size)
    torch.manual_seed(0)  # the same in every process
    k_all, b_all, direction_all = (f(N, N, dtype=torch.float64) for f in (torch.rand, torch.randn, torch.randn))
    k, b, direction = 1 + k_all[rows], b_all[rows], direction_all[rows]

    k.requires_grad_()
    value = energy(k, b)
    value.backward()
    slope = total(torch.sum(k.grad * direction))

    with torch.no_grad():
        step = 1e-4
        difference = total(energy(k + step * direction, b) - energy(k - step * direction, b)) / (2 * step)
    if rank == 0:
        print(f"{size} processes, {N} x {N} cells")
        print(f"derivative along a direction: {slope:.10f}, by differences {difference:.10f}")
    dist.barrier()  # nobody leaves while another one waits for a message
    dist.destroy_process_group()
    if not abs(slope - difference) <= 1e-6 * abs(difference):
        raise SystemExit("the gradient is wrong")


if __name__ == "__main__":
    main()
