"""What the functions of NumPy do to arrays that depend linearly on the input."""
