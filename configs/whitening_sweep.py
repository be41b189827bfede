"""Figure 19: kappa of linear networks over depth, on raw and on whitened data.

    python -m experiments.whitening_sweep --config=configs/whitening_sweep.py:laptop

smoke: seconds. laptop: photograph patches of 16 x 16 in place of CIFAR-10, under a minute on 2
cores. paper: CIFAR-10 at full size and m = 3100, about half an hour on 2 cores.
"""

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": "cifar10" if profile == "paper" else "photo_patches",
        "samples": 0,
        "data_seed": 0,
        "outputs": 10,
        "gain": 2.0,
        "initializer": "kaiming_normal",
        "rtol": 1e-3,
    }
    sizes = {
        "smoke": {"samples": 500, "side": 5, "width": 80, "depths": (2, 3), "seeds": 2},
        "laptop": {"side": 16, "width": 775, "depths": (2, 3, 4, 6), "seeds": 3},
        "paper": {"side": 0, "width": 3100, "depths": (2, 3, 4, 5, 6), "seeds": 3},
    }
    return ConfigDict(common | sizes[profile])
