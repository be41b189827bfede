"""Both ends of the spectrum of a sum of Kronecker products."""

from gnjax.spectra.kronecker.certified import End, ends
from gnjax.spectra.kronecker.reduced import Reduced, packed_matrix, reduce

__all__ = ["End", "Reduced", "ends", "packed_matrix", "reduce"]
