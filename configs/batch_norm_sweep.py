"""Figure 7: kappa of one-hidden-layer linear networks over width, with and without normalisation.

    python -m experiments.batch_norm_sweep --config=configs/batch_norm_sweep.py:laptop

Fashion-MNIST, grey already, stands for grey CIFAR-10; crops of two photographs would be near-
duplicates of each other. `--config.data=cifar10` where CIFAR-10 is at hand.

smoke: seconds. laptop: the paper's sizes, about a minute on 2 cores. paper: more widths, a few
minutes.
"""

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = (("7", "d", 64, 64), ("7", "k", 10, 10), ("7", "n/d", 15.6, 15.6))  # n = 1000
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": "fashion_mnist_5000",
        "samples": 1000,
        "data_seed": 0,
        "side": 8,
        "outputs": 10,
        "gain": 2.0,
        "initializer": "kaiming_normal",
        "epsilon": 1e-5,
        "first_seed": 0,
        "seeds": 5,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _smoke() -> dict[str, object]:
    return {"samples": 100, "side": 4, "widths": (10, 20, 40, 80), "seeds": 3}


def _laptop() -> dict[str, object]:
    return {"widths": (16, 32, 64, 100, 200, 400), "seeds": 4}


def _paper() -> dict[str, object]:
    return {"widths": (16, 32, 64, 100, 200, 400, 700, 1000, 1500, 2000)}
