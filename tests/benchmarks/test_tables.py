"""The page on speed has the tables of the committed measurements, which say what they are."""

from __future__ import annotations

import json
import re
import socket

import pytest

from benchmarks import linear_kappa, record, tables

_FILES = [record.FOLDER / f"{name}.json" for name in tables.TITLES]
_FILES = [path for path in _FILES if path.is_file()]


def test_the_page_shows_the_committed_measurements():
    text = tables.PAGE.read_text(encoding="utf-8")
    assert tables.renewed(text) == text, "run python -m benchmarks.tables"
    assert text.count(tables.BEGIN) == text.count(tables.END) == 1


def test_the_page_on_advice_shows_every_promise_and_what_came_of_it():
    text = tables.ADVICE.read_text(encoding="utf-8")
    assert tables.between_marks(text, tables.advice()) == text, "run python -m benchmarks.tables"
    record_of = json.loads((record.FOLDER / "advice.json").read_text(encoding="utf-8"))
    kept = sum(row["happened"] for row in record_of["rows"])
    counts = re.findall(r"\| (\d+) of (\d+) \|", text)
    assert sum(int(count) for count, _ in counts) == kept == text.count("| yes |")
    assert sum(int(total) for _, total in counts) == len(record_of["rows"]) > kept


def test_another_measurement_is_another_table(tmp_path):
    rows = [
        record.Row("a case", "gnjax", [1.0, 2.0, 4.0], error=1e-3),
        record.Row("a case", "a rival", [4.0, 8.0, 8.0], [4.0, 4.0, 2.0], note="slower"),
        record.Row("a case", "another", None, note="not installed"),
    ]
    began = record.environment()
    record.save("linear_kappa", rows, began, tmp_path)
    lines = tables.tables(tmp_path).splitlines()
    assert lines[2] == "| a case | gnjax | 2 (1.5, 3) |  |  |"
    assert lines[3] == "|  | a rival | 8 (6, 8) | 4 (3, 4) | slower |"
    assert lines[4] == "|  | another |  |  | not installed |"
    assert began["commit"] in lines[6]
    text = f"before {tables.BEGIN} old {tables.END} after"
    once = tables.renewed(text, tmp_path)
    assert once != text
    assert tables.renewed(once, tmp_path) == once
    with pytest.raises(ValueError, match="has no lines"):
        tables.renewed("a page", tmp_path)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_every_measurement_has_its_provenance(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    environment = found["environment"]
    assert environment["cores"] >= 1
    assert {"jax", "numpy"} <= set(environment["versions"])
    assert "stated" in environment or {"date", "commit", "cpu", "load"} <= set(environment)
    for row in found["rows"]:
        assert row["case"]
        assert row["tool"]
        assert {"seconds", "ratio", "note"} & set(row)
        for held in (row[name] for name in ("seconds", "ratio") if name in row):
            assert held["of"] in ("quartiles", "range", "one number")
            assert held["of"] != "quartiles" or held["low"] <= held["median"] <= held["high"]


def test_the_environment_names_no_host_and_no_path():
    text = json.dumps(record.environment())
    assert socket.gethostname() not in text
    assert str(record.FOLDER.parents[1]) not in text


def test_runs_take_turns():
    order = []
    calls = (lambda: order.append("a"), lambda: order.append("b"))
    seconds, _ = record.in_turn(calls, 3)
    assert "".join(order) == "ababab"
    assert [len(runs) for runs in seconds] == [3, 3]


def test_the_linear_rows_at_toy_size():
    rows = linear_kappa.small(2, (12, 3, 14, 3))
    assert rows[0].tool == "gnjax"
    assert len(rows[2].ratios) == 2
    assert all(row.error is None or row.error < 1e-2 for row in rows)
    assert "contains" in rows[0].note
