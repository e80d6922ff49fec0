"""A clamped elastic plate, by conjugate gradients with algebraic multigrid.

A body that is moved or turned as a whole is not deformed, so that the matrix maps these motions nearly to zero, and no
smoother sees them. Where aggregates are coarse unknowns, coarse levels must hold these motions: `rigid_motions` makes
them of the coordinates of the points, and `near_nullspace` hands them to the hierarchy. By default `amg` finds out that
there are two unknowns per point and coarsens each component by itself, without coordinates. The plate is solved on
finer and finer meshes with the diagonal as preconditioner and with three hierarchies: one that knows constants only,
one that knows the rigid motions, and the default.
"""

import numpy as np
import scipy.sparse as sp
from pyamg.gallery import linear_elasticity

from krylix import linear_solve, preconditioner, rigid_motions

MESHES = (32, 64, 128)
RTOL = 1e-8


def plate(k):
    """The stiffness matrix of k x k points, two unknowns each, and the coordinates of the points `(k * k, 2)`."""
    A, motions = linear_elasticity((k, k), format="bsr")
    points = np.stack([motions[1::2, 2], -motions[0::2, 2]], axis=1)  # of pyamg's rotation (-y, x)
    return sp.csr_array(A), points


def counted(A, load, M):
    result = linear_solve(A, load, method="CG", preconditioner=M, rtol=RTOL)  # raises if it fails
    return int(result.iterations), result.x


def main():
    print("points    diagonal   constants   rigid motions   components")
    for k in MESHES:
        A, points = plate(k)
        load = np.zeros((k * k, 2))
        load[points[:, 0] == points[:, 0].max(), 1] = -1.0  # pulls one side down
        kinds = {
            "diagonal": preconditioner(A, "jacobi"),
            "constants": preconditioner(A, "amg", coarsening="smoothed-aggregation", block_size=2),
            "motions": preconditioner(
                A, "amg", coarsening="smoothed-aggregation", near_nullspace=rigid_motions(points)
            ),
            "components": preconditioner(A, "amg"),
        }
        found = {name: counted(A, load.ravel(), M) for name, M in kinds.items()}
        counts = {name: count for name, (count, _) in found.items()}
        print(
            f"{k:3d}^2    {counts['diagonal']:9d}   {counts['constants']:9d}   {counts['motions']:13d}"
            f"   {counts['components']:10d}"
        )
        difference = np.linalg.norm(found["components"][1] - found["diagonal"][1]) / np.linalg.norm(
            found["diagonal"][1]
        )
        if difference > 1e-4:
            raise SystemExit(f"two preconditioners gave answers that differ by {difference:.1e}")
    print(kinds["components"])
    fewer = max(counts["motions"], counts["components"])
    if fewer > 25 or counts["diagonal"] < 10 * fewer:
        raise SystemExit("both should have taken a tenth of the iterations with the diagonal, and no more than 25")


if __name__ == "__main__":
    main()
