"""Phrases that captions share, each written from the table or from its provenance."""

from collections.abc import Mapping, Sequence
from typing import Any

from figures.series import Columns, distinct, select

TITLES = {
    "fashion_mnist_5000": "Fashion-MNIST (5,000-image subset)",
    "fashion_mnist": "Fashion-MNIST",
    "photo_patches": "photograph patches",
    "cifar10": "CIFAR-10",
    "gaussian": "Gaussian data",
    "digits": "handwritten digits",
    "mnist": "MNIST",
}


def data_title(name: str) -> str:
    """The data set's name as people write it, with what the table says was done to it."""
    for known, title in TITLES.items():
        if name.startswith(known):
            return title + name.removeprefix(known)
    return name


def data_line(table: Columns) -> str:
    """Which data the rows used and its sizes, one clause per data set."""
    clauses = []
    for name in distinct(table, "data"):
        used = select(table, data=name)
        sizes = {"n": "samples", "d": "inputs", "k": "outputs"}
        described = [
            f"{symbol} = {listed(distinct(used, column))}"
            for symbol, column in sizes.items()
            if column in used
        ]
        clauses.append(", ".join([data_title(str(name)), *described]))
    return "; ".join(clauses)


def listed(values: Sequence[Any]) -> str:
    """Numbers as a reader writes them: thousands separated, an unbroken run of four or more cut."""
    whole = [int(value) for value in values]
    if len(whole) > 3 and whole == list(range(whole[0], whole[-1] + 1)):
        return f"{whole[0]:,}, ..., {whole[-1]:,}"
    return ", ".join(f"{value:,}" for value in whole)


def seeds_line(table: Columns) -> str:
    """How many initialisations every curve averages and what its band is."""
    count = len(distinct(table, "seed"))
    if count == 1:
        return "One initialisation, so there are no bands."
    return f"Mean over {count} initialisations; bands are one sample standard deviation."


def certificate_line(table: Columns) -> str:
    """How sharply the table knows its kappas, and how those that it does not know are drawn."""
    resolved = select(table, resolved=True)
    unresolved = len(table["resolved"]) - len(resolved["resolved"])
    sentences = []
    if len(resolved["kappa"]):
        width = float(((resolved["kappa_high"] - resolved["kappa_low"]) / resolved["kappa"]).max())
        sentences.append(f"Every kappa lies in an interval of relative width at most {width:.1e}.")
    if unresolved:
        sentences.append(
            f"{unresolved} of {len(table['resolved'])} cells are unresolved: open markers under "
            "arrows are lower bounds."
        )
    return " ".join(sentences)
