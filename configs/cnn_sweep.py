"""Figure 8: kappa of linear CNNs over kernel size and number of filters, at initialisation.

    python -m experiments.cnn_sweep --config=configs/cnn_sweep.py:laptop

The paper states one size, n = 1000 images of MNIST, whitened. It states neither the kernels nor the
filters, nor what the last layer is, nor whether weights are shared. So the figure has a panel for
each reading. Toeplitz entries as parameters cost a second at most at the paper's 28 x 28 pixels;
shared weights need a matrix of k d rows, and have 14 x 14 pixels.

smoke: seconds. laptop: Fashion-MNIST, two minutes on one core. paper: twice the seeds, and shared
weights at 28 x 28 too, half an hour on one core; MNIST where it is at hand.
"""

from ml_collections import ConfigDict

from sweeps.config import data_of, unknown_profile

PROFILES = ("smoke", "laptop", "paper")

# The sizes that decide, kernel over side and filters, are not stated. n does not count once n >= d:
# Sigma is then the identity on the range of the images.
PAPER_RATIOS = ()

FILTERS = (1, 2, 4, 8, 16, 32)
TWICE_IN_28 = (3, 5, 7, 9, 11, 13)  # kernels that fit twice
ONCE_IN_28 = (*TWICE_IN_28, 15, 19, 23)
TWICE_IN_14 = (2, 3, 4, 5, 6, 7)
ONCE_IN_14 = (3, 5, 7, 9, 11)


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": data_of(profile, "mnist"),
        "samples": 1000,
        "data_seed": 0,
        "first_seed": 0,
        "outputs": 10,
        "gain": 2.0,
        "rtol": 1e-3,
    }
    return ConfigDict(common | (_smoke() if profile == "smoke" else _full(profile == "paper")))


def _panel(
    reading: str,
    side: int,
    kernels: tuple[int, ...],
    filters: tuple[int, ...],
    seeds: int,
    *,
    channels: int = 1,
    frame: int = 0,
) -> dict[str, object]:
    return {
        "reading": reading,
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
        "samples": 200,
        "outputs": 4,
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
    seeds = 10 if paper else 5
    framed = (5, 9, 13), (1, 4, 16, 32), seeds
    other = (28, (5, 13, 21), FILTERS[:-1], 3) if paper else (10, (3, 5, 7, 9), FILTERS[:-1], 6)
    return {
        "convolutions": _panel("convolutions", 28, TWICE_IN_28, FILTERS, seeds),
        "dense": _panel("dense", 28, ONCE_IN_28, FILTERS, seeds),
        "shared": _panel("shared", 14, (*ONCE_IN_14, 13), FILTERS[:-1], 4),
        "convolutions_half": _panel("convolutions", 14, TWICE_IN_14, FILTERS, 6),
        "dense_half": _panel("dense", 14, ONCE_IN_14, FILTERS, 6),
        "shared_other": _panel("shared", *other),
        "channels": _panel("convolutions", 14, TWICE_IN_14[1:], FILTERS[:-1], 6, channels=0),
        "framed_convolutions": _panel("convolutions", 28, *framed, frame=4),
        "framed_dense": _panel("dense", 28, *framed, frame=4),
    }
