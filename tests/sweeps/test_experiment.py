"""An experiment's settings, cells and rows, and which settings are refused before anything runs."""

from __future__ import annotations

import dataclasses
import json
import pickle
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_collections import ConfigDict

from gnjax.numerics.precision import enable_x64
from sweeps import command_line, table
from sweeps.cell import values
from sweeps.claims import BEYOND, Claim, verdict
from sweeps.config import ConfigError
from sweeps.experiment import Experiment
from sweeps.kinds import fitted
from sweeps.launchers import launch
from sweeps.storage.checkpoint import Checkpoint, resumed
from sweeps.storage.environment import environment
from sweeps.storage.files import write_checked
from sweeps.storage.store import open_store
from tests.toy import Silent

CONFIG = ConfigDict({"widths": (3, 5), "seeds": 2, "rate": 1, "recipe": {"batch": 4}})


@dataclass(frozen=True)
class Recipe:
    batch: int
    momentum: float = 0.0

    def __post_init__(self):
        if self.batch < 1:
            msg = f"batch={self.batch} must be positive"
            raise ValueError(msg)


def settings(config):
    for figure in ("1", "2"):
        for width in config.widths:
            for seed in range(config.seeds):
                yield {"figure": figure}, {"width": width, "seed": seed}


def measure(
    width: int,
    seed: int,
    rate: float,
    recipe: Recipe,
    side: int | None = None,
    checkpoint: Checkpoint | None = None,
) -> list[dict[str, Any]]:
    """One row for each of three epochs, of which the last has a kappa."""

    def step(state, stop):
        return state + 1, {"epoch": stop, "kappa": np.float64(width + seed) if stop == 2 else None}

    return resumed(checkpoint, np.zeros(1), [0, 1, 2], step)


def cost(width: int) -> float:
    return width**2


TOY = Experiment("toy", settings, measure, cost)


def test_settings_that_agree_share_a_cell_and_give_a_row_each():
    cells = TOY.cells(CONFIG)
    assert [(c.keywords["seed"], c.keywords["width"]) for c in cells] == [
        (0, 5),
        (0, 3),
        (1, 5),
        (1, 3),
    ]
    measured = {cell: TOY.measure_cell(cell, None) for cell in cells}
    rows = TOY.rows(CONFIG, measured)
    assert len(rows) == 2 * 2 * 2 * 3
    assert rows[2] == {
        "figure": "1", "width": 3, "seed": 0, "rate": 1.0, "batch": 4, "momentum": 0.0,
        "side": None, "epoch": 2, "kappa": 3.0,
    }  # fmt: skip
    assert type(rows[2]["kappa"]) is float
    one = {cells[0]: measured[cells[0]]}
    assert {row["width"] for row in TOY.rows(CONFIG, one)} == {5}


def test_the_columns_of_a_table_are_chosen_and_none_is_made_up():
    chosen = dataclasses.replace(TOY, columns=("epoch", "figure"))
    measured = {cell: chosen.measure_cell(cell, None) for cell in chosen.cells(CONFIG)}
    assert chosen.rows(CONFIG, measured)[1] == {"epoch": 1, "figure": "1"}
    wrong = dataclasses.replace(TOY, columns=("epoch", "kapa"))
    with pytest.raises(ValueError, match="no row of toy has the column kapa"):
        wrong.rows(CONFIG, measured)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"wdith": 3, "seed": 0}, "measure takes no 'wdith'; did you mean 'width'"),
        ({"width": "three", "seed": 0}, "width of measure: 'three' is not int"),
        ({"width": True, "seed": 0}, "True is not int"),
        ({"width": 3.0, "seed": 0}, "3.0 is not int"),
        ({"width": 3, "seed": 0, "side": "all"}, "side of measure"),
        ({"width": 3}, "measure needs 'seed', which neither the settings nor the config give"),
        ({"width": 3, "seed": 0, "recipe": {"bacth": 4}}, "no field 'bacth'; did you mean batch"),
        ({"width": 3, "seed": 0, "recipe": {"batch": 0}}, "batch=0 must be positive"),
        ({"width": 3, "seed": 0, "recipe": {}}, "batch"),
        ({"width": 3, "seed": 0, "recipe": Recipe(2.5)}, "batch: 2.5 is not int"),
        ({"width": 3, "seed": 0, "checkpoint": None}, "measure takes no 'checkpoint'"),
    ],
)
def test_a_setting_that_measure_does_not_take_is_refused(keywords, words):
    wrong = dataclasses.replace(TOY, settings=lambda config: [({}, keywords)])
    with pytest.raises(ConfigError, match=words):
        wrong.cells(CONFIG)


def test_what_settings_refuse_and_an_empty_config_are_mistakes_of_the_user():
    def picky(config):
        msg = "widths must be odd"
        raise ValueError(msg)

    for found, words in ((picky, "must be odd"), (lambda config: [], "no cells")):
        with pytest.raises(ConfigError, match=words):
            dataclasses.replace(TOY, settings=found).cells(CONFIG)


def test_functions_that_cannot_serve_are_refused_where_they_are_written():
    with pytest.raises(TypeError, match="must name and annotate"):
        Experiment("toy", settings, lambda width: {}, cost)
    with pytest.raises(TypeError, match="asks for 'widht'; did you mean 'width'"):
        Experiment("toy", settings, measure, lambda widht: 1.0)


def test_a_cell_is_its_keywords_in_one_type_each():
    """1 and 1.0 of a float are one cell, and a record is kept field by field."""
    (one, *_), (same, *_) = (
        TOY.cells(ConfigDict({**CONFIG.to_dict(), "rate": rate})) for rate in (1, 1.0)
    )
    assert one == same
    assert hash(one) == hash(same)
    assert values(one)["recipe"] == {"batch": 4, "momentum": 0.0}
    assert pickle.loads(pickle.dumps(one)) == one
    assert TOY.shape_of(one) == TOY.shape_of(TOY.cells(CONFIG)[2])  # another seed


def test_cells_are_stored_found_again_and_told_apart(tmp_path):
    store = open_store(tmp_path, environment(TOY.measure))
    chosen = launch.plan(TOY, CONFIG, store)
    outcome = launch.run(TOY, chosen, store, Silent())
    assert not outcome.failures
    again = launch.plan(TOY, CONFIG, store)
    assert not again.left
    assert TOY.rows(CONFIG, {c: f.measurement for c, f in again.finished.items()}) == TOY.rows(
        CONFIG, {c: f.measurement for c, f in outcome.finished.items()}
    )


def test_a_column_that_no_file_can_keep_fails_its_cell(tmp_path):
    def odd(width: int, seed: int) -> dict[str, Any]:
        return {"kappa": np.ones(2) * width}

    experiment = dataclasses.replace(TOY, measure=odd)
    store = open_store(tmp_path, environment(experiment.measure))
    outcome = launch.run(experiment, launch.plan(experiment, CONFIG, store), store, Silent())
    assert "ndarray in column kappa" in outcome.failures[0].summary


def test_the_watched_column_tells_how_a_sweep_is_doing():
    cell = TOY.cells(CONFIG)[0]
    assert TOY.progress(TOY.measure_cell(cell, None)) == "kappa 5"
    assert TOY.progress({"rows": [{"epoch": 1}]}) == ""


_KINDS = st.recursive(
    st.sampled_from([int, float, str, bool, None]),
    lambda inner: st.tuples(inner).map(lambda kinds: tuple[kinds[0], ...]),
    max_leaves=3,
)
_EXAMPLES = {int: 3, float: 2.5, str: "a", bool: True, None: None}


def _example(kind):
    inner = getattr(kind, "__args__", None)
    return (_example(inner[0]),) * 2 if inner else _EXAMPLES[kind]


@given(_KINDS, _KINDS)
def test_a_value_fits_its_own_type_and_no_other(kind, other):
    """A whole number is a float, and nothing else crosses over; twice fitted is once fitted."""
    value = _example(kind)
    assert fitted(value, kind) == value
    assert fitted(json.loads(json.dumps(value)), kind) == value  # as a file keeps it
    assert fitted(value, kind | None if kind else kind) == value
    if str(kind).replace("int", "float") != str(other).replace("int", "float"):
        with pytest.raises(ValueError, match="not"):
            fitted(value, other)


def test_choices_and_pairs_are_looked_at_too():
    assert fitted("sgd", Literal["sgd", "adamw"]) == "sgd"
    with pytest.raises(ValueError, match="adam"):
        fitted("adam", Literal["sgd", "adamw"])
    assert fitted([1, "a"], tuple[int, str]) == (1, "a")
    with pytest.raises(ValueError, match="2 values"):
        fitted([1], tuple[int, str])
    assert fitted(np.int64(3), int) == 3


def test_cells_of_an_earlier_form_are_told_and_not_taken(tmp_path, capsys):
    """A run that was interrupted before cells were keywords says so, in a sentence, and goes on."""
    config = tmp_path / "toy.py"
    config.write_text(
        "from ml_collections import ConfigDict\n"
        "def get_config(profile):\n"
        "    return ConfigDict({'widths': (3,), 'seeds': 1, 'rate': 1, 'recipe': {'batch': 4}})\n"
    )
    command = [f"--config={config}:smoke", f"--results={tmp_path}"]
    enable_x64()
    store = open_store(tmp_path / "cells" / "toy", environment(TOY.measure))
    write_checked(store.folder / f"{'0' * 32}.json", json.dumps({"cell": {"width": 3}}))
    (store.folder / f"{'1' * 32}.checkpoint").write_text("half")
    for before, left in ((0, "1 to compute"), (1, "1 stored")):
        assert command_line.main(TOY, command) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert f"1 cells, {before} stored" in said
        assert left in said
        assert "2 cells in" in said
        assert "earlier form of this experiment" in said


def test_a_profile_that_a_config_does_not_have_is_one_sentence(tmp_path, capsys):
    config = tmp_path / "toy.py"
    config.write_text("def get_config(profile):\n    return {'smoke': {}}[profile]\n")
    assert command_line.main(TOY, [f"--config={config}:medium"]) == 2
    assert f"{config} has no profile 'medium'" in capsys.readouterr().err


def test_two_config_files_with_one_profile_have_two_tables(tmp_path):
    """Class: a table under the name of one config has the rows of another."""
    for name, width in (("toy", 3), ("of_my_own", 4)):
        (tmp_path / f"{name}.py").write_text(
            "from ml_collections import ConfigDict\n"
            "recipe = {'batch': 4}\n"
            "def get_config(profile):\n"
            f"    fields = {{'widths': ({width},), 'seeds': 1, 'rate': 1, 'recipe': recipe}}\n"
            "    return ConfigDict(fields)\n"
        )
        command = [f"--config={tmp_path / name}.py:smoke", f"--results={tmp_path}"]
        assert command_line.main(TOY, command) == 0
    usual = tmp_path / "toy" / "smoke" / "table.csv"
    (other,) = set(tmp_path.glob("toy/*/table.csv")) - {usual}
    assert [set(table.read(path)["width"]) for path in (usual, other)] == [{3}, {4}]


@dataclass(frozen=True)
class Run:
    width: int
    seed: int
    rate: float = 2.0

    def __post_init__(self):
        if self.width < 1:
            msg = f"width={self.width} must be positive"
            raise ValueError(msg)


def of_run(run: Run, checkpoint: Checkpoint | None = None) -> dict[str, Any]:
    return {"kappa": run.width * run.rate}


def test_a_record_stands_for_the_keywords_that_are_its_fields():
    experiment = Experiment("toy", settings, of_run, lambda run: run.width)
    cells = experiment.cells(CONFIG)
    assert [cell.keywords for cell in cells[:1]] == [{"width": 5, "seed": 0, "rate": 1.0}]
    assert experiment.cost_of(cells[0]) == 5
    assert experiment.measure_cell(cells[0], None) == {"rows": [{"kappa": 5.0}]}
    assert pickle.loads(pickle.dumps(experiment.measure_cell)).record is Run
    for keywords, words in (({"widht": 3, "seed": 0}, "'width'"), ({"width": 0, "seed": 0}, "=0")):
        wrong = dataclasses.replace(experiment, settings=lambda config, k=keywords: [({}, k)])
        with pytest.raises(ConfigError, match=words):
            wrong.cells(CONFIG)


def test_a_label_that_is_measured_picks_the_rows_that_have_it():
    """Figures that draw different rows of one cell share the cell."""

    def picky(config):
        for figure, epochs in (("1", (0, 1, 2)), ("2", (2,))):
            for epoch in epochs:
                yield {"figure": figure, "epoch": epoch}, {"width": 3, "seed": 0}

    experiment = dataclasses.replace(TOY, settings=picky)
    (cell,) = experiment.cells(CONFIG)
    rows = experiment.rows(CONFIG, {cell: experiment.measure_cell(cell, None)})
    found = [(row["figure"], row["epoch"]) for row in rows]
    assert found == [("1", 0), ("1", 1), ("1", 2), ("2", 2)]


@pytest.mark.parametrize("shape", [None, cost])
def test_what_other_processes_need_can_be_sent_to_them(shape):
    """Class: with --jobs=2 claims and sources went along, which a lambda cannot."""
    claims = (Claim("own", "grows", BEYOND, lambda table: verdict(True, 1.0, "")),)
    experiment = dataclasses.replace(TOY, claims=claims, shape=shape)
    cell = TOY.cells(CONFIG)[0]
    sent = pickle.loads(pickle.dumps((experiment.measure_cell, experiment.shape_of)))
    assert sent[0](cell, None) == experiment.measure_cell(cell, None)
    assert sent[1](cell) == experiment.shape_of(cell)
