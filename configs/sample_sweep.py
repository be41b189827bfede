"""Figure C1, beyond the papers: kappa of the NTK over the number of samples.

    python -m experiments.sample_sweep --config=configs/sample_sweep.py:laptop

smoke: seconds. laptop: bundled Fashion-MNIST, under a minute on 2 cores. paper: MNIST at full
size and up to 2560 samples, two minutes on one core.
"""

from ml_collections import ConfigDict

from sweeps.config import data_of

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "first_seed": 0,
        "data": data_of(profile, "mnist"),
        "data_seed": 0,
        "activation": "tanh",
    }
    sizes = {
        "smoke": {"side": 4, "width": 32, "depth": 2, "samples": (5, 10, 20), "seeds": 2},
        "laptop": {"side": 8, "width": 256, "depth": 3, "samples": (20, 40, 80, 160), "seeds": 3},
        "paper": {
            "side": 28,
            "width": 1024,
            "depth": 3,
            "samples": (40, 160, 640, 2560),
            "seeds": 3,
        },
    }
    return ConfigDict(common | sizes[profile])
