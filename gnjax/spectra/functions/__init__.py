"""Functions of a matrix with their errors: solutions, inverses, traces of f(A)."""
