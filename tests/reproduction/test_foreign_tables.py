"""A table that strangers have changed is answered with one sentence that says what is wrong."""

import csv
import shutil

import pytest

from figures import __main__ as figures
from figures.catalogue import GALLERY
from reproduction import verdicts
from sweeps.table import TableError, read

WHOLE = (GALLERY / "depth_sweep.csv").read_bytes()
HEADER, FIRST, *REST = WHOLE.split(b"\n")
KAPPA = HEADER.split(b",").index(b"kappa")


def _with(cell, place=KAPPA):
    (cells,) = csv.reader([FIRST.decode()])
    cells = [f'"{each}"'.encode() if "," in each else each.encode() for each in cells]
    cells[place] = cell
    return b"\n".join([HEADER, b",".join(cells), *REST])


BROKEN = {
    "no UTF-8": (WHOLE[:500] + b"\xff\xfe" + WHOLE[500:], "UTF-8"),
    "UTF-16": (WHOLE.decode().encode("utf-16"), "UTF-8"),
    "ragged": (WHOLE.replace(FIRST, FIRST + b",1"), "values in line 2"),
    "cut off": (WHOLE[: WHOLE.rindex(b",")], "values in line"),
    "blank line": (WHOLE.replace(FIRST, FIRST + b"\n"), "0 values in line 3"),
    "text for a number": (_with(b"many"), "'many' in line 2, in the column kappa"),
    "nan": (_with(b"nan"), "'nan' in line 2, in the column kappa"),
    "infinite": (_with(b"inf"), "'inf' in line 2, in the column kappa"),
    "minus infinite": (_with(b"-inf", KAPPA + 2), "'-inf' in line 2, in the column kappa_high"),
    "no truth": (WHOLE.replace(b"True", b"Yes", 1), "'Yes' in line"),
    "missing column": (WHOLE.replace(b"kappa,", b"kapa,", 1), "no column"),
    "column twice": (WHOLE.replace(b"width,", b"depth,", 1), "two columns depth"),
    "long field": (_with(b"1" * 2**20), "field larger than field limit"),
    "open quote": (_with(b'"1'), "comma-separated"),
    "empty": (b"", "no rows"),
    "header alone": (HEADER + b"\n", "no rows"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_table_is_answered_in_one_sentence(fault, tmp_path, capsys):
    content, words = BROKEN[fault]
    (tmp_path / "depth_sweep.csv").write_bytes(content)
    shutil.copy(GALLERY / "depth_sweep.json", tmp_path)
    drawing = ["fig02", f"--from={tmp_path / 'depth_sweep.csv'}", f"--out={tmp_path / 'out'}"]
    judging = [f"--gallery={tmp_path}", f"--expected={tmp_path / 'expected.json'}"]
    for main, arguments in ((figures.main, drawing), (verdicts.main, judging)):
        assert main(arguments) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert words in said
    assert not (tmp_path / "out").exists()


def test_a_provenance_that_is_no_json_is_named(tmp_path, capsys):
    shutil.copy(GALLERY / "depth_sweep.csv", tmp_path)
    (tmp_path / "depth_sweep.json").write_text("{")
    assert figures.main(["fig02", f"--from={tmp_path / 'depth_sweep.csv'}"]) == 1
    assert "depth_sweep.json is not a file of JSON" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(GALLERY.rglob("*.csv")), ids=str)
def test_a_published_table_is_a_table(path):
    """So every column with text that looks like numbers is in ``sweeps.table.MIXED``."""
    assert len(read(path, foreign=True))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("name\nred\n\nblue\n", ""),
        ("name\nTrue\n\nFalse\n", ""),
        ("name\nTrue\n1\n", "'1' in line 3, in the column name of truth values"),
        ("name\n1\nred\n", "'red' in line 3, in the column name of numbers"),
        ("figure\n1\n2a\n", ""),
    ],
)
def test_a_column_is_of_the_kind_that_a_cell_shows(column, words, tmp_path):
    """Class: a new column of text that a list of names does not have."""
    path = tmp_path / "table.csv"
    path.write_text(column.replace("\n\n", '\n""\n'))
    if not words:
        assert len(read(path, foreign=True)) >= 2
        return
    with pytest.raises(TableError, match=words):
        read(path, foreign=True)


def test_the_upper_end_of_an_interval_may_be_infinite(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("kappa,kappa_high\n2.0,inf\n,\n")
    assert read(path, foreign=True).isna().sum().tolist() == [1, 1]
    path.write_text("kappa_low\ninf\n")
    with pytest.raises(TableError, match="kappa_low"):
        read(path, foreign=True)
