"""Figures, each drawn from a saved table and from nothing else."""

import sweeps  # noqa: F401  (it says what is not installed)
