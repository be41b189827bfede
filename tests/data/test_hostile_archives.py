"""Files and mirrors that are not what they are named cost no more than those that are.

The class: bytes that somebody else made are expanded, followed or waited for before it is known
that they are what was asked for. Every case is refused in a sentence, within a bound on memory.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import lzma
import random
import re
import struct
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnjax import data
from gnjax.data import archives, datasets, places, published
from gnjax.data.archives import Archive, Member
from tests.allocation import MEBIBYTE, at_most

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def zeros_packed(size: int) -> bytes:
    """A gzip file of so many zeros, one part in a thousand of their size."""
    return gzip.compress(bytes(MEBIBYTE), mtime=0) * (size // MEBIBYTE)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """Registers a tiny "mnist" with the given mirrors; returns its packed files."""
    images = np.random.default_rng(0).integers(0, 256, (12, 3, 2), dtype=np.uint8)
    plain = {IMAGES: idx(images), LABELS: idx(np.arange(12, dtype=np.uint8) % 10)}
    packed = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in plain.items()}
    made = [
        Archive(
            f"{name}.gz",
            hashlib.sha256(packed[f"{name}.gz"]).hexdigest(),
            (Member(name, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content)),),
            size=len(packed[f"{name}.gz"]),
        )
        for name, content in plain.items()
    ]
    monkeypatch.delenv("GNJAX_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(places, "cache_root", lambda: tmp_path / "cache")

    def register(*mirrors: str) -> dict[str, bytes]:
        spec = replace(
            published.PUBLISHED["mnist"],
            shape=(3, 2),
            sizes={"train": 12},
            archives={"train": tuple(made)},
            mirrors=mirrors,
        )
        monkeypatch.setattr(datasets, "PUBLISHED", {**published.PUBLISHED, "mnist": spec})
        return packed

    return register


# --- gzip ----------------------------------------------------------------------------------------


def test_a_published_file_is_expanded_to_its_size_at_most(
    tiny: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    packed = tiny() | {f"{IMAGES}.gz": zeros_packed(64 * MEBIBYTE)}
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
    with (
        at_most(2 * MEBIBYTE),
        pytest.raises(ValueError, match=rf"{IMAGES}.gz expands to more than 88 bytes"),
    ):
        data.load("mnist", directory=tmp_path)


def test_a_plain_file_of_another_size_is_not_read(
    tiny: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    tiny()
    for name in (IMAGES, LABELS):
        (tmp_path / name).write_bytes(bytes(8 * MEBIBYTE))
    with at_most(MEBIBYTE), pytest.raises(ValueError, match=r"8,388,608 bytes and .* at most 88"):
        data.load("mnist", directory=tmp_path)


def test_a_file_of_the_users_own_has_a_bound_too(tmp_path: Path) -> None:
    """What has no published size may expand to 256 MiB; a larger one can be unpacked before."""
    (tmp_path / f"{IMAGES}.gz").write_bytes(zeros_packed(300 * MEBIBYTE))
    (tmp_path / LABELS).write_bytes(idx(np.zeros(3, np.uint8)))
    with at_most(300 * MEBIBYTE), pytest.raises(ValueError, match="unpack it with gunzip first"):
        data.load("folder", directory=tmp_path)


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


def sparse(size: int) -> bytes:
    """An entry in GNU's old sparse format: two kilobytes that stand for ``size`` zeros."""
    header = bytearray(entry(type=tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    header[483:495] = size.to_bytes(12, "big")
    header[483] |= 0x80
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1536)


TARS = {
    "a sparse file of 2 GiB": sparse(2**31),
    "a size of 2 GiB": tar_of(entry(size=2**31)),
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
    with at_most(16 * MEBIBYTE), pytest.raises(ValueError, match=r"cifar-10-python.*replace it"):
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


@pytest.fixture
def mirrors(
    tiny: Callable[..., dict[str, bytes]], tmp_path: Path
) -> Iterator[tuple[str, threading.Event]]:
    """A server with the folders "good", "endless" and, until the event, "drip"."""
    packed, over = tiny(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, name = self.path.strip("/").split("/")
            self.send_response(200)
            if kind != "drip":
                self.end_headers()
            try:
                if kind == "good":
                    self.wfile.write(packed[name])
                while kind == "endless":
                    self.wfile.write(bytes(MEBIBYTE))
                while kind == "drip" and not over.wait(0.02):
                    self.wfile.write(b"X-More: x\r\n")
            except OSError:
                return

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", over
        over.set()
        server.shutdown()
        thread.join()


def test_a_mirror_that_never_ends_is_left_for_the_next(
    tiny: Callable[..., dict[str, bytes]], mirrors: tuple[str, threading.Event]
) -> None:
    """One that sends more than the file has."""
    address, _ = mirrors
    tiny(f"{address}/endless/", f"{address}/good/")
    assert data.load("mnist").inputs.shape == (12, 6)
    tiny(f"{address}/endless/")
    for file in places.cache_folder("mnist").iterdir():
        file.unlink()
    with pytest.raises(data.DataUnavailableError, match=r"more than the [0-9]+ bytes"):
        data.load("mnist")


def test_a_mirror_that_drips_is_left_for_the_next(
    tiny: Callable[..., dict[str, bytes]],
    mirrors: tuple[str, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One whose answer goes on for ever, each of its bytes within the time for a byte."""
    address, over = mirrors
    monkeypatch.setattr(places, "_SECONDS", 0.5)
    tiny(f"{address}/drip/", f"{address}/good/")
    start, before = time.monotonic(), set(threading.enumerate())
    assert data.load("mnist").inputs.shape == (12, 6)
    assert time.monotonic() - start < 10  # twice half a second, on a busy machine
    over.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)  # what still listened ends without a trace
    assert sorted(path.name for path in places.cache_folder("mnist").iterdir()) == [
        f"{IMAGES}.gz",
        f"{LABELS}.gz",
    ]


def test_mirrors_that_encrypt_come_first() -> None:
    for name, spec in published.PUBLISHED.items():
        kinds = [mirror.split(":")[0] for mirror in spec.mirrors]
        assert kinds == sorted(kinds, reverse=True), name
        for files in spec.archives.values():
            for archive in files:
                assert archive.size > 0
                assert re.fullmatch("[0-9a-f]{64}", archive.sha256)
                assert all(member.most for member in archive.members)
