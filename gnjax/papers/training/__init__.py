"""Training of small networks, as far as the figures need it."""

from gnjax.papers.training import descent, linear_descent, minibatch, pruning
from gnjax.papers.training.recipe import Recipe

__all__ = ["Recipe", "descent", "linear_descent", "minibatch", "pruning"]
