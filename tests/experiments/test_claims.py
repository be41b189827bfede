"""Every claim can fail: in a table, or in one that is made of it, it has another verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import get_args, get_type_hints

import numpy as np
import pytest
from pandas import DataFrame
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype

from figures import catalogue
from reproduction.published import gallery, table_of
from reproduction.readings import all_claims, figure_of, name
from sweeps import command_line, table
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, Claim, NotTestableError, judge
from sweeps.experiment import Experiment

PLACES = {"samples", "inputs", "outputs", "parameters", "size", "index", "epoch", "step"}
PLACES |= {"assumed_rank", "kept", "covariance_condition", "frequency"}
ENDS = ("low", "high")


@cache
def _published(figure: str, profile: str) -> DataFrame | None:
    path = table_of(figure, gallery(profile))
    return table.read(path) if path.is_file() else None


@cache
def _set(experiment: Experiment) -> frozenset[str]:
    """The names of what is set: the labels, the keywords of the measure and their numbers."""
    config, _ = command_line.load(f"configs/{experiment.name}.py:laptop")
    found = {label for labels, _ in experiment.settings(config) for label in labels}
    for keyword, kind in experiment.kinds.items():
        found.add(keyword)
        for record in filter(is_dataclass, (kind, *get_args(kind))):
            hints = get_type_hints(record)
            found |= {name for name, inner in hints.items() if inner is not str}
    return frozenset(found)


def _changed(experiment: Experiment, frame: DataFrame) -> Iterator[DataFrame]:
    """What is measured is upside down, all alike or exchanged; or one column is, or is tilted."""
    given = _set(experiment) | PLACES
    numbers = [n for n in frame if is_numeric_dtype(frame[n]) and not is_bool_dtype(frame[n])]
    measured = [n for n in numbers if n not in given]
    floats = [n for n in measured if is_float_dtype(frame[n])]
    yield _upside_down(frame, floats)
    yield frame.assign(**dict.fromkeys(floats, 1.0))
    swept = [n for n in frame if n in given and frame[n].nunique() > 1 and n != "seed"]
    for over in swept:
        yield _reversed(frame, floats, over)
    for one in measured:
        yield _upside_down(frame, [one])
        yield frame.assign(**{one: 1.0})
        for over in swept:
            yield _tilted(frame, one, over, 1)
            yield _tilted(frame, one, over, 2)


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


def _tilted(frame: DataFrame, one: str, over: str, power: int) -> DataFrame:
    """A column that is larger by powers of ten at each further value of another."""
    place = frame[over].rank(method="dense")
    place *= min(1.0, 250 ** (1 / power) / place.max())  # or the powers overflow
    return frame.assign(**{one: frame[one] * 10.0 ** (place**power)})


@pytest.mark.parametrize("claim", all_claims(), ids=name)
def test_a_claim_about_no_row_is_not_testable(claim: Claim) -> None:
    frame = next(filter(_is_there, (_published(figure_of(claim), p) for p in ("laptop", "paper"))))
    assert judge(claim, frame[:0], ()).status == NOT_TESTABLE


def _is_there(frame: DataFrame | None) -> bool:
    return frame is not None


def _status(claim: Claim, frame: DataFrame) -> str:
    """Its status; a table of which nothing can be computed tests nothing."""
    try:
        return claim.check(frame).status
    except (ArithmeticError, np.linalg.LinAlgError, NotTestableError):
        return NOT_TESTABLE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that no run measures
@pytest.mark.parametrize("claim", all_claims(), ids=name)
def test_a_claim_that_holds_can_fail(claim: Claim) -> None:
    """In a published table, or in one that is made of the table in which it holds."""
    module = catalogue.from_tables()[figure_of(claim)]
    found = [_published(figure_of(claim), profile) for profile in ("laptop", "paper")]
    frames = [frame for frame in found if frame is not None]
    statuses = [claim.check(frame).status for frame in frames]
    if FAILS in statuses or HOLDS not in statuses:
        return
    experiment = command_line.named(module.EXPERIMENT)
    held = [frame for frame, status in zip(frames, statuses, strict=True) if status == HOLDS]
    changed = (other for frame in held for other in _changed(experiment, frame))
    assert any(_status(claim, frame) not in (HOLDS, NOT_TESTABLE) for frame in changed)
