"""Figures 6 and 23: kappa of Leaky-ReLU networks over width, for several slopes.

    python -m experiments.alpha_sweep --config=configs/alpha_sweep.py:laptop

Every seed draws its own samples of the whitened bundled Fashion-MNIST, which stands for MNIST.

smoke: seconds. laptop: 256 samples of 20 x 20 pixels and 5 outputs in place of 500 of 28 x 28 and
10, which keeps n/d and d/k, under a minute on 2 cores. paper: the paper's sizes, ten widths and
five seeds, MNIST where it is at hand.
"""

from ml_collections import ConfigDict

from sweeps.config import data_of, unknown_profile

# 500 of MNIST's 784 pixels, 717 of which vary, and k = 10; the paper does not print its widths.
PAPER_RATIOS = tuple(
    row
    for figure in ("6", "23")
    for row in ((figure, "d/k", 71.7, 78.4), (figure, "n/d", 0.64, 0.70))
)
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": data_of(profile, "mnist"),
        "samples": 0,
        "data_seed": 0,
        "side": 0,
        "drawn": 500,
        "outputs": 10,
        "gain": 2.0,
        "initializer": "kaiming_normal",
        "rtol": 1e-3,
        "first_seed": 0,
        "slopes": (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0),
        "slope": 0.01,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _smoke() -> dict[str, object]:
    return {
        "samples": 500,
        "side": 8,
        "drawn": 40,
        "widths": (20, 60, 180),
        "seeds": 2,
        "deep_widths": (20, 60),
        "deep_seeds": 2,
    }


def _laptop() -> dict[str, object]:
    return {
        "side": 20,
        "drawn": 256,
        "outputs": 5,
        "widths": (25, 75, 256, 500, 1000, 2000),
        "seeds": 10,
        "deep_widths": (256, 500, 1000),
        "deep_seeds": 5,
    }


def _paper() -> dict[str, object]:
    widths = (50, 100, 200, 400, 700, 1000, 1500, 2000, 3000, 4000)
    return {"widths": widths, "seeds": 5, "deep_widths": widths[:-2], "deep_seeds": 3}
