"""JAX functions, followed operation by operation."""
