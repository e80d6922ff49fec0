"""KSP and PC of PETSc behind the Method interface."""
