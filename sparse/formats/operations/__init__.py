"""What can be done with matrices: change, add, multiply, select."""
