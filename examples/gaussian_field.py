"""A Gaussian field with unknown range and size, fitted to 500 noisy observations by its likelihood.

The field on 64 x 64 cells has the precision matrix `tau^2 (kappa^2 - Laplace)^2`, one of the Matérn family: smooth over
distances of about `sqrt(8) / kappa`. A sample of it is seen at 500 cells, with noise. The likelihood of what is seen
needs two log determinants and a solve. `krylix.logdet` and `linear_solve` trace the functions to sparse matrices, and
JAX differentiates both, so that L-BFGS finds kappa and tau. The prepared solver of the posterior then gives its mean,
its standard deviation at each cell (the diagonal of the inverse) and samples. `gaussian_field.png` shows them, and
the likelihood with its derivatives.

Source of the model: Lindgren, Rue and Lindström, J. R. Stat. Soc. B 73 (2011).
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from krylix import linear_solve, logdet, prepare

N, SEEN, NOISE = 64, 500, 0.1
KAPPA, TAU = 0.35, 1.2

jax.config.update("jax_enable_x64", True)


def root(u, kappa):
    """(kappa^2 - Laplace) u, nothing flows through the rim."""
    p = jnp.pad(u, 1, mode="edge")
    return (kappa**2 + 4) * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]


def precision(u, kappa, tau):
    return tau**2 * root(root(u, kappa), kappa)


def posterior(u, kappa, tau, seen):
    """The precision of the field, given what was seen."""
    return precision(u, kappa, tau) + seen * u / NOISE**2


@jax.jit
def minus_log_likelihood(parameters, y, seen):
    """Of the observations y, zero where nothing is seen, but for a constant."""
    kappa, tau = jnp.exp(parameters)
    b = y / NOISE**2
    mean = linear_solve(posterior, b, args=(kappa, tau, seen), method="scipy-direct").x
    of_field = 2 * logdet(root, b, args=(kappa,)).logabsdet + 2 * b.size * jnp.log(tau)
    given_data = logdet(posterior, b, args=(kappa, tau, seen)).logabsdet
    return 0.5 * (given_data - of_field + jnp.vdot(y, y) / NOISE**2 - jnp.vdot(b, mean))


def check_gradient(loss, gradient, parameters):
    """By central differences."""
    h = 1e-4
    slopes = [(loss(parameters + h * e) - loss(parameters - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(gradient(parameters), slopes, rtol=1e-5)
    print(f"derivatives by log kappa and log tau: {np.array(slopes).round(3)}, as by differences")


def draw(panels, seen, kappas, values, slopes):
    fig, axes = plt.subplots(2, 3, figsize=(10, 6.4), layout="constrained")
    limit = np.abs(panels["the field"]).max()
    for ax, (name, field) in zip(axes.flat, panels.items()):
        spread = name == "standard deviation"
        colours = {"cmap": "magma"} if spread else {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
        image = ax.imshow(np.where(seen, field, np.nan) if name == "observations" else field, **colours)
        fig.colorbar(image, ax=ax, shrink=0.8)
        ax.set(title=name, xticks=[], yticks=[])
    ax = axes.flat[-1]
    ax.plot(kappas, values, "o")
    for kappa, value, slope in zip(kappas, values, slopes):
        ends = kappa * np.array([0.94, 1.06])
        ax.plot(ends, value + slope * np.log(ends / kappa), "C1")
    ax.axvline(KAPPA, color="grey", linestyle=":")
    ax.set(title="log likelihood and its derivative", xlabel="kappa")
    fig.savefig("gaussian_field.png", dpi=110)


def main():
    like = jnp.zeros((N, N))
    truth = prepare(precision, like, args=(KAPPA, TAU)).sample(jax.random.key(0))
    rng = np.random.default_rng(1)
    seen = np.zeros(N * N)
    seen[rng.choice(N * N, SEEN, replace=False)] = 1
    seen = seen.reshape(N, N)
    y = seen * (truth + NOISE * rng.standard_normal((N, N)))

    def loss(p):
        return float(minus_log_likelihood(p, y, seen))

    derivative = jax.jit(jax.value_and_grad(minus_log_likelihood))

    def both(p):
        value, slope = derivative(p, y, seen)
        return float(value), np.asarray(slope)

    start = np.log([1.0, 1.0])
    check_gradient(loss, lambda p: both(p)[1], start)
    fit = minimize(both, start, jac=True, method="L-BFGS-B", options={"maxiter": 30, "ftol": 1e-8})
    kappa, tau = np.exp(fit.x)
    print(f"fitted in {fit.nfev} likelihoods: kappa {kappa:.3f}, tau {tau:.3f}; the field has {KAPPA}, {TAU}")
    assert fit.success and abs(np.log(kappa / KAPPA)) < 0.4 and abs(np.log(tau / TAU)) < 0.4

    given = prepare(posterior, like, args=(kappa, tau, jnp.asarray(seen)))
    mean, deviation = given(jnp.asarray(y / NOISE**2)), jnp.sqrt(given.inverse_diagonal())
    errors = np.asarray((mean - truth) / deviation)
    print(f"errors of the mean, in its standard deviations: {errors.std():.2f}")
    assert 0.9 < errors.std() < 1.1
    another = mean + given.sample(jax.random.key(2))
    kappas = KAPPA * np.geomspace(0.5, 1.8, 7)
    values, slopes = zip(*(both(np.array([np.log(k), fit.x[1]])) for k in kappas))
    panels = {
        "the field": truth, "observations": y, "posterior mean": mean, "standard deviation": deviation,
        "a sample given the observations": another,
    }  # fmt: skip
    draw(panels, seen, kappas, -np.array(values), [-slope[0] for slope in slopes])
    print("written to gaussian_field.png")


if __name__ == "__main__":
    main()
