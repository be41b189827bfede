"""Figure 19: kappa of linear networks over depth, on raw and on whitened data, and in between.

    python -m experiments.whitening_sweep --config=configs/whitening_sweep.py:laptop

smoke: seconds. laptop: Fashion-MNIST of 20 x 20 pixels in place of CIFAR-10, with 2 outputs and m =
404, which keeps the paper's m/d and, to a factor of 1.6, its d/k; seconds on 2 cores. paper: the
paper's d = 3072 and m = 3100 on CIFAR-10 where a part of it is at hand, else on photograph
patches; half an hour on one core. Both have small networks too, on every fourth pixel, to show what
the published code takes for kappa on raw inputs.
"""

from ml_collections import ConfigDict

from sweeps.config import at_hand

PAPER_RATIOS = (
    ("19", "d/k", 307.2, 307.2),
    ("19", "m/d", 1.01, 1.01),
)  # d = 3072, m = 3100, k = 10
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": at_hand("cifar10_part", "photo_patches")
        if profile == "paper"
        else "fashion_mnist_5000",
        "samples": 0,
        "data_seed": 0,
        "gain": 1.0,
        "initializer": "kaiming_normal",
        "rtol": 1e-3,
        "first_seed": 0,
        "powers": (0.25, 0.5, 0.75),
        "small_step": 4,
        "small_outputs": 10,
    }
    sizes = {
        "smoke": {
            "samples": 500,
            "side": 8,
            "width": 80,
            "depths": (2, 3),
            "seeds": 2,
            "small_width": 50,
        },
        "laptop": {
            "side": 20,
            "width": 404,
            "depths": (2, 3, 4, 5, 6),
            "seeds": 5,
            "small_width": 50,
        },
        "paper": {
            "side": 0,
            "width": 3100,
            "depths": (2, 3, 4, 5, 6),
            "seeds": 3,
            "small_width": 194,
        },
    }
    outputs = {"smoke": 4, "laptop": 2, "paper": 10}[profile]
    return ConfigDict(common | {"outputs": outputs} | sizes[profile])
