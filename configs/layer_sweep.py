"""Figures 11 and 12: the partial products behind Lemma 2, layer by layer.

    python -m experiments.layer_sweep --config=configs/layer_sweep.py:laptop

The paper has MNIST downsampled to d = 196, m = 300 and 10 runs, and says that other d, k and m give
the same: each of them is changed once. With whitened data only the weights
and the rank of the data count, and Fashion-MNIST at 14 x 14 has rank 196. So the profiles laptop
and paper are the same and take seconds; smoke is smaller.
"""

from ml_collections import ConfigDict

from sweeps.config import data_of

PROFILES = ("smoke", "laptop", "paper")

PAPER_RATIOS = tuple(
    (figure, *ratio)
    for figure in ("11", "12")
    for ratio in (("d/k", 19.6, 19.6), ("m/d", 300 / 196, 300 / 196))
)


def get_config(profile: str) -> ConfigDict:
    smoke = profile == "smoke"
    return ConfigDict(
        {
            "paper_ratios": PAPER_RATIOS,
            "data": data_of(profile, "mnist"),
            "samples": 500 if smoke else 0,
            "data_seed": 0,
            "side": 8 if smoke else 14,
            "outputs": 10,
            "gains": (1.0, 2.0),
            "initializer": "kaiming_normal",
            "depths": (2, 4, 6) if smoke else (2, 4, 6, 8, 10),
            "width": 100 if smoke else 300,
            "others": ((8, 10, 200),) if smoke else ((14, 10, 600), (10, 10, 300), (14, 50, 300)),
            "seeds": 2 if smoke else 10,
            "first_seed": 0,
        }
    )
