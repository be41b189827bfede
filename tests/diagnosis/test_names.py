"""Names of layers are whole where there is room, and else shortened to distinct ones."""

import dataclasses

import jax
import numpy as np
import pytest

import gnjax
from gnjax.diagnosis.layer_shares import shortened

LONG = [
    f"encoder/blocks/{block}/self_attention/projections/{name}"
    for block in range(12)
    for name in ("query", "key", "value", "out")
]


def test_names_are_whole_where_there_is_room():
    assert shortened(LONG, 60) == LONG
    assert shortened(["a", "a long name"], 5) == ["a", "a ~me"]


@pytest.mark.parametrize("width", [24, 30, 44])
def test_shortened_names_are_distinct_and_keep_both_ends(width):
    """The names differ in their middle and at their ends."""
    found = shortened(LONG, width)
    assert len(set(found)) == len(LONG)
    for name, short in zip(LONG, found, strict=True):
        head, _, tail = short.partition("~")
        assert len(short) <= width
        assert name.startswith(head)
        assert name.endswith(tail)


def test_names_that_no_cut_keeps_apart_stay_whole():
    names = ["x" * 10 + middle + "y" * 10 for middle in "abc"]
    assert shortened(names, 12) == names
    assert shortened(["abcdefgh", "a~h"], 3) == ["abcdefgh", "a~h"]


@pytest.fixture(scope="module")
def diagnosis():
    model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    found = gnjax.diagnose(model, np.random.default_rng(0).standard_normal((5, 3)))
    layers = [dataclasses.replace(found.layers[i % 2], name=LONG[i]) for i in range(8)]
    return dataclasses.replace(found, layers=tuple(layers))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_table_of_layers_takes_the_width_of_the_terminal(diagnosis, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    table = str(diagnosis).split("\n\n")[3].splitlines()
    found = [line.split()[0] for line in table[1:9]]
    assert len(set(found)) == 8
    assert max(map(len, table)) <= max(columns, 80)
    assert (found == LONG[:8]) == (columns == 120)


def test_pictures_have_short_distinct_names(diagnosis):
    """Class: names that leave the bars of a picture no room."""
    shares = gnjax.plot(diagnosis).axes[1]
    written = [label.get_text().split("\n")[0] for label in shares.get_yticklabels()]
    assert len(set(written)) == 8
    assert max(map(len, written)) <= 30
    params = {"a" * 40 + "1": np.ones((1, 1)), "a" * 40 + "2": np.ones((1, 1))}
    model = lambda w, x: sum(x @ leaf for leaf in w.values()), params
    spectra = gnjax.block_spectra(model, np.array([[1.0], [2.0]]), by="parameter")
    labels = gnjax.plot(spectra).axes[0].get_xticklabels()
    written = [label.get_text().split("\n")[0] for label in labels]
    assert len(set(written)) == 2
    assert max(map(len, written)) <= 30
