"""Claims read what was measured: each holds in some table, fails in another, and judges any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from itertools import chain
from typing import get_args, get_type_hints

import numpy as np
import pytest
from ml_collections import FrozenConfigDict
from pandas import DataFrame
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype

from figures import catalogue
from reproduction.published import gallery, table_of
from reproduction.readings import all_claims, figure_of, name
from sweeps import command_line, table
from sweeps.claims import (
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    STATUSES,
    UNDECIDED,
    Claim,
    NotTestableError,
    judge,
)
from sweeps.experiment import Experiment

PLACES = {"samples", "inputs", "outputs", "parameters", "size", "index", "epoch", "step"}
PLACES |= {"assumed_rank", "kept", "covariance_condition", "frequency"}
ENDS = ("low", "high")


@cache
def _published(figure: str, profile: str) -> DataFrame | None:
    path = table_of(figure, gallery(profile))
    return table.read(path) if path.is_file() else None


@cache
def _config(name: str) -> FrozenConfigDict:
    return command_line.load(f"configs/{name}.py:laptop")[0]


@cache
def _set(experiment: Experiment) -> frozenset[str]:
    """The names of what is set: the labels, the keywords of the measure and their numbers."""
    found = {
        label for labels, _ in experiment.settings(_config(experiment.name)) for label in labels
    }
    for keyword, kind in experiment.kinds.items():
        found.add(keyword)
        for record in filter(is_dataclass, (kind, *get_args(kind))):
            hints = get_type_hints(record)
            found |= {name for name, inner in hints.items() if inner is not str}
    return frozenset(found)


def _changed(experiment: Experiment, frame: DataFrame) -> Iterator[DataFrame]:
    """What is measured is upside down, all alike, exchanged, larger or tilted; or a part of it is.

    A part is a column that was measured, alone or together with the ends of its interval.
    """
    given = _set(experiment) | PLACES
    numbers = [n for n in frame if is_numeric_dtype(frame[n]) and not is_bool_dtype(frame[n])]
    measured = [n for n in numbers if n not in given]
    floats = [n for n in measured if is_float_dtype(frame[n])]
    swept = [n for n in frame if n in given and frame[n].nunique() > 1 and n != "seed"]
    for over in swept:
        yield _reversed(frame, floats, over)
    together = [[n, *(f"{n}_{end}" for end in ENDS if f"{n}_{end}" in frame)] for n in measured]
    alone = [[n] for n in measured]
    for part in (floats, *(p for p in together if len(p) > 1), *alone):
        yield _upside_down(frame, part)
        yield frame.assign(**dict.fromkeys(part, 1.0))
        for factor in (0.1, 10.0):
            yield frame.assign(**{n: frame[n] * factor for n in part})
        for over in swept:
            for power in (1, -1, 2):
                yield _tilted(frame, part, over, power)


def _upside_down(frame: DataFrame, names: list[str]) -> DataFrame:
    """The reciprocals of the numbers, where the lower end of an interval is the upper one."""
    turned = {n: 1 / frame[n].astype(float) for n in names}
    for of in {n.rpartition("_")[0] for n in names if n.endswith(ENDS)}:
        low, high = (f"{of}_{end}" for end in ENDS)
        if low in turned and high in turned:
            turned[low], turned[high] = turned[high], turned[low]
    return frame.assign(**turned)


def _reversed(frame: DataFrame, names: list[str], over: str) -> DataFrame:
    """What was measured at the first value of a column stands at the last one, and so on."""
    values = sorted(frame[over].unique())
    mirror = dict(zip(values, values[::-1], strict=True))
    others = [n for n in frame if n in ("figure", "panel", "network", "seed") and n != over]
    found = frame.copy()
    places = {key: list(rows) for key, rows in frame.groupby([*others, over]).groups.items()}
    for key, rows in places.items():
        other = places.get((*key[:-1], mirror[key[-1]]), [])
        if len(other) == len(rows):
            found.loc[rows, names] = frame.loc[other, names].to_numpy()
    return found


def _tilted(frame: DataFrame, names: list[str], over: str, power: int) -> DataFrame:
    """Columns that are larger by powers of ten at each further value of another, or smaller."""
    place = frame[over].rank(method="dense")
    place *= min(1.0, 250 ** (1 / abs(power)) / place.max())  # or the powers overflow
    factor = 10.0 ** (np.sign(power) * place ** abs(power))
    return frame.assign(**{n: frame[n] * factor for n in names})


@pytest.mark.parametrize("claim", all_claims(), ids=name)
def test_a_claim_about_no_row_is_not_testable_and_one_about_a_row_has_a_verdict(
    claim: Claim,
) -> None:
    figure = figure_of(claim)
    frame = next(filter(_is_there, (_published(figure, p) for p in ("laptop", "paper"))))
    ratios = _config(catalogue.from_tables()[figure].EXPERIMENT).get("paper_ratios", ())
    without = judge(claim, frame[:0], ratios)
    assert without.status == NOT_TESTABLE
    assert "no row" in without.text
    assert all(f"{column} {value}" in without.text for column, value in claim.panel)
    resolved = frame[frame["resolved"].astype(bool)] if "resolved" in frame else frame
    one = judge(claim, resolved[:1], ratios)
    assert one.status in STATUSES
    assert "resolved" not in one.text  # it is, and what is missing are the other rows


def _is_there(frame: DataFrame | None) -> bool:
    return frame is not None


def _status(claim: Claim, frame: DataFrame) -> str:
    """Its status; a table of which nothing can be computed tests nothing."""
    try:
        return claim.check(frame).status
    except (ArithmeticError, np.linalg.LinAlgError, NotTestableError):
        return NOT_TESTABLE


# How claims hold and fail is shown here for these experiments, for others in their own tests.
HERE = (
    *("adapter_sweep", "block_alignment", "block_heterogeneity", "class_blocks"),
    *("data_sharpness", "edge_of_stability", "sample_sweep"),
    *("shallow_eigenvalues", "trace_path", "transformer_depth"),
)
ELSEWHERE = (  # of these experiments, by a few of their words: in the tests of their experiments
    "as many steps without",
    "a tenth is left sooner, and less in the end",  # two halves, which no change here turns alike
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that no run measures
@pytest.mark.parametrize("claim", all_claims(), ids=name)
def test_a_claim_can_hold_and_fail(claim: Claim) -> None:
    """Each in a published table or in one that is made of it: the claim reads what was measured."""
    figure = figure_of(claim)
    experiment = command_line.named(catalogue.from_tables()[figure].EXPERIMENT)
    frames = [f for f in (_published(figure, p) for p in ("laptop", "paper")) if f is not None]
    found = {_status(claim, frame) for frame in frames}
    here = experiment.name in HERE and not any(words in claim.statement for words in ELSEWHERE)
    if not here:
        if FAILS in found or HOLDS not in found:
            return
        frames, found = [f for f in frames if _status(claim, f) == HOLDS], {HOLDS}
    for made in chain.from_iterable(_changed(experiment, frame) for frame in frames):
        found.add(_status(claim, made))
        if {HOLDS, FAILS} <= found or (not here and UNDECIDED in found):
            return
    pytest.fail(f"in all tables it is one of {found}")
