"""Figure B4: the ten largest eigenvalues of the Hessian of two linear layers beside Eq 15.

    python -m experiments.shallow_eigenvalues --config=configs/shallow_eigenvalues.py:laptop

smoke: seconds. laptop: data that ships, grey 14 x 14 images, about a minute on 2 cores. paper:
MNIST, Fashion-MNIST and the part of CIFAR-10, n = 5,000 at full size; half an hour on one core.
"""

from ml_collections import ConfigDict

from sweeps.config import at_hand

# n = 5000 of MNIST (rank 717), Fashion-MNIST (784) and CIFAR-10 (3072)
PAPER_RATIOS = (("B4", "n/d", 1.63, 6.97),)
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "first_seed": 0,
        "sigma_x": 1.0,
        "count": 10,
        "rtol": 1e-8,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _data(name: str, samples: int, side: int) -> dict[str, object]:
    return {"name": name, "samples": samples, "share": 0.1, "seed": 0, "side": side}


def _training(width: int, epochs: tuple[int, ...]) -> dict[str, object]:
    return {
        "depth": 2,
        "width": width,
        "initializer": "pytorch_default",
        "rate": 0.001,
        "epochs": epochs,
    }


def _smoke() -> dict[str, object]:
    return {
        "a": _data("digits", 500, 6),
        "b": _data("fashion_mnist_5000", 500, 6),
        "c": _data("photo_patches", 500, 6),
        "training": _training(72, (0, 100, 1000)),
        "seeds": 1,
    }


def _laptop() -> dict[str, object]:
    return {
        "a": _data("digits", 440, 0),
        "b": _data("fashion_mnist_5000", 1300, 14),
        "c": _data("photo_patches", 1300, 14),
        "training": _training(256, (0, 300, 1000, 3000, 10_000)),
        "seeds": 3,
    }


def _paper() -> dict[str, object]:
    epochs = (0, 100, 300, 1000, 2000, 3000, 5000, 7000, 10_000)
    return {
        "a": _data(at_hand("mnist", "fashion_mnist_5000"), 5000, 0),
        "b": _data(at_hand("fashion_mnist", "fashion_mnist_5000"), 5000, 0),
        "c": _data(at_hand("cifar10_part", "photo_patches"), 5000, 0),
        "training": _training(256, epochs),
        "seeds": 3,
    }
