"""What a backend is, part by part.

    backend          arrays, numbers, reductions, updates of vectors and blocks; the class of all of it
    control          loops, branches, states that change for some systems only, calls of the host
    indexing         moving entries: take, segment_sum, pad, permute_dims, flip
    sparse_kernels   products with diagonals, rows of equal length and entries, made of these
    bilinear         a product as a map of values and vector, whose derivatives hold to every order
    linalg           factorisations of dense matrices: `backend.linalg`
    transformations  derivatives, compiling, tracing and vectorising of whole functions
    implicit         what a backend needs to know of a solve in order to differentiate it
    devices          which there are, where an array is, where new ones go: for users
    own_modules      what a library may have in modules beside its backend
    new_arrays       dtypes of new arrays, and the array API standard: for users
    along_axes       Fourier transforms and recurrences along axes
    tree, arrays     what these hand to each other

Names are those of the array standard where it has them. A name stands here if two functions of the library use it, or
if the library can do it faster or alone; whatever else is made of these is a function of the one that needs it.
"""
