"""The authors' numbers beside ours: what is read, what agrees, and what the page says of it."""

from pathlib import Path

import numpy as np
import pytest

from figures import catalogue
from reproduction import authors
from reproduction.authors import Compared, Target

TARGET = Target("fig10", "kappa", 8.4, "a notebook", {"reading": "published", "epoch": 0})


def _table(folder, rows):
    path = folder / "gallery" / "paper"
    path.mkdir(parents=True, exist_ok=True)
    lines = ["reading,epoch,seed,kappa", *rows]
    (path / "training_path.csv").write_text("".join(f"{line}\n" for line in lines))


def test_ours_are_the_rows_of_the_published_table(tmp_path):
    _table(
        tmp_path, ["published,0,0,8.0", "published,0,1,9.0", "published,5,0,1.0", "other,0,0,2.0"]
    )
    found = authors.compared(TARGET, tmp_path)
    np.testing.assert_array_equal(found.values, [8.0, 9.0])
    assert found.quotient == pytest.approx(8.5 / 8.4)
    assert not found.differs
    page = authors.page(tmp_path)
    row = "| kappa at epoch 0 | 8.4 (mean of 3), read off | 8.5 (8 to 9, 2 seeds) | 1.01 |"
    of_three = authors.compared(authors.targets()[0], tmp_path)
    factor = np.exp(of_three.spread + of_three.known)
    assert f"{row} agrees (a factor above {factor:.3g} would show) |" in page
    _table(tmp_path, ["published,0,0,8.0"])  # written again
    assert authors.compared(TARGET, tmp_path).values.tolist() == [8.0]
    for without in (
        Target("fig10", "kappa", 1.0, "x", {"absent": 1}),
        Target("b1", "", 1.0, "", {"a": 1}),
    ):
        assert authors.compared(without, tmp_path) is None


@pytest.mark.parametrize(
    ("values", "theirs", "draws", "read_off", "differs"),
    [
        ([10.0, 10.1, 9.9, 10.0], 10.02, 1, False, False),
        ([10.0, 10.1, 9.9, 10.0], 10.6, 1, False, True),
        ([10.0, 10.1, 9.9, 10.0], 10.4, 1, True, False),  # 5% are for the eye
        ([5.0, 20.0, 10.0], 30.0, 1, False, False),  # one draw of a wide distribution
        ([9.0, 11.0, 10.0, 9.5, 10.5], 13.0, 1, False, False),
        ([9.0, 11.0, 10.0, 9.5, 10.5], 13.0, 10, False, True),  # and a mean of ten
        ([2.4], 2.4, 1, False, False),
        ([2.44], 2.4, 1, False, False),  # to the digits that are printed
        ([2.5], 2.4, 1, False, False),  # of one network nobody knows how far another one is
    ],
)
def test_two_numbers_differ_by_more_than_the_seeds_do(values, theirs, draws, read_off, differs):
    target = Target("fig10", "kappa", theirs, "", {"a": 1}, draws=draws, read_off=read_off)
    found = Compared(target, np.array(values))
    assert found.differs == differs
    assert found.told().startswith("one network of each") == (values == [2.5])


def test_a_network_of_which_two_rows_have_the_number_counts_once(tmp_path):
    """Class: a second measurement of one network is taken for a second network."""
    _table(tmp_path, ["published,0,0,8.0", "published,0,0,9.0", "published,0,1,7.0"])
    assert authors.compared(TARGET, tmp_path).values.tolist() == [8.5, 7.0]


@pytest.mark.parametrize(
    ("number", "expected"), [(8.4, 0.05), (1.9e5, 0.5), (15.0, 0.5), (4.648e-7, 5e-11)]
)
def test_half_a_unit_of_the_last_digit(number, expected):
    assert authors.half_unit(number) == pytest.approx(expected)


def test_every_target_has_rows_or_a_reason_and_a_figure():
    found = authors.targets()
    assert len({(t.figure, t.quantity) for t in found}) == len(found) > 100
    assert {t.figure for t in found} <= set(catalogue.from_tables())
    with pytest.raises(ValueError, match="give rows, or the reason"):
        Target("fig10", "kappa", 1.0, "")


def test_what_differs_is_explained():
    """On the published page, each in words; an explanation that nothing needs is a mistake too."""
    for target in authors.targets():
        found = authors.compared(target, Path("figures"))
        if found is not None and len(found.values) > 1:
            assert bool(target.why) == found.differs, target


_SERIES = """[[target]]
figure = "b1"
quantity = "{:.0%} pruned"
theirs = [1.5, 2.5]
place = "x"
over = { pruned = [0.0, 0.2] }
"""


def test_a_series_is_a_target_for_each_value_and_one_row_where_there_is_none_of_ours(tmp_path):
    path = tmp_path / "authors.toml"
    path.write_text(f"{_SERIES}rows = {{ seed = 1 }}\n\n{_SERIES}reason = 'not computed'\n")
    *each, together = authors.read_targets(path)
    assert [(t.quantity, t.theirs, t.rows["pruned"], t.rows["seed"]) for t in each] == [
        ("0% pruned", 1.5, 0.0, 1),
        ("20% pruned", 2.5, 0.2, 1),
    ]
    named = (together.quantity, together.listed, together.reason)
    assert named == ("0%, 20% pruned", "1.5, 2.5", "not computed")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[[target]]\nfigure = 'fig10'\nkappa = 3",
            "target 1 of .* has kappa; the fields are draws",
        ),
        (
            "[[target]]\nfigure = 'fig10'\nquantity = 'kappa'\ntheirs = [1.0]\n"
            "over = { epoch = [0, 1] }",
            "fig10, kappa: give as many of theirs as of epoch",
        ),
        ("figure = ", "is no TOML"),
    ],
)
def test_a_mistake_in_the_file_is_told(tmp_path, text, words):
    (tmp_path / "authors.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        authors.read_targets(tmp_path / "authors.toml")
