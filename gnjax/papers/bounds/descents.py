"""How far gradient descent is from the minimum, by the curvatures on its way (Eqs 2, 3, 27, 28)."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.outward import above, below


def descent(rates: ArrayLike, curvatures: ArrayLike) -> np.ndarray:
    """Eqs 3, 28: |theta_k - theta*|^2 / |theta_0 - theta*|^2 <= prod_{i<k} (1 - eta_i mu_i).

    A bound on how far gradient descent is from the minimum theta*, for its iterates theta_k. One
    step with constant mu is Eq 2 (27). It holds for gradient descent where, on the segment from
    theta_i to theta*, the Hessian is at least mu_i I and at most I / eta_i. The paper calls mu the
    smoothness constant; it is that of strong convexity. Constants at theta_i alone are not enough,
    and a singular Hessian, as that of any network with a flat direction, has mu = 0.

    Args:
      rates: the step sizes eta_0, eta_1, ...
      curvatures: mu_0, mu_1, ..., each between 0 and 1 / eta_i; one number stands for all.

    Returns:
      The bounds for k = 0, 1, ..., rounded up.

    >>> gnjax.papers.bounds.descent([0.5, 0.5], 1.0).round(6)
    array([1.  , 0.5 , 0.25])
    """
    steps = np.atleast_1d(np.asarray(rates, np.float64))
    if steps.ndim != 1 or not (np.isfinite(steps) & (steps > 0)).all():
        msg = f"rates must be positive step sizes in a list, got {rates}"
        raise ValueError(msg)
    mu = np.broadcast_to(np.asarray(curvatures, np.float64), steps.shape)
    if not ((mu >= 0) & (steps * mu <= 1)).all():
        msg = f"each curvature must lie between 0 and 1 / rate, got {curvatures} for rates {rates}"
        raise ValueError(msg)
    bounds = [1.0]
    for rounded_product in steps * mu:
        # The product is first rounded down: near 1 its rounding may be all that 1 - product has.
        factor = max(above(1 - below(rounded_product)), 0.0)
        bounds.append(above(bounds[-1] * factor))
    return np.array(bounds)
