"""Certified condition numbers."""
