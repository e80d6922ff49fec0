"""Direct methods: a factorisation, and refinement until the tolerance is met."""
