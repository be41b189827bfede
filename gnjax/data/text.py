"""A text that ships with the package, as numbers of its characters, for language models."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnjax.data.archives import Archive, Member, read_archive

BUNDLED = Path(__file__).parent / "bundled"
OTHER = "\ufffd"  # stands for every character beyond the vocabulary

# scripts/make_python_topics.py makes this file and prints these hashes.
_TOPICS = Archive(
    "python_topics.txt.gz",
    "10a9c76a5591726326a54e9e9e08cafd50f2e1fb96efd2ee48844224c9b0f9d1",
    (
        Member(
            "python_topics.txt",
            "sha256:c140e36dee0a1621f7b8beb0eb63c9d866ad707f415c3af5a89a4de7ceb65b96",
        ),
    ),
)
TEXTS = ("python_topics",)


@dataclass(frozen=True, eq=False)
class Text:
    """A text as numbers: ``characters[tokens[i]]`` is character i.

    The characters are sorted by how often they occur, so that the number of a character is its
    rank, and ``counts`` says how often each of them occurs.

    >>> text = gnjax.data.load_text("python_topics")
    >>> "".join(text.characters[i] for i in text.tokens[:22])
    'The "assert" statement'
    """

    name: str
    tokens: NDArray[np.int64]  # (N,)
    characters: str
    counts: NDArray[np.int64]  # (v,)
    source: str
    licence: str


def load_text(name: str = "python_topics", *, vocabulary: int | None = None) -> Text:
    """The text of this name: "python_topics", the topics of Python 3.11's documentation.

    It has 466 thousand characters of English and of Python, of 103 kinds, and ships with this
    package; its hash is verified. With ``vocabulary`` = v, the v - 1 most frequent characters keep
    their numbers and all others become one character, the last.

    >>> text = gnjax.data.load_text("python_topics", vocabulary=16)
    >>> text.characters[:3], len(text.characters), int(text.tokens.max())
    (' et', 16, 15)
    """
    if name not in TEXTS:
        msg = f"no text is named {name!r}; the texts are {', '.join(TEXTS)}"
        raise ValueError(msg)
    members = read_archive(BUNDLED, _TOPICS)
    if members is None:
        msg = f"{BUNDLED} lacks {_TOPICS.name}; install gnjax again"
        raise ValueError(msg)
    text = members[_TOPICS.members[0].name].decode()
    # The most frequent character first, and of equally frequent ones the first of the alphabet.
    counted = sorted(Counter(text).items(), key=lambda pair: (-pair[1], pair[0]))
    ranked = [character for character, _ in counted]
    if vocabulary is not None:
        if not 2 <= vocabulary < len(ranked):
            msg = (
                f"vocabulary={vocabulary} of a text with {len(ranked)} characters; give one from 2 "
                f"to {len(ranked) - 1}, or leave it out for all characters"
            )
            raise ValueError(msg)
        ranked = [*ranked[: vocabulary - 1], OTHER]
    number = {character: rank for rank, character in enumerate(ranked)}
    tokens = np.array([number.get(character, len(ranked) - 1) for character in text], np.int64)
    source = "the topics of the documentation of Python 3.11.7, bundled, recorded hash verified"
    if vocabulary is not None:
        source += f"; the {vocabulary - 1} most frequent characters, the others as one"
    counts = np.bincount(tokens, minlength=len(ranked))
    licence = "PSF License Version 2 (Python Software Foundation)"
    return Text(name, tokens, "".join(ranked), counts, source, licence)


def sequences(
    text: Text, samples: int, length: int, *, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pieces x (samples, length) of the text, and y of the same shape: the character after each.

    The text is cut into pieces of ``length`` characters that do not overlap, of which ``samples``
    are drawn by ``seed`` and kept in the order of the text. Hence x[i, t + 1] = y[i, t].

    >>> text = gnjax.data.load_text("python_topics")
    >>> x, y = gnjax.data.sequences(text, samples=4, length=8)
    >>> x.shape, y.shape, bool((x[:, 1:] == y[:, :-1]).all())
    ((4, 8), (4, 8), True)
    """
    if min(samples, length) < 1:
        msg = f"samples={samples} and length={length} must be at least 1"
        raise ValueError(msg)
    pieces = (len(text.tokens) - 1) // length
    if samples > pieces:
        msg = f"samples={samples} of a text that has {pieces} pieces of length {length}"
        raise ValueError(msg)
    piece_indices = np.sort(np.random.default_rng(seed).choice(pieces, samples, replace=False))
    positions = piece_indices[:, None] * length + np.arange(length)  # in the text, (n, length)
    return text.tokens[positions], text.tokens[positions + 1]
