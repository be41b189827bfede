"""Loading by name: published sets, sets made here, and a user's own files."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnjax.data import computed, places
from gnjax.data.archives import parse_idx_pair
from gnjax.data.published import FOLDER_ARCHIVES, PUBLISHED
from gnjax.data.text import TEXTS


@dataclass(frozen=True, eq=False)
class Dataset:
    """n labelled samples as rows: ``inputs`` is the transpose of the papers' X (d x n).

    >>> images = gnjax.data.load("digits", samples=50)
    >>> images.inputs.shape, images.shape, images.classes
    ((50, 64), (8, 8), 10)
    """

    name: str
    split: str
    inputs: NDArray[np.float64]  # (n, d)
    labels: NDArray[np.int64]  # (n,)
    shape: tuple[int, ...]  # of one sample, (28, 28) or (32, 32, 3); its product is d
    classes: int
    source: str  # one line: what the data is, where it came from, what was verified
    licence: str


def one_hot(labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Y with Y[i, labels[i]] = 1 and zeros elsewhere, (n, classes).

    >>> gnjax.data.one_hot(np.array([1, 0]), 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.size == 0 or not np.issubdtype(labels.dtype, np.integer):
        msg = f"labels of shape {labels.shape} and type {labels.dtype}; give n integers, n >= 1"
        raise ValueError(msg)
    if labels.min() < 0 or labels.max() >= classes:
        msg = (
            f"labels run from {labels.min()} to {labels.max()}, outside 0..{classes - 1}; "
            "raise classes or renumber the labels"
        )
        raise ValueError(msg)
    encoded = np.zeros((labels.size, classes))
    encoded[np.arange(labels.size), labels] = 1.0
    return encoded


@dataclass(frozen=True)
class _Samples:
    """Samples as a source gives them, before a subset is drawn and they become float64 rows."""

    values: NDArray[Any]  # (n, *shape)
    labels: NDArray[np.int64]  # (n,)
    classes: int
    source: str
    licence: str
    scale: float = 1.0  # by which the values are divided, 255 for bytes


_LICENCES: Mapping[str, str] = MappingProxyType(
    {
        "digits": "CC BY 4.0 (UCI, Alpaydin and Kaynak)",
        "gaussian": "synthetic",
        "photo_patches": "CC BY 2.0 (photographs as shipped with scikit-learn)",
        "folder": "the user's own",
    }
)
_GAUSSIAN = MappingProxyType({"samples": 1_000, "dimension": 64, "classes": 10})
_PATCHES = 5_000  # how many of "photo_patches" are made where nobody says


def names() -> tuple[str, ...]:
    """Every name that ``load`` knows; "folder" stands for idx files of the user's own.

    >>> "fashion_mnist_5000" in gnjax.data.names()
    True
    """
    return (*PUBLISHED, *_LICENCES)


def unknown_name(name: str) -> str:
    """The message about a name that is not a data set, with the nearest name that is."""
    if name in TEXTS:
        return f"{name} is a text; load it with gnjax.data.load_text({name!r})"
    similar = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {similar[0]!r}? " if similar else ""
    return f"no data set is named {name!r}; {hint}The names are {', '.join(names())}"


def load(
    name: str,
    *,
    split: str = "train",
    samples: int | None = None,
    first: int | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
    dimension: int | None = None,
    classes: int | None = None,
) -> Dataset:
    """The data set of exactly this name; never another one in its place.

    Published sets are looked for only in ``directory`` if it is given, else in GNJAX_DATA, the
    system's folder, the cache and the mirrors. They are verified before they are parsed. If a set
    is not found, a ``DataUnavailableError`` is raised. "folder" reads a user's own idx files under
    MNIST's names from ``directory``. ``samples`` are drawn without replacement by ``seed`` and
    keep their order; None takes all of them (1,000 of "gaussian", 5,000 "photo_patches").
    ``first`` takes the first samples in the order of the files instead of drawing any.
    ``dimension`` and ``classes`` are for "gaussian".

    "cifar10_part" has the training images 0 to 3,999 of CIFAR-10 and the first 1,017 of each
    further batch of 10,000, in this order: 8,068. It is read from the file train_part.bin, or
    taken out of the whole archive of CIFAR-10, and has the same hash either way.

    >>> images = gnjax.data.load("fashion_mnist_5000", samples=100, seed=0)  # bundled
    >>> images.inputs.shape, images.labels.shape
    ((100, 784), (100,))
    """
    _check_request(name, split, samples, directory, dimension, classes)
    _check_first(name, first, samples)
    if name == "gaussian":
        return _dataset(name, split, _gaussian(samples, dimension, classes, seed))
    if name == "photo_patches":
        return _dataset(name, split, _photo_patches(samples or _PATCHES, seed))
    if name == "digits":
        source = "scikit-learn's digits, bundled with scikit-learn"
        all_samples = _Samples(*computed.digits(), 10, source, _LICENCES[name])
    elif name == "folder":
        all_samples = _folder(Path(directory or "").expanduser(), split)
    else:
        all_samples = _published(name, split, directory)
    return _dataset(name, split, _subset(all_samples, first, samples, seed))


def fetch(name: str, *, progress: Callable[[str], Any] | None = None) -> list[Path]:
    """Put a published data set into the cache, all of its splits; the paths of its files.

    >>> gnjax.data.fetch("no such data")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: ...
    """
    if name not in PUBLISHED or PUBLISHED[name].bundled:
        msg = f"{name} needs no fetching, it takes no network"
        raise ValueError(msg if name in names() else unknown_name(name))
    data = PUBLISHED[name]
    # A part of a larger data set is made from the files of the larger one, which are downloaded.
    source, _ = places.fetched_as(name, data)
    # By their names, as one archive may have all splits.
    archives = {archive.name: archive for files in source.archives.values() for archive in files}
    return [
        places.download(name, data, archive, progress=progress) for archive in archives.values()
    ]


def state(name: str) -> str:
    """Where ``load(name)`` would take the data from, in words; no file is opened or verified.

    >>> gnjax.data.state("fashion_mnist_5000")
    'bundled'
    """
    if name == "folder":
        return "your own idx files, with directory="
    if name not in PUBLISHED:
        return "made here"
    data = PUBLISHED[name]
    for folder, where in places.standing_places(name, data):
        splits = [split for split in data.archives if places.has_split(folder, data, split)]
        if splits:
            text = "bundled" if data.bundled else f"in folder {folder} ({where})"
            return text if len(splits) == len(data.archives) else f"{text}, {splits[0]} split alone"
    source, cache = places.fetched_as(name, data)
    archives = (archive for files in source.archives.values() for archive in files)
    return "in cache" if all((cache / a.name).is_file() for a in archives) else "not here"


def describe(name: str) -> tuple[str, str, str, str, str]:
    """(name, shape, samples, state, licence) of a data set in words: a row of the table of all."""
    if name in PUBLISHED:
        data = PUBLISHED[name]
        samples = " + ".join(f"{size:,}" for size in data.sizes.values())
        return name, _times(data.shape), samples, state(name), data.licence
    shape, samples = {
        "digits": ("8x8", "1,797"),
        "gaussian": ("any", "any"),
        "photo_patches": (_times((computed.PATCH, computed.PATCH, 3)), "any"),
        "folder": ("any", "any"),
    }[name]
    return name, shape, samples, state(name), _LICENCES[name]


def origin_of_part(name: str) -> str:
    """Where the files of a part of a larger data set come from, in words; "" for all others."""
    part = PUBLISHED[name].part if name in PUBLISHED else None
    if part is None:
        return ""
    data = PUBLISHED[name]
    files = " and ".join(archive.name for split in data.archives.values() for archive in split)
    folders = ", ".join(f"{sub}/" for sub in data.subfolders)
    return (
        f"{data.title}; {files} in a folder {folders} under GNJAX_DATA or in "
        f"{places.cache_folder(name)}, or made from the files of {part.name}, which "
        f"`python -m gnjax data fetch {name}` fetches; one hash for both"
    )


def _times(shape: tuple[int, ...]) -> str:
    """A shape as text, such as "32x32x3"."""
    return "x".join(str(length) for length in shape)


def _check_request(
    name: str,
    split: str,
    samples: int | None,
    directory: str | Path | None,
    dimension: int | None,
    classes: int | None,
) -> None:
    """Refuse arguments of :func:`load` that do not belong to this data set, or are below 1."""
    if name not in names():
        raise ValueError(unknown_name(name))
    of_folder = FOLDER_ARCHIVES if name == "folder" else ("train",)
    splits = tuple(PUBLISHED[name].archives if name in PUBLISHED else of_folder)
    if split not in splits:
        msg = f"{name} has no split {split!r}; choose from {', '.join(splits)}"
        raise ValueError(msg)
    takes_directory = name == "folder" or (name in PUBLISHED and not PUBLISHED[name].bundled)
    if directory is not None and not takes_directory:
        msg = f"{name} is not read from a directory; leave directory out"
        raise ValueError(msg)
    if name == "folder" and directory is None:
        msg = 'load("folder") reads your own idx files; say where they are with directory='
        raise ValueError(msg)
    if name != "gaussian" and (dimension is not None or classes is not None):
        msg = f"dimension and classes shape the gaussian data, {name} has its own; leave them out"
        raise ValueError(msg)
    for label, number in (("samples", samples), ("dimension", dimension), ("classes", classes)):
        if number is not None and number < 1:
            msg = f"{label}={number}; it must be at least 1"
            raise ValueError(msg)


def _check_first(name: str, first: int | None, samples: int | None) -> None:
    """Refuse ``first`` of :func:`load` beside ``samples``, for data made here, or below 1."""
    if first is None:
        return
    if samples is not None:
        msg = f"first={first} takes the first and samples={samples} draws some; give one of them"
        raise ValueError(msg)
    if name in ("gaussian", "photo_patches"):
        msg = f"{name} is made to the number that samples= asks for; give samples={first}"
        raise ValueError(msg)
    if first < 1:
        msg = f"first={first}; it must be at least 1"
        raise ValueError(msg)


def _published(name: str, split: str, directory: str | Path | None) -> _Samples:
    """One split of a published data set, from verified files."""
    data = PUBLISHED[name]
    members, where = places.read_files(name, data, split, directory)
    images, labels = data.parse(members)
    expected = (data.sizes[split], *data.shape)
    if images.shape != expected or labels.min() < 0 or labels.max() >= data.classes:
        msg = (
            f"{name} has images of shape {images.shape} with labels up to {labels.max()}, not "
            f"{expected} with labels below {data.classes}; its files are not what they are named"
        )
        raise ValueError(msg)
    source = f"{data.title}, {split} split, from {where}, published hash verified"
    return _Samples(images, labels, data.classes, source, data.licence, scale=255.0)


def _folder(directory: Path, split: str) -> _Samples:
    """One split of the user's own idx files."""
    members = places.read_all(directory, FOLDER_ARCHIVES[split])
    if members is None:
        archive_names = " and ".join(archive.name for archive in FOLDER_ARCHIVES[split])
        msg = f"{directory} lacks {archive_names} (plain or gzipped); put them there"
        raise places.DataUnavailableError(msg)
    images, labels = parse_idx_pair(members)
    images_bytes = next(iter(members.values()))
    source = (
        f"idx files of the folder {directory.resolve().name!r}, {split} split, headers checked, "
        f"no published hash (images have sha256 {hashlib.sha256(images_bytes).hexdigest()})"
    )
    return _Samples(images, labels, int(labels.max()) + 1, source, _LICENCES["folder"], 255.0)


def _gaussian(
    samples: int | None, dimension: int | None, classes: int | None, seed: int
) -> _Samples:
    """Gaussian data with its provenance; what is None has the default of "gaussian"."""
    n = samples or _GAUSSIAN["samples"]
    d = dimension or _GAUSSIAN["dimension"]
    k = classes or _GAUSSIAN["classes"]
    values, labels = computed.gaussian(n, d, k, seed)
    source = f"standard normal inputs, d={d}, labels of a random linear map, seed {seed}"
    return _Samples(values, labels, k, source, _LICENCES["gaussian"])


def _photo_patches(samples: int, seed: int) -> _Samples:
    """Crops of photographs with their provenance."""
    values, labels = computed.photo_patches(samples, seed)
    source = (
        f"{samples} crops (32x32x3) of scikit-learn's sample photographs "
        f"{' and '.join(computed.PHOTOGRAPHS)}, class = region, seed {seed}; not CIFAR-10"
    )
    return _Samples(values, labels, 10, source, _LICENCES["photo_patches"])


def _subset(all_samples: _Samples, first: int | None, samples: int | None, seed: int) -> _Samples:
    """The first samples, or some drawn by the seed, in the order of the files; else all of them."""
    n = len(all_samples.labels)
    for label, number in (("first", first), ("samples", samples)):
        if number is not None and number > n:
            msg = f"{label}={number} of a data set that has {n}; ask for at most {n}"
            raise ValueError(msg)
    if first is not None:
        indices, note = np.arange(first), f"the first {first} of {n} samples"
    elif samples is not None:
        indices = np.sort(np.random.default_rng(seed).choice(n, samples, replace=False))
        note = f"{samples} of {n} samples drawn with seed {seed}"
    else:
        return all_samples
    return replace(
        all_samples,
        values=all_samples.values[indices],
        labels=all_samples.labels[indices],
        source=f"{all_samples.source}; {note}",
    )


def _dataset(name: str, split: str, samples: _Samples) -> Dataset:
    """The data set of samples, whose values become float64 rows, divided by their scale.

    A subset is drawn before, because float64 rows are eight times the size of pixels.
    """
    n, *shape = samples.values.shape
    return Dataset(
        name=name,
        split=split,
        inputs=samples.values.reshape(n, -1) / samples.scale,
        labels=samples.labels,
        shape=tuple(shape),
        classes=samples.classes,
        source=samples.source,
        licence=samples.licence,
    )
