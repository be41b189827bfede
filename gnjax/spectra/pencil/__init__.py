"""The ends of a spectrum with a preconditioner, for any symmetric matrix that has one."""

from gnjax.spectra.pencil.certified import Enclosed, certified
from gnjax.spectra.pencil.one_end import End, Pencil, Products

__all__ = ["Enclosed", "End", "Pencil", "Products", "certified"]
