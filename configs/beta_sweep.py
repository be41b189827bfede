"""Figures 5, 20, 21 and 22: kappa of residual networks over depth, five strengths of the skip.

    python -m experiments.beta_sweep --config=configs/beta_sweep.py:laptop

Data are whitened, so that kappa depends on them through their rank alone: bundled Fashion-MNIST
stands for MNIST and photograph patches stand for CIFAR-10. Weights have variance 1 / fan-in, and
beta = 1/H and 1/sqrt(H) divide by the H = L - 1 hidden layers, as in the published code of paper A;
the grey panel has the paper's 1/L and 1/sqrt(L) too, where L counts matrices.

smoke: seconds. laptop: grey images of 20 x 20 and 5 outputs in place of 28 x 28 and 10, patches of
12 x 12 and 2 outputs in place of 32 x 32 and 10, which keeps m/d and, to a factor of 1.5, d/k; half
a minute on 2 cores. paper: the paper's sizes, an hour on 2 cores.
"""

from collections.abc import Iterable

from ml_collections import ConfigDict

from sweeps.config import at_hand

# MNIST has 784 pixels and CIFAR-10 has 3072; k = 10. The only width that the paper prints is
# m = 3100 for CIFAR-10, for figure 19.
PAPER_RATIOS = tuple(
    row
    for figure, d, m in (
        ("5", (78.4, 307.2), (1.0, 1.5)),
        ("20", (78.4, 78.4), (1.0, 1.5)),
        ("21", (307.2, 307.2), (1.01, 1.01)),
        ("22", (307.2, 307.2), (1.01, 1.01)),
    )
    for row in ((figure, "d/k", *d), (figure, "m/d", *m))
)
PROFILES = ("smoke", "laptop", "paper")
BETAS = ("0", "1/L", "1/H", "1/sqrt(L)", "1/sqrt(H)", "1", "2")
PUBLISHED = ("0", "1/H", "1/sqrt(H)", "1")  # the betas of the published code


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data_seed": 0,
        "gain": 1.0,
        "initializer": "kaiming_normal",
        "rtol": 1e-3,
        "first_seed": 0,
        "pair_seeds": 5,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _panel(
    data: str,
    width: int,
    depths: Iterable[int],
    seeds: int,
    *,
    samples: int = 0,
    side: int = 0,
    outputs: int = 10,
    betas: tuple[str, ...] = BETAS,
) -> dict[str, object]:
    return {
        "data": data,
        "samples": samples,
        "side": side,
        "outputs": outputs,
        "width": width,
        "betas": betas,
        "depths": tuple(depths),
        "seeds": seeds,
    }


def _smoke() -> dict[str, object]:
    return {
        "grey": _panel("fashion_mnist_5000", 90, (1, 2, 3), 3, samples=500, side=8),
        "colour": _panel("photo_patches", 80, (1, 2, 3), 2, samples=500, side=5, betas=PUBLISHED),
    }


def _laptop() -> dict[str, object]:
    colour = _panel("photo_patches", 436, (2, 3, 4, 6), 5, side=12, outputs=2, betas=PUBLISHED)
    return {
        "grey": _panel("fashion_mnist_5000", 510, (2, 3, 4, 6, 8), 5, side=20, outputs=5),
        "colour": colour,
    }


def _paper() -> dict[str, object]:
    colour = at_hand("cifar10_part", "photo_patches")
    return {
        "grey": _panel(at_hand("mnist", "fashion_mnist_5000"), 1000, range(1, 11), 20),
        "colour": _panel(colour, 3100, range(1, 7), 3, betas=PUBLISHED),
    }
