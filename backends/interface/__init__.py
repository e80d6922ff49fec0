"""What every backend offers, and what it may do faster or alone.

    backend          the class `Backend`: arrays, numbers, reductions, updates of vectors, new arrays
    control          loops, branches, states that change for some systems only, calls of the host
    kernels          moving entries, sparse products as bilinear maps, transforms and recurrences, dense factorisations
    functions        derivatives, of solves too, compiling, tracing and vectorising of whole functions
    devices          which there are, where an array is, where new ones go: for users
    cuts             block distributions over a device mesh
    random_numbers   with and without keys
    containers       pytrees: what of a container is an array, and how to rebuild it
    arrays           types, numbers and checks that these share

Names are those of the array standard where it has them. A name stands here if two functions of the library use it, or
if the library can do it faster or alone; whatever else is made of these is a function of the one that needs it.
"""
