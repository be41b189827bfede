"""Losses: of one sample, with targets and weights, of optax, and their output Hessians."""
