"""krylix for Keras: a layer that solves a linear system. `import krylix.keras` imports keras."""

from .layer import Solve

__all__ = ["Solve"]
