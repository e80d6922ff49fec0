"""What krylix has for Keras: a layer that solves a linear system. Importing this imports keras: `import krylix.keras`."""

from .layer import Solve

__all__ = ["Solve"]
