"""The blocks of a matrix: of its parameters, and of the samples that it is a sum over."""
