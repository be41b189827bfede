"""Operators of stored numbers, one file for each kind."""
