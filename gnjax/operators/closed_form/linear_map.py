"""The Gauss-Newton matrix of a network that is linear, or affine, in its input: n is gone.

With F(x) = C(theta) x + c(theta), J(x) = J(0) + L(x) for a map L that is linear in x. Let the rows
(s_j, t_j) of R, R^T R = 1/n [X, 1]^T [X, 1], take the place of the samples: then

    1/n sum_i J(x_i)^T J(x_i) = sum_j J_j^T J_j,  J_j = L(s_j) + t_j J(0),

the Jacobian of F(s) + (t - 1) F(0). There are d + 1 rows whatever n is, fewer where the data have a
lower rank, so that the output side is at most k (d + 1) square (LinearMapGram: a CNN, a residual
network, or BatchNorm with fixed statistics, with the parameters that they really have).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.networks.construct import network
from gnjax.networks.model import Apply, Params, checked, evaluate
from gnjax.networks.parameters import Only
from gnjax.operators.network import NetworkGram

_PAIRS = 4
_BENT = 1e-9
_SINGLE_BENT = 1e-4


def linear_map_gram(
    model: Any, x: ArrayLike, *, mask: Any = None, only: Only | None = None
) -> NetworkGram:
    """1/n J J^T on the output side of d + 1 rows that stand for all n samples.

    It has the non-zero eigenvalues of :func:`gnjax.gauss_newton` with the squared error.
    """
    apply, params, inputs, _ = checked(model, x)
    _check_affine(apply, params, inputs)
    rows = _rows(np.asarray(inputs).reshape(len(inputs), -1))
    mapped = Partial(_Mapped(inputs.shape[1:]), apply)
    net = network((mapped, params), rows, mask=mask, only=only)
    return NetworkGram(net, "outputs", 1.0)


@dataclass(frozen=True)
class _Mapped:
    """F(s) + (t - 1) F(0) on rows (s, t)."""

    shape: tuple[int, ...]

    def __call__(self, apply: Apply, params: Params, packed: jax.Array) -> jax.Array:
        s = packed[:, :-1].reshape(-1, *self.shape)
        return apply(params, s) + (packed[:, -1:] - 1) * apply(params, jnp.zeros_like(s))


def _rows(x: np.ndarray) -> np.ndarray:
    """R, (min(n, d + 1), d + 1)."""
    augmented = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1) / len(x) ** 0.5
    r = scipy.linalg.qr(augmented, mode="r", check_finite=False)[0]
    return r[: min(augmented.shape)]


def _check_affine(apply: Apply, params: Params, x: jax.Array) -> None:
    """F(u + v) + F(0) = F(u) + F(v) at random points of the size of the data."""
    scale = jnp.sqrt(jnp.square(x).mean()) + jnp.finfo(x.dtype).tiny
    u, v = scale * jax.random.normal(jax.random.key(0), (2, _PAIRS, *x.shape[1:]), x.dtype)
    f = [evaluate(apply, params, z) for z in (u + v, jnp.zeros_like(u), u, v)]
    gap = float(jnp.abs(f[0] + f[1] - f[2] - f[3]).max())
    size = max(float(jnp.abs(part).max()) for part in f)
    bent = _BENT if x.dtype == jnp.float64 else _SINGLE_BENT
    if gap > bent * size:
        msg = (
            f"the network is not linear in its input: F(u + v) + F(0) and F(u) + F(v) differ by "
            f"{gap / max(size, 1e-300):.1e} of their size; use gnjax.gauss_newton, which takes any "
            "network (BatchNorm must be in evaluation mode to be linear)"
        )
        raise ValueError(msg)
