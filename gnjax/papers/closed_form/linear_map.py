"""The Gauss-Newton matrix of a network that is affine in its input, of a size independent of n.

With F(x) = C(theta) x + c(theta), J(x) = J(0) + L(x) for a map L that is linear in x. Let the rows
(s_j, t_j) of R, R^T R = 1/n [X, 1]^T [X, 1], take the place of the samples: then

    1/n sum_i J(x_i)^T J(x_i) = sum_j J_j^T J_j,  J_j = L(s_j) + t_j J(0),

the Jacobian of F(s) + (t - 1) F(0). There are d + 1 rows whatever n is, fewer where the data have a
lower rank, so that the output side is at most k (d + 1) square (LinearMapGram: a CNN, a residual
network, or BatchNorm with fixed statistics, with the parameters that they really have).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.networks.construct import network
from gnjax.networks.model import Apply, Params, evaluated_model
from gnjax.networks.parameters import Only
from gnjax.numerics.decompositions.triangular import triangular_factor
from gnjax.operators.of_networks.network import NetworkGram
from gnjax.papers.closed_form.affine import what_bends


def linear_map_gram(
    model: Any, x: ArrayLike, *, only: Only | None = None, mask: Any = None
) -> NetworkGram:
    """1/n J J^T on the output side of d + 1 rows that stand for all n samples.

    It has the non-zero eigenvalues of :func:`gnjax.gauss_newton` with the squared error. The
    network must treat every sample by itself, and
    :func:`gnjax.papers.closed_form.affine.is_affine` must prove that it is affine in its input.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="linear", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (500, 3))
    >>> gnjax.papers.linear_map_gram(model, x).shape  # 2 (3 + 1) rows, for any number of samples
    (8, 8)
    """
    apply, params, inputs, _ = evaluated_model(model, x)
    _check_affine(apply, params, inputs)
    if network((apply, params), inputs).coupled:
        msg = (
            "the network's outputs depend on the whole batch, and d + 1 rows cannot stand for all "
            "samples then; call model.eval(), or use gnjax.gauss_newton"
        )
        raise ValueError(msg)
    rows = _rows(np.asarray(inputs).reshape(len(inputs), -1))
    mapped = Partial(_Affine(inputs.shape[1:]), apply)
    net = network((mapped, params), rows, mask=mask, only=only)
    return NetworkGram(net, "outputs", 1.0)


@dataclass(frozen=True)
class _Affine:
    """F(s) + (t - 1) F(0) on rows (s, t)."""

    shape: tuple[int, ...]

    def __call__(self, apply: Apply, params: Params, packed: jax.Array) -> jax.Array:
        s = packed[:, :-1].reshape(-1, *self.shape)
        return apply(params, s) + (packed[:, -1:] - 1) * apply(params, jnp.zeros_like(s))


def _rows(x: np.ndarray) -> np.ndarray:
    """R, (min(n, d + 1), d + 1)."""
    augmented = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1) / len(x) ** 0.5
    return triangular_factor(augmented)


def _check_affine(apply: Apply, params: Params, x: jax.Array) -> None:
    bends = what_bends(partial(apply, params), x)
    if bends:
        msg = (
            f"the network is not proved to be linear in its input: the operation {bends!r} depends "
            "on the input in another way; use gnjax.gauss_newton, which takes any network "
            "(to be linear, BatchNorm must be in evaluation mode and a leaky ReLU have slope 1)"
        )
        raise ValueError(msg)
