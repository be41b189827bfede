"""Each layer's share of the eigenvalues at both ends of the spectrum, and short names of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.layer_grams import Gram, condition_by_gram, part_of_columns
from gnjax.diagnosis.remedies.suggestion import block_condition
from gnjax.networks.network import parameter_names
from gnjax.networks.null_space.ranks import entry_rank_bounds
from gnjax.networks.parameters import layer_name, natural_order
from gnjax.numerics.answers.result import Result
from gnjax.numerics.evidence import THOROUGH, evidence
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
    op: NetworkGram, top: np.ndarray, bottom: np.ndarray | None
) -> tuple[LayerShare, ...]:
    """The shares of every layer in both ends of the spectrum of G, in the order of their names.

    Args:
      op: G of a network, which names the parameters.
      top, bottom: eigenvectors (p, m) of the largest and of the smallest non-zero eigenvalue with m
        repetitions, of any lengths; ``bottom`` is None where they are not known.
    """
    shares = []
    for name, columns in zip(_layer_names(op), layer_columns(op), strict=True):
        bottom_share = None if bottom is None else _share_of_squares(bottom, columns)
        top_share = _share_of_squares(top, columns)
        shares.append(LayerShare(name, len(columns), top_share, bottom_share, None))
    return tuple(shares)


def layer_columns(op: NetworkGram) -> list[np.ndarray]:
    """For every layer, in the order of their names, the indices of its parameters."""
    layer_of_entry = np.repeat(_names_of_leaves(op), op.net.counts)
    return [np.flatnonzero(layer_of_entry == name) for name in _layer_names(op)]


def _names_of_leaves(op: NetworkGram) -> list[str]:
    """For every parameter the name of its layer."""
    return [layer_name(name) for name in parameter_names(op.net)]


def _layer_names(op: NetworkGram) -> list[str]:
    """The names of the layers in their natural order, of those with a parameter."""
    counted = zip(_names_of_leaves(op), op.net.counts, strict=True)
    return sorted({name for name, count in counted if count}, key=natural_order)


def with_blocks(
    op: NetworkGram,
    layers: Sequence[LayerShare],
    jacobian: np.ndarray,
    grams: Sequence[Gram],
    longest: int,
) -> tuple[LayerShare, ...]:
    """The layers with kappa of their own blocks J_l J_l^T, where the smaller side is short.

    Args:
      op: G of the network.
      layers: see :func:`layer_shares`.
      jacobian: J, (rows, p), with the columns J_l.
      grams: J_l J_l^T of every layer; empty where they are not kept.
      longest: the longest smaller side of a J_l.
    """
    columns = layer_columns(op)
    quickly = evidence() != THOROUGH
    # of all layers together
    rank_bounds = cache(partial(entry_rank_bounds, op.net, columns, only_quickly=quickly))
    found = []
    for index, (layer, of_layer) in enumerate(zip(layers, columns, strict=True)):
        rows, block = part_of_columns(jacobian, of_layer), None

        def limit(index: int = index) -> RankBound:
            return rank_bounds()[index]

        if min(rows.shape) <= longest:
            if grams and len(rows) <= len(of_layer):
                block = condition_by_gram(op, grams[index], partial(_the, rows), limit)
            else:
                block = block_condition(op, rows, limit)
        found.append(replace(layer, block=block))
    return tuple(found)


def _the(rows: np.ndarray) -> np.ndarray:
    return rows


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
