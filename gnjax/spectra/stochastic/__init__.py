"""Estimates from products with random vectors: spectral densities and traces."""
