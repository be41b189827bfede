"""Symmetric matrices that state what they know about themselves."""
