"""Arrays that are spread over several devices, and the types that JAX gives them."""
