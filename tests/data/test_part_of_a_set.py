"""A part of a larger set: one hash, whether its file is there or is cut out of the whole set.

The class: another file, another order of the images or another data set in the place of the part.
"""

from __future__ import annotations

import hashlib
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gnjax import data
from gnjax.cli.main import main
from gnjax.data import archives, datasets, places, published
from gnjax.data.archives import Archive, Member

ROOT = Path(__file__).parents[2]
COUNTS, IN_A_BATCH = (4, 2, 3), 6
INDICES = [0, 1, 2, 3, 6, 7, 12, 13, 14]  # in the order of the whole set, counted by hand


@pytest.fixture
def images() -> NDArray[np.uint8]:
    """18 images: a row of 3,072 pixels for each, as planes."""
    return np.random.default_rng(7).integers(0, 256, (18, 3072), dtype=np.uint8)


@pytest.fixture
def part_file(images: NDArray[np.uint8]) -> bytes:
    """train_part.bin, written from the format's description: label, then the three planes."""
    return b"".join(bytes([i % 10]) + images[i].tobytes() for i in INDICES)


@pytest.fixture
def whole(
    images: NDArray[np.uint8],
    part_file: bytes,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> dict[str, bytes]:
    """Registers a CIFAR-10 of three batches and its part; returns the batches."""
    batches = {}
    for b in range(3):
        rows = slice(IN_A_BATCH * b, IN_A_BATCH * (b + 1))
        labels = [i % 10 for i in range(18)[rows]]
        batches[f"data_batch_{b + 1}"] = pickle.dumps(
            {b"data": images[rows], b"labels": labels}, protocol=2
        )
    members = tuple(
        Member(name, f"md5:{hashlib.md5(batch, usedforsecurity=False).hexdigest()}")
        for name, batch in batches.items()
    )
    archive = Archive("cifar-10-python.tar.gz", "", members, inside="cifar-10-batches-py")
    larger = replace(
        published.PUBLISHED["cifar10"],
        sizes={"train": 18},
        archives={"train": (archive,)},
        mirrors=(),
    )
    sha256 = hashlib.sha256(part_file).hexdigest()
    member = Member("train_part.bin", f"sha256:{sha256}")
    own = Archive("train_part.bin", sha256, (member,))
    cut = {"train": partial(archives.cifar_rows, counts=COUNTS)}
    part = replace(
        published.PUBLISHED["cifar10_part"],
        sizes={"train": 9},
        archives={"train": (own,)},
        part=published.Part("cifar10", larger, cut),
    )
    sets = {**published.PUBLISHED, "cifar10": larger, "cifar10_part": part}
    monkeypatch.setattr(datasets, "PUBLISHED", sets)
    monkeypatch.setattr(places, "cache_folder", lambda name: tmp_path / "cache" / name)
    monkeypatch.setenv("GNJAX_DATA", str(tmp_path / "data"))
    return batches


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def pack(path: Path, batches: dict[str, bytes], tmp_path: Path) -> None:
    for name, batch in batches.items():
        put(tmp_path / "loose" / name, batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tmp_path / "loose", "cifar-10-batches-py")


def assert_is_the_part(loaded: data.Dataset, images: NDArray[np.uint8]) -> None:
    for i, row, label in zip(INDICES, loaded.inputs, loaded.labels, strict=True):
        planes = images[i].reshape(3, 32, 32)
        for colour in range(3):
            np.testing.assert_array_equal(255 * row.reshape(32, 32, 3)[..., colour], planes[colour])
        assert label == i % 10
    assert "published hash verified" in loaded.source


@pytest.mark.parametrize(
    "place", ["data/cifar10_part", "data/cifar10", "data", "cache/cifar10_part"]
)
def test_the_file_of_the_part(
    whole: object, part_file: bytes, images: NDArray[np.uint8], tmp_path: Path, place: str
) -> None:
    assert data.state("cifar10_part") == "not here"
    put(tmp_path / place / "train_part.bin", part_file)
    assert str(tmp_path / place) in data.state("cifar10_part")
    assert_is_the_part(data.load("cifar10_part"), images)


@pytest.mark.parametrize("place", ["data/cifar10", "data", "cache/cifar10"])
def test_the_archive_of_the_whole_set(
    whole: dict[str, bytes],
    images: NDArray[np.uint8],
    tmp_path: Path,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "verify_file", lambda *_: True)  # this archive is not published
    pack(tmp_path / place / "cifar-10-python.tar.gz", whole, tmp_path)
    assert data.state("cifar10_part") != "not here"
    assert_is_the_part(data.load("cifar10_part"), images)


def changed(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed, r"sha256.*damaged"),
        (lambda content: content[:-1], r"sha256.*damaged"),
        (lambda content: content[:-3073], r"sha256.*damaged"),
        (lambda content: b"", r"sha256.*damaged"),
        (lambda content: content + b"\0", r"sha256.*damaged"),
        (lambda content: content[3073:] + content[:3073], r"sha256.*damaged"),  # another order
    ],
    ids=["a byte", "a byte less", "an image less", "empty", "a byte more", "another order"],
)
def test_another_file_is_refused_even_beside_the_whole_set(
    whole: dict[str, bytes],
    part_file: bytes,
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    message: str,
) -> None:
    put(tmp_path / "data/cifar10/train_part.bin", damage(part_file))
    pack(tmp_path / "data/cifar10/cifar-10-python.tar.gz", whole, tmp_path)
    with pytest.raises(ValueError, match=rf"train_part\.bin.*{message}.*[rR]eplace it"):
        data.load("cifar10_part")


def test_a_cut_that_does_not_give_the_published_hash_is_refused(
    whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own mistake, such as other counts, is found as a damaged file is."""
    spec = datasets.PUBLISHED["cifar10_part"]
    other = {"train": partial(archives.cifar_rows, counts=(4, 3, 2))}
    wrong = replace(spec, part=replace(spec.part, cut=other))  # type: ignore[type-var]
    monkeypatch.setattr(datasets, "PUBLISHED", {**datasets.PUBLISHED, "cifar10_part": wrong})
    pack(tmp_path / "data/cifar-10-python.tar.gz", whole, tmp_path)
    with pytest.raises(ValueError, match=r"train_part\.bin as made from cifar10.*sha256"):
        data.load("cifar10_part")


def test_a_missing_part_is_an_error_that_names_its_files(whole: object) -> None:
    with pytest.raises(data.DataUnavailableError) as raised:
        data.load("cifar10_part")
    for text in ("cifar10_part was not found", "train_part.bin or cifar-10-python.tar.gz"):
        assert text in str(raised.value)


def test_the_first_samples_keep_the_order_of_the_file(
    whole: object, part_file: bytes, tmp_path: Path
) -> None:
    put(tmp_path / "data/train_part.bin", part_file)
    everything, first = (data.load("cifar10_part", first=n) for n in (9, 5))
    np.testing.assert_array_equal(first.inputs, everything.inputs[:5])
    np.testing.assert_array_equal(first.labels, everything.labels[:5])
    assert "the first 5 of 9 samples" in first.source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "digits", "first": 0}, "at least 1"),
        ({"name": "digits", "first": 1798}, "at most 1797"),
        ({"name": "digits", "first": 3, "samples": 3}, "give one of them"),
        ({"name": "gaussian", "first": 3}, "samples=3"),
        ({"name": "photo_patches", "first": 3}, "samples=3"),
    ],
)
def test_bad_requests(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data.load(**arguments)  # type: ignore[arg-type]


def test_the_shell_says_where_the_part_comes_from(
    whole: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    for text in ("cifar10_part:", "train_part.bin", "GNJAX_DATA", "files of cifar10", "fetch"):
        assert text in last


def test_the_real_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is at hand: the class counts of the first batch, and the indices of its README."""
    beside = ROOT.parent / "shared" / "data"
    if data.state("cifar10_part") == "not here":
        if not (beside / "cifar10" / "train_part.bin").is_file():
            pytest.skip("CIFAR-10's part is not here")
        monkeypatch.setenv("GNJAX_DATA", str(beside))
    loaded = data.load("cifar10_part", first=1_000)
    assert loaded.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]  # as everyone prints them
    np.testing.assert_array_equal(
        255 * loaded.inputs[0].reshape(32, 32, 3)[0, 0], [59, 62, 63]
    )  # the frog's first pixel
    assert loaded.inputs.shape == (1_000, 3_072)
