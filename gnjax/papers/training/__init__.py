"""Training of small networks, as far as the figures need it."""
