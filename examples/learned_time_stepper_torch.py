"""How a conductivity grows with temperature, learned through twenty implicit time steps, on PyTorch tensors.

A rod with insulated ends cools: `du/dt = d/dx (k(u) du/dx)` with `k(u) = kappa (1 + alpha u^2)`. A step takes the
conductivity from the temperature before it and solves one linear system for the temperature after it. The matrix is a
function that reads the name `k`, and in a time loop that name means something else in every step; each solve has the
derivative of the function as it was, so the loop is written as it comes to mind.

Two numbers, kappa and alpha, are found from the temperatures at the end of a run: gradient descent with the gradient
through all twenty solves. It is compared with finite differences first.
"""

import torch

from krylix import linear_solve

CELLS, STEPS, DT = 32, 20, 0.02
TRUE = (0.3, 1.5)
START = (0.5, 0.3)
UPDATES = 60


def first_temperatures():
    x = (torch.arange(CELLS, dtype=torch.float64) + 0.5) / CELLS
    return torch.exp(-40 * (x - 0.3) ** 2) + 0.5 * torch.exp(-90 * (x - 0.75) ** 2)


def diffusion(u, k):
    """Minus the divergence of the heat flow; k is given on the faces between cells."""
    flow = k * torch.diff(u) * CELLS
    rim = torch.zeros(1, dtype=u.dtype)
    return -torch.diff(torch.cat([rim, flow, rim])) * CELLS


def run(kappa, alpha):
    """Temperatures after all steps."""
    u = first_temperatures()
    for _ in range(STEPS):
        between = (u[1:] + u[:-1]) / 2
        k = kappa * (1 + alpha * between**2)
        u = linear_solve(lambda v: v + DT * diffusion(v, k), u, method="CG", rtol=1e-12).x  # noqa: B023
    return u


def by_differences(loss, parameters, step=1e-5):
    """The gradient, from two runs for each parameter."""
    found = []
    for i in range(len(parameters)):
        ends = []
        for sign in (1, -1):
            moved = parameters.detach().clone()
            moved[i] += sign * step
            ends.append(loss(moved))
        found.append((ends[0] - ends[1]) / (2 * step))
    return torch.stack(found).detach()


def main():
    measured = run(*torch.tensor(TRUE, dtype=torch.float64))

    def loss(parameters):
        return ((run(*parameters) - measured) ** 2).sum()

    parameters = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(parameters), parameters)
    difference = by_differences(loss, parameters)
    print(f"gradient through {STEPS} solves {gradient.tolist()}, by differences {difference.tolist()}")
    assert torch.allclose(gradient, difference, rtol=1e-5)

    optimiser = torch.optim.LBFGS([parameters], max_iter=UPDATES, tolerance_change=1e-16, line_search_fn="strong_wolfe")

    def evaluate():
        optimiser.zero_grad()
        value = loss(parameters)
        value.backward()
        return value

    optimiser.step(evaluate)
    kappa, alpha = parameters.tolist()
    print(f"kappa {kappa:.4f} (true {TRUE[0]}), alpha {alpha:.4f} (true {TRUE[1]})")
    assert abs(kappa - TRUE[0]) < 1e-3 and abs(alpha - TRUE[1]) < 1e-2


if __name__ == "__main__":
    main()
