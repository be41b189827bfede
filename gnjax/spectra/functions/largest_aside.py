"""tr f(A) from random vectors, outside of the largest eigenvectors where that pays.

With orthonormal rows Q (k, m) and P = I - Q^T Q,

    tr f(A) = sum_i q_i^T f(A) q_i + tr P f(A) P,

whatever Q is. Where its rows are near the eigenvectors of the largest eigenvalues, the quadratures
of every q_i^T f(A) q_i close after a few steps, and the second part, for which random vectors are
left, spreads far less: a few eigenvalues often make up most of an effective dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.numerics.limits import Limits
from gnjax.spectra.functions.bracket import Sample
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.stochastic.probes import probe_stream
from gnjax.spectra.stochastic.quadratures import Quadrature, quadratures, quadratures_from

_STEPS = 4  # of Lanczos from a row q_i, whose error falls at least with the square of _NEAR
_NEAR = 1e-3  # of a Ritz value: the residual up to which its Ritz vector is set aside


@dataclass
class Drawing:
    """Samples of tr f(A) on the way: those of random vectors, and those of rows set aside.

    Attributes:
      product: A on rows of the length ``size``.
      sampled: v^T f(A) v from the quadrature of a unit vector v.
      probes, steps, noise, seed, limits, stop: those of :func:`quadratures`.
      samples: v^T f(A) v for random unit vectors v outside of the rows ``aside``.
      aside: Q, with the samples ``of_aside`` of its rows.
      products: how many products were made.
      cut: whether ``stop`` ended the work.
    """

    product: HostProduct
    size: int
    sampled: Callable[[Quadrature], Sample]
    probes: int
    steps: int
    noise: float
    seed: int
    limits: Limits
    stop: Callable[[], bool]
    samples: list[Sample] = field(default_factory=list)
    aside: np.ndarray | None = None
    of_aside: list[Sample] = field(default_factory=list)
    products: int = 0
    cut: bool = False
    _batches: Iterator[list[Quadrature]] | None = None

    def draw(self, count: int) -> None:
        """Draw ``count`` more random vectors."""
        aim = len(self.samples) + count
        if self._batches is None:
            self._batches = quadratures(
                self.product,
                self.size,
                probes=self.probes,
                steps=self.steps,
                noise=self.noise,
                seed=self.seed,
                outside_of=self.aside,
                limits=self.limits,
                stop=self.stop,
            )
        while len(self.samples) < aim:
            batch = next(self._batches, [])
            self.samples += self._counted(batch)
            if not batch or not all(rule.finished for rule in batch):
                self.cut = True
                break

    def set_largest_aside(self, most: int) -> None:
        """Set up to ``most`` Ritz vectors of the largest Ritz values aside, and begin anew.

        They come from one run of twice as many steps, in the memory that ``limits`` allow.
        """
        steps = int(min(2 * most, self.size // 2, self.limits.basis_bytes / (8 * self.size)))
        start = probe_stream(self.seed, part=2).standard_normal((1, self.size))
        run = krylov.lanczos(
            self.product,
            start / np.linalg.norm(start),
            max_steps=max(1, steps),
            noise=self.noise,
            stop_when=lambda run: not len(run.remainder) or self.stop(),
            check_every=1,
        )
        self.products += run.products
        values, residuals, vectors = krylov.ritz(run)
        near = np.flatnonzero(residuals <= _NEAR * np.abs(values))[::-1][:most]
        self.aside = krylov.orthonormal(vectors[:, near].T @ run.basis)
        rules = quadratures_from(
            self.product, self.aside, steps=_STEPS, noise=self.noise, limits=self.limits
        )
        self.of_aside = self._counted(rules)
        self.samples, self._batches = [], None

    def _counted(self, rules: list[Quadrature]) -> list[Sample]:
        self.products += sum(rule.products for rule in rules)
        return [self.sampled(rule) for rule in rules]
