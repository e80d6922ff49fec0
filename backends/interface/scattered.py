"""Deterministic pseudo-random numbers from a formula: no generator, and the same in every library."""

from __future__ import annotations

from typing import Any

from .arrays import Array


def scattered(xp: Any, index: Array) -> Array:
    """Pseudo-random numbers in [-0.5, 0.5); `xp` is NumPy or a library with its names."""
    waves = xp.sin(12.9898 * index) * 43758.5453
    return waves - xp.floor(waves) - 0.5
