"""Figures 1 and 13 to 17: kappa of networks pruned at initialisation, while they train.

    python -m experiments.pruning_sweep --config=configs/pruning_sweep.py:laptop

smoke: under a minute, most of it compilation, with fewer layers. laptop: crops of photographs,
downsampled to 16 x 16 or, for the ResNets, 8 x 8; about ten minutes on 2 cores. An epoch has
4 steps instead of the paper's 16, and learning rates drop after the same share of the epochs.
paper: CIFAR-10, for a GPU; J J^T is 10,000 x 10,000.

The paper does not say for how many epochs it trained.
"""

from collections.abc import Mapping

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")
RATES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": "cifar10" if profile == "paper" else "photo_patches",
        "data_seed": 0,
        "method": "inverse",
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _recipe(batch: int, **changed: object) -> dict[str, object]:
    """SGD as in figure 17; ``changed`` says what is different elsewhere."""
    recipe = {
        "optimizer": "sgd",
        "rate": 0.01,
        "batch": batch,
        "loss": "cross_entropy",
        "momentum": 0.0,
        "decay": 0.0,
        "drop_after": 0,
        "drop": 0.1,
        "scale": 1.0,
    }
    return recipe | changed


def _networks(
    shared: Mapping[str, object],
    batch: int,
    drops: tuple[int, int],
    vit_seeds: int,
    **changed: Mapping[str, object],
) -> dict[str, object]:
    """``drops``: the epochs after which the rates of the ResNets and of VGG5 drop.

    ``changed`` has what is different from ``shared`` in a network.
    """
    momentum = {"rate": 0.1, "momentum": 0.9, "decay": 1e-4}
    residual = _recipe(batch, drop_after=drops[0], **momentum)
    own: dict[str, Mapping[str, object]] = {
        "vit": {
            "depth": 4,
            "seeds": vit_seeds,
            "recipe": _recipe(batch, optimizer="adamw", rate=0.01, decay=0.01),
        },
        "resnet20": {"depth": 20, "recipe": residual},
        "resnet32": {"depth": 32, "recipe": residual},
        "vgg5": {"depth": 5, "recipe": _recipe(batch, drop_after=drops[1], **momentum)},
        "feed_forward": {"depth": 3, "recipe": _recipe(batch)},
    }
    return {name: {**shared, **one, **changed.get(name, {})} for name, one in own.items()}


def _smoke() -> dict[str, object]:
    shared = {"samples": 8, "side": 8, "rates": (0.8,), "seeds": 1, "epochs": 1, "every": 1}
    two = {"rates": (0.0, 0.8)}  # every rate is compiled anew
    return _networks(
        shared,
        4,
        (1, 1),
        1,
        vit={"depth": 1, **two},
        resnet20={"depth": 8},
        resnet32={"depth": 8},  # what was compiled for the other serves this one, too
        vgg5={"side": 16},
        feed_forward=two,
    )


def _laptop() -> dict[str, object]:
    shared = {
        "samples": 100,
        "side": 16,
        "rates": (0.0, 0.4, 0.8),
        "seeds": 1,
        "epochs": 60,
        "every": 30,
    }
    small = {"side": 8}
    return _networks(shared, 25, (27, 30), 3, resnet20=small, resnet32=small)


def _paper() -> dict[str, object]:
    shared = {"samples": 1000, "side": 0, "rates": RATES, "seeds": 1, "epochs": 200, "every": 20}
    return _networks(shared, 64, (91, 100), 3)
