"""Published files as bytes: found in a folder, verified by their hash, and only then parsed.

Nothing is expanded beyond the size that its content is to have. A tar file that has a published
hash is verified before it is opened; a gzip file may have been packed anew, as Debian does, and
its content is verified.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # (n, *shape)
Labels = NDArray[np.int64]  # (n,)

_OWN = 2**28  # bytes to which a gzip file of the user's own may expand
_RANK = 8  # the most axes of an idx file

# What the documentation of pickle and the code of tarfile raise for bytes that are not theirs.
MALFORMED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    struct.error,
    tarfile.TarError,
    zlib.error,
)


@dataclass(frozen=True)
class Member:
    """One file after decompression, with the published ``algorithm:hex`` of its bytes."""

    name: str
    digest: str | None = None  # None: no hash is published, and only the header is checked
    most: int | None = None  # bytes; None: nothing is published


@dataclass(frozen=True)
class Archive:
    """One published file, and its members that belong to one split."""

    name: str
    sha256: str
    members: tuple[Member, ...]
    inside: str = ""  # the folder within a tar file
    size: int = 0  # bytes of this file, for a download


def read_archive(folder: Path, archive: Archive) -> dict[str, bytes] | None:
    """The decompressed members that ``folder`` holds, each verified; None where it lacks one."""
    members = _read_loose(folder, archive)
    if members is None:
        members = _read_tar(folder, archive)
    if members is not None:
        for member in archive.members:
            verify(members[member.name], member.digest, f"{member.name} in {folder}")
    return members


def holds(folder: Path, archive: Archive) -> bool:
    """Whether the folder has the files; their contents are not looked at."""
    loose = [_loose_path(folder, archive, member) for member in archive.members]
    return all(loose) or _tar_path(folder, archive) is not None


def verify(data: bytes, digest: str | None, name: str) -> None:
    """Raise an error unless ``data`` has the published hash, given as ``algorithm:hex``."""
    if digest is None:
        return
    algorithm, expected = digest.split(":")
    hexadecimal = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    if hexadecimal != expected:
        msg = (
            f"{name}: its {algorithm} is {hexadecimal} but {expected} was published; the file is "
            "damaged or belongs to another data set. Replace it, or keep every data set in a "
            "sub-folder of its own name (mnist/, fashion_mnist/, cifar10/)"
        )
        raise ValueError(msg)


def verify_file(path: Path, sha256: str) -> bool:
    """Whether the file's own bytes, still compressed, have this sha256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _read_loose(folder: Path, archive: Archive) -> dict[str, bytes] | None:
    """Members that lie in the folder as files of their own, plain or gzipped."""
    contents: dict[str, bytes] = {}
    for member in archive.members:
        path = _loose_path(folder, archive, member)
        if path is None:
            return None
        read_member = _gunzip if path.suffix == ".gz" else _read_plain
        contents[member.name] = read_member(path, member)
    return contents


def _loose_path(folder: Path, archive: Archive, member: Member) -> Path | None:
    # Some tools unpack train-images-idx3-ubyte under the name train-images.idx3-ubyte.
    stems = (member.name, member.name.replace("-idx", ".idx"))
    places = (folder / archive.inside, folder)
    candidates = [
        place / (stem + ending) for place in places for stem in stems for ending in ("", ".gz")
    ]
    return next((path for path in candidates if path.is_file()), None)


def _read_plain(path: Path, member: Member) -> bytes:
    size = path.stat().st_size
    if member.most is not None and size > member.most:
        msg = f"{path} has {size:,} bytes and {member.name} at most {member.most:,}; replace it"
        raise ValueError(msg)
    return path.read_bytes()


def _gunzip(path: Path, member: Member) -> bytes:
    most = _OWN if member.most is None else member.most
    try:
        with gzip.open(path) as file:
            content = file.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        msg = f"{path} is not a whole gzip file ({error}); replace it"
        raise ValueError(msg) from error
    if len(content) > most:
        remedy = "unpack it with gunzip first" if member.most is None else "replace it"
        msg = f"{path} expands to more than {most:,} bytes, the most that is taken; {remedy}"
        raise ValueError(msg)
    return content


def _read_tar(folder: Path, archive: Archive) -> dict[str, bytes] | None:
    """Members of a tar file, compressed or not; nothing is written to disk."""
    path = _tar_path(folder, archive)
    if path is None:
        return None
    packed = path.suffix == ".gz"
    if packed and archive.sha256 and not verify_file(path, archive.sha256):
        msg = f"{path} does not have the sha256 {archive.sha256} that was published; replace it"
        raise ValueError(msg)
    try:
        with tarfile.open(path, "r:gz" if packed else "r:") as tar:
            return dict(_extracted(tar, archive))
    except MALFORMED as error:
        msg = f"{path} is not the whole {archive.name} ({error}); replace it"
        raise ValueError(msg) from error


def _tar_path(folder: Path, archive: Archive) -> Path | None:
    if ".tar" not in archive.name:
        return None
    names = (archive.name, archive.name.removesuffix(".gz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _extracted(tar: tarfile.TarFile, archive: Archive) -> Iterator[tuple[str, bytes]]:
    """Each member of the archive with its bytes, in the order of the file."""
    members = {f"{archive.inside}/{member.name}": member for member in archive.members}
    for entry in tar:
        if entry.size < 0:
            msg = f"{entry.name!r:.80} has a negative size"
            raise ValueError(msg)
        member = members.pop(entry.name, None)
        if member is not None:
            yield member.name, _extract(tar, entry, _OWN if member.most is None else member.most)
        if not members:
            return
    msg = f"it lacks {', '.join(members)}"
    raise KeyError(msg)


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, most: int) -> bytes:
    file = tar.extractfile(entry) if entry.isreg() and not entry.issparse() else None
    if file is None or entry.size > most:
        msg = f"{entry.name} is not a regular file of at most {most:,} bytes"
        raise ValueError(msg)
    return file.read()


def parse_idx(data: bytes, name: str) -> Pixels:
    """An idx file of unsigned bytes: 0, 0, 0x08, rank, big-endian sizes, then the elements."""
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        msg = f"{name} does not begin as an idx file of unsigned bytes; replace it"
        raise ValueError(msg)
    rank = data[3]
    start = 4 + 4 * rank
    readable = rank <= _RANK and len(data) >= start
    shape = struct.unpack(f">{rank}I", data[4:start]) if readable else ()
    elements = math.prod(shape)
    if not elements or not shape or len(data) - start != elements:
        msg = (
            f"{name} announces the shape {shape} but holds {max(len(data) - start, 0)} bytes of "
            "elements; it is cut short or not an idx file, replace it"
        )
        raise ValueError(msg)
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def parse_idx_pair(members: Mapping[str, bytes]) -> tuple[Pixels, Labels]:
    """Images and labels from the two idx files of a split, in that order."""
    (images_name, images_data), (labels_name, labels_data) = members.items()
    images = parse_idx(images_data, images_name)
    labels = parse_idx(labels_data, labels_name)
    if images.ndim < 2 or labels.ndim != 1 or len(images) != len(labels) or len(labels) == 0:
        msg = (
            f"{images_name} has shape {images.shape} and {labels_name} {labels.shape}; they must "
            "be (n, height, width) and (n,) with the same n >= 1"
        )
        raise ValueError(msg)
    return images, labels.astype(np.int64)


def parse_cifar(members: Mapping[str, bytes]) -> tuple[Pixels, Labels]:
    """CIFAR-10's batches, whose rows are 3 colour planes of 32 x 32, as (n, 32, 32, 3)."""
    batches = [_parse_batch(data, name) for name, data in members.items()]
    planes = np.concatenate([pixels for pixels, _ in batches])
    labels = np.concatenate([labels for _, labels in batches])
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


def parse_cifar_rows(members: Mapping[str, bytes]) -> tuple[Pixels, Labels]:
    """CIFAR-10's binary form, a label and 3 planes of 32 x 32 for each image, as (n, 32, 32, 3)."""
    (data,) = members.values()
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + 3072)
    pixels = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return pixels, rows[:, 0].astype(np.int64)


def cifar_rows(batches: Mapping[str, bytes], counts: Sequence[int]) -> bytes:
    """CIFAR-10's binary form of the first counts[i] images of the i-th of the pickled batches."""
    parts = []
    for (name, data), count in zip(batches.items(), counts, strict=True):
        pixels, labels = _parse_batch(data, name)
        labels = labels[:count, None].astype(np.uint8)
        parts.append(np.concatenate([labels, pixels[:count]], axis=1))
    return np.concatenate(parts).tobytes()


def _parse_batch(data: bytes, name: str) -> tuple[Pixels, Labels]:
    """The images as rows of pixels, and the labels, of one pickled batch of CIFAR-10."""
    batch = unpickle_arrays(data, name)
    pixels = batch.get(b"data") if isinstance(batch, dict) else None
    labels = np.asarray(batch.get(b"labels") if isinstance(batch, dict) else None)
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape != (labels.size, 3072)
        or labels.ndim != 1
    ):
        msg = f"{name} does not hold uint8 rows of 3072 pixels with one label each; replace it"
        raise ValueError(msg)
    return pixels, labels.astype(np.int64)


def unpickle_arrays(data: bytes, name: str) -> Any:
    """Unpickle plain containers and numpy arrays; a pickle that asks for more is refused."""
    try:
        return _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except MALFORMED as error:
        msg = f"{name} is not a pickle of plain arrays ({error}); replace it"
        raise ValueError(msg) from error


def _dtype(spec: str | bytes, *_: object) -> np.dtype[Any]:
    # Python 2 pickles carry align and copy as integers, which numpy >= 2.4 warns about.
    return np.dtype(spec.decode("ascii") if isinstance(spec, bytes) else spec)


class _ArrayUnpickler(pickle.Unpickler):
    """The names that an array's pickle needs, and no others."""

    _names: Mapping[tuple[str, str], Callable[..., Any]] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): _dtype,
    }
    _imports = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("_codecs", "encode"),  # how protocol 2 writes bytes from Python 3
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._names:
            return self._names[module, name]
        if (module, name) in self._imports:
            return super().find_class(module, name)
        msg = f"it asks for {module}.{name}, which no array needs"
        raise pickle.UnpicklingError(msg)
