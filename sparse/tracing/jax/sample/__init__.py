"""A few elements of what a function returns, from the elements that they need."""
