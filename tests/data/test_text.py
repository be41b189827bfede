"""The bundled text: the recorded bytes, numbers by rank, and sequences and what follows them."""

import collections
import gzip
import hashlib
import importlib.util
import platform
import re
from pathlib import Path

import numpy as np
import pytest

from gnjax import data
from gnjax.data import archives, text


def _written():
    return gzip.decompress((text.BUNDLED / "python_topics.txt.gz").read_bytes()).decode()


def test_the_bundled_file_is_the_recorded_one_and_has_its_licence():
    assert archives.verify_file(text.BUNDLED / text._TOPICS.name, text._TOPICS.sha256)
    digest = hashlib.sha256(_written().encode()).hexdigest()
    assert text._TOPICS.members[0].digest == f"sha256:{digest}"
    assert (
        "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2"
        in (text.BUNDLED / "LICENSE-python").read_text()
    )
    assert "LICENSE-python" in Path("pyproject.toml").read_text()


def test_the_text_is_made_again_from_the_same_python():
    if platform.python_version() != "3.11.7":
        pytest.skip("the bundled topics are those of Python 3.11.7")
    path = Path(__file__).parents[2] / "scripts" / "make_python_topics.py"
    spec = importlib.util.spec_from_file_location("make_python_topics", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.joined().decode() == _written()


def test_numbers_spell_the_text_and_are_ranks():
    found = data.load_text("python_topics")
    assert "".join(np.array(list(found.characters))[found.tokens]) == _written()
    counted = collections.Counter(_written())
    assert [counted[character] for character in found.characters] == found.counts.tolist()
    assert (np.diff(found.counts) <= 0).all()
    assert len(found.characters) == 103


def test_a_short_vocabulary_joins_the_rare_characters():
    whole, short = data.load_text(), data.load_text(vocabulary=20)
    np.testing.assert_array_equal(short.tokens, np.minimum(whole.tokens, 19))
    assert short.characters == whole.characters[:19] + text.OTHER
    assert short.counts.sum() == len(short.tokens)


def test_sequences_are_pieces_of_the_text_that_do_not_overlap():
    found = data.load_text()
    x, y = data.sequences(found, 50, 16, seed=3)
    spelled = ["".join(np.array(list(found.characters))[row]) for row in x]
    written = _written()
    assert all(piece in written for piece in spelled)
    for piece, row in zip(spelled, y, strict=True):
        after = {written[m.end()] for m in re.finditer(re.escape(piece), written)}
        assert found.characters[row[-1]] in after
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    every, _ = data.sequences(found, (len(found.tokens) - 1) // 16, 16)
    np.testing.assert_array_equal(every.ravel(), found.tokens[: every.size])


def test_a_changed_text_is_refused(monkeypatch, tmp_path):
    (tmp_path / "python_topics.txt.gz").write_bytes(gzip.compress(b"another text"))
    monkeypatch.setattr(text, "BUNDLED", tmp_path)
    with pytest.raises(ValueError, match="sha256"):
        data.load_text()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: data.load_text("shakespeare"), "the texts are python_topics"),
        (lambda: data.load_text(vocabulary=1), "from 2 to 102"),
        (lambda: data.load("python_topics"), "load_text"),
        (lambda: data.sequences(data.load_text(), 10**6, 8), "pieces of length 8"),
        (lambda: data.sequences(data.load_text(), 0, 8), "at least 1"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
