"""Sums of Kronecker products, and both ends of their spectra."""
