"""Convolutions as matrices (Appendix B)."""

from __future__ import annotations

import jax
import numpy as np
from jax.typing import ArrayLike

from gnjax.models.cnn import output_length
from gnjax.numerics.host import on_device
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_matrix


def toeplitz(kernels: ArrayLike, length: int, stride: int = 1, padding: int = 0) -> jax.Array:
    """The matrix T of a 1-D convolution: T x is its output, channel after channel (Appendix B).

    T_(i,p),(j,q) = w_ij[q - p stride + padding] where that is an index of the kernel, else 0. Like
    all of deep learning's convolutions it is a cross-correlation: kernels are not flipped.

    Args:
      kernels: (filters, kernel) for one input channel, or (filters, channels, kernel).
      length: of every input channel.
      stride: the distance between outputs.
      padding: the number of zeros on each side of the input.

    Returns:
      (filters * length_out, channels * length), see :func:`gnjax.models.cnn.output_length`.

    >>> gnjax.papers.toeplitz([[1.0, 2.0]], length=3).tolist()
    [[1.0, 2.0, 0.0], [0.0, 1.0, 2.0]]
    """
    given = np.asarray(kernels)
    if given.ndim not in (2, 3) or 0 in given.shape:
        msg = (
            "kernels must have shape (filters, kernel) or (filters, channels, kernel), got "
            f"{given.shape}"
        )
        raise ValueError(msg)
    check_matrix("kernels", given.reshape(len(given), -1))
    fibres = given.reshape(len(given), -1, given.shape[-1])
    filters, channels, size = fibres.shape
    positions = output_length(length, size, stride, padding)
    taps = np.arange(length)[None, :] - stride * np.arange(positions)[:, None] + padding
    inside = (taps >= 0) & (taps < size)
    blocks = inside * fibres[:, :, np.clip(taps, 0, size - 1)]  # (f, channels, positions, length)
    matrix = blocks.transpose(0, 2, 1, 3).reshape(filters * positions, channels * length)
    return on_device(matrix, real_dtype())
