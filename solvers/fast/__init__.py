"""Fast diagonalisation: inverses of Kronecker sums along the axes of a grid."""
