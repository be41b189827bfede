"""Gauss-Newton matrices of networks that are known in closed form."""
