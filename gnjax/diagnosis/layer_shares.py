"""Each layer's share of the eigenvalues at both ends of the spectrum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.remedies.suggestion import block_condition
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import layer_name, natural_order
from gnjax.numerics.answers.result import Result
from gnjax.numerics.limits import LIMITS
from gnjax.operators.of_networks.network_gram import NetworkGram

_STANDS_OUT = 0.1  # the least sensitivity for which a layer is named


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
    """The shares of every layer, from eigenvectors (p, .), which need not have length 1."""
    owners = np.repeat([layer_name(name) for name in parameter_names(op.net)], op.net.counts)
    shares = []
    names = sorted(set(owners.tolist()), key=natural_order)
    most = LIMITS.small_rows if len(names) > 1 else 0
    for name in names:
        entries = owners == name
        block = None
        if jacobian is not None and min(entries.sum(), len(jacobian)) <= most:
            block = block_condition(op, jacobian[:, entries])
        least = None if bottom is None else _share_of_squares(bottom, entries)
        shares.append(
            LayerShare(name, int(entries.sum()), _share_of_squares(top, entries), least, block)
        )
    return tuple(shares)


def _share_of_squares(vectors: np.ndarray, entries: np.ndarray) -> float:
    """The squared norm of the chosen entries divided by that of all, averaged over columns.

    ``entries`` says for each row of the vectors whether it is chosen.
    """
    squares = np.square(vectors)
    return float((squares[entries].sum(axis=0) / squares.sum(axis=0)).mean())


def most_sensitive(layers: Sequence[LayerShare]) -> LayerShare | None:
    """The layer with the largest sensitivity, if that is at least 0.1."""
    first = max(layers, key=lambda layer: layer.sensitivity or 0.0)
    return first if (first.sensitivity or 0.0) >= _STANDS_OUT else None
