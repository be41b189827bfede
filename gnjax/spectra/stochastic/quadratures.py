"""Gauss quadratures of a spectrum: one Lanczos run from each random start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.numerics.limits import Limits
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.stochastic.probes import probe_stream

_TOGETHER = 10  # the most probes that one product multiplies


def quadratures(
    product: HostProduct,
    size: int,
    probes: int,
    steps: int,
    noise: float,
    seed: int,
    limits: Limits,
    stop: Callable[[], bool],
) -> list[tuple[np.ndarray, np.ndarray, krylov.Run]]:
    """The Gauss quadrature of the spectrum of A for every probe: nodes, weights and the run.

    A probe is a random unit vector of length ``size``, from which a Lanczos run makes ``steps``
    steps with ``product``, A on rows. A direction shorter than ``noise`` is rounding, and ends the
    run. The basis of a run is not kept.

    Up to ten probes that fit in memory are multiplied at once, and the last ones one by one. A
    product with another number of columns would round them differently, and the first probes would
    then depend on how many there are. Where ``stop`` ends the work, those probes remain that have
    made all of their steps; if none has, the first ones with the steps that they have made.
    """
    rng = probe_stream(seed)
    rules: list[tuple[np.ndarray, np.ndarray, krylov.Run]] = []
    together = int(np.clip(limits.basis_bytes / (8 * steps * size), 1, _TOGETHER))
    while len(rules) < probes and not (rules and stop()):
        count = together if probes - len(rules) >= together else 1
        starts = [rng.standard_normal((1, size)) for _ in range(count)]
        runs = krylov.side_by_side(
            product,
            [start / np.linalg.norm(start) for start in starts],
            max_steps=steps,
            noise=noise,
            enough=lambda run: exhausted(run) or stop(),
            check_every=1,
        )
        # Runs that ``stop`` cut short do not count, unless there are no others.
        if rules and not all(has_all_steps(run, min(steps, size)) for run in runs):
            break
        no_rows = np.empty((0, size))
        for run in runs:
            nodes, _, vectors = krylov.ritz(run)
            # The weight of a node is the squared first entry of its eigenvector of the tridiagonal
            # T (Golub and Welsch, 1969).
            rules.append((nodes, vectors[0] ** 2, replace(run, basis=no_rows, following=no_rows)))
        del run, runs  # their bases, before the next ones are made
    return rules


def has_all_steps(run: krylov.Run, steps: int) -> bool:
    """Whether the run made all of its steps, or needs no more."""
    return exhausted(run) or run.complete or len(run.projection) >= steps


def exhausted(run: krylov.Run) -> bool:
    """Whether the run found no new direction, so that the Krylov space of its start is exhausted.

    The run is not continued from another random direction, which would change the weights.
    """
    return len(run.remainder) == 0
