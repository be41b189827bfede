"""Figure 8: kappa of linear CNNs over kernel size and number of filters, at initialisation.

    python -m experiments.cnn_sweep --config=configs/cnn_sweep.py:laptop

The caption says "a random subsample of n=1000 of MNIST, whitened": 1000 images are drawn and then
whitened by ZCA, which keeps them images; two smaller panels whiten by PCA, and on the whole set.

smoke: seconds. laptop: bundled Fashion-MNIST of 10 x 10, under two minutes on 2 cores. paper: MNIST
at full size with two layers, at 14 x 14 with three; two hours on 2 cores.
"""

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")
KERNELS = (3, 5, 7, 11, 15, 21)
FILTERS = (1, 2, 4, 8, 16, 32)


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": "mnist" if profile == "paper" else "fashion_mnist_5000",
        "samples": 1000,
        "data_seed": 0,
        "outputs": 10,
        "gain": 2.0,
        "initializer": "kaiming_normal",
        "rtol": 1e-3,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _panel(
    depth: int,
    kernels: tuple[int, ...],
    filters: tuple[int, ...],
    seeds: int,
    *,
    side: int,
    whitening: str = "zca",
    whitened_on: str = "drawn",
) -> dict[str, object]:
    return {
        "depth": depth,
        "kernels": kernels,
        "filters": filters,
        "seeds": seeds,
        "side": side,
        "whitening": whitening,
        "whitened_on": whitened_on,
    }


def _smoke() -> dict[str, object]:
    few = (3, 5, 7), (1, 2, 4)
    return {
        "samples": 200,
        "outputs": 4,
        "two_layers": _panel(2, *few, 2, side=5),
        "three_layers": _panel(3, *few, 2, side=5),
        "pca": _panel(2, *few, 1, side=5, whitening="pca"),
        "all_whitened": _panel(2, *few, 1, side=5, whitened_on="all"),
    }


def _laptop() -> dict[str, object]:
    few = (3, 7, 21), (1, 4, 16), 3
    return {
        "two_layers": _panel(2, KERNELS, FILTERS, 5, side=10),
        "three_layers": _panel(3, (3, 7, 11, 21), FILTERS[:-1], 3, side=10),
        "pca": _panel(2, *few, side=10, whitening="pca"),
        "all_whitened": _panel(2, *few, side=10, whitened_on="all"),
    }


def _paper() -> dict[str, object]:
    few = (3, 7, 21), (1, 4, 16), 3
    return {
        "two_layers": _panel(2, KERNELS, FILTERS, 3, side=0),
        "three_layers": _panel(3, KERNELS, FILTERS[:-1], 3, side=14),
        "pca": _panel(2, *few, side=0, whitening="pca"),
        "all_whitened": _panel(2, *few, side=0, whitened_on="all"),
    }
