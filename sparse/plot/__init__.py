"""Pictures of matrices. Needs matplotlib."""
