"""Both ends of the spectrum of a sum of Kronecker products."""

from gnjax.papers.kronecker.pencil import ends
from gnjax.papers.kronecker.reduced_sum import Reduced, packed_matrix, reduce

__all__ = ["Reduced", "ends", "packed_matrix", "reduce"]
