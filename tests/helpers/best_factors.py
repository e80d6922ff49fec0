"""The method with sparse factors that "auto" takes for matrices that are not small: it depends on what is installed."""

from krylix.solvers.factors.sparse import providers_of

BEST_FACTORS = "sparse-direct" if len(providers_of(None)) > 1 else "scipy-direct"
