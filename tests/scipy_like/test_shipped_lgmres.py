"""SciPy's own tests of `scipy.sparse.linalg._isolve`, test_lgmres, with our functions."""

from scipy_shipped import shipped_tests

globals().update(shipped_tests("_isolve.tests.test_lgmres"))
