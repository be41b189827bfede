"""Phrases that captions share, each written from the table or from its provenance."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from figures.shared.series import Columns, distinct, rows, select

TITLES = {  # longest first: a name is matched by its beginning
    "fashion_mnist_5000": "Fashion-MNIST (5,000-image subset)",
    "fashion_mnist": "Fashion-MNIST",
    "photo_patches": "photograph patches",
    "python_topics": "text (Python's documentation)",
    "gaussian": "Gaussian data",
    "cifar10_part": "CIFAR-10",  # the images that are taken are its first ones
    "cifar10": "CIFAR-10",
    "digits": "handwritten digits",
    "mnist": "MNIST",
}
CELL = ("depth", "width", "seed", "inputs", "outputs", "data")  # what every caption reads
CERTIFICATE = ("kappa", "kappa_low", "kappa_high", "evidence", "failure", "resolved")
SIZES = {"n": "samples", "d": "inputs", "k": "outputs"}


def paragraph(*sentences: str) -> str:
    """The sentences that are not empty, joined by blanks."""
    return " ".join(sentence for sentence in sentences if sentence)


def data_title(name: str) -> str:
    """The data set as people write it, followed by what the table says was done to it."""
    for known, title in TITLES.items():
        if name.startswith(known):
            return title + name.removeprefix(known)
    return name


def short_title(name: str) -> str:
    """The data set alone, for a panel or a curve: no subset, nothing of what was done to it."""
    return re.split(r" \(|, ", data_title(name))[0]


def data_line(table: Columns) -> str:
    """The data that the rows used and their sizes, with a clause for each data set."""
    clauses = []
    for name in distinct(table, "data"):
        used = select(table, data=name)
        sizes = [
            f"{symbol} = {listed(distinct(used, column))}"
            for symbol, column in SIZES.items()
            if column in used
        ]
        clauses.append(", ".join([data_title(name), *sizes]))
    return "; ".join(clauses)


def listed(numbers: Sequence[int]) -> str:
    """Whole numbers as text; of more than three consecutive ones only the first and the last."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 3 and list(numbers) == list(range(first, last + 1)):
        return f"{first:,}, ..., {last:,}"
    return ", ".join(f"{number:,}" for number in numbers)


def initialisation(table: Columns) -> str:
    """How the weights were drawn."""
    gains = ", ".join(f"{gain:g}" for gain in distinct(table, "gain"))
    return f"Kaiming normal, variance {gains} / fan-in"


def seeds(table: Columns, drawn: str = "bands", panels: Mapping[str, str] | None = None) -> str:
    """How many initialisations a curve averages, and how its interval is drawn.

    `panels` names the panels, by their names in the table, where each may have a number of its own.
    """
    counts = {
        name: len(distinct(shown, "seed"))
        for panel, name in (panels or {}).items()
        if rows(shown := select(table, figure=panel))
    }
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"Geometric mean over initialisations ({listed}); {drawn} are its 95% interval."
    count = len(distinct(table, "seed"))
    if count == 1:
        return "One initialisation."
    return f"Geometric mean over {count} initialisations; {drawn} are its 95% interval."


def certificates(table: Columns) -> str:
    """How sharply the kappas are known, and how those that are not known are drawn."""
    known = select(table, resolved=True)
    unknown = rows(table) - rows(known)
    sentences = []
    if rows(known):
        width = ((known["kappa_high"] - known["kappa_low"]) / known["kappa"]).max()
        sentences.append(
            f"Every {'resolved ' if unknown else ''}kappa is known to a relative interval of"
            f" {rounded_up(width)} or less ({_evidence(known)})."
        )
    if unknown:
        sentences.append(
            f"Open markers under arrows are lower bounds ({unknown} of {rows(table)} cells are"
            " unresolved)."
        )
    return paragraph(*sentences)


def _evidence(table: Columns) -> str:
    """The weakest evidence behind the intervals, and the largest chance that one of them fails."""
    weakest = weakest_evidence(table)
    failure = table["failure"].max()
    return (
        f"{weakest}, each fails with probability below {rounded_up(failure)}"
        if failure
        else weakest
    )


def weakest_evidence(table: Columns) -> str:
    """The weakest kind of evidence in the table."""
    kinds = set(table["evidence"])
    return next(kind for kind in ("unknown", "measured", "probable", "proved") if kind in kinds)


def rounded_up(number: float) -> str:
    """The number rounded up to one significant digit, so that it still bounds the number."""
    unit = 10.0 ** math.floor(math.log10(number)) if number > 0 else 1.0
    return f"{math.ceil(number / unit - 1e-9) * unit:.1g}"


def data(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The data with its source and the precision of the computation."""
    return paragraph(f"Data: {data_line(table)}.", f"Precision: {provenance['precision']}.")
