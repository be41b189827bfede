"""Figures 8 and C3: kappa of linear CNNs over kernel size and number of filters.

    python -m experiments.cnn_sweep --config=configs/cnn_sweep.py:laptop

Figure 8 is that of the published code of paper A: the first 1000 images of MNIST, every fifth
pixel, 6 x 6 taken as a line of 36, two convolutions in one dimension with kernels of 7, 9 and 11
and 2 to 5 filters, not whitened. Figure C3 has what else the text can mean, in two dimensions:
Toeplitz entries as parameters cost a second at most at 28 x 28 pixels; shared weights need a matrix
of k d rows, and have 14 x 14 pixels. kappa does not depend on the gain of the weights.

smoke: seconds. laptop: Fashion-MNIST, two minutes on one core. paper: MNIST where it is at hand,
shared weights at 28 x 28 too, ten minutes on one core.
"""

from ml_collections import ConfigDict

from sweeps.config import data_of

PROFILES = ("smoke", "laptop", "paper")

# The sizes that decide in two dimensions, kernel over side and filters, are not stated. n does not
# count once n >= d: Sigma is then the identity on the range of the images.
PAPER_RATIOS = (("8", "d", 36, 36),)

FILTERS = (1, 2, 4, 8, 16, 32)
TWICE_IN_28 = (3, 5, 7, 9, 11, 13)  # kernels that fit twice
ONCE_IN_28 = (*TWICE_IN_28, 15, 19, 23)
TWICE_IN_14 = (2, 3, 4, 5, 6, 7)
ONCE_IN_14 = (3, 5, 7, 9, 11)


def get_config(profile: str) -> ConfigDict:
    smoke = profile == "smoke"
    return ConfigDict(
        {
            "paper_ratios": PAPER_RATIOS,
            "data": data_of(profile, "mnist"),
            "samples": 200 if smoke else 1000,
            "data_seed": 0,
            "first_seed": 0,
            "outputs": 4 if smoke else 10,
            "gain": 1.0,
            "rtol": 1e-3,
            "panels": _smoke() if smoke else _full(profile == "paper"),
        }
    )


def _line(kernels: tuple[int, ...], filters: tuple[int, ...], seeds: int) -> dict[str, object]:
    return {"kind": "line", "side": 6, "kernels": kernels, "filters": filters, "seeds": seeds}


def _panel(
    kind: str,
    side: int,
    kernels: tuple[int, ...],
    filters: tuple[int, ...],
    seeds: int,
    *,
    channels: int = 1,
    frame: int = 0,
) -> dict[str, object]:
    return {
        "kind": kind,
        "side": side,
        "kernels": kernels,
        "filters": filters,
        "seeds": seeds,
        "channels": channels,
        "frame": frame,
    }


def _smoke() -> dict[str, object]:
    small = (2, 3, 4), (1, 2, 4), 2
    few = (2, 3), (1, 2), 1
    return {
        "line": _line((7, 11), (2, 3), 2),
        "convolutions": _panel("convolutions", 8, *small),
        "dense": _panel("dense", 8, *small),
        "shared": _panel("shared", 5, *small),
        "convolutions_half": _panel("convolutions", 5, *few),
        "dense_half": _panel("dense", 5, *few),
        "shared_other": _panel("shared", 4, *few),
        "channels": _panel("convolutions", 5, *few, channels=0),
        "framed_convolutions": _panel("convolutions", 8, *few, frame=1),
        "framed_dense": _panel("dense", 8, *few, frame=1),
    }


def _full(paper: bool) -> dict[str, object]:
    framed = (5, 9, 13), (1, 4, 16, 32), 4
    other = (28, (5, 13, 21), FILTERS[:-1], 3) if paper else (10, (3, 5, 7, 9), FILTERS[:-1], 4)
    return {
        "line": _line((7, 9, 11), (2, 3, 4, 5), 20),
        "convolutions": _panel("convolutions", 28, TWICE_IN_28, FILTERS, 4),
        "dense": _panel("dense", 28, ONCE_IN_28, FILTERS, 4),
        "shared": _panel("shared", 14, (*ONCE_IN_14, 13), FILTERS[:-1], 4),
        "convolutions_half": _panel("convolutions", 14, TWICE_IN_14, FILTERS, 4),
        "dense_half": _panel("dense", 14, ONCE_IN_14, FILTERS, 4),
        "shared_other": _panel("shared", *other),
        "channels": _panel("convolutions", 14, TWICE_IN_14[1:], FILTERS[:-1], 4, channels=0),
        "framed_convolutions": _panel("convolutions", 28, *framed, frame=4),
        "framed_dense": _panel("dense", 28, *framed, frame=4),
    }
