"""Figures 5, 20, 21 and 22: kappa of residual networks over depth, five strengths of the skip.

    python -m experiments.beta_sweep --config=configs/beta_sweep.py:laptop

smoke: seconds. laptop: bundled Fashion-MNIST in place of MNIST and photograph patches of 16 x 16 in
place of CIFAR-10, about two minutes on 2 cores. paper: MNIST and CIFAR-10 at full size, under an
hour on 2 cores.
"""

from collections.abc import Iterable

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data_seed": 0,
        "outputs": 10,
        "gain": 2.0,
        "initializer": "kaiming_normal",
        "rtol": 1e-3,
        "pair_seeds": 3,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _panel(
    data: str, width: int, depths: Iterable[int], seeds: int, *, samples: int = 0, side: int = 0
) -> dict[str, object]:
    return {
        "data": data,
        "samples": samples,
        "side": side,
        "width": width,
        "depths": tuple(depths),
        "seeds": seeds,
    }


def _smoke() -> dict[str, object]:
    return {
        "grey": _panel("fashion_mnist_5000", 90, (1, 2, 3), 3, samples=500, side=8),
        "colour": _panel("photo_patches", 80, (1, 2, 3), 2, samples=500, side=5),
    }


def _laptop() -> dict[str, object]:
    return {
        "grey": _panel("fashion_mnist_5000", 1000, (1, 2, 3, 4, 6, 8), 4),
        "colour": _panel("photo_patches", 775, (1, 2, 3, 4, 6), 3, side=16),
    }


def _paper() -> dict[str, object]:
    return {
        "grey": _panel("mnist", 1000, range(1, 11), 20),
        "colour": _panel("cifar10", 3100, range(1, 7), 3),
    }
