"""Decompositions of matrices in host memory, which Ctrl-C interrupts."""
