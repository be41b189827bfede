"""Figure 7: kappa of one-hidden-layer linear networks over width, with and without normalisation.

    python -m experiments.batch_norm_sweep --config=configs/batch_norm_sweep.py:laptop

The text has CIFAR-10 in grey, 8 x 8 pixels, 1000 images. The published code names MNIST for it,
every fourth pixel. Images are the first of the file, and weights have variance 1 / fan-in.

smoke: seconds. laptop: Fashion-MNIST, every fourth pixel, about a minute on 2 cores. paper:
CIFAR-10 where a part of it is at hand, and MNIST; more widths, a few minutes.
"""

from ml_collections import ConfigDict

from sweeps.config import at_hand

PAPER_RATIOS = (("7", "d", 64, 64), ("7", "k", 10, 10), ("7", "n/d", 15.6, 15.6))  # n = 1000
PROFILES = ("smoke", "laptop", "paper")
NORMS = ("none", "batch", "frozen", "initial", "layer")
BUNDLED = "fashion_mnist_5000"


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "outputs": 10,
        "gain": 1.0,
        "initializer": "kaiming_normal",
        "epsilon": 1e-5,
        "first_seed": 0,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _panel(
    data: str,
    step: int,
    widths: tuple[int, ...],
    seeds: int,
    *,
    samples: int = 1000,
    norms: tuple[str, ...] = NORMS,
) -> dict[str, object]:
    return {
        "data": data,
        "samples": samples,
        "step": step,
        "widths": widths,
        "norms": norms,
        "seeds": seeds,
    }


def _smoke() -> dict[str, object]:
    return {
        "printed": _panel(BUNDLED, 7, (10, 20, 40, 80), 3, samples=200),
        "published": _panel(BUNDLED, 9, (10, 20), 2, samples=200, norms=NORMS[:-1]),
    }


def _laptop() -> dict[str, object]:
    return {
        "printed": _panel(BUNDLED, 4, (32, 64, 100, 200, 400), 3),
        "published": _panel("digits", 1, (64, 100, 200), 3, norms=NORMS[:-1]),
    }


def _paper() -> dict[str, object]:
    widths, narrow = (32, 64, 100, 200, 400), (50, 100, 200, 400)
    return {
        "printed": _panel(at_hand("cifar10_part", BUNDLED), 4, widths, 5),
        "published": _panel(at_hand("mnist", BUNDLED), 4, narrow, 3, norms=NORMS[:-1]),
    }
