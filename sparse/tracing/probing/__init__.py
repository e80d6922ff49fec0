"""The matrix of a function that cannot be looked into, from what it does to some vectors."""
