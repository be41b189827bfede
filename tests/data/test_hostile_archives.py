"""Files that are not what they are named are refused in a sentence."""

from __future__ import annotations

import gzip
import lzma
import random
import re
import struct
import tarfile
from pathlib import Path

import pytest

from gnjax import data
from gnjax.data import archives, published


@pytest.mark.parametrize(
    "shape", [(1,) * 65, (0, 2**32 - 1, 2**32 - 1, 2**32 - 1), (2**32 - 1,) * 8]
)
def test_an_idx_header_of_an_impossible_shape(shape: tuple[int, ...]) -> None:
    header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    with pytest.raises(ValueError, match="train-images announces the shape"):
        archives.parse_idx(header + bytes(len(shape) == 65), "train-images")


# --- tar -----------------------------------------------------------------------------------------

BATCH = "cifar-10-batches-py/data_batch_1"


def entry(name: str = BATCH, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def tar_of(*entries: tarfile.TarInfo) -> bytes:
    """A tar file with one block of zeros for each entry, whatever the size in its header is."""
    blocks = [made.tobuf(tarfile.PAX_FORMAT) + bytes(512) for made in entries]
    return b"".join(blocks) + bytes(1024)


TARS = {
    "a size of 8 EiB": tar_of(entry(size=2**63)),
    "a link to itself": tar_of(entry(type=tarfile.SYMTYPE, linkname="data_batch_1")),
    "a hard link to itself": tar_of(entry(type=tarfile.LNKTYPE, linkname=BATCH)),
    "a folder": tar_of(entry(type=tarfile.DIRTYPE)),
    "a corrupt xz file": lzma.compress(bytes(2000))[:-20] + bytes(20),
    "a bzip2 signature": b"BZh91AY&SY" + bytes(100),
    "another member": tar_of(entry("readme.html", size=5)),
    "a negative size": tar_of(entry("readme.html", size=-512), entry(size=5)),
    "headers within headers": tar_of(*[entry(type=tarfile.XHDTYPE, size=512)] * 3000),
    "a header that is no text": tar_of(
        entry(size=5, pax_headers={"GNU.sparse.map": "x", "size": "many"})
    ),
    "nothing": b"",
}


@pytest.mark.parametrize("case", TARS)
def test_a_tar_file_that_is_not_the_published_one(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cifar-10-python.tar").write_bytes(TARS[case])
    with pytest.raises(ValueError, match=r"cifar-10-python.*replace it"):
        data.load("cifar10", directory=tmp_path)


def test_damaged_tar_files_are_refused_wherever_the_damage_is(tmp_path: Path) -> None:
    """200 files with a few other bytes each: a ValueError, or bytes that fail their hash."""
    whole = tar_of(entry("readme.html", size=5), entry(size=5, pax_headers={"comment": "x" * 90}))
    rng = random.Random(0)
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 9)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (tmp_path / "cifar-10-python.tar").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"replace it|Replace it"):
            data.load("cifar10", directory=tmp_path)


def test_a_packed_tar_file_is_verified_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(tar_of(entry(size=5))))
    monkeypatch.setattr(tarfile, "open", lambda *_: pytest.fail("unverified bytes were opened"))
    with pytest.raises(ValueError, match="does not have the sha256"):
        data.load("cifar10", directory=tmp_path)


# --- mirrors -------------------------------------------------------------------------------------


def test_mirrors_that_encrypt_come_first() -> None:
    for name, spec in published.PUBLISHED.items():
        kinds = [mirror.split(":")[0] for mirror in spec.mirrors]
        assert kinds == sorted(kinds, reverse=True), name
        for files in spec.archives.values():
            for archive in files:
                assert re.fullmatch("[0-9a-f]{64}", archive.sha256)
                assert all(member.digest for member in archive.members)
