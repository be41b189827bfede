"""Lanczos runs: the recurrence, what a run can have missed, a few eigenvalues from one end."""
