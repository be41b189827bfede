"""Matrices of other libraries as operators: sparse ones, and those that are products alone."""
