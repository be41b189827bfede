"""Numbers that a torch model and ours can both be filled with, without storing them."""

import math
import zlib

import numpy as np

_GOLDEN = (math.sqrt(5) - 1) / 2


def spread(name, shape):
    """Entries equidistributed over (-1, 1): frac(j golden + offset), the offset from the name."""
    start = zlib.crc32(name.encode()) / 2**32
    places = (np.arange(1, math.prod(shape) + 1) * _GOLDEN + start) % 1.0
    return (2 * places - 1).reshape(shape)


def filled(name, shape):
    """The array of this name, in torch's order of axes (outputs, inputs, height, width).

    Weights have the variance 2 / fan_in of a network whose outputs stay of order one; scales and
    variances lie around 1, and everything else within a tenth of 0.
    """
    kind = name.rpartition(".")[2]
    if kind == "kernel":
        return spread(name, shape) * math.sqrt(6 / math.prod(shape[1:]))
    return spread(name, shape) * (0.4 if kind in ("scale", "var") else 0.1) + (
        kind in ("scale", "var")
    )
