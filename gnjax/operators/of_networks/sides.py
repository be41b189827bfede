"""Which of J^T J and J J^T is meant, and of what J is the Jacobian."""

from __future__ import annotations

from dataclasses import replace

from gnjax.networks.losses.output_hessian import LARGEST_ROOT, has_root
from gnjax.networks.network import Network

_SIDES = ("auto", "parameters", "outputs")


def without_idle_target(net: Network) -> Network:
    """The network, with only that part of its target on which the output Hessian B depends.

    For the squared error without weights B is the identity (``weighs`` is False), and no target is
    needed. B depends on the labels y only for a loss that is a function of the caller's own.
    """
    if net.target is None or not net.target.weighs:
        return replace(net, target=None)
    target = net.target if callable(net.target.loss) else replace(net.target, y=None)
    return replace(net, target=target)


def chosen_side(net: Network, side: str) -> str:
    """The side on which the matrix is meant: J^T J on "parameters", J J^T on "outputs".

    "auto" is the smaller one. J J^T needs a root R of the loss's output Hessian.
    """
    if side not in _SIDES:
        msg = f"side={side!r} is not one of {', '.join(_SIDES)}"
        raise ValueError(msg)
    rooted = has_root(net.target)
    if side == "outputs" and not rooted:
        msg = (
            f"side='outputs' needs a square root of the loss's output Hessian, which is formed for "
            f"up to {LARGEST_ROOT} outputs for each sample and this model has {net.k}; use "
            "side='parameters', or a loss by its name"
        )
        raise ValueError(msg)
    if side != "auto":
        return side
    smaller = net.parameters < net.samples * net.rows
    return "parameters" if smaller or not rooted else "outputs"
