"""Figures, each drawn from a saved table and from nothing else."""
