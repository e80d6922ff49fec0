"""krylix as the solver of other packages, a module for each, which is imported by name: `import krylix.adapters.skfem`.

`skfem`, `fipy`, `pymatsolver`, `jax_fem`, `phiflow` and `lineax`; docs/adapters.md shows each in use. A module may
import its package.
"""
