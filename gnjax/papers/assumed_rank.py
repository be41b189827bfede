"""How much the pseudo-condition number depends on the rank that one assumes (Figure 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnjax.diagnosis.picture import write_title
from gnjax.numerics.answers.result import Result
from gnjax.pictures.plot import BLUE, ORANGE
from gnjax.spectra.spectrum import Spectrum

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NEGATIVE = 1e-5  # an eigenvalue below minus this times the largest is no rounding error in float32
_AROUND = 3


@dataclass(frozen=True, repr=False)
class RankSensitivity(Result):
    """kappa_r = lambda_1 / lambda_r for every assumed rank r = 1 .. n; entry r - 1 belongs to r.

    An eigenvalue is resolved if it is larger than its error.

    Attributes:
      values, errors: the eigenvalues, from the largest down, and the bounds on their errors.
      kappa: kappa_r where lambda_r is resolved; elsewhere ``low``, which is a lower bound of it
        (nan where lambda_1 itself is not resolved).
      low, high: bounds on kappa_r; ``high`` is infinite where lambda_r is not resolved.
      gaps: lambda_r / lambda_{r+1} for r = 1 .. n - 1. Where lambda_{r+1} is not resolved, its
        error takes its place, and the quotient is a lower bound.
      floor_rank: the number of resolved eigenvalues.
      largest_gap: the resolved rank r < n at which the gap is largest, the smallest one of several;
        0 where nothing is resolved, 1 for a single eigenvalue.

    >>> spectrum = gnjax.eigenvalues(np.diag([8.0, 4.0, 2.0, 1e-8]))
    >>> sensitivity = gnjax.papers.rank_sensitivity(spectrum)
    >>> sensitivity.kappa[:3].tolist(), sensitivity.largest_gap
    ([1.0, 2.0, 4.0], 3)
    """

    _rows = ("ranks", "values", "errors", "kappa", "low", "high")

    values: np.ndarray
    errors: np.ndarray
    kappa: np.ndarray
    low: np.ndarray
    high: np.ndarray
    gaps: np.ndarray
    floor_rank: int
    largest_gap: int

    @property
    def ranks(self) -> np.ndarray:
        return np.arange(1, len(self.values) + 1)

    def __str__(self) -> str:
        """A table of some ranks: around the largest gap, the last resolved one, both ends."""
        size = len(self.values)
        around_gap = range(self.largest_gap - _AROUND, self.largest_gap + _AROUND + 1)
        ranks = sorted({1, max(self.floor_rank, 1), size, *around_gap} & set(self.ranks.tolist()))
        marks = ((self.largest_gap, "largest gap"), (self.floor_rank, "last above the floor"))
        lines = [f"{'rank':>7} {'eigenvalue':>11} {'gap':>9} {'kappa':>11}  interval"]
        for rank in ranks:
            at = rank - 1
            gap = f"{self.gaps[at]:9.3g}" if at < len(self.gaps) else f"{'':>9}"
            notes = ", ".join(text for marked_rank, text in marks if marked_rank == rank)
            lines.append(
                f"{rank:7d} {self.values[at]:11.4g} {gap} {self.kappa[at]:11.4g}  "
                f"[{self.low[at]:.4g}, {self.high[at]:.4g}]  {notes}".rstrip()
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<RankSensitivity: {self.floor_rank} of {len(self.values)} eigenvalues resolved, the "
            f"largest gap after {self.largest_gap}>"
        )

    def draw(self, axes: Axes) -> None:
        """Draw kappa at every rank with its bounds; there is no upper one where it is infinite."""
        ranks, finite = self.ranks, np.isfinite(self.kappa)
        axes.set_yscale("log")
        axes.plot(ranks[finite], self.kappa[finite], color=BLUE, lw=1.2)
        both = finite & np.isfinite(self.high)
        axes.fill_between(
            ranks[both], self.low[both], self.high[both], color=BLUE, alpha=0.25, lw=0
        )
        text = f"{self.floor_rank} of {len(ranks)} eigenvalues are resolved"
        if self.largest_gap:
            axes.axvline(self.largest_gap, color=ORANGE, lw=0.9)
            text += f"; the line: rank {self.largest_gap}, before the largest gap"
        axes.set_xlim(0, len(ranks) + 1)
        axes.set_xlabel("assumed rank")
        axes.set_ylabel("kappa")
        write_title(axes, text)


def rank_sensitivity(spectrum: Spectrum) -> RankSensitivity:
    """kappa_r = lambda_1 / lambda_r of a semidefinite spectrum for every rank r one may assume.

    With each go its interval and the relative gap lambda_r / lambda_{r+1}.

    >>> spectrum = gnjax.eigenvalues(np.diag([8.0, 4.0, 2.0, 1e-8]))
    >>> print(gnjax.papers.rank_sensitivity(spectrum))
       rank  eigenvalue       gap       kappa  interval
          1           8         2           1  [1, 1]
          2           4         2           2  [2, 2]
          3           2     2e+08           4  [4, 4]  largest gap
          4       1e-08                 8e+08  [8e+08, 8e+08]  last above the floor
    """
    if not isinstance(spectrum, Spectrum):
        msg = (
            "the rank is looked for in all eigenvalues, got a "
            f"{type(spectrum).__name__}; pass gnjax.eigenvalues(op)"
        )
        raise ValueError(msg)
    values, errors = np.asarray(spectrum.values, float), np.asarray(spectrum.errors, float)
    _check_spectrum(values, errors)
    resolved = values > errors
    low, high = _intervals(values, errors, resolved)
    kappa = low.copy()
    np.divide(values[0], values, out=kappa, where=resolved & resolved[0])
    above, below = values[:-1], np.maximum(np.abs(values[1:]), errors[1:])
    gaps = np.where(above > 0, np.inf, 1.0)
    np.divide(above, below, out=gaps, where=below > 0)
    gaps = np.maximum(gaps, 1.0)
    candidates = np.where(resolved[:-1], gaps, 0.0)
    return RankSensitivity(
        values=values,
        errors=errors,
        kappa=kappa,
        low=low,
        high=high,
        gaps=gaps,
        floor_rank=int(resolved.sum()),
        largest_gap=int(candidates.argmax()) + 1 if candidates.any() else int(resolved[0]),
    )


def _intervals(
    values: np.ndarray, errors: np.ndarray, resolved: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (n,) on kappa_r: (lambda_1 -+ e_1) / (lambda_r +- e_r), at least 1, and 1 for r = 1.

    The upper one is infinite where lambda_r is not ``resolved``; both are nan if lambda_1 is not.
    """
    if not resolved[0]:
        return np.full(len(values), np.nan), np.full(len(values), np.nan)
    largest = values + errors  # that lambda_r can be
    low, high = np.full((2, len(values)), np.inf)
    np.divide(values[0] - errors[0], largest, out=low, where=largest > 0)
    low = np.maximum(low, 1.0)
    np.divide(values[0] + errors[0], values - errors, out=high, where=resolved)
    low[0] = high[0] = 1.0
    return low, high


def _check_spectrum(values: np.ndarray, errors: np.ndarray) -> None:
    """Refuse values and errors that are not those of a descending, semidefinite spectrum."""
    if values.ndim != 1 or values.size == 0 or values.shape != errors.shape:
        msg = f"a spectrum has one error for each value, got {values.shape} and {errors.shape}"
        raise ValueError(msg)
    if not (np.isfinite(values).all() and np.isfinite(errors).all() and (errors >= 0).all()):
        msg = "values must be finite, and errors finite and not negative"
        raise ValueError(msg)
    if (np.diff(values) > 0).any():
        msg = "values must descend; pass the result of gnjax.eigenvalues"
        raise ValueError(msg)
    if (values < -errors - _NEGATIVE * abs(values[0])).any():
        msg = (
            f"the eigenvalue {values[-1]:.3g} is negative, and a condition number needs a positive "
            "semidefinite matrix: pass the spectrum of a Gauss-Newton matrix or an NTK"
        )
        raise ValueError(msg)
