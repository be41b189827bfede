"""Published files as bytes: found in a folder, verified by their hash, and only then parsed.

A packed tar file is verified before it is opened. A gzip file may have been packed anew, as Debian
does, and its content is verified.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import pickle
import struct
import tarfile
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # (n, *shape)
Labels = NDArray[np.int64]  # (n,)

_MOST_AXES = 8  # of an idx file: a header that announces more is damaged

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


@dataclass(frozen=True)
class Archive:
    """One published file, and its members that belong to one split."""

    name: str
    sha256: str
    members: tuple[Member, ...]
    inside: str = ""  # the folder within a tar file


def read_archive(folder: Path, archive: Archive) -> dict[str, bytes] | None:
    """The decompressed bytes of an archive's members by name, verified; None where one is lacking.

    The ``folder`` has the members as single files, plain or gzipped, or it has the archive itself
    where that is a tar file.
    """
    paths = [_loose_path(folder, archive, member) for member in archive.members]
    members: dict[str, bytes] | None
    if all(paths):
        names = [member.name for member in archive.members]
        members = {name: _content(path) for name, path in zip(names, paths, strict=True) if path}
    else:
        members = _read_tar(folder, archive)
    if members is not None:
        for member in archive.members:
            verify(members[member.name], member.digest, f"{member.name} in {folder}")
    return members


def holds(folder: Path, archive: Archive) -> bool:
    """Whether the folder has the members or the tar file; their contents are not looked at."""
    member_paths = [_loose_path(folder, archive, member) for member in archive.members]
    return all(member_paths) or _tar_path(folder, archive) is not None


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


def _loose_path(folder: Path, archive: Archive, member: Member) -> Path | None:
    """The file of a member that lies unpacked in the folder, plain or gzipped; None without one."""
    # Some tools unpack train-images-idx3-ubyte under the name train-images.idx3-ubyte.
    stems = (member.name, member.name.replace("-idx", ".idx"))
    parents = (folder / archive.inside, folder)
    candidates = [
        parent / (stem + ending) for parent in parents for stem in stems for ending in ("", ".gz")
    ]
    return next((path for path in candidates if path.is_file()), None)


def _content(path: Path) -> bytes:
    """The bytes of a file; of one that ends in .gz those that were packed."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        msg = f"{path} is not a whole gzip file ({error}); replace it"
        raise ValueError(msg) from error


def _read_tar(folder: Path, archive: Archive) -> dict[str, bytes] | None:
    """The members of a tar file by name, read in one pass; None where the folder has none."""
    path = _tar_path(folder, archive)
    if path is None:
        return None
    packed = path.suffix == ".gz"
    # The published hash is that of the packed file; its members are verified one by one later.
    if packed and archive.sha256 and not verify_file(path, archive.sha256):
        msg = f"{path} does not have the sha256 {archive.sha256} that was published; replace it"
        raise ValueError(msg)
    # from a path within the tar file to the name of the member
    still_needed = {f"{archive.inside}/{member.name}": member.name for member in archive.members}
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz" if packed else "r:") as tar:
            for entry in tar:
                file = tar.extractfile(entry) if entry.name in still_needed else None
                if file is not None:
                    contents[still_needed.pop(entry.name)] = file.read()
                if not still_needed:
                    return contents
        msg = f"it lacks {', '.join(still_needed)}"
        raise KeyError(msg)
    except MALFORMED as error:
        msg = f"{path} is not the whole {archive.name} ({error}); replace it"
        raise ValueError(msg) from error


def _tar_path(folder: Path, archive: Archive) -> Path | None:
    """The path of an archive that is a tar file, gzipped or not; None if it is none, or absent."""
    if ".tar" not in archive.name:
        return None
    names = (archive.name, archive.name.removesuffix(".gz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def parse_idx(data: bytes, name: str) -> Pixels:
    """The array in an idx file of unsigned bytes, the format of MNIST.

    The file has the bytes 0, 0, 0x08 and the number of axes, then the length of each axis as a
    big-endian integer of four bytes, then the elements.
    """
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        msg = f"{name} does not begin as an idx file of unsigned bytes; replace it"
        raise ValueError(msg)
    axes = data[3]
    start = 4 + 4 * axes  # of the elements
    is_readable = axes <= _MOST_AXES and len(data) >= start
    shape = struct.unpack(f">{axes}I", data[4:start]) if is_readable else ()
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
    """Images (n, 32, 32, 3) and labels (n,) of all the pickled batches of CIFAR-10, in order.

    A row of a batch is an image as three planes of 32 x 32, red, green and blue.
    """
    batches = [_parse_batch(data) for data in members.values()]
    planes = np.concatenate([pixels for pixels, _ in batches])
    labels = np.concatenate([labels for _, labels in batches])
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


def parse_cifar_rows(members: Mapping[str, bytes]) -> tuple[Pixels, Labels]:
    """Images (n, 32, 32, 3) and labels (n,) from the one file of CIFAR-10's binary form.

    Each image is a label, one byte, and three planes of 32 x 32 bytes.
    """
    (data,) = members.values()
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    pixels = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return pixels, rows[:, 0].astype(np.int64)


def cifar_rows(batches: Mapping[str, bytes], counts: Sequence[int]) -> bytes:
    """What :func:`parse_cifar_rows` reads, of the first ``counts[i]`` images of each i-th batch."""
    rows_of_batches = []
    for data, count in zip(batches.values(), counts, strict=True):
        pixels, labels = _parse_batch(data)
        labels = labels[:count, None].astype(np.uint8)
        rows_of_batches.append(np.concatenate([labels, pixels[:count]], axis=1))
    return np.concatenate(rows_of_batches).tobytes()


def _parse_batch(data: bytes) -> tuple[Pixels, Labels]:
    """The images (n, 3072), as rows of pixels, and labels (n,) of a pickled batch of CIFAR-10.

    A pickle can run any code, so that only bytes that have their published hash may come here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, for what Python 2 wrote into an array's pickle
        batch = pickle.loads(data, encoding="bytes")
    return batch[b"data"], np.asarray(batch[b"labels"], np.int64)
