"""Magnitude pruning at initialisation, as masks that training and spectra take."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable

import jax
import numpy as np

from gnjax.networks.model import Params


def magnitude_mask(
    params: Params,
    rate: float,
    *,
    only: str | None = None,
    vectors: bool = False,
    count: Callable[[float], int] = round,
    ties: int | None = None,
) -> Params:
    """True for the weights that stay when the smallest of every layer are pruned.

    Each leaf with s entries loses the count(rate s) entries of the smallest magnitude, the first
    ones among equals. Leaves with fewer than two axes (biases, normalisations) stay whole, unless
    ``vectors`` prunes them too. All scales of a normalisation are equal at the start, and so are
    its shifts: pruned by the same rate, the first channels lose both and are dead, and they are the
    same channels in all layers of one width.

    Args:
      params: a pytree of arrays, as :func:`gnjax.functional` returns it.
      rate: the share of every layer to prune, in [0, 1).
      only: a pattern of paths such as "*kernel*"; other leaves stay whole, too.
      vectors: whether leaves with one axis are pruned as well.
      count: how rate s becomes a whole number; ``int`` rounds down.
      ties: a seed, by which entries of equal magnitude are drawn, in every leaf on its own; the
        first ones go without it.

    Returns:
      a pytree like ``params``, what ``mask=`` of :func:`gnjax.ntk` and of
      :func:`gnjax.papers.training.minibatch.begin` take.
    """
    if not 0 <= rate < 1:
        msg = f"rate={rate} is not in [0, 1); it is the share of each layer's weights to prune"
        raise ValueError(msg)

    rng = None if ties is None else np.random.default_rng(ties)

    def mask_of(path: tuple[object, ...], leaf: jax.Array) -> np.ndarray:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        pruned = (leaf.ndim >= 2 or vectors) and (only is None or fnmatch.fnmatch(name, only))
        dropped = count(rate * leaf.size) if pruned else 0
        order = np.arange(leaf.size) if rng is None else rng.permutation(leaf.size)
        magnitudes = np.abs(np.asarray(leaf)).ravel()[order]
        mask = np.ones(leaf.size, bool)
        mask[order[np.argsort(magnitudes, kind="stable")][:dropped]] = False
        return mask.reshape(leaf.shape)

    return jax.tree_util.tree_map_with_path(mask_of, params)


def remaining(mask: Params) -> int:
    """How many parameters a mask keeps."""
    return sum(int(np.count_nonzero(leaf)) for leaf in jax.tree.leaves(mask))
