"""Figure 17: kappa of a feed-forward network pruned at initialisation, while it trains.

    python -m experiments.feed_forward_pruning --config=configs/feed_forward_pruning.py:laptop

The network, the order of the samples, the loss, the initialisation and what is pruned are those of
the published code of paper A: 3072-128-128-128-10 with ReLU and biases, the first 1,000 images,
the mean square error, every tensor pruned by magnitude.

smoke: seconds. laptop: 64 images of Fashion-MNIST, every second pixel, narrower layers, which keeps
p / (k n), batch / n and the 16 steps of an epoch; about three minutes on 2 cores. paper: CIFAR-10,
kappa of three seeds before training and of one in training, as in the paper, and the losses of
three; a kernel of 10,000 x 10,000 for each kappa, half a minute on one core, two minutes for the
losses of a network, which --published and --archive spread over many runs.

Runs. plotted: Kaiming normal with N(0, 1) biases at rate 0.01, what the paper's picture shows.
default: PyTorch's initialisation at rate 0.05, whose kappas the notebook prints. unit: as plotted,
with images of values in [0, 1].
"""

from ml_collections import ConfigDict

PAPER_RATIOS = (("17", "p/(k n)", 8.5, 43.0), ("17", "batch/n", 0.064, 0.064))
PROFILES = ("smoke", "laptop", "paper")
RATES = (0.0, 0.2, 0.4, 0.6, 0.8)
PAPER_STOPS = (0, 40, 80, 120, 160, 199)


def get_config(profile: str) -> ConfigDict:
    own = {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]()
    return ConfigDict({"paper_ratios": PAPER_RATIOS, "first_seed": 0, **own})


def _run(
    scaling: str,
    batch: int,
    stops: tuple[int, ...],
    seeds: int,
    rates: tuple[float, ...] = RATES,
    *,
    columns: str = "all left",
    default: bool = False,
    losses: int = 0,
    starts: int = 0,
) -> dict[str, object]:
    """Of ``seeds`` networks kappa is measured in training, of ``losses`` the losses alone.

    Of ``starts`` kappa is measured before training.
    """
    return {
        "scaling": scaling,
        "initializer": "pytorch_default" if default else "kaiming_normal",
        "biases": "pytorch" if default else "normal",
        "rates": rates,
        "stops": stops,
        "seeds": seeds,
        "losses": losses,
        "starts": starts,
        "columns": columns,
        "recipe": {
            "optimizer": "sgd",
            "rate": 0.05 if default else 0.01,
            "batch": batch,
            "loss": "mse",
            "momentum": 0.0,
            "decay": 0.0,
            "drop_after": 0,
            "drop": 1.0,
            "scale": 0.2,  # 2 / k: with k = 10 this is PyTorch's MSELoss, a mean over outputs
        },
    }


def _smoke() -> dict[str, object]:
    few = ((0, 2), 1, (0.0, 0.6))
    return {
        "runs": "plotted default",
        "data": "fashion_mnist_5000",
        "samples": 12,
        "step": 4,
        "hidden": (8, 8, 8),
        "plotted": _run("standardised", 4, *few),
        "default": _run("standardised", 4, *few, columns="all", default=True),
    }


def _laptop() -> dict[str, object]:
    stops = (0, 100, 199)
    return {
        "runs": "plotted default",
        "data": "fashion_mnist_5000",
        "samples": 64,
        "step": 2,
        "hidden": (76, 76, 76),
        "plotted": _run("standardised", 4, stops, 3),
        "default": _run("standardised", 4, stops, 3, columns="all", default=True),
    }


def _paper() -> dict[str, object]:
    return {
        "runs": "plotted default unit",
        "data": "cifar10_part",
        "samples": 1000,
        "step": 1,
        "hidden": (128, 128, 128),
        "plotted": _run("published", 64, PAPER_STOPS, 1, losses=3, starts=3),
        "default": _run("published", 64, PAPER_STOPS, 1, default=True, losses=3, starts=3),
        "unit": _run("unit", 64, (0, 199), 1, columns="all"),
    }
