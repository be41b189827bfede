"""What paper A says of figures 1, 13, 14 and 15, by its published code's protocol, and why.

The protocol prunes every tensor, biases and the scales and shifts of BatchNorm among them, and
takes J with a column for every weight, pruned or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from pandas import DataFrame

from experiments.claims.pruning_sweep import (
    BECAUSE,
    HARDER,
    INCREASE,
    SLOWDOWN,
    WORSE,
    go_together,
)
from sweeps.claims import (
    AS_COMPUTED,
    BEYOND,
    CERTIFIED,
    OTHER,
    UNDECIDED,
    Check,
    Claim,
    NotTestableError,
    Verdict,
    not_testable,
)
from sweeps.comparisons import Compare, Prepare
from sweeps.effects import decide, ratio
from sweeps.rows import geometric_means, points

EVERY, KERNELS = "every tensor", "kernels"
SCATTERED = "every tensor, ties at random"
SPARSE = 0.8  # the largest pruning rate
ALONE = "kernels alone are pruned"
OF_FEW = " of few images"  # the end of "what" in rows of networks that train on fewer images
_ROWS_OF = {
    name: (("network", name), ("what", ("losses", "kappa", "largest")))
    for name in ("resnet20", "resnet32", "vit")
}
"""The rows of a network, whose sizes and data decide whether a claim can be tested."""
ITSELF = (
    "kernels alone are pruned and kappa is of the images themselves, without crops and with the"
    " statistics of all samples"
)


def of_all_images(frame: DataFrame) -> DataFrame:
    """The rows of networks that train on as many images as the config says."""
    return frame[~frame["what"].str.endswith(OF_FEW)]


def of_few_images(frame: DataFrame) -> DataFrame:
    """The rows of networks that train on fewer images, in the form of those that train on all."""
    rows = frame[frame["what"].str.endswith(OF_FEW)]
    return rows.assign(what=rows["what"].str.removesuffix(OF_FEW))


def losses(frame: DataFrame, network: str, tensors: str, *, augment: bool = True) -> DataFrame:
    """The loss after every epoch. Unpruned networks are the same whatever is pruned in others."""
    chosen = frame[
        (frame["what"] == "losses") & (frame["network"] == network) & (frame["augment"] == augment)
    ]
    return chosen[(chosen["tensors"] == tensors) | (chosen["pruned"] == 0)].assign(
        kept=lambda rows: 1 - rows["pruned"]
    )


def kappas(
    frame: DataFrame,
    statistics: str,
    columns: str,
    tensors: str = EVERY,
    what: str = "kappa",
    network: str = "resnet20",
) -> DataFrame:
    """kappa of networks trained with crops, by the statistics of BatchNorm and J's columns."""
    chosen = frame[
        (frame["what"] == what)
        & (frame["network"] == network)
        & frame["augment"]
        & (frame["statistics"] == statistics)
        & (frame["columns"] == columns)
    ]
    return chosen[(chosen["tensors"] == tensors) | (chosen["pruned"] == 0)].assign(
        kept=lambda rows: 1 - rows["pruned"]
    )


def last(rows: DataFrame) -> DataFrame:
    """The rows of the last epoch; none where nothing was trained."""
    trained = rows[rows["epoch"] > 0]
    return trained[trained["epoch"] == trained["epoch"].max()]


def _one_start_decides(rows: DataFrame) -> bool:
    """Whether the images are the paper's, which shows one start of each network.

    On fewer and smaller images kappa after training is 1e2 times another on another machine, from
    the same start, so that one start says nothing there.
    """
    return rows["data"].str.startswith("cifar10").all()


def _slower(network: str, tensors: str = EVERY) -> Compare:
    """Whether the loss after the last epoch grows with the pruning rate."""
    return Compare(
        "loss",
        along="kept",
        below=0.0,
        name="loss after the last epoch goes like (1 - rate) to the power",
        from_one_seed=_one_start_decides,
        prepare=lambda frame: last(losses(frame, network, tensors)),
        missing="fewer than 2 pruning rates",
        beside=_losses_at_all_rates,
    )


def _losses_at_all_rates(rows: DataFrame) -> str:
    rates, means = geometric_means(rows, "pruned", "loss")
    below = ", ".join(f"{rate:.0%}" for rate in rates[means < means[0]])
    rest = f"; at {below} pruned it is below the unpruned network's" if below else ""
    return f"{_at_all_rates(rows, 'loss')}{rest}"


def _at_all_rates(rows: DataFrame, of: str) -> str:
    """The means at all rates; one of kappas that are lower bounds is a bound."""
    rates, means = geometric_means(rows, "pruned", of)
    listed = points("rate", rates, means).split(", ")
    if of == "kappa":
        open_at = _open_rates(rows)
        listed = [
            f"at least {told}" if rate in open_at else told
            for rate, told in zip(rates, listed, strict=True)
        ]
    return f": {', '.join(listed)}"


def _open_rates(rows: DataFrame) -> list[float]:
    """The rates at which some kappa is known from below alone."""
    return sorted(set(rows["pruned"][rows["kappa_high"] == math.inf]))


def _over_unpruned(
    select: Prepare,
    of: str,
    name: str,
    *,
    at: float | None = None,
    from_one_seed: bool = True,
    beside: Callable[[DataFrame], str] = lambda rows: "",
) -> Compare:
    """Whether a column lies above that of the unpruned network, at every rate or at one."""

    def of_both(frame: DataFrame) -> DataFrame:
        rows = select(frame)
        pruned = (rows["pruned"] > 0 if at is None else rows["pruned"] == at).any()
        whole = (rows["pruned"] == 0).any()
        if not pruned or not whole:
            missing = "pruned" if whole else "unpruned" if pruned else "pruned or unpruned"
            msg = f"the table has no {missing} network of these arms"
            raise NotTestableError(msg)
        return rows

    return Compare(
        of,
        over={"pruned": 0.0},
        each="pruned" if at is None else {"pruned": [at]},
        at="at {pruned:.0%}",
        above=1.0,
        name=name,
        from_one_seed=_one_start_decides if from_one_seed else False,
        prepare=of_both,
        beside=lambda rows: f"{_at_all_rates(rows, of)}{beside(rows)}",
    )


def _at_start(
    statistics: str,
    columns: str,
    tensors: str,
    network: str = "resnet20",
    *,
    at: float | None = None,
    from_one_seed: bool = False,
) -> Compare:
    """Before training; of networks in general one start has no interval and decides nothing."""

    def start(frame: DataFrame) -> DataFrame:
        rows = kappas(frame, statistics, columns, tensors, network=network)
        return rows[rows["epoch"] == 0]

    name = "kappa / kappa unpruned before training"
    return _over_unpruned(start, "kappa", name, at=at, from_one_seed=from_one_seed)


def _at_end(statistics: str, columns: str, tensors: str) -> Compare:
    """After training at the largest rate, with both ends of the two spectra."""

    def end(frame: DataFrame) -> DataFrame:
        return last(kappas(frame, statistics, columns, tensors))

    name = "kappa / kappa unpruned after training"
    return _over_unpruned(end, "kappa", name, at=SPARSE, beside=_ends)


def _ends(rows: DataFrame) -> str:
    """The ends of the spectra, unless one of them is not known."""
    compared = rows[rows["pruned"].isin([0.0, SPARSE])]
    if (compared["kappa_high"] == math.inf).any():
        return ""
    told = []
    for end in ("lambda_max", "lambda_min"):
        _, (whole, pruned) = geometric_means(compared, "pruned", end)
        told.append(f"{end} from {whole:.3g} to {pruned:.3g}")
    return f"; from unpruned to {SPARSE:.0%} {' and '.join(told)}"


def _over_stops(statistics: str, columns: str, tensors: str, network: str = "resnet20") -> Check:
    """The geometric mean over the stops that all networks have, the start among them."""

    def check(frame: DataFrame) -> Verdict:
        rows = at_common_stops(kappas(frame, statistics, columns, tensors, network=network))
        stops = ", ".join(str(epoch) for epoch in sorted(rows["epoch"].unique()))
        name = f"kappa / kappa unpruned, averaged over stops after {stops} epochs:"
        return _over_unpruned(lambda _: rows, "kappa", name, at=SPARSE)(frame)

    return check


def at_common_stops(rows: DataFrame) -> DataFrame:
    """The rows of the networks that are measured after training, at stops that each of them has."""
    last_stop = rows["epoch"].max()
    measured = rows.groupby(["pruned", "seed"]).filter(
        lambda network: network["epoch"].max() == last_stop
    )
    networks = len(measured.drop_duplicates(["pruned", "seed"]))
    return measured.groupby("epoch").filter(lambda at: len(at) == networks)


def _lambda_max(frame: DataFrame) -> DataFrame:
    """lambda_max of J with every column and the statistics of batches, after training."""
    return last(kappas(frame, "batches", "all"))


def _slow_is_ill_conditioned(frame: DataFrame) -> Verdict:
    """Whether the rates with a larger kappa before training are those with a larger final loss.

    It is about the transformer; both are means over the seeds. Lower bounds of kappa have no order
    among each other, so that they decide nothing.
    """
    start = kappas(frame, "all", "all", network="vit").query("epoch == 0")
    end = last(losses(frame, "vit", EVERY))
    both = sorted(set(start["pruned"]) & set(end["pruned"]))
    if len(both) < 4:
        return not_testable("fewer than 4 rates with kappa before training")
    start, end = (rows[rows["pruned"].isin(both)] for rows in (start, end))
    rates, kappa = geometric_means(start, "pruned", "kappa")
    _, loss = geometric_means(end, "pruned", "loss")
    found = go_together("the loss after training and kappa before it", rates, loss, kappa)
    found = replace(found, seeds=min(start["seed"].nunique(), end["seed"].nunique()))
    bounds = ", ".join(f"{rate:.0%}" for rate in _open_rates(start))
    if not bounds:
        return found
    text = f"{found.text}; kappa at {bounds} is a lower bound"
    return replace(
        found, status=UNDECIDED, text=text, short=f"{found.short}, of lower bounds in part"
    )


def _ends_of_growth(when: str) -> Check:
    """Whether kappa as computed grows more by lambda_min's fall before training, and less after it.

    Growth is from unpruned to the largest rate. 1 / lambda_min is kappa / lambda_max, and as well
    known as kappa is.
    """

    def check(frame: DataFrame) -> Verdict:
        rows = kappas(frame, "batches", "all")
        rows = rows[rows["epoch"] == 0] if when == "before" else last(rows)
        for end in ("", "_low", "_high"):
            fall = rows[f"kappa{end}"] / rows["lambda_max"]
            rows = rows.assign(**{f"fall{end}": fall, f"more{end}": fall / rows["lambda_max"]})
        pruned, whole = rows[rows["pruned"] == SPARSE], rows[rows["pruned"] == 0]
        if pruned.empty or whole.empty:
            return not_testable(f"no network pruned by {SPARSE:.0%} was measured")
        more = {"": ratio(pruned, whole, "more")}
        found = decide(
            more,
            f"growth by 1 / lambda_min over that by lambda_max {when} training",
            above=1.0 if when == "before" else None,
            below=None if when == "before" else 1.0,
            from_one_seed=_one_start_decides(rows),
        )
        parts = {"kappa": "kappa", "lambda_max": "lambda_max", "1 / lambda_min": "fall"}
        told = ", ".join(f"{ratio(pruned, whole, of)} in {name}" for name, of in parts.items())
        text = f"{found.text}; from unpruned to {SPARSE:.0%} a growth of {told}"
        return replace(found, text=text)

    return check


_SAID = {
    EVERY: "every tensor pruned",
    KERNELS: "kernels alone pruned",
    "all": "J with every column",
    "left": "J with the columns left",
}
_STATISTICS = {"all": "statistics of all samples", "batches": "statistics of batches"}
WAYS = (
    (AS_COMPUTED, EVERY, "all", "batches"),
    (CERTIFIED, KERNELS, "left", "all"),
    (CERTIFIED, KERNELS, "all", "all"),
    (OTHER, EVERY, "all", "all"),
    (OTHER, EVERY, "left", "all"),
)
"""Column, what is pruned, J's columns, and BatchNorm's statistics.

One thing at a time changes from the fourth way to the others: crops and statistics to the first,
what is pruned to the third, the columns to the fifth.
"""


_TWO_GROUPS = (
    "starts sorted by whether a filter of a shortcut is wholly pruned: with every column of J they"
    " are two groups, which no mean with an interval describes (C6)"
)


def _along(column: str, tensors: str, columns: str, statistics: str) -> Iterator[Claim]:
    """kappa before and after training, and its mean over the stops: the sentence names none."""
    way = f"{_SAID[tensors]}, {_SAID[columns]}, {_STATISTICS[statistics]},"
    whens: dict[str, Callable[[str, str, str], Check]] = {
        "before training": partial(_at_start, at=SPARSE, from_one_seed=True),
        "after training": _at_end,
        "averaged over the stops": _over_stops,
    }
    for when, check in whens.items():
        yield Claim(
            "1, 14",
            f"{when} kappa at 80%, {way} is above that of the unpruned network",
            INCREASE,
            check(statistics, columns, tensors),
            column=column,
            mended=ITSELF if column == AS_COMPUTED else "",
            panel=_ROWS_OF["resnet20"],
            needs=_TWO_GROUPS if (tensors, columns) == (KERNELS, "all") else "",
        )


_FIGURES = {"resnet20": "1, 14", "resnet32": "15", "vit": "13"}


def _along_from_few_images() -> Iterator[Claim]:
    """Kappa averaged over the stops, of the networks that train on few images."""
    for (network, figure), columns in product(_FIGURES.items(), ("all", "left")):
        yield Claim(
            figure,
            f"from few images, averaged over the stops, kappa at 80%, {_SAID[EVERY]},"
            f" {_SAID[columns]}, {_STATISTICS['all']}, is above that of the unpruned network",
            INCREASE,
            _from_few_images(_over_stops("all", columns, EVERY, network), network),
            column=OTHER,
            panel=(("network", network),),
        )


def _from_few_images(check: Check, network: str) -> Check:
    """The check on networks of a kind that train on few images, with their number in its text."""

    def of_few(frame: DataFrame) -> Verdict:
        rows = of_few_images(frame[frame["network"] == network])
        if rows.empty:
            return not_testable("no network is trained on fewer images")
        found = check(rows)
        images = ", ".join(str(count) for count in sorted(rows["samples"].unique()))
        return replace(found, text=f"{found.text}; from {images} images")

    return of_few


def _of_transformers() -> Iterator[Claim]:
    """The sentences of Section 7 about pruned networks in general, read of Figure 13's."""
    for statement, sentence, check in (
        (
            "the loss after training is above that of the unpruned one",
            HARDER,
            _higher("vit", EVERY),
        ),
        (
            "before training kappa, J with every column, is above that of the unpruned network",
            WORSE,
            _at_start("all", "all", EVERY, "vit"),
        ),
        (
            "over the rates a large loss after training goes with a large kappa before it",
            BECAUSE,
            _slow_is_ill_conditioned,
        ),
    ):
        yield Claim(
            "13",
            f"with every tensor of a transformer pruned, {statement}",
            sentence,
            check,
            column=AS_COMPUTED,
            mended=ALONE,
            panel=_ROWS_OF["vit"],
        )


def _higher(network: str, tensors: str) -> Compare:
    """The loss after training at every rate, of networks in general: one start decides nothing."""
    return _over_unpruned(
        lambda frame: last(losses(frame, network, tensors)),
        "loss",
        "loss / loss unpruned after training",
        from_one_seed=False,
    )


def _harder(column: str, tensors: str) -> Claim:
    """The loss at every rate, of networks in general."""
    return Claim(
        "1, 14",
        f"with {_SAID[tensors].replace(' pruned', '')} pruned the loss of a ResNet20 after training"
        " is above that of the unpruned one",
        HARDER,
        _higher("resnet20", tensors),
        column=column,
        mended=ALONE if column == AS_COMPUTED else "",
        panel=_ROWS_OF["resnet20"],
    )


_AT_80 = {"network": "resnet20", "augment": True, "pruned": SPARSE}

CLAIMS = (
    Claim(
        "1, 14",
        "with every tensor pruned the loss of a ResNet20 after training grows with the rate",
        SLOWDOWN,
        _slower("resnet20", EVERY),
        column=AS_COMPUTED,
        mended=ALONE,
        panel=_ROWS_OF["resnet20"],
    ),
    Claim(
        "1, 14",
        "with kernels alone pruned the loss of a ResNet20 after training grows with the rate",
        SLOWDOWN,
        _slower("resnet20", KERNELS),
        column=CERTIFIED,
        panel=_ROWS_OF["resnet20"],
    ),
    _harder(AS_COMPUTED, EVERY),
    _harder(CERTIFIED, KERNELS),
    Claim(
        "15",
        "with every tensor pruned the loss of a ResNet32 after training is above that of the"
        " unpruned one",
        HARDER,
        _higher("resnet32", EVERY),
        column=AS_COMPUTED,
        mended=ALONE,
        panel=_ROWS_OF["resnet32"],
    ),
    *_of_transformers(),
    Claim(
        "1, 14",
        "after training lambda_max at 80% over one fixed lambda_min is above that of the unpruned"
        " network",
        INCREASE,
        _over_unpruned(_lambda_max, "lambda_max", "lambda_max / lambda_max unpruned", at=SPARSE),
        column=AS_COMPUTED,
        mended=ITSELF,
        panel=_ROWS_OF["resnet20"],
    ),
    *(claim for way in WAYS for claim in _along(*way)),
    *_along_from_few_images(),
    Claim(
        "1, 14",
        "before training kappa, every tensor pruned, J with every column, statistics of batches, is"
        " above that of the unpruned network",
        WORSE,
        _at_start("batches", "all", EVERY),
        column=AS_COMPUTED,
        mended=ITSELF,
        panel=_ROWS_OF["resnet20"],
    ),
    Claim(
        "1, 14",
        "before training kappa, kernels alone pruned, J with the columns left, statistics of all"
        " samples, is above that of the unpruned network",
        WORSE,
        _at_start("all", "left", KERNELS),
        column=CERTIFIED,
        panel=_ROWS_OF["resnet20"],
    ),
    Claim(
        "C4",
        "pruned BatchNorm slows training down: with kernels alone pruned the loss is lower",
        BEYOND,
        Compare(
            "loss",
            {"what": "losses", **_AT_80, "tensors": EVERY},
            over={"tensors": KERNELS},
            above=1.0,
            name=f"loss with every tensor pruned by {SPARSE:.0%} / with kernels alone",
            prepare=last,
            missing=f"no network of both kinds is pruned by {SPARSE:.0%}",
        ),
    ),
    Claim(
        "C4",
        "lambda_max grows in directions that are never trained: the columns of pruned weights",
        BEYOND,
        Compare(
            "lambda_max",
            {
                **{"what": "kappa", **_AT_80, "tensors": EVERY},
                **{"statistics": "batches", "columns": "all"},
            },
            over={"columns": "left"},
            above=1.0,
            name="lambda_max with all columns of J / with those that are left",
            from_one_seed=_one_start_decides,
            prepare=last,
            missing=f"no network pruned by {SPARSE:.0%} was measured",
        ),
    ),
    Claim(
        "C4",
        "before training kappa as computed grows more by lambda_min's fall than by lambda_max",
        BEYOND,
        _ends_of_growth("before"),
    ),
    Claim(
        "C4",
        "after training kappa as computed grows more by lambda_max than by lambda_min's fall",
        BEYOND,
        _ends_of_growth("after"),
    ),
    Claim(
        "C4",
        "without random crops, every tensor pruned, training is slower at each rate",
        BEYOND,
        _over_unpruned(
            lambda frame: last(losses(frame, "resnet20", EVERY, augment=False)),
            "loss",
            "loss / loss unpruned after training",
        ),
    ),
    Claim(
        "C4",
        "with ties among equal scales drawn at random, every tensor pruned, training is slower at"
        " each rate",
        BEYOND,
        _over_unpruned(
            lambda frame: last(losses(frame, "resnet20", SCATTERED)),
            "loss",
            "loss / loss unpruned after training",
        ),
    ),
    Claim(
        "C4",
        "with ties among equal scales drawn at random, every tensor pruned, lambda_max of J with"
        " every column grows in training at each rate",
        BEYOND,
        _over_unpruned(
            lambda frame: last(kappas(frame, "batches", "all", SCATTERED, "largest")),
            "lambda_max",
            "lambda_max / lambda_max unpruned after training",
        ),
    ),
)
