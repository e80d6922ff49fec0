"""Any library of the array API standard that has no folder of its own, such as CuPy: eager, without derivatives."""
