"""Operations by name: `choose_backend(x).sin(x)`, on every library.

    table     OPERATIONS: every name, its group, and what it can be used in; other words for the same operations
    binding   what a name stands for on a library: its own function, one composed of the standard's, or the standard's
    names     the names as attributes, for editors and type checkers

The other modules are the groups: functions `name(bk, ...)` made of `bk.xp` and of other operations. A library's own
functions, which win over these, are in the module `operations` of its folder.
"""
