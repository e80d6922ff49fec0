"""krylix for PyTorch: a layer, and solves that `torch.compile` and `torch.export` keep in one graph.

Importing this imports torch: `import krylix.torch`. `krylix.linear_solve` takes tensors without it.
"""

from .functions import solve, solve_sparse
from .layer import Solve

__all__ = ["Solve", "solve", "solve_sparse"]
