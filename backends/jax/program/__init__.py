"""Programs that JAX has traced, in a canonical form: equal where they compute the same, with numbers as arguments."""
