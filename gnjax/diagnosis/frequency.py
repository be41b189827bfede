"""Bands of classes by how often they occur, as labels of samples or tokens."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike


def frequency_bands(y: ArrayLike, bands: int = 10) -> np.ndarray:
    """The band of every label of y: band 0 has the most frequent classes, the last the rarest.

    The labels are sorted by how frequent their class is. If the middle label of a class comes after
    a share s of all labels, the class is in band floor(s * bands). The bands have about the same
    number of labels, and some may be empty (Kunstner et al. 2024, arXiv 2402.19449, use ten). A
    label of -1 stays -1. The answer has the shape of y; ``block_spectra`` takes it as ``labels``.

    >>> y = np.array([[0, 0, 0, 1], [0, 0, 2, -1]])
    >>> gnjax.frequency_bands(y, 2)
    array([[ 0,  0,  0,  1],
           [ 0,  0,  1, -1]])
    """
    labels = np.asarray(y)
    if labels.dtype.kind not in "iu" or labels.size == 0 or labels.max() < 0 or bands < 1:
        msg = (
            "y must be integer labels of which at least one is not negative, and bands at least 1; "
            f"got shape {labels.shape}, dtype {labels.dtype}, bands={bands}"
        )
        raise ValueError(msg)
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    sorted_counts = counts[order]
    middles = np.cumsum(sorted_counts) - sorted_counts / 2  # how many labels come before each
    band_of_class = np.zeros(int(classes.max()) + 1, int)
    band_of_class[classes[order]] = np.floor(bands * middles / counts.sum()).astype(int)
    return np.where(labels < 0, -1, band_of_class[np.maximum(labels, 0)])
