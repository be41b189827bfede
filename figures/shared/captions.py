"""Phrases that captions share, each written from the table or from its provenance."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pandas import DataFrame

from figures.shared.series import distinct
from sweeps.rows import where

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


def of_cifar10(frame: DataFrame) -> bool:
    """Whether all rows are of images of CIFAR-10, whole or in part."""
    return bool(frame["data"].str.startswith("cifar10").all())


def data_line(frame: DataFrame) -> str:
    """The data that the rows used and their sizes, with a clause for each data set."""
    clauses = []
    for name in distinct(frame, "data"):
        used = where(frame, data=name)
        sizes = [
            f"{symbol} = {listed(distinct(used, column))}"
            for symbol, column in SIZES.items()
            if column in used
        ]
        clauses.append(", ".join([data_title(name), *sizes]))
    return "; ".join(clauses)


def data_of_panels(panels: Iterable[DataFrame]) -> str:
    """The same for the rows of several panels, in the order of the panels."""
    return "; ".join(dict.fromkeys(map(data_line, panels)))


def listed(numbers: Sequence[int]) -> str:
    """Whole numbers as text; of more than three consecutive ones only the first and the last."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 3 and list(numbers) == list(range(first, last + 1)):
        return f"{first:,}, ..., {last:,}"
    return ", ".join(f"{number:,}" for number in numbers)


def initialisation(frame: DataFrame) -> str:
    """How the weights were drawn."""
    gains = ", ".join(f"{gain:g}" for gain in distinct(frame, "gain"))
    return f"Kaiming normal, variance {gains} / fan-in"


def seeds(frame: DataFrame, drawn: str = "bands", panels: Mapping[str, str] | None = None) -> str:
    """How many initialisations a curve averages, and how its interval is drawn.

    `panels` names the panels, by their names in the table, where each may have a number of its own.
    """
    counts = {
        name: len(distinct(shown, "seed"))
        for panel, name in (panels or {}).items()
        if len(shown := where(frame, figure=panel))
    }
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"Geometric mean over initialisations ({listed}); {spread(counts.values(), drawn)}."
    count = len(distinct(frame, "seed"))
    if count == 1:
        return "One initialisation."
    return f"Geometric mean over {count} initialisations; {spread([count], drawn)}."


def spread(
    counts: Collection[int], drawn: str = "bands", interval: str = "its 95% interval"
) -> str:
    """What bands or bars are, and thin lines, of curves over so many initialisations."""
    bars = drawn.startswith("bars")
    if max(counts) == 2:
        return "bars reach from one to the other" if bars else "thin lines are the two"
    told = f"{drawn} are {interval}"
    return f"{told}, thin lines the two where there are two" if 2 in counts and not bars else told


def certificates(frame: DataFrame) -> str:
    """How sharply the kappas are known, and how those that are not known are drawn."""
    known = where(frame, resolved=True)
    unknown = len(frame) - len(known)
    sentences = []
    if len(known):
        sentences.append(
            f"Every {'resolved ' if unknown else ''}kappa is known to {_sharpness(known)}"
            f" ({_evidence(known)})."
        )
    if unknown:
        sentences.append(
            f"Open markers under arrows are lower bounds ({unknown} of {len(frame)} cells are"
            " unresolved)."
        )
    return paragraph(*sentences)


def _sharpness(known: DataFrame) -> str:
    """The widest interval, by its width over kappa, or by the factor between wide ends."""
    low, high = known["kappa_low"].to_numpy(), known["kappa_high"].to_numpy()
    width = ((high - low) / known["kappa"].to_numpy()).max()
    if width < 1:
        return f"a relative interval of {rounded_up(width)} or less"
    return f"a factor of {rounded_up((high / low).max())} or less between its lower and upper end"


def _evidence(frame: DataFrame) -> str:
    """The weakest evidence behind the intervals, and the largest chance that one of them fails."""
    weakest = weakest_evidence(frame)
    failure = frame["failure"].to_numpy().max()
    return (
        f"{weakest}, each fails with probability below {rounded_up(failure)}"
        if failure
        else weakest
    )


def weakest_evidence(frame: DataFrame) -> str:
    """The weakest kind of evidence in the table."""
    kinds = set(frame["evidence"])
    return next(kind for kind in ("unknown", "measured", "probable", "proved") if kind in kinds)


def rounded_up(number: float) -> str:
    """The number rounded up to one significant digit, so that it still bounds the number."""
    unit = 10.0 ** math.floor(math.log10(number)) if number > 0 else 1.0
    return f"{math.ceil(number / unit - 1e-9) * unit:.1g}"


def data(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The data with its source and the precision of the computation."""
    return data_and_precision(data_line(frame), provenance)


def data_and_precision(line: str, provenance: Mapping[str, Any]) -> str:
    return f"Data: {line}. Precision: {provenance['precision']}."
