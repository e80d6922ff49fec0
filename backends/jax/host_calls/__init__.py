"""Host callbacks from JAX programs: reports of failures, second attempts, set-up by NumPy."""
