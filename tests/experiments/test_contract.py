"""What every experiment owes its users: a plan, one cell that runs, a table, refusals."""

import dataclasses
from functools import cache
from pathlib import Path

import pytest
from ml_collections import ConfigDict, FrozenConfigDict

from figures import catalogue
from sweeps import command_line
from sweeps.config import ConfigError
from sweeps.table import read

FOUND = {
    name: command_line.named(name)
    for name in sorted(path.stem for path in Path("configs").glob("[a-z]*.py"))
}


def _config(name, profile="smoke"):
    return command_line.load(f"configs/{name}.py:{profile}")[0]


@cache
def _cells(name):
    return FOUND[name].cells(_config(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_a_cell_runs_is_kept_and_makes_a_table(name, tmp_path, capsys):
    """The last cell at smoke: computed by its shard, found again, written with every column."""
    count = len(_cells(name))
    command = [f"--config=configs/{name}.py:smoke", f"--results={tmp_path}"]
    alone = [*command, f"--shard={count}/{count}"]
    for stored in (0, 1):
        assert command_line.main(FOUND[name], alone) == 0
        assert f"1 cells, {stored} stored" in capsys.readouterr().out
    command_line.main(FOUND[name], [*command, "--no_compute"])
    path = tmp_path / name / "smoke" / "table.csv"
    frame = read(path, foreign=True)
    assert len(frame) > 0
    assert not FOUND[name].columns or tuple(frame) == FOUND[name].columns
    before = path.read_bytes()
    command_line.main(FOUND[name], [*command, "--no_compute"])
    assert path.read_bytes() == before


@pytest.mark.parametrize("figure", catalogue.from_tables())
def test_a_figure_needs_columns_that_its_experiment_has(figure):
    """Class: a figure whose own test draws a table that the experiment does not make."""
    module = catalogue.from_tables()[figure]
    columns = FOUND[module.EXPERIMENT].columns
    assert not columns or set(module.COLUMNS) <= set(columns)


@pytest.mark.parametrize("name", FOUND)
def test_a_field_that_nothing_reads_is_not_in_the_config(name):
    """Without any one field there is no plan; a field that is left is one that does nothing."""
    config = _config(name).to_dict()
    for field in config.keys() - {"paper_ratios"}:
        fewer = FrozenConfigDict(ConfigDict({n: v for n, v in config.items() if n != field}))
        with pytest.raises((AttributeError, KeyError, ConfigError)):
            FOUND[name].cells(fewer)


@pytest.mark.parametrize("name", FOUND)
def test_a_setting_that_measure_does_not_take_is_refused(name):
    """One that is misspelt, and one that is of another type, each by its name."""
    config = _config(name)
    labels, keywords = next(iter(FOUND[name].settings(config)))
    first = next(iter(keywords))
    for wrong in ({**keywords, f"{first}x": 1}, {**keywords, first: object()}):
        changed = dataclasses.replace(FOUND[name], settings=lambda config, w=wrong: [(labels, w)])
        with pytest.raises(ConfigError, match=first):
            changed.cells(config)
