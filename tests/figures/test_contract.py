"""What every figure owes its readers: it is that of its published table, or a sentence says why."""

import csv
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from figures import __main__ as cli
from figures import catalogue
from figures.shared import points, style
from reproduction.published import GALLERY, table_of
from sweeps import table
from tests.drawn import assert_texts_fit

FIGURES = catalogue.from_tables()


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_that_of_its_published_table(name, tmp_path):
    """Its picture and its caption are made of the columns that it declares, and no text is cut.

    After a change of what is drawn make both again, as ``python -m figures --help`` says, with
    ``--from`` and ``--out=figures/gallery``.
    """
    module, path = FIGURES[name], table_of(name, GALLERY)
    frame = table.read(path, foreign=True)[list(module.COLUMNS)]
    drawn = tmp_path / "drawn.png"
    figure = module.draw(frame)
    style.save(figure, drawn)
    told = points.overlay(figure)
    # another processor rounds the edges of lines to a neighbouring level of 255, here and there
    published = imread(GALLERY / f"{name}.png")
    np.testing.assert_allclose(imread(drawn), published, rtol=0, atol=1.1 / 255)
    assert np.mean(imread(drawn) != published) < 1e-4
    provenance = table.read_provenance(table.provenance_beside(path))
    assert f"{module.caption(frame, provenance)}\n" == (GALLERY / f"{name}.txt").read_text()
    assert_texts_fit(figure)
    _assert_labels_point_to_ends(figure)
    _assert_points_tell(told, imread(drawn))


def _assert_labels_point_to_ends(figure):
    """Class: limits that change after the labels are drawn leave their lines in empty places."""
    for axes in figure.axes:
        for text in axes.texts:
            label = text.get_text()
            own = [one for one in axes.lines if one.get_label() in (label, f"_{label}")]
            if own and text.arrow_patch is not None:
                ends = np.concatenate([one.get_xydata() for one in own])
                ends = ends[np.isfinite(ends).all(axis=1)]
                places = axes.transAxes.inverted().transform(axes.transData.transform(ends))
                last = places[np.argmax(places[:, 0])]
                np.testing.assert_allclose(text.xy, last, atol=1e-3, err_msg=label)


def _assert_points_tell(told, picture):
    """What is told is plain text, and something is drawn wherever it is told."""
    svg = ElementTree.fromstring(told)
    width, height = map(float, svg.get("viewBox").split()[2:])
    for circle in svg:
        (title,) = circle
        assert re.fullmatch(r"[^$\\{}]+: [^$\\{}]+", title.text)
        x, y = float(circle.get("cx")) / width, float(circle.get("cy")) / height
        row, column = int(y * picture.shape[0]), int(x * picture.shape[1])
        around = picture[row - 12 : row + 13, column - 12 : column + 13, :3]
        assert around.min() < 0.85, title.text


@pytest.mark.parametrize("name", FIGURES)
def test_a_table_without_a_column_is_refused_in_one_sentence(name, tmp_path, capsys):
    header, first, *_ = csv.reader(table_of(name, GALLERY).read_text().splitlines())
    for missing in set(FIGURES[name].COLUMNS):
        kept = [place for place, column in enumerate(header) if column != missing]
        path = tmp_path / "table.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([line[place] for place in kept] for line in (header, first))
        assert cli.main([name, f"--from={path}", f"--out={tmp_path}"]) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert f"has no column {missing}; another experiment wrote it" in said


def test_a_table_that_is_not_there_is_told_in_one_sentence(tmp_path, capsys):
    """It says what was looked for, and what to write; a table without its provenance as well."""
    published = table_of("fig05", GALLERY)
    alone = tmp_path / "beta_sweep.csv"
    alone.write_text(published.read_text())
    for path, code, words in (
        (tmp_path / "no.csv", 2, "does not exist, where the table of fig05 is looked for; --from"),
        (tmp_path, 2, f"is a folder, .* the published one: --from={published}"),
        (alone, 1, "provenance.json does not exist; it says how the table beside it was computed"),
    ):
        assert cli.main(["fig05", f"--from={path}", f"--out={tmp_path}"]) == code
        (said,) = capsys.readouterr().err.splitlines()
        assert re.search(words, said)
        assert "Errno" not in said
