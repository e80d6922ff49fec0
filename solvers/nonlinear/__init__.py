"""Non-linear equations: Newton's method with sparse or dense Jacobians, and exact derivatives of their solutions."""
