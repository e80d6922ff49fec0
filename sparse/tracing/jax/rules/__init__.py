"""What each operation of JAX does to an array that depends on the input."""
