"""The ends of a spectrum with a preconditioner, for any symmetric matrix that has one."""

from gnjax.spectra.pencil.base import End, Pencil, Products
from gnjax.spectra.pencil.certified import Enclosed, certified

__all__ = ["Enclosed", "End", "Pencil", "Products", "certified"]
