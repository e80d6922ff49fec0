"""Where does the time of a solve go? A profile says it, by lines of this file.

Heat spreads in a plate of blocks whose conductivities differ by a factor of 10 000: a set-up, and five implicit steps
that share it. The profile has every product with the matrix, every application of the preconditioner and every dot
product, inside the step that made them. `profile_a_solve.json` opens in https://ui.perfetto.dev, which draws it.
"""

import numpy as np

import krylix

N, DT = 128, 1.0


def plate():
    """Implicit heat step u -> u - dt div k grad u on N x N cells, u = 0 on the rim."""
    blocks = 10.0 ** np.kron(np.random.default_rng(0).uniform(-2, 2, (8, 8)), np.ones((N // 8, N // 8)))
    wide = np.pad(blocks, 1, mode="edge")
    kx = 2 / (1 / wide[1:, 1:-1] + 1 / wide[:-1, 1:-1])
    ky = 2 / (1 / wide[1:-1, 1:] + 1 / wide[1:-1, :-1])

    def implicit_step(u):
        across = kx * np.diff(np.pad(u, ((1, 1), (0, 0))), axis=0)
        along = ky * np.diff(np.pad(u, ((0, 0), (1, 1))), axis=1)
        return u - DT * (np.diff(across, axis=0) + np.diff(along, axis=1))

    return implicit_step


def spread(f, u, steps):
    """Temperatures after some steps, and the iterations of each."""
    prof, counts = krylix.get_current_profile(), []
    with prof.region("set-up"):
        solver = krylix.prepare(f, u, method="CG", preconditioner="multigrid", rtol=1e-8)
    for k in range(steps):
        with prof.region(f"step {k + 1}"):
            result = solver.solve(u, x0=u)
        u = result.x
        counts.append(int(result.iterations))
    return u, counts


def main():
    f, u = plate(), np.zeros((N, N))
    u[N // 4 : N // 2, N // 3 : N // 2] = 1
    with krylix.profile(save="profile_a_solve.json") as prof:
        end, counts = spread(f, u, 5)
    prof.print(min_duration=1e-3)

    of_kind = {
        kind: sum(event.kind == kind for event in prof.events) for kind in ("product", "preconditioner", "solve")
    }
    print(f"{counts} iterations; calls: {of_kind}")
    assert of_kind["solve"] == 5 and of_kind["preconditioner"] >= sum(counts)
    plain = u
    for _ in range(5):
        plain = krylix.linear_solve(f, plain, x0=plain, method="CG", preconditioner="multigrid", rtol=1e-8).x
    assert np.max(np.abs(plain - end)) <= 1e-6 * np.max(np.abs(u))  # watching changes nothing
    slowest = max((event for event in prof.events if event.kind == "region"), key=lambda event: event.duration)
    print(f"longest: {slowest.name}, {1e3 * slowest.duration:.1f} ms of {1e3 * prof.duration:.1f}")
    print("written to profile_a_solve.json")


if __name__ == "__main__":
    main()
