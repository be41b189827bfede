"""Operators of networks: by products, by a stored Jacobian, from samples that come in batches."""
