"""Remedies for a large kappa: one file for what each changes."""
