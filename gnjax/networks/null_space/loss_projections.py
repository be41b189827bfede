"""What a loss sees of the outputs of a network, modulo a prime.

The rows of R_i^T J_i, where B_i = R_i R_i^T is the output Hessian of sample i, span what the rows
of B_i J_i span. So the rank of R^T J is that of the rows P_i J_i with P_i = B_i, or with any other
P_i that loses nothing of B_i. B_i is singular far out in a Huber loss, where a mask leaves out an
output, and for every loss of probabilities that sum to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.samples import windows
from gnjax.networks.losses.output_hessian import ByDerivative
from gnjax.networks.losses.targets import Target
from gnjax.networks.network import Network
from gnjax.networks.null_space.modulo import Followed, NotFollowedError, Number
from gnjax.numerics import modular

FORMED = 5e5  # entries of the B_i of all samples, up to which they are formed modulo the prime


@dataclass(frozen=True)
class LossProjections:
    """What the loss sees of the outputs of n samples, by symmetric P_i (k, k) of residues.

    Attributes:
      k: the outputs of a sample.
      ranks: (n,), what the rank of P_i is at most.
      hessians: P_i (n, k, k) where they are formed, as the output Hessians of a caller's loss.
      classes: of the cross-entropy, of which P_i f are the logits minus their mean over the
        classes; else 0, and where nothing is formed P_i is the identity.
    """

    k: int
    ranks: np.ndarray
    hessians: np.ndarray | None = None
    classes: int = 0

    def at(self, places: np.ndarray) -> np.ndarray:
        """P_i (b, k, k) of the samples at the indices ``places`` (b,)."""
        if self.hessians is not None:
            return self.hessians[places]
        identity = np.eye(self.k, dtype=np.int64)
        return np.broadcast_to(self._less_mean(identity), (len(places), self.k, self.k))

    def times(self, u: np.ndarray, places: np.ndarray) -> np.ndarray:
        """P_i u_i (b, k) for the residues u (b, k) and the samples at the indices ``places``."""
        if self.hessians is None:
            return self._less_mean(u)
        return modular.bilinear(_each_times, self.hessians[places], u)

    def _less_mean(self, u: np.ndarray) -> np.ndarray:
        """Rows (b, k) of residues minus their mean over the classes, if the loss has classes."""
        if not self.classes:
            return u
        of_tokens = u.reshape(-1, self.classes)
        means = of_tokens.sum(axis=1, keepdims=True) % modular.PRIME
        means = means * modular.inverses(np.asarray(self.classes)) % modular.PRIME
        return ((of_tokens - means) % modular.PRIME).reshape(u.shape)


def _each_times(matrices: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """P_i u_i (n, k) for the matrices P (n, k, k) and the rows u (n, k)."""
    return np.matmul(matrices, rows[:, :, None])[:, :, 0]


def loss_projections(net: Network) -> LossProjections:
    """The P_i of the loss at the outputs of a network, and their ranks.

    They are the output Hessians of a loss of the caller's, if its equations and those of the
    network can be followed, and else the identity, or that less the mean over the classes.
    """
    target, ranks = net.target, np.full(net.samples, net.rows)
    if target is not None and callable(target.loss):
        formed = net.once("projections of the loss", lambda: _of_callers(net, target))
        return formed or LossProjections(net.k, ranks)
    is_entropy = target is not None and target.loss == "cross_entropy"
    return LossProjections(net.k, ranks, classes=net.shapes.shape[-1] if is_entropy else 0)


def _of_callers(net: Network, target: Target) -> LossProjections | None:
    """The output Hessians B_i of a loss of the caller's; None if they are not to be had."""
    if net.samples * net.k**2 > FORMED:
        return None
    follow = Followed(partial(_curvatures, net))
    unit_vectors = Number(np.eye(net.k, dtype=np.int64))
    samples_at_once = net.samples if net.coupled else max(1, int(FORMED / net.written))
    try:
        parts = [
            follow(list(net.leaves), x, part, unit_vectors)[seen_before:]
            for (x, part), seen_before in windows((net.x, target), samples_at_once)
        ]
    except (NotFollowedError, OverflowError):  # an equation has no residues, or a sum is too long
        return None
    hessians = np.concatenate(parts)
    return LossProjections(net.k, modular.ranks(hessians), hessians)


def _curvatures(
    net: Network, leaves: list[jax.Array], x: jax.Array, target: Target, units: jax.Array
) -> jax.Array:
    """The output Hessians B_i (n, k, k) of some samples, times the rows u (b, k) of ``units``."""
    outputs = net.outputs(leaves, x)
    hessian = ByDerivative(target, outputs)

    def along(u: jax.Array) -> jax.Array:
        return hessian.apply(jnp.broadcast_to(u[None], outputs.shape))

    return jax.vmap(along, out_axes=1)(units)
