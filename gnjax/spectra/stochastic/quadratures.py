"""Gauss quadratures of a spectrum: one Lanczos run from each random start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.stochastic.probes import probe_stream

_TOGETHER = 10  # the most probes that one product multiplies


@dataclass(frozen=True)
class Quadrature:
    """The Gauss quadrature sum_j w_j f(theta_j) of v^T f(A) v for a random unit vector v.

    Attributes:
      nodes, weights: theta_j, ascending, and w_j, which sum to 1.
      diagonal: that of T (m, m), whose eigenvalues the nodes are.
      couplings: (m,), the entries of T beside its diagonal, and the length of the direction that
        the run would have taken next, which couples T to the rest of A: 0 where there is none.
      exact: whether the Krylov space of v was exhausted, so that only rounding is left as error.
      products: how many products with A its run took, one for each step.
      dropped: how far the nodes can be moved by entries of T that were set to zero as rounding.
      finished: whether the run made all steps that were asked for, or needs no more.
    """

    nodes: np.ndarray
    weights: np.ndarray
    diagonal: np.ndarray
    couplings: np.ndarray
    exact: bool
    products: int
    dropped: float
    finished: bool


def quadratures(
    product: HostProduct,
    size: int,
    *,
    probes: int,
    steps: int,
    noise: float,
    seed: int = 0,
    outside_of: np.ndarray | None = None,
    limits: Limits = LIMITS,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[list[Quadrature]]:
    """The Gauss quadratures of ``probes`` random vectors for the spectrum of A, in batches.

    A probe is a random unit vector of length ``size``, from which a Lanczos run makes ``steps``
    steps with ``product``, A on rows. A direction shorter than ``noise`` is rounding, and ends the
    run. Nothing of a run but its quadrature is kept, and no work is done for batches that the
    caller does not ask for, so that a loop over them may end as soon as it has enough. Probes are
    orthogonal to the orthonormal rows ``outside_of``, and are then others than without.

    A batch has up to ten probes that fit in memory and are multiplied at once; the last ones come
    one by one. A product with another number of columns would round them differently, and the
    first probes would then depend on how many there are. Where ``stop`` ends the work, those
    probes were given that have made all of their steps; if none has, the first ones with the steps
    that they have made.
    """
    rng = probe_stream(seed, part=0 if outside_of is None else 1)

    def start() -> np.ndarray:
        row = rng.standard_normal((1, size))
        row = row if outside_of is None else krylov.outside(row, outside_of)
        unit: np.ndarray = row / np.linalg.norm(row)
        return unit

    done, together = 0, _together(size, steps, limits)
    while done < probes and not (done and stop()):
        count = together if probes - done >= together else 1
        starts = [start() for _ in range(count)]
        batch = _from(product, starts, steps, noise, stop)
        # Runs that ``stop`` cut short do not count, unless there are no others.
        if done and not all(rule.finished for rule in batch):
            break
        done += count
        yield batch


def quadratures_from(
    product: HostProduct, rows: np.ndarray, *, steps: int, noise: float, limits: Limits = LIMITS
) -> list[Quadrature]:
    """The Gauss quadratures of the unit vectors ``rows`` (k, n) in place of random ones."""
    together = _together(rows.shape[1], steps, limits)
    found: list[Quadrature] = []
    for first in range(0, len(rows), together):
        starts = [row[None] for row in rows[first : first + together]]
        found += _from(product, starts, steps, noise, lambda: False)
    return found


def _together(size: int, steps: int, limits: Limits) -> int:
    """From how many starts of a length runs fit in memory side by side, ten at most."""
    return int(np.clip(limits.basis_bytes / (8 * min(steps, size) * size), 1, _TOGETHER))


def _from(
    product: HostProduct,
    starts: list[np.ndarray],
    steps: int,
    noise: float,
    stop: Callable[[], bool],
) -> list[Quadrature]:
    """The quadratures of one run from each start, side by side."""
    runs = krylov.side_by_side(
        product,
        starts,
        max_steps=steps,
        noise=noise,
        stop_when=lambda run: _exhausted(run) or stop(),
        check_every=1,
    )
    return [_quadrature(run, min(steps, starts[0].size)) for run in runs]


def _quadrature(run: krylov.Run, steps: int) -> Quadrature:
    """The quadrature of a run for which ``steps`` steps were asked.

    The weight of a node is the squared first entry of its eigenvector of the tridiagonal T (Golub
    and Welsch, 1969).
    """
    nodes, _, vectors = krylov.ritz(run)
    exact = _exhausted(run) or run.complete
    finished = exact or len(run.projection) >= steps
    coupling = 0.0 if exact else float(np.linalg.norm(run.remainder))
    return Quadrature(
        nodes=nodes,
        weights=vectors[0] ** 2,
        diagonal=np.diagonal(run.projection).copy(),
        couplings=np.append(np.diagonal(run.projection, 1), coupling),
        exact=exact,
        products=run.products,
        dropped=run.dropped,
        finished=finished,
    )


def _exhausted(run: krylov.Run) -> bool:
    """Whether the run found no new direction, so that the Krylov space of its start is exhausted.

    The run is not continued from another random direction, which would change the weights.
    """
    return len(run.remainder) == 0
