"""Figures 11 and 12: the partial products behind Lemma 2, layer by layer.

    python -m experiments.layer_sweep --config=configs/layer_sweep.py:laptop

smoke and laptop: seconds. paper: MNIST, a minute.
"""

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    smoke, paper = profile == "smoke", profile == "paper"
    return ConfigDict(
        {
            "paper_ratios": PAPER_RATIOS,
            "data": "mnist" if paper else "fashion_mnist_5000",
            "samples": 500 if smoke else 0,
            "data_seed": 0,
            "side": 8 if smoke else 14,
            "outputs": 10,
            "gain": 2.0,
            "initializer": "kaiming_normal",
            "depths": (2, 4, 6) if smoke else (2, 4, 6, 8, 10),
            "width": 100 if smoke else 300,
            "seeds": 2 if smoke else 10,
        }
    )
