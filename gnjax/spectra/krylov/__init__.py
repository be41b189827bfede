"""Lanczos runs, what they may have missed, and a few eigenvalues from one end of a spectrum."""
