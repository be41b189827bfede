"""Magnitude pruning at initialisation, as masks that training and spectra take."""

from __future__ import annotations

import fnmatch

import jax
import numpy as np

from gnjax.networks.model import Params


def magnitude_mask(params: Params, rate: float, *, only: str | None = None) -> Params:
    """True for the weights that stay when the smallest of every layer are pruned.

    Each leaf with s entries loses the round(rate s) entries of the smallest magnitude, the first
    ones among equals. Leaves with fewer than two axes (biases, normalisations) stay whole.

    Args:
      params: a pytree of arrays, as :func:`gnjax.functional` returns it.
      rate: the share of every layer to prune, in [0, 1).
      only: a pattern of paths such as "*kernel*"; other leaves stay whole, too.

    Returns:
      a pytree like ``params``, what ``mask=`` of :func:`gnjax.ntk` and of
      :func:`gnjax.papers.training.minibatch.begin` take.
    """
    if not 0 <= rate < 1:
        msg = f"rate={rate} is not in [0, 1); it is the share of each layer's weights to prune"
        raise ValueError(msg)

    def mask_of(path: tuple[object, ...], leaf: jax.Array) -> np.ndarray:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        is_weight = leaf.ndim >= 2 and (only is None or fnmatch.fnmatch(name, only))
        return _largest_entries(np.asarray(leaf), rate if is_weight else 0.0)

    return jax.tree_util.tree_map_with_path(mask_of, params)


def _largest_entries(leaf: np.ndarray, rate: float) -> np.ndarray:
    mask = np.ones(leaf.size, bool)
    mask[np.argsort(np.abs(leaf), axis=None, kind="stable")[: round(rate * leaf.size)]] = False
    return mask.reshape(leaf.shape)


def remaining(mask: Params) -> int:
    """How many parameters a mask keeps."""
    return sum(int(np.count_nonzero(leaf)) for leaf in jax.tree.leaves(mask))
