"""SciPy's own tests of `scipy.sparse.linalg._dsolve`, test_linsolve, with our functions."""

from scipy_shipped import shipped_tests

globals().update(shipped_tests("_dsolve.tests.test_linsolve"))
