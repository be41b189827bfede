"""J J^T of a network as a matrix, by the structure of its layers."""

from gnjax.networks.kernels.grams import cross_gram, gram_work, output_gram, output_grams

__all__ = ["cross_gram", "gram_work", "output_gram", "output_grams"]
