"""Solvers whose set-up is done once: their parts, the class, and its form as a container of arrays."""
