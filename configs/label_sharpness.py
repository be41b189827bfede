"""Figures B1 and B2: the sharpness of trained networks over the largest class proportion.

    python -m experiments.label_sharpness --config=configs/label_sharpness.py:laptop

smoke: seconds. laptop: grey 8 x 8 images of data that ships, n = 500 (so that n / d is that of the
paper, and class 0 alone suffices), tanh networks at fewer proportions, seeds and epochs; under 4
minutes on 2 cores. paper: n = 5,000 images of MNIST, Fashion-MNIST and CIFAR-10, of those that are
at hand; of MNIST and Fashion-MNIST two hours on one core, all but 8 minutes for tanh networks.
"""

from collections.abc import Iterable

from ml_collections import ConfigDict

from sweeps.config import is_at_hand

# n = 5000 of MNIST (rank 717), Fashion-MNIST (784) and CIFAR-10 (3072)
PAPER_RATIOS = tuple((figure, "n/d", 1.63, 6.97) for figure in ("B1c", "B2a", "B2b", "B2c"))
PROFILES = ("smoke", "laptop", "paper")
ALL = tuple(share / 10 for share in range(1, 11))
DATA = ("mnist", "fashion_mnist", "cifar10")
EVERY_OTHER = (0.1, 0.3, 0.5, 0.7, 0.9)


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "first_seed": 0,
        "depth": 4,
        "width": 64,
        "sigma_x": 1.0,
        "start": 0.5,
        "rate": 0.01,
        "rtol": 1e-8,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _panel(
    shares: tuple[float, ...], seeds: int, epochs: int, together: int = 10
) -> dict[str, object]:
    return {"shares": shares, "seeds": seeds, "epochs": epochs, "together": together}


def _random(samples: int, inputs: int, depth: int, seeds: int) -> dict[str, object]:
    return {
        "samples": samples,
        "inputs": inputs,
        "depth": depth,
        "sigma_x": 3.0,
        "seeds": seeds,
    }


def _contour(depths: Iterable[int], steps: int) -> dict[str, object]:
    """Depths, and norms up to 1.5 without 0, where Eq 14 is 0 for every depth above 1."""
    norms = tuple(1.5 * step / steps for step in range(1, steps + 1))
    return {"depths": tuple(depths), "norms": norms}


def _edge(data: str, fractions: tuple[float, ...], epochs: tuple[int, ...]) -> dict[str, object]:
    return {"data": data, "share": 0.5, "seed": 0, "fractions": fractions, "epochs": epochs}


def _smoke() -> dict[str, object]:
    few = (0.1, 0.5, 1.0)
    return {
        "data": ("fashion_mnist_5000",),
        "samples": 200,
        "side": 4,
        "width": 16,
        "random": _random(30, 6, 3, 2),
        "contour": _contour((1, 2, 4), 5),
        "trained": _panel(few, 2, 10_000),
        "raw": _panel(few, 2, 2000),
        "unbalanced": _panel(few, 2, 10_000),
        "tanh": _panel(few, 1, 1000),
        "edge": _edge("fashion_mnist_5000", (0.0, 0.95, 1.1), (0, 30, 300, 1000)),
    }


def _laptop() -> dict[str, object]:
    epochs = (0, 2, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000)
    return {
        "data": ("fashion_mnist_5000",),
        "samples": 500,
        "side": 8,
        "random": _random(100, 20, 5, 3),
        "contour": _contour(range(1, 11), 15),
        "trained": _panel(ALL, 3, 10_000),
        "raw": _panel(ALL, 6, 10_000),
        "unbalanced": _panel(ALL, 3, 10_000),
        "tanh": _panel(EVERY_OTHER, 3, 5000, together=3),
        "edge": _edge("fashion_mnist_5000", (0.0, 0.9, 0.95, 1.05), epochs),
    }


def _paper() -> dict[str, object]:
    epochs = (0, 2, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10_000)
    return {
        "data": tuple(name for name in DATA if is_at_hand(name)) or DATA,
        "samples": 5000,
        "side": 0,
        "random": _random(100, 20, 5, 3),
        "contour": _contour(range(1, 11), 30),
        "trained": _panel(ALL, 3, 10_000),
        "raw": _panel(ALL, 3, 10_000),
        "unbalanced": _panel(ALL, 3, 10_000),
        "tanh": _panel(ALL, 3, 10_000, together=1),
        "edge": _edge("fashion_mnist", (0.0, 0.9, 0.95, 1.05), epochs),
    }
