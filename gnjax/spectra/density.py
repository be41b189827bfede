"""Spectral density of any symmetric operator, by stochastic Lanczos quadrature.

A unit vector v defines the measure mu_v, which has the mass (u_i^T v)^2 at each eigenvalue lambda_i
with eigenvector u_i. For v uniform on the sphere its mean is the spectral density. m steps of
Lanczos from v give a Gauss quadrature of mu_v (Golub and Welsch, 1969), which is exact for powers
up to 2 m - 1. The distribution functions of both differ at t by at most the larger of the two
weights next to t (Chebyshev, Markov, Stieltjes). For a smooth g, integration by parts turns this
into

    | int g d mu_v - sum_j w_j g(theta_j) | <= sum of (the larger weight) (the variation of g)

over the gaps between nodes. The spread over random vectors ("probes") is a second error, which no
theorem bounds, because the samples are not normal.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import Error, certificate
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.validation import is_count
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.facts import symmetry_of
from gnjax.operators.near_one import check_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.eigenvalues import operator_norm
from gnjax.spectra.krylov.host_products import beside_xla, host_product, refuse_nonfinite
from gnjax.spectra.stochastic.density_estimates import Estimate, SpectralDensity
from gnjax.spectra.stochastic.probes import student
from gnjax.spectra.stochastic.quadratures import Quadrature, quadratures
from gnjax.spectra.stochastic.tolerance import looks, most_probes
from gnjax.spectra.watch import Progress, watching
from gnjax.spectra.whole import error_and_level

__all__ = ["Estimate", "SpectralDensity", "spectral_density"]

_PROBES, _MOST_PROBES, _POINTS = 10, 1000, 100
_BREAKDOWN = 16.0  # times the floor: the noise, as earlier steps amplify the rounding of a product


@one_operator
def spectral_density(
    op: Operator | ArrayLike,
    *,
    probes: int | None = None,
    steps: int = 100,
    rtol: float | None = None,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> SpectralDensity:
    """The density of the eigenvalues of a symmetric operator, by stochastic Lanczos quadrature.

    From a random unit vector v, a probe, Lanczos computes a Gauss quadrature of the measure mu_v
    with the mass (u_i^T v)^2 at each eigenvalue lambda_i with eigenvector u_i. The mean of mu_v is
    the spectral density (1/n) sum_i delta(lambda_i). It takes ``probes * steps`` products, and 33
    for checks and the norm. It takes fewer where the Krylov space of a probe is exhausted; the
    quadrature is then mu_v itself. Ten probes are multiplied at once if ``steps`` vectors of each
    fit in 2 GB together.

    Args:
      op: an operator, or a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      probes: the largest number of random starts, by default 10, and 1,000 where an ``rtol`` is
        given; the error falls with its square root.
      steps: the number of Lanczos steps from each start, with full reorthogonalisation. Details of
        the spectrum that are finer than its range divided by ``steps`` are not resolved.
      rtol: if given, probes are added until the 95% half-widths of their spread are at most
        ``rtol``: that of the share of eigenvalues up to any point, that of the second moment
        relative to it, and that of the mean relative to the root of the second moment. A quantile
        is then between those whose shares differ by ``rtol``. What the quadratures leave open does
        not fall with more probes and does not count. It is looked at after 10, 20, 40, .. probes,
        and half-widths are those of all looks together. If ``probes`` do not suffice,
        ``converged`` is False.
      seed: the seed of the random starts. With the same seed, a larger number of probes begins with
        the same starts.
      progress: True for a bar on stderr, or a function of the products made and expected. Ctrl-C
        then returns the density of the probes so far, with ``finished`` False.
      limits: the limits of memory.

    >>> density = gnjax.spectral_density(np.diag([1.0, 2.0, 3.0]), probes=4, steps=3)
    >>> float(density.cdf(10.0).value.round(12)), density.products
    (1.0, 12)
    """
    operator = as_operator(op, limits=limits)
    size = operator.shape[0]
    probes = most_probes(probes, rtol, usual=_PROBES, most=_MOST_PROBES)
    _check_arguments(size, steps, limits)
    with watching(
        progress, probes * min(steps, size), stoppable=True, op=operator, seconds=limits.seconds
    ) as watch:
        check_near_one(operator)
        product = host_product(operator)
        refuse_nonfinite(product(np.ones((1, size))))
        norm = operator_norm(operator, limits)
        # Eigenvalues are distinguished from zero down to ``floor``. A direction shorter than
        # ``noise`` is rounding, which earlier steps have amplified, and ends the run of Lanczos.
        error, floor = error_and_level(operator, norm)
        noise = _BREAKDOWN * floor
        with beside_xla():  # BLAS on one thread, so that XLA has the cores
            batches = quadratures(
                watch(product),
                size,
                probes=probes,
                steps=steps,
                noise=noise,
                seed=seed,
                limits=limits,
                stop=watch.is_stopped,
            )

            def assembled(rules: list[Quadrature]) -> SpectralDensity:
                return _density(operator, rules, steps, floor, error, len(counts))

            counts, rules = looks(probes, rtol, first=_PROBES), list[Quadrature]()
            waiting, is_accurate = counts, False  # the looks that are still to come
            for batch in batches:
                rules += batch
                if len(rules) >= waiting[0]:
                    waiting = [count for count in waiting if count > len(rules)]
                    is_accurate = rtol is not None and _is_small(assembled(rules), rtol)
                    if is_accurate or not waiting:
                        break
    density = assembled(rules)
    is_cut = density.steps < min(steps, size)  # by Ctrl-C
    finished = (is_accurate or len(rules) == probes) and not is_cut
    return replace(density, finished=finished, converged=is_accurate or rtol is None)


def _density(
    op: Operator, rules: list[Quadrature], steps: int, floor: float, error: Error, looks: int
) -> SpectralDensity:
    """The density of these quadratures of ``op``, whose products have the ``error``.

    A probe whose Krylov space was exhausted early has fewer nodes. So that all have as many, its
    largest node is repeated with the weight 0.
    """
    most_nodes = max(len(rule.nodes) for rule in rules)
    missing = [most_nodes - len(rule.nodes) for rule in rules]
    is_cut = not all(rule.finished for rule in rules)
    dropped = Error(
        max(rule.dropped for rule in rules),
        reason="entries of T that Lanczos set to zero as rounding",
    )
    return SpectralDensity(
        nodes=np.stack(
            [np.pad(r.nodes, (0, m), mode="edge") for r, m in zip(rules, missing, strict=True)]
        ),
        weights=np.stack([np.pad(r.weights, (0, m)) for r, m in zip(rules, missing, strict=True)]),
        n=op.shape[0],
        steps=min(len(rule.nodes) for rule in rules) if is_cut else steps,
        floor=floor + dropped.value,
        products=sum(rule.products for rule in rules),
        exact=np.array([rule.exact for rule in rules]),
        certificate=certificate(error, symmetry_of(op), dropped),
        looks=looks,
    )


def _is_small(density: SpectralDensity, rtol: float) -> bool:
    """Whether the half-widths of shares and of the first two moments are at most ``rtol``.

    Shares are looked at up to a hundred of the nodes, evenly spaced in their order.
    """
    nodes = np.sort(density.nodes, axis=None)
    points = nodes[np.linspace(0, nodes.size - 1, _POINTS).astype(int)]
    second = float(density.moment(2).value)
    t = student(len(density.nodes), density.looks)
    shares = t * float(density.cdf(points).standard_error.max())
    mean, square = (t * float(density.moment(q).standard_error) for q in (1, 2))
    return shares <= rtol and mean <= rtol * second**0.5 and square <= rtol * second


def _check_arguments(size: int, steps: int, limits: Limits) -> None:
    """Refuse a number of steps that is not positive, and one whose basis has no room."""
    if not is_count(steps) or steps < 1:
        msg = f"steps={steps!r} is not a positive whole number"
        raise ValueError(msg)
    if 8.0 * min(steps, size) * size > limits.density_bytes:
        msg = (
            f"steps={steps} vectors of length {size} need {8e-9 * min(steps, size) * size:.0f} GB; "
            f"use steps={int(limits.density_bytes / (8 * size))} or fewer"
        )
        raise ValueError(msg)
