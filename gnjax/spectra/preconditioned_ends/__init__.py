"""The ends of a spectrum with a preconditioner, for any symmetric matrix that has one."""

from gnjax.spectra.preconditioned_ends.certified import Enclosed, certified
from gnjax.spectra.preconditioned_ends.one_end import End, Pencil, Products

__all__ = ["Enclosed", "End", "Pencil", "Products", "certified"]
