"""Figure B3: the trace of the Hessian of a deep linear network over training beside Eq 7.

    python -m experiments.trace_path --config=configs/trace_path.py:laptop

smoke: seconds. laptop: data that ships, grey 14 x 14 images, about two minutes on 2 cores. paper:
MNIST, Fashion-MNIST and the part of CIFAR-10, n = 5,000 at full size; seven minutes on one core.
"""

from ml_collections import ConfigDict

from sweeps.config import at_hand

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    common = {"paper_ratios": PAPER_RATIOS, "first_seed": 0, "sigma_x": 1.0, "probes": 100}
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _data(name: str, samples: int, side: int) -> dict[str, object]:
    return {"name": name, "samples": samples, "share": 0.1, "seed": 0, "side": side}


def _training(width: int, epochs: tuple[int, ...]) -> dict[str, object]:
    return {
        "depth": 4,
        "width": width,
        "initializer": "pytorch_default",
        "rate": 0.003,
        "epochs": epochs,
    }


def _smoke() -> dict[str, object]:
    return {
        "a": _data("digits", 500, 6),
        "b": _data("fashion_mnist_5000", 500, 6),
        "c": _data("photo_patches", 500, 6),
        "training": _training(48, (0, 100, 1000)),
        "narrow": 20,
        "seeds": 1,
    }


def _laptop() -> dict[str, object]:
    return {
        "a": _data("digits", 1740, 0),
        "b": _data("fashion_mnist_5000", 5000, 14),
        "c": _data("photo_patches", 5000, 14),
        "training": _training(256, (0, 10, 100, 300, 1000, 3000, 10_000)),
        "narrow": 12,
        "seeds": 1,
    }


def _paper() -> dict[str, object]:
    return {
        "a": _data(at_hand("mnist", "fashion_mnist_5000"), 5000, 0),
        "b": _data(at_hand("fashion_mnist", "fashion_mnist_5000"), 5000, 0),
        "c": _data(at_hand("cifar10_part", "photo_patches"), 5000, 0),
        "training": _training(256, (0, 10, 30, 100, 300, 1000, 2000, 3000, 5000, 7000, 10_000)),
        "narrow": 12,
        "seeds": 3,
    }
