"""Curvature along gradients: of batches, of the outputs, and at the step that raises the loss."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.diagnosis.sharpness.readings import gradient_and_hessian, ratio, read
from gnjax.networks.forms.samples import take
from gnjax.networks.network import gather, scatter
from gnjax.networks.outputs.targets import Target, loss_sum
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.operators.of_networks.hessian import NetworkHessian

_DOUBLINGS = 60
_WIDTH = 1e-3  # the relative width of the interval of critical steps, where rounding allows it


def batch_sharpness(op: NetworkHessian, size: int) -> tuple[float, float]:
    """sum_b g_b^T H_b g_b / sum_b |g_b|^2 over batches b of ``size`` samples, and its error.

    g_b and H_b are the gradient and the Hessian of the mean loss of a batch (Andreyev and
    Beneventano, arXiv 2412.20553). The batches are the samples in their order.
    """
    net = op.net
    starts = range(0, net.samples - size + 1, size)
    batches = [take((net.x, net.target), slice(start, start + size)) for start in starts]
    values, errors = read(_along_gradient, op, batches=batches)
    value, error = ratio(values, errors)
    factor = net.samples / (float(net.total) * size)  # from the sum over a batch to its mean
    return factor * value, factor * error


def _along_gradient(op: NetworkHessian, _: jax.Array, x: Any, target: Target) -> jax.Array:
    """g^T H g and |g|^2 of the summed loss of a batch."""
    gradient, multiply = gradient_and_hessian(op, x, target)
    return jnp.stack([gradient @ multiply(gradient), gradient @ gradient])


def driving_eigenvalue(op: NetworkHessian) -> tuple[float, float]:
    """r^T K r / r^T r of the kernel K = J J^T / n along the gradient r of the loss in the outputs.

    Under gradient flow the loss falls at the rate |grad L|^2, which is this times |r|^2 / n: it is
    the eigenvalue of the kernel that drives the loss. For the squared error r is f - y.
    """
    values, errors = read(_gradients, op)
    value, error = ratio(values, errors)
    total = float(op.net.total)
    return value / total, error / total


def _gradients(op: NetworkHessian, _: jax.Array, x: Any, target: Target) -> jax.Array:
    """|d L / d theta|^2 and |d L / d F|^2 of the summed loss L."""
    net = op.net
    outputs, pullback = jax.vjp(partial(net.outputs, x=x), list(net.leaves))
    slopes = jax.grad(partial(loss_sum, target))(outputs)
    gradient = gather(net, pullback(slopes)[0])
    return jnp.stack([gradient @ gradient, jnp.vdot(slopes, slopes)])


def critical_sharpness(
    op: NetworkHessian, update: jax.Array | None, rate: float, start: float
) -> tuple[float, float]:
    """2 / eta for a step size eta from which the loss along the update is no longer smaller.

    It is between value - error and value + error. The update is the step of an optimiser at
    ``rate``, or without one minus the gradient (Kalra et al., arXiv 2601.16979). The search doubles
    or halves eta from ``start`` times the rate, so that a smaller eta may raise the loss too.
    """
    step = -_gradient(op) if update is None else update
    (before,), (rounding,) = read(_loss, op)
    clear = 4 * rounding + 16 * float(jnp.finfo(op.dtype).eps) * abs(before)

    def raised(size: float) -> bool | None:
        """Whether the loss is larger after this multiple of the step; None: too close to say."""
        change = float(_loss_after(op, step, size)) - before
        return None if abs(change) <= clear else not change < 0

    low, high = _bracket(raised, start)
    bounds = 2 / (rate * high), 2 / (rate * low) if low > 0 else math.inf
    if math.isinf(bounds[1]):
        return bounds[0], math.inf
    return (bounds[0] + bounds[1]) / 2, (bounds[1] - bounds[0]) / 2


def _bracket(raised: Any, start: float) -> tuple[float, float]:
    """Two step sizes, at the first of which the loss is smaller, and at the second larger."""
    low, high, size = 0.0, math.inf, start
    for _ in range(_DOUBLINGS):
        verdict = raised(size)
        if verdict is None and math.isinf(high):
            verdict = False if low > 0 else None
        if verdict is None:
            break
        low, high = (low, size) if verdict else (size, high)
        if math.isinf(high):
            size = 2 * size
        elif low == 0:
            size = size / 2
        elif high <= (1 + _WIDTH) * low:
            break
        else:
            size = (low + high) / 2
    return low, high


@bounded_jit
def _gradient(op: NetworkHessian) -> jax.Array:
    """The gradient (p,) of the mean loss."""
    return gradient_and_hessian(op, op.net.x, op.net.target)[0] / op.net.total


def _loss(op: NetworkHessian, _: jax.Array, x: Any, target: Target) -> jax.Array:
    """The mean loss (1,)."""
    return (op.objective(x, target, list(op.net.leaves)) / op.net.total)[None]


@bounded_jit
def _loss_after(op: NetworkHessian, step: jax.Array, size: float) -> jax.Array:
    """The mean loss after a multiple of the step."""
    net = op.net
    assert net.target is not None
    parts = zip(net.leaves, scatter(net, size * step), strict=True)
    moved = [leaf + part for leaf, part in parts]
    return op.objective(net.x, net.target, moved) / net.total
