"""Derivatives of JAX that krylix defines: of products, solves and transposes, and their refusal."""
