"""A model at a batch as a function of its parameters, and products with its Jacobian."""
