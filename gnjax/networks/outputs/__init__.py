"""The outputs of a network, and what a loss makes of them."""
