"""Cells on disk: their keys, their provenance, and checkpoints of long ones."""
