"""Methods that minimise `|b - A x|`, for matrices of any shape."""
