"""Figures 6 and 23: kappa of Leaky-ReLU networks over width, for several slopes.

    python -m experiments.alpha_sweep --config=configs/alpha_sweep.py:laptop

The published code of paper A draws n samples and then whitens those, so that X X^T = I. kappa then
depends on n, d, k, m and the slope alone and not on the images. Lambda has the derivative alpha of
the network, and -alpha as in that code, for the same weights. Where all data are whitened before n
of them are drawn, the images count.

smoke: seconds. laptop: 125 samples of 14 x 14 pixels and 3 outputs in place of 500 of 28 x 28 and
10, which keeps n/d and d/k, a minute on 2 cores. paper: the paper's sizes, and those of CIFAR-10
where a part of it is at hand, half an hour on one core.
"""

from functools import partial

from ml_collections import ConfigDict

from sweeps.config import at_hand, data_of, is_at_hand

# 500 of MNIST, 784 pixels, and k = 10; the paper does not print its widths.
PAPER_RATIOS = tuple(
    row
    for figure in ("6", "23")
    for row in ((figure, "d/k", 78.4, 78.4), (figure, "n/d", 0.638, 0.638))
)
PROFILES = ("smoke", "laptop", "paper")
SLOPES = (0.0, 0.01, 0.1, 0.3, 0.5, 1.0)
ONE, TWO = 2, 3  # weight matrices of networks with one and with two hidden layers


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "gain": 2.0,
        "initializer": "kaiming_normal",
        "rtol": 1e-2,
        "first_seed": 0,
    }
    panels = {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]()
    return ConfigDict(common | {"panels": panels})


def _panel(
    data: str,
    samples: int,
    widths: tuple[int, ...],
    seeds: int,
    *,
    side: int = 0,
    outputs: int = 10,
    slopes: tuple[float, ...] = SLOPES,
    whitening: str = "samples",
    depth: int = ONE,
) -> dict[str, object]:
    return {
        "data": data,
        "samples": samples,
        "side": side,
        "outputs": outputs,
        "whitening": whitening,
        "depth": depth,
        "slopes": slopes,
        "widths": widths,
        "seeds": seeds,
    }


def _smoke() -> dict[str, object]:
    data = data_of("smoke", "mnist")
    panel = partial(_panel, data, 40, side=8, outputs=3)
    return {
        "one": panel((20, 60, 180), 2),
        "two": panel((40, 80), 2, depth=TWO, slopes=(0.0, 0.01)),
        "drawn": panel((60, 180), 2, whitening="all"),
    }


def _laptop() -> dict[str, object]:
    data = data_of("laptop", "mnist")
    panel = partial(_panel, data, 125, side=14, outputs=3)
    few = (0.0, 0.1, 0.3, 1.0)
    return {
        "one": panel((25, 75, 125, 250, 1000), 5),
        "two": panel((125, 250, 500), 3, depth=TWO, slopes=(0.0, 0.01)),
        "drawn": panel((1000,), 3, slopes=few, whitening="all"),
    }


def _paper() -> dict[str, object]:
    data = data_of("paper", "mnist")
    colours = (1000, 5000) if is_at_hand("cifar10_part") else ()
    every = (0.0, 0.1, 0.3, 0.5, 1.0)
    return {
        "one": _panel(data, 500, (100, 300, 500, 1000, 4000), 3),
        "colours": _panel(at_hand("cifar10_part", data), 500, colours, 3, slopes=every),
        # Twenty draws where the published notebooks print single ones.
        "one_draws": _panel(data, 500, (100,), 20, slopes=(0.0, 0.01)),
        "colours_draws": _panel(at_hand("cifar10_part", data), 500, colours[:1], 20, slopes=(0.0,)),
        "drawn": _panel(data, 500, (100, 300, 500, 1000, 4000), 3, whitening="all"),
    }
