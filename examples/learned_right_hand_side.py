"""A network learns the missing term of a diffusion equation, through implicit time steps.

Of a field that follows `du/dt = nu laplace(u) + source(u)` only the diffusion is known, and snapshots of some runs. A
step takes the source explicitly and the diffusion implicitly, `(1 - dt nu laplace) u_new = u + dt source(u)`, one
linear solve for the whole batch of runs. A small network takes the place of the source and is trained so that its runs
of several steps pass through the snapshots: the gradient goes back through every solve of the `lax.scan`.

The network maps a value to the source there. The data come from the source `3 u (1 - u) (u - 0.4)`, of which
the training knows nothing. `learned_right_hand_side.png` compares both, and a run that was not trained on.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from krylix import linear_solve

N, DT, NU = 24, 0.25, 0.4  # cells per side of a periodic square; lengths in cells
RUNS, SNAPSHOTS, STEPS_BETWEEN = 6, 4, 2
UPDATES, WIDTH = 400, 32


def neighbours(u):
    return (jnp.roll(u, 1, -1) + jnp.roll(u, -1, -1) + jnp.roll(u, 1, -2) + jnp.roll(u, -1, -2)) / 4


def left(u):
    """1 - dt nu laplace"""
    return u - 4 * DT * NU * (neighbours(u) - u)


def true_source(u):
    return 3 * u * (1 - u) * (u - 0.4)


def network(weights, u):
    features = 2 * u[..., None] - 1
    for W, c in weights[:-1]:
        features = jnp.tanh(features @ W + c)
    W, c = weights[-1]
    return (features @ W + c)[..., 0]


def first_weights(key):
    """Tanh functions of different places and steepness, and no source at first."""
    keys = jax.random.split(key, 3)
    first = 3 * jax.random.normal(keys[0], (1, WIDTH)), jax.random.normal(keys[1], (WIDTH,))
    second = jax.random.normal(keys[2], (WIDTH, WIDTH)) / WIDTH**0.5, jnp.zeros(WIDTH)
    return [first, second, (jnp.zeros((WIDTH, 1)), jnp.zeros(1))]


def run(source, u, snapshots):
    """Snapshots of a batch of runs (runs, N, N), on a new first axis."""

    def step(u, _):
        b = u + DT * source(u)
        return linear_solve(left, b, x0=u, method="CG", batch_ndim=1).x, None

    def to_next_snapshot(u, _):
        u, _ = jax.lax.scan(step, u, length=STEPS_BETWEEN)
        return u, u

    return jax.lax.scan(to_next_snapshot, u, length=snapshots)[1]


def smooth_start(key, runs):
    """Random fields with values from about -0.1 to 1.1."""
    u = jax.random.normal(key, (runs, N, N))
    for _ in range(6):
        u = neighbours(u) / 2 + u / 2
    return 0.5 + 0.6 * u / jnp.max(jnp.abs(u), axis=(1, 2), keepdims=True)


def misfit(weights, start, snapshots):
    return jnp.mean((run(lambda u: network(weights, u), start, len(snapshots)) - snapshots) ** 2)


@jax.jit
def train(weights, start, snapshots):
    optimiser = optax.adam(optax.cosine_decay_schedule(0.01, UPDATES))

    def update(state, _):
        weights, moments = state
        loss, gradient = jax.value_and_grad(misfit)(weights, start, snapshots)
        change, moments = optimiser.update(gradient, moments)
        return (optax.apply_updates(weights, change), moments), loss

    (weights, _), losses = jax.lax.scan(update, (weights, optimiser.init(weights)), length=UPDATES)
    return weights, losses


def draw(values, learned, losses, fields, name):
    fig, axes = plt.subplots(1, 4, figsize=(14, 3.4), layout="constrained")
    axes[0].semilogy(losses)
    axes[0].set(title="Training", xlabel="update", ylabel="mean squared misfit")
    axes[1].plot(values, true_source(values), "0.6", linewidth=4, label="true")
    axes[1].plot(values, learned, "tab:red", label="learned")
    axes[1].set(title="Source of the equation", xlabel="u", ylabel="source(u)")
    axes[1].legend()
    for ax, (title, u) in zip(axes[2:], fields.items()):
        image = ax.imshow(u.T, origin="lower", cmap="viridis", vmin=0, vmax=1)
        ax.set(title=title, xlabel="x (cells)", ylabel="y (cells)")
    fig.colorbar(image, ax=axes[2:], label="u")
    fig.savefig(name, dpi=100)


def main():
    keys = jax.random.split(jax.random.key(0), 3)
    start = smooth_start(keys[0], RUNS)
    snapshots = run(true_source, start, SNAPSHOTS)
    weights, losses = jax.tree.map(np.asarray, train(first_weights(keys[1]), start, snapshots))
    print(f"{RUNS} runs of {SNAPSHOTS * STEPS_BETWEEN} implicit steps on {N} x {N} cells, {UPDATES} updates")
    print(f"misfit {losses[0]:.1e} -> {losses[-1]:.1e}, {losses[0] / losses[-1]:.0f} times smaller")

    values = jnp.linspace(0, 1, 50)
    learned = network(weights, values)
    wrong = jnp.linalg.norm(learned - true_source(values)) / jnp.linalg.norm(true_source(values))
    new = smooth_start(keys[2], 1)
    sources = (true_source, lambda u: network(weights, u), jnp.zeros_like)
    true, found, without = (run(source, new, 3 * SNAPSHOTS)[-1, 0] for source in sources)
    error, baseline = (float(jnp.linalg.norm(u - true) / jnp.linalg.norm(true)) for u in (found, without))
    print(f"the learned source is wrong by {wrong:.0%}")
    print(f"a new run, three times as long: wrong by {error:.1%}, without a source by {baseline:.0%}")
    draw(
        values,
        learned,
        losses,
        {"A new run, true": true, "with the learned source": found},
        "learned_right_hand_side.png",
    )
    if not losses[-1] < losses[0] / 1000:
        raise SystemExit("the training did not reduce the misfit by a factor of 1000")
    if not error < baseline / 10:
        raise SystemExit("the learned source does not carry over to a new run")


if __name__ == "__main__":
    main()
