"""A steel beam with rubber bushings bends: elasticity assembled by scikit-fem as SciPy matrices, solved by krylix.

The beam is clamped on its left and pulled down on its right end. scikit-fem hands over the stiffness matrix as a
`scipy.sparse.csr_matrix` and takes the displacement back as a NumPy array, so `linear_solve` stands where the script
would have `scipy.sparse.linalg.spsolve`, which here checks the answer. Rubber is thousands of times softer than steel:
the diagonal of the matrix varies as much, and Jacobi preconditioning pays. `elasticity_scikit_fem.png` shows the
bent mesh.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse.linalg
import skfem
from skfem.models.elasticity import lame_parameters, linear_elasticity

from krylix import linear_solve

LENGTH, HEIGHT = 0.3, 0.1  # m
CELLS = (54, 18)
BUSHINGS = [(0.1, 0.05), (0.2, 0.05)]  # centres
RADIUS = 0.03
STEEL, RUBBER = (210e9, 0.3), (50e6, 0.45)  # Young's modulus in Pa, Poisson's ratio
LOAD = 15e6  # downwards on the right end, Pa


def beam():
    """Triangles, those near the circles' rims moved on to the rims."""
    mesh = skfem.MeshTri.init_tensor(*(np.linspace(0, a, n + 1) for a, n in zip((LENGTH, HEIGHT), CELLS)))
    points = mesh.p.copy()
    for centre in BUSHINGS:
        offset = points - np.reshape(centre, (2, 1))
        distance = np.hypot(*offset)
        near = np.abs(distance - RADIUS) < 0.45 * HEIGHT / CELLS[1]
        points[:, near] += (RADIUS / distance[near] - 1) * offset[:, near]
    mesh = skfem.MeshTri(points, mesh.t)
    x, y = points[:, mesh.t].mean(axis=1)
    rubber = np.any([np.hypot(x - cx, y - cy) < RADIUS for cx, cy in BUSHINGS], axis=0)
    mesh = mesh.with_subdomains({"steel": np.flatnonzero(~rubber), "rubber": np.flatnonzero(rubber)})
    return mesh.with_boundaries({"left": lambda x: x[0] < 1e-9, "right": lambda x: x[0] > LENGTH - 1e-9})


def assemble(mesh):
    """Basis, stiffness matrix and load vector."""
    element = skfem.ElementVector(skfem.ElementTriP2())
    basis = skfem.Basis(mesh, element)
    stiffness = sum(
        linear_elasticity(*lame_parameters(*material)).assemble(basis.with_elements(name))
        for name, material in (("steel", STEEL), ("rubber", RUBBER))
    )
    pull = skfem.LinearForm(lambda v, w: -LOAD * v[1])
    return basis, stiffness, pull.assemble(skfem.FacetBasis(mesh, element, facets="right"))


def draw(mesh, displacement, magnification, name):
    fig, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
    bent = mesh.p + magnification * displacement
    ax.triplot(*mesh.p, mesh.t.T, color="0.85", linewidth=0.5)
    colours = ax.tripcolor(*bent, mesh.t.T, 1e3 * np.hypot(*displacement), shading="gouraud")
    ax.triplot(*bent, mesh.t[:, mesh.subdomains["steel"]].T, color="k", linewidth=0.3)
    ax.triplot(*bent, mesh.t[:, mesh.subdomains["rubber"]].T, color="w", linewidth=0.3)
    fig.colorbar(colours, label="displacement (mm)", shrink=0.7)
    title = f"Steel beam (black) with rubber bushings (white), displacement x {magnification}"
    ax.set(aspect="equal", title=title, xlabel="x (m)", ylabel="y (m)")
    fig.savefig(name, dpi=120)


def main():
    mesh = beam()
    basis, stiffness, load = assemble(mesh)
    clamped = basis.get_dofs("left")
    A, b, u, free = skfem.condense(stiffness, load, D=clamped)
    diagonal = A.diagonal()
    print(f"{type(A).__name__} {A.shape}, {A.nnz} entries, diagonal from {diagonal.min():.0e} to {diagonal.max():.0e}")

    start = time.perf_counter()
    reference = scipy.sparse.linalg.spsolve(A.tocsc(), b)
    print(f"SciPy's spsolve: {time.perf_counter() - start:.2f} s")
    for method, preconditioner in (("CG", None), ("CG", "jacobi"), ("scipy-direct", None)):
        start = time.perf_counter()
        result = linear_solve(A, b, method=method, preconditioner=preconditioner, max_iter=50_000)
        seconds = time.perf_counter() - start
        difference = np.linalg.norm(result.x - reference) / np.linalg.norm(reference)
        print(
            f"{method:>12}, preconditioner {preconditioner!s:6}: {int(result.iterations):5d} iterations, "
            f"{seconds:.2f} s, differs from spsolve by {difference:.0e}"
        )
        if not difference < 1e-6:
            raise SystemExit("krylix and SciPy disagree")

    u[free] = result.x
    upwards = (stiffness @ u - load)[clamped.all("u^2")].sum()
    print(f"the clamp holds {upwards / 1e3:.3f} kN per metre of depth, the load is {LOAD * HEIGHT / 1e3:.3f} kN")
    displacement = u[basis.nodal_dofs]
    print(f"the end sinks by {-1e3 * displacement[1].min():.2f} mm")
    draw(mesh, displacement, 30, "elasticity_scikit_fem.png")
    if not abs(upwards / (LOAD * HEIGHT) - 1) < 1e-6:
        raise SystemExit("the forces are not in balance")


if __name__ == "__main__":
    main()
