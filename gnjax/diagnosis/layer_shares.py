"""Each layer's share of the eigenvalues at both ends of the spectrum, and short names of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.remedies.suggestion import block_condition
from gnjax.networks.network import parameter_names
from gnjax.networks.null_space.ranks import entry_rank_bounds
from gnjax.networks.parameters import layer_name, natural_order
from gnjax.numerics.answers.result import Result
from gnjax.numerics.limits import LIMITS
from gnjax.numerics.rank_bound import RankBound
from gnjax.operators.of_networks.network_gram import NetworkGram

_STANDS_OUT = 0.1  # the least sensitivity for which a layer is named
_CUT = "~"  # what is left out of a name; a terminal of any encoding has it


@dataclass(frozen=True, repr=False)
class LayerShare(Result):
    """A layer's part in both ends of the spectrum.

    Attributes:
      name: the common prefix of its parameters' paths; ``parameters`` is how many they hold.
      top, bottom: its shares of lambda_max and of the smallest non-zero eigenvalue. The shares of
        all layers add up to 1. ``bottom`` is None where the matrix is too large for eigenvectors.
      block: kappa of G_l alone, the layer's own block; None where it was not computed.
    """

    _also = ("sensitivity",)

    name: str
    parameters: int
    top: float
    bottom: float | None
    block: ConditionNumber | None

    @property
    def sensitivity(self) -> float | None:
        """top - bottom, which is d ln kappa / d ln s for a learning rate s eta of this layer."""
        return None if self.bottom is None else self.top - self.bottom


def layer_shares(
    op: NetworkGram, top: np.ndarray, bottom: np.ndarray | None, jacobian: np.ndarray | None
) -> tuple[LayerShare, ...]:
    """The shares of every layer in both ends of the spectrum of G, in the order of their names.

    Args:
      op: G of a network, which names the parameters.
      top, bottom: eigenvectors (p, m) of the largest and of the smallest non-zero eigenvalue with m
        repetitions, of any lengths; ``bottom`` is None where they are not known.
      jacobian: J, (rows, p), from which kappa of a layer's own block is computed where its smaller
        side is short; None where J is not known. With a single layer that would be kappa of G.
    """
    layer_of_entry = np.repeat(
        [layer_name(name) for name in parameter_names(op.net)], op.net.counts
    )
    shares = []
    names = sorted(set(layer_of_entry.tolist()), key=natural_order)
    columns = [np.flatnonzero(layer_of_entry == name) for name in names]
    rank_bounds = cache(partial(entry_rank_bounds, op.net, columns))  # of all layers together

    def bound_of(index: int) -> RankBound:
        return rank_bounds()[index]

    longest_side = LIMITS.small_rows if len(names) > 1 else 0
    for index, (name, of_layer) in enumerate(zip(names, columns, strict=True)):
        block = None
        if jacobian is not None and min(len(of_layer), len(jacobian)) <= longest_side:
            block = block_condition(op, jacobian[:, of_layer], partial(bound_of, index))
        top_share = _share_of_squares(top, of_layer)
        bottom_share = None if bottom is None else _share_of_squares(bottom, of_layer)
        shares.append(LayerShare(name, len(of_layer), top_share, bottom_share, block))
    return tuple(shares)


def _share_of_squares(vectors: np.ndarray, chosen: np.ndarray) -> float:
    """The squared length of a vector's ``chosen`` entries over that of all; the mean of columns."""
    squares = np.square(vectors)
    return float((squares[chosen].sum(axis=0) / squares.sum(axis=0)).mean())


def most_sensitive(layers: Sequence[LayerShare]) -> LayerShare | None:
    """The layer with the largest sensitivity, if that is at least 0.1."""
    most = max(layers, key=lambda layer: layer.sensitivity or 0.0)
    return most if (most.sensitivity or 0.0) >= _STANDS_OUT else None


def shortened(names: Sequence[str], width: int) -> list[str]:
    """The names with at most ``width`` letters each, of which no two become the same.

    A longer name is cut in its middle, or as near to it as leaves all names distinct. Where no cut
    does, names that would become the same stay whole.
    """
    kept = max(width - len(_CUT), 2)
    heads = sorted(range(1, kept), key=lambda head: abs(2 * head - kept))
    cuts = (
        [n if len(n) <= width else n[:head] + _CUT + n[head - kept :] for n in names]
        for head in heads
    )
    best = max(cuts, key=lambda cut: len(set(cut)))  # the first of those that keep the most apart
    return [
        name if best.count(short) > 1 else short for name, short in zip(names, best, strict=True)
    ]
