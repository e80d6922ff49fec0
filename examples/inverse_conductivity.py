"""What is inside? The conductivity of a plate, found from a few noisy temperatures, in JAX and in PyTorch.

A plate with cold walls is heated at a spot, and 100 thermometers are read; then at the next spot, six times. The
temperatures u solve `-div(kappa grad u) = heat` for the unknown conductivity kappa(x, y). Starting from a uniform
plate, Adam changes log(kappa) until the computed readings fit the measured ones; a penalty on its slope decides between
the many fields that fit. The gradient goes through `linear_solve`: one more solve per step, with the transposed matrix,
whatever the number of cells.

The physics is written twice, in JAX (with optax) and in PyTorch (with torch.optim); both find the same plate.
`python inverse_conductivity.py --library jax` runs one of them. `inverse_conductivity.png` shows the plates.
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np

from krylix import linear_solve

N, SPOTS, STEPS, RATE = 40, 6, 70, 0.1
NOISE = 0.01  # of the readings, relative to their root mean square
SLOPE = 0.02  # weight of the penalty
SOLVE = {"method": "CG", "rtol": 1e-6, "batch_ndim": 1}


def plate():
    """The true conductivity: a good conductor, a bad one, and a bar."""
    x, y = np.meshgrid(*2 * [(np.arange(N) + 0.5) / N], indexing="ij")
    log = 1.5 * np.exp(-((x - 0.3) ** 2 + (y - 0.35) ** 2) / 0.02) - 1.3 * np.exp(
        -((x - 0.68) ** 2 + (y - 0.3) ** 2) / 0.03
    )
    return np.exp(log + 1.0 * np.exp(-((x + y - 1.35) ** 2) / 0.01 - (x - y) ** 2 / 0.15))


def heating():
    """(SPOTS, N, N), a hot spot each."""
    x, y = np.meshgrid(*2 * [(np.arange(N) + 0.5) / N], indexing="ij")
    angle = 2 * np.pi * np.arange(SPOTS)[:, None, None] / SPOTS
    return np.exp(-((x - 0.5 - 0.3 * np.cos(angle)) ** 2 + (y - 0.5 - 0.3 * np.sin(angle)) ** 2) / 0.005) * 50


THERMOMETERS = np.arange(2, N, 4)  # rows and columns


# ---- JAX ----


def with_jax(heat, readings):
    import jax
    import jax.numpy as jnp
    import optax

    jax.config.update("jax_enable_x64", True)

    def faces(kappa, axis):
        padded = jnp.pad(kappa, [(1, 1) if a == axis else (0, 0) for a in range(2)], mode="edge")
        left, right = jnp.moveaxis(padded, axis, 0)[:-1], jnp.moveaxis(padded, axis, 0)[1:]
        return jnp.moveaxis(2 * left * right / (left + right), 0, axis)

    def conduction(u, kappa_x, kappa_y):
        cold = jnp.pad(u, ((0, 0), (1, 1), (1, 1)))
        across = kappa_x * jnp.diff(cold[:, :, 1:-1], axis=1)
        along = kappa_y * jnp.diff(cold[:, 1:-1], axis=2)
        return -(jnp.diff(across, axis=1) + jnp.diff(along, axis=2)) * N**2

    def temperatures(kappa):
        return linear_solve(conduction, jnp.asarray(heat), args=(faces(kappa, 0), faces(kappa, 1)), **SOLVE).x

    def misfit(log):
        error = temperatures(jnp.exp(log))[:, THERMOMETERS][:, :, THERMOMETERS] - readings
        slope = sum(jnp.sum(jnp.diff(log, axis=axis) ** 2) for axis in range(2))
        return jnp.mean(error**2) / np.mean(readings**2) / NOISE**2 + SLOPE * slope

    adam = optax.adam(RATE)

    def step(state, _):
        log, moments = state
        loss, gradient = jax.value_and_grad(misfit)(log)
        change, moments = adam.update(gradient, moments)
        return (optax.apply_updates(log, change), moments), loss

    @jax.jit
    def descend(log):
        return jax.lax.scan(step, (log, adam.init(log)), length=STEPS)

    (log, _), losses = descend(jnp.zeros((N, N)))
    return np.exp(np.asarray(log)), np.asarray(losses)


# ---- PyTorch ----


def with_torch(heat, readings):
    import torch

    heat, measured = torch.as_tensor(heat), torch.as_tensor(readings)
    thermometers = torch.as_tensor(THERMOMETERS)

    def faces(kappa, axis):
        first, last = kappa.narrow(axis, 0, 1), kappa.narrow(axis, N - 1, 1)
        left, right = torch.cat([first, kappa], axis), torch.cat([kappa, last], axis)
        return 2 * left * right / (left + right)

    def conduction(u, kappa_x, kappa_y):
        cold = torch.nn.functional.pad(u, (1, 1, 1, 1))
        across = kappa_x * torch.diff(cold[:, :, 1:-1], dim=1)
        along = kappa_y * torch.diff(cold[:, 1:-1], dim=2)
        return -(torch.diff(across, dim=1) + torch.diff(along, dim=2)) * N**2

    def misfit(log):
        kappa = torch.exp(log)
        u = linear_solve(conduction, heat, args=(faces(kappa, 0), faces(kappa, 1)), **SOLVE).x
        error = u[:, thermometers][:, :, thermometers] - measured
        slope = sum((torch.diff(log, dim=axis) ** 2).sum() for axis in range(2))
        return (error**2).mean() / (measured**2).mean() / NOISE**2 + SLOPE * slope

    log = torch.zeros(N, N, dtype=torch.float64, requires_grad=True)
    adam, losses = torch.optim.Adam([log], lr=RATE), []
    for _ in range(STEPS):
        adam.zero_grad()
        loss = misfit(log)
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return np.exp(log.detach().numpy()), np.array(losses)


# ---- the experiment ----


def measure(kappa, heat):
    """Noisy readings, made with SciPy matrices, and not with the code that is to explain them."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import spsolve

    cells = np.arange(N * N).reshape(N, N)
    rows, columns, values = [], [], []
    for axis in range(2):
        k, c = np.moveaxis(kappa, axis, 0), np.moveaxis(cells, axis, 0)
        inner = 2 * k[:-1] * k[1:] / (k[:-1] + k[1:]) * N**2
        for here, there in ((c[:-1], c[1:]), (c[1:], c[:-1])):
            rows += [here, here]
            columns += [here, there]
            values += [inner, -inner]
        for wall in (0, -1):
            rows.append(c[wall]), columns.append(c[wall]), values.append(k[wall] * N**2)
    i, j, v = (np.concatenate([np.ravel(a) for a in parts]) for parts in (rows, columns, values))
    u = spsolve(csc_array((v, (i, j))), heat.reshape(SPOTS, -1).T).T.reshape(heat.shape)
    readings = u[:, THERMOMETERS][:, :, THERMOMETERS]
    noise = np.random.default_rng(0).normal(size=readings.shape)
    return readings + NOISE * np.sqrt(np.mean(readings**2)) * noise


def error_of(kappa, truth):
    return np.linalg.norm(np.log(kappa) - np.log(truth)) / np.linalg.norm(np.log(truth))


def draw(plates, name):
    fig, axes = plt.subplots(1, len(plates), figsize=(4 * len(plates), 3.6), layout="constrained")
    for ax, (title, kappa) in zip(axes, plates.items()):
        image = ax.imshow(np.log(kappa).T, origin="lower", extent=(0, 1, 0, 1), cmap="RdBu_r", vmin=-1.5, vmax=1.5)
        ax.set(title=title, xlabel="x / side", ylabel="y / side")
        x, y = np.meshgrid(*2 * [(THERMOMETERS + 0.5) / N])
        ax.plot(x, y, "k.", markersize=2)
    fig.colorbar(image, label="log conductivity", shrink=0.9)
    fig.savefig(name, dpi=100)


def main():
    parser = argparse.ArgumentParser(description="Find a plate's conductivity from noisy temperatures.")
    parser.add_argument("--library", choices=("jax", "torch", "both"), default="both")
    library = parser.parse_args().library
    truth, heat = plate(), heating()
    readings = measure(truth, heat)
    print(f"{readings.size} readings with {NOISE:.0%} noise, {N * N} unknown conductivities")
    print(f"a uniform plate is wrong by {error_of(np.ones_like(truth), truth):.0%} (log conductivity)")
    plates = {"true": truth}
    for name, run in {"jax": with_jax, "torch": with_torch}.items():
        if library in (name, "both"):
            start = time.perf_counter()
            plates[name], losses = run(heat, readings)
            print(
                f"{name:5}: {STEPS} steps, misfit {losses[0]:.0f} -> {losses[-1]:.2f}, wrong by "
                f"{error_of(plates[name], truth):.1%}, {time.perf_counter() - start:.1f} s"
            )
    draw(plates, "inverse_conductivity.png")
    if not all(error_of(kappa, truth) < 0.2 for kappa in plates.values()):
        raise SystemExit("the recovered plate is not the true one")
    if library == "both" and not np.allclose(plates["jax"], plates["torch"], rtol=1e-3):
        raise SystemExit("JAX and PyTorch do not find the same plate")


if __name__ == "__main__":
    main()
