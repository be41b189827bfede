"""Figures 1 and 13 to 17: training loss and kappa of pruned networks, one curve a rate."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from figures.shared import captions, paths
from figures.shared.series import Columns, distinct, select

EXPERIMENT = "pruning_sweep"
COLUMNS = (
    *paths.COLUMNS,
    *("network", "depth", "pruned", "parameters", "optimizer", "rate", "momentum", "decay"),
    *("drop_after", "batch"),
)
TITLES = {
    "vit": "a vision transformer of {} blocks",
    "resnet20": "a ResNet{}",
    "resnet32": "a ResNet{}",
    "vgg5": "a VGG{}",
    "feed_forward": "a feed-forward ReLU network of {} layers, 100 units wide",
}
NORMALISED = ("resnet20", "resnet32", "vgg5")  # by BatchNorm
OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW"}


def draw(table: Columns, network: str) -> Figure:
    """Loss and kappa over the epochs, one colour for each share of the weights that is pruned."""
    shown = select(table, network=network)
    return paths.loss_and_kappa(shown, "pruned", lambda rate: f"{rate:.0%} pruned")


def caption(table: Columns, provenance: Mapping[str, Any], number: int, network: str) -> str:
    """What the figure shows, with the sizes, seeds and certificates of the table behind it."""
    shown = select(table, network=network)
    rates = distinct(shown, "pruned")
    left = [distinct(select(shown, pruned=rate), "parameters")[0] for rate in rates]
    return captions.paragraph(
        f"Figure {number}. Training loss (left) and condition number of the Gauss-Newton matrix"
        f" J J^T (right) of {_title(shown, network)}, of which {_shares(rates)} of every layer's"
        " weights, the smallest, were pruned at initialisation. J is the Jacobian with respect to"
        f" the {', '.join(f'{count:,}' for count in left)} parameters that are left."
        f"{_frozen(network)} PyTorch's default initialisation. {_training(shown)} The loss of an"
        " epoch is the mean over its steps. Logarithmic vertical axes.",
        captions.seeds(shown),
        captions.certificates(select(shown, measured=True)),
        captions.data(shown, provenance),
    )


def _title(table: Columns, network: str) -> str:
    return TITLES[network].format(*distinct(table, "depth"))


def _shares(rates: list[float]) -> str:
    return ", ".join(f"{rate:.0%}" for rate in rates)


def _frozen(network: str) -> str:
    return " BatchNorm has the statistics of all samples." if network in NORMALISED else ""


def _training(table: Columns) -> str:
    """The optimiser with its settings, and the loss."""
    setting = {name: distinct(table, name)[0] for name in ("rate", "momentum", "decay")}
    drop, batch = distinct(table, "drop_after")[0], captions.listed(distinct(table, "batch"))
    clauses = [
        f"{OPTIMIZERS[distinct(table, 'optimizer')[0]]} on the cross-entropy",
        f"batches of {batch}",
        f"learning rate {setting['rate']:g}",
        f"a tenth of it after epoch {drop}" if drop else "",
        f"momentum {setting['momentum']:g}" if setting["momentum"] else "",
        f"weight decay {setting['decay']:g}" if setting["decay"] else "",
    ]
    return ", ".join(clause for clause in clauses if clause) + "."
