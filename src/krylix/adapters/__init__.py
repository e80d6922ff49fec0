"""krylix as the solver of other packages, a module for each, which is imported by name: `import krylix.adapters.skfem`.

`skfem`, `fipy`, `pymatsolver`, `jax_fem`, `phiflow` and `lineax`; docs/adapters.md shows each in use. Importing one
imports its package, where it needs to.
"""
