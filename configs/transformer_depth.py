"""Figure T1, beyond the papers: kappa of G of a GPT over depth, by norm and skips.

    python -m experiments.transformer_depth --config=configs/transformer_depth.py:laptop

The statements about it are paper A's about other networks, so that no size of a paper decides them:
the regime is ours, with p/(k n) from 8 at depth 1 to 41 at depth 6 (laptop).

smoke: under a minute, most of it compilation. laptop: two minutes on 2 cores. paper: width 64 and
up to 12 blocks, for a GPU, not timed.
"""

from ml_collections import ConfigDict

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data_seed": 0,
        "first_seed": 0,
        "heads": 2,
        "initializer": "lecun",
    }
    sizes = {
        "smoke": {"outputs": 4, "length": 6, "samples": 8, "width": 8, "depths": (1, 2)},
        "laptop": {"outputs": 10, "length": 12, "samples": 48, "width": 16, "depths": (1, 2, 4, 6)},
        "paper": {
            "outputs": 32,
            "length": 64,
            "samples": 128,
            "width": 64,
            "depths": (1, 2, 4, 8, 12),
        },
    }
    seeds = {"smoke": 2, "laptop": 5, "paper": 5}
    return ConfigDict(common | sizes[profile] | {"seeds": seeds[profile]})
