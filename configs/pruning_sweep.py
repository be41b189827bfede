"""Figures 16 and C2: kappa of networks whose kernels are pruned before they train.

    python -m experiments.pruning_sweep --config=configs/pruning_sweep.py:laptop

smoke: under a minute, most of it compilation, with fewer layers. laptop: 64 images of
Fashion-MNIST and narrower networks of the paper's depths, so that p / (k n) is as in the
paper; an epoch has 4 steps instead of 16, so that what happens along training is not the paper's.
About seven minutes on 2 cores. paper: the paper's sizes, where J J^T has 10,000 rows: many hours on
2 cores and some minutes a network on a GPU, which --published and --archive spread over many runs.
It takes CIFAR-10 where that is at hand, else all of Fashion-MNIST in a black frame, 32 x 32, which
paper_fashion_mnist takes in any case. VGG5, of Figure 16, trains on 256 images of the part of
CIFAR-10, with half the filters and batches of 16, which keeps p / (k n) and the steps of an epoch
as in the paper. paper_init: kappa of the paper's ResNet20 at initialisation, unpruned and 40% and
80% pruned, about ten minutes each on 2 cores; where CIFAR-10 is at hand, with
--config.data=cifar10.

The paper does not say for how many epochs it trained. In the paper profile most of the epochs at
which kappa is measured are early ones, where it changes most.
"""

from collections.abc import Mapping

from ml_collections import ConfigDict

from sweeps.config import at_hand

PAPER_RATIOS = (  # from the unpruned network to the one of which nine tenths are pruned
    ("13", "p/(k n)", 1.7, 12.0),
    ("1, 14", "p/(k n)", 2.9, 27.0),
    ("15", "p/(k n)", 4.9, 47.0),
    ("16", "p/(k n)", 2.6, 25.0),
    ("17", "p/(k n)", 3.2, 32.0),
    *((figure, "batch/n", 0.064, 0.064) for figure in ("13", "1, 14", "15", "16", "17")),
)
PROFILES = ("smoke", "laptop", "paper", "paper_fashion_mnist", "paper_init")
NETWORKS = "vit resnet20 resnet32 vgg5 feed_forward"
RATES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
PAPER_STOPS = (0, 1, 4, 12, 35, 90, 120, 200)  # two of them just before and after the drops
MOMENTUM = {"rate": 0.1, "momentum": 0.9, "decay": 1e-4}  # of the steps of convolutional networks
PAPER_WIDTHS = {"vit": 48, "resnet20": 16, "resnet32": 16, "vgg5": 32, "feed_forward": 100}


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "networks": NETWORKS,
        "data": "fashion_mnist_5000",
        "data_seed": 0,
        "first_seed": 0,
        "tolerance": 0.0,
        "smaller": _smaller(""),
    }
    own = {
        "smoke": _smoke,
        "laptop": _laptop,
        "paper": lambda: _paper(at_hand("cifar10", otherwise="fashion_mnist"), vgg5=_narrow_vgg5()),
        "paper_fashion_mnist": lambda: _paper("fashion_mnist"),
        "paper_init": _paper_init,
    }
    return ConfigDict(common | own[profile]())


def _smaller(networks: str) -> dict[str, object]:
    """Constant steps smaller than the printed ones, chosen after the printed ones had been run.

    The steps 0.1, 0.02, 0.01, 0.005 and 0.003 were tried; with the last three kappa grew with the
    pruning rate.
    """
    return {
        "networks": networks,
        "rates": (0.0, 0.4, 0.8, 0.9),
        "rate": 0.005,
        "stops": (0, 20, 40),
    }


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
    widths: Mapping[str, int],
    **changed: Mapping[str, object],
) -> dict[str, object]:
    """The settings of every network: those in ``shared``, its own, and those in ``changed``.

    ``drops`` has the epochs after which the learning rates of the ResNets and of VGG5 drop.
    """
    residual = _recipe(batch, drop_after=drops[0], **MOMENTUM)
    own: dict[str, Mapping[str, object]] = {
        "vit": {
            "depth": 4,
            "recipe": _recipe(batch, optimizer="adamw", rate=0.01, decay=0.01),
        },
        "resnet20": {"depth": 20, "recipe": residual},
        "resnet32": {"depth": 32, "recipe": residual},
        "vgg5": {"depth": 5, "recipe": _recipe(batch, drop_after=drops[1], **MOMENTUM)},
        "feed_forward": {"depth": 3, "recipe": _recipe(batch)},
    }
    shared = {"starts": 0, "channels": 0, "method": "inverse", **shared}
    return {
        name: {"width": widths[name], **shared, **one, **changed.get(name, {})}
        for name, one in own.items()
    }


def _smoke() -> dict[str, object]:
    shared = {"samples": 8, "side": 8, "rates": (0.0, 0.8), "seeds": 1, "stops": (0, 1)}
    return _networks(
        shared,
        4,
        (1, 1),
        {"vit": 8, "resnet20": 2, "resnet32": 2, "vgg5": 2, "feed_forward": 10},
        vit={"depth": 1},
        resnet20={"depth": 8},
        resnet32={"depth": 8},  # as resnet20, so that both share their compiled programs
        vgg5={"side": 16},
    )


def _laptop() -> dict[str, object]:
    shared = {"samples": 64, "side": 16, "rates": RATES, "seeds": 4}
    shared |= {"stops": (0, 20, 40, 60, 80, 100, 120)}
    small = {"side": 8, "starts": 12}
    return {"smaller": _smaller("vgg5")} | _networks(
        shared,
        16,
        (91, 100),
        {"vit": 16, "resnet20": 4, "resnet32": 4, "vgg5": 8, "feed_forward": 72},
        vit={"depth": 2},
        resnet20=small,
        resnet32=small | {"rates": (0.0, 0.4, 0.8, 0.9)},
        feed_forward={"side": 14, "stops": (0, 150, 300, 450, 600, 750, 900)},
    )


def _paper(data: str, **changed: Mapping[str, object]) -> dict[str, object]:
    """Of one channel, the convolutions and the transformer see three equal ones.

    With as many weights as in the paper, hardly a filter of the first layer is pruned whole. Equal
    inputs are no parameters more to the feed-forward network: it gets 248 units in place of 100.
    """
    widths = PAPER_WIDTHS if data == "cifar10" else PAPER_WIDTHS | {"feed_forward": 248}
    shared = {"samples": 1000, "side": 32, "rates": RATES, "seeds": 3, "stops": PAPER_STOPS}
    # "sketched" by its name when the published rows were computed, see _by_method of pruned_kernel
    shared |= {"channels": 3, "method": "preconditioned"}
    dense = {"channels": 0, "method": "inverse"}  # J J^T of dense layers costs little
    networks = _networks(shared, 64, (91, 100), widths, feed_forward=dense, **changed)
    return {"data": data} | networks


def _narrow_vgg5() -> dict[str, object]:
    """Three starts on the paper's images, at its ratios: a quarter of the images and weights.

    J J^T then has 2,560 rows, so that a core computes kappa in half a minute, and in four where it
    is so large that all singular values of J are taken.
    """
    recipe = _recipe(16, drop_after=100, **MOMENTUM)
    sizes = {"data": "cifar10_part", "samples": 256, "width": 16, "channels": 0}
    return sizes | {"stops": (0, 12, 60, 120), "recipe": recipe}


def _paper_init() -> dict[str, object]:
    shared = {
        "samples": 1000,
        "side": 0,
        "rates": (0.0, 0.4, 0.8),
        "seeds": 1,
        "stops": (0,),
        "method": "preconditioned",
    }
    return {"networks": "resnet20"} | _networks(shared, 64, (91, 100), PAPER_WIDTHS)
