"""Files: matrices in the forms of SciPy and Matrix Market, operators as a description in JSON and arrays."""
