"""Partition by METIS, where `pymetis` is installed."""

from __future__ import annotations

import importlib

import numpy as np

from ..errors import UnsupportedOperation
from .graph import Graph


def has_metis() -> bool:
    """Can `pymetis` be imported?"""
    try:
        importlib.import_module("pymetis")
    except ImportError:
        return False
    return True


def by_metis(graph: Graph, parts: int) -> np.ndarray:
    """`(n,)`: part of each unknown. Sizes of parts differ by a few percent.

    Raises:
        UnsupportedOperation: `pymetis` is not installed.

    Source: Karypis & Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs, 1998.
    """
    if not has_metis():
        raise UnsupportedOperation(
            "method='metis' needs the package pymetis, which cannot be imported. Install it (pip install pymetis), or "
            "leave method out."
        )
    metis = importlib.import_module("pymetis")
    _, labels = metis.part_graph(parts, xadj=graph.edges.indptr, adjncy=graph.edges.indices)
    return np.asarray(labels, np.int32)
