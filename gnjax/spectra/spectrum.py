"""A spectrum as an answer: eigenvalues with the errors that they are known to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import Certificate, certificate, unknown
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import unit_roundoff

_UNSTATED = certificate(unknown("nobody has stated the errors of these eigenvalues"))


@dataclass(frozen=True, repr=False)
class Spectrum(Result):
    """Eigenvalues from the largest down; the true ones differ by at most ``errors``.

    Attributes:
      values: the eigenvalues, from the largest down.
      errors: a bound on the error of each, infinite where the operator does not state its error.
      method: how they were computed.
      certificate: what the errors rest on. For the method "factored" the errors of its parts are
        those of singular values s, and an eigenvalue s^2 is known to about 2 s times as much; for
        all others they are errors of eigenvalues.
      converged: whether an iterative method reached the tolerance that was asked for.
      vectors: unit rows, one eigenvector for each value; None if they were not asked for.
      angles: a bound on the angle between each of the vectors and the exact one, in radians;
        infinite where the eigenvalue cannot be distinguished from its neighbours.
      zeros: how many of the values are zeros that were not computed: the matrix has them by the
        shapes of its factor, as the p - n k zeros of a Gauss-Newton matrix of p parameters at n
        samples of k outputs. ``nonzero`` is the spectrum without them.

    >>> spectrum = gnjax.eigenvalues(np.diag([4.0, 2.0, 1.0]))
    >>> spectrum.values.round(12).tolist(), spectrum.errors.max() < 1e-13
    ([4.0, 2.0, 1.0], np.True_)
    """

    _rows = ("values", "errors", "angles")

    values: np.ndarray
    errors: np.ndarray
    method: str
    certificate: Certificate = _UNSTATED
    converged: bool = True
    vectors: np.ndarray | None = None
    angles: np.ndarray | None = None
    zeros: int = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nonzero(self) -> Spectrum:
        """The spectrum without the zeros that the matrix has by structure.

        What is left are the eigenvalues that were computed. Of a matrix of lower rank some of them
        may be zeros, too, up to their errors.

        >>> tall = gnjax.factored(np.array([[2.0], [1.0], [0.0]]))
        >>> spectrum = gnjax.eigenvalues(tall)
        >>> spectrum.zeros, spectrum.nonzero.values.round(12).tolist()
        (2, [5.0])
        """
        return _taken(self, ~self._is_structural, 0) if self.zeros else self

    @property
    def _is_structural(self) -> np.ndarray:
        """Which of the values are the zeros by structure: the last of those that are zero."""
        places = np.flatnonzero(self.values == 0)
        chosen = np.zeros(len(self.values), bool)
        chosen[places[len(places) - self.zeros :]] = True
        return chosen

    def __str__(self) -> str:
        """One line: both ends of the spectrum, the largest error, and what the error rests on."""
        computed = self.nonzero
        numbers = [f"{value:.6g}" for value in computed.values]
        if len(numbers) > 6:
            numbers = [*numbers[:3], "...", *numbers[-3:]]
        listed = f"{len(computed)} eigenvalues"
        if numbers:
            listed += f" {', '.join(numbers)}, each to {self.errors.max():.2g}"
        listed += f" and {self.zeros:,} zeros by structure" if self.zeros else ""
        state = "" if self.converged else ", NOT CONVERGED"
        return f"{listed} ({self.method}, {self.certificate.brief}){state}"


def spectrum_of_values(
    values: np.ndarray, error: float, method: str, rests_on: Certificate
) -> Spectrum:
    """The spectrum of ``values`` (n,), in any order, all known to the same error."""
    descending = np.sort(values)[::-1]
    return Spectrum(descending, np.full(len(values), error), method, rests_on)


def squares(
    sigma: np.ndarray, error: np.ndarray | float, method: str, rests_on: Certificate
) -> Spectrum:
    """The squares of singular values that are known to ``error``, from the largest down.

    If a singular value is within e of sigma, its square is within (2 sigma + e) e of sigma^2. They
    are taken in float64, as float32 has none below 1e-45. A positive error of a square is at least
    the smallest normal number, as a product below that underflows.
    """
    order = np.argsort(sigma)[::-1]
    descending = sigma[order].astype(np.float64)
    error = np.broadcast_to(np.asarray(error, np.float64), sigma.shape)[order]
    with np.errstate(over="ignore"):  # an error that large may as well be infinite
        errors = (2 * descending + error) * error
    errors = np.where(error > 0, np.maximum(errors, np.finfo(float).tiny), errors)
    return Spectrum(descending**2, errors, method, rests_on)


def part_of(spectrum: Spectrum, places: slice) -> Spectrum:
    """The eigenvalues with the indices of ``places``, 0 for the largest, with all that belongs to
    them.
    """
    zeros = int(spectrum._is_structural[places].sum()) if spectrum.zeros else 0
    return _taken(spectrum, places, zeros)


def _taken(spectrum: Spectrum, places: slice | np.ndarray, zeros: int) -> Spectrum:
    """The entries at ``places`` of a spectrum, of which so many are ``zeros`` by structure."""
    vectors, angles = spectrum.vectors, spectrum.angles
    return replace(
        spectrum,
        values=spectrum.values[places],
        errors=spectrum.errors[places],
        vectors=None if vectors is None else vectors[places],
        angles=None if angles is None else angles[places],
        zeros=zeros,
    )


def shifted_spectrum(spectrum: Spectrum, shift: float) -> Spectrum:
    """The spectrum of A + s I from that of A, with the rounding of the sums in the errors.

    The zeros of A are now s, and count as any other eigenvalue.
    """
    values = spectrum.values + shift
    errors = raised(1.0) * (spectrum.errors + unit_roundoff(np.dtype(float)) * np.abs(values))
    return replace(spectrum, values=values, errors=errors, zeros=0)


def with_zeros(spectrum: Spectrum, size: int) -> Spectrum:
    """A spectrum with zeros added until it has ``size`` values, in descending order.

    It is that of a positive semidefinite matrix of ``size`` rows whose other eigenvalues are
    exactly zero by the shapes of the factors. But the i-th value has to be near the i-th
    eigenvalue. Where rounding has made a positive eigenvalue negative, its value is sorted behind
    the zeros, and the first zero takes its place. So the first zeros, one for each negative value,
    have errors that reach up to the largest eigenvalues that the negative values may stand for.
    """
    zeros = size - len(spectrum)
    if zeros == 0:
        return spectrum
    values = np.concatenate([spectrum.values, np.zeros(zeros)])
    upper_ends = np.sort((spectrum.values + spectrum.errors)[spectrum.values < 0])[::-1][:zeros]
    errors = np.concatenate([spectrum.errors, np.zeros(zeros)])
    errors[len(spectrum) : len(spectrum) + len(upper_ends)] = np.maximum(upper_ends, 0.0)
    order = np.argsort(-values, kind="stable")
    return Spectrum(
        values[order],
        errors[order],
        spectrum.method,
        spectrum.certificate,
        spectrum.converged,
        zeros=spectrum.zeros + zeros,
    )
