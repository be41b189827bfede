"""The published data sets as data: files, hashes, mirrors, shapes and licences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from gnjax.data.archives import (
    Archive,
    Labels,
    Member,
    Pixels,
    cifar_rows,
    parse_cifar,
    parse_cifar_rows,
    parse_idx_pair,
)


@dataclass(frozen=True)
class Published:
    """A data set that other people published, and everything needed to find and check it."""

    title: str
    shape: tuple[int, ...]
    sizes: Mapping[str, int]  # split -> samples
    licence: str
    archives: Mapping[str, tuple[Archive, ...]]  # split -> files
    parse: Callable[[Mapping[str, bytes]], tuple[Pixels, Labels]]
    classes: int = 10
    mirrors: tuple[str, ...] = ()
    subfolders: tuple[str, ...] = ()  # where a user's data directory may keep it
    system: tuple[Path, ...] = ()  # where the system or this package installs it
    bundled: bool = False  # it comes with this package and is looked for nowhere else
    part: Part | None = None  # of a larger set, whose files will do as well


@dataclass(frozen=True)
class Part:
    """How the one file of a split is made from the files of the larger set that it is a part of.

    The file has one hash, whether it was there or was made.
    """

    name: str
    whole: Published
    cut: Mapping[str, Callable[[Mapping[str, bytes]], bytes]]  # split -> file


# Fashion-MNIST took over MNIST's file names, so one list serves both.
_IDX_NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def _idx_archives(
    packed: Mapping[str, tuple[str, str]], plain: Mapping[str, tuple[str, str]]
) -> Mapping[str, tuple[Archive, ...]]:
    """The files of images and of labels of each split, in the format of MNIST.

    ``packed`` and ``plain`` have by split the sha256 of the files of images and of labels: of the
    .gz files, and of what they contain.
    """
    return {
        split: tuple(
            Archive(f"{name}.gz", packed_hash, (Member(name, f"sha256:{plain_hash}"),))
            for name, packed_hash, plain_hash in zip(
                _IDX_NAMES[split], packed[split], plain[split], strict=True
            )
        )
        for split in packed
    }


_MNIST = Published(
    title="MNIST",
    shape=(28, 28),
    sizes={"train": 60_000, "test": 10_000},
    licence="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
    parse=parse_idx_pair,
    archives=_idx_archives(
        packed={
            "train": (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            "test": (
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        },
        plain={
            "train": (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            "test": (
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        },
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    subfolders=("mnist", "MNIST/raw", "MNIST"),
)

_FASHION_MNIST = Published(
    title="Fashion-MNIST",
    shape=(28, 28),
    sizes={"train": 60_000, "test": 10_000},
    licence="MIT (Zalando SE)",
    parse=parse_idx_pair,
    archives=_idx_archives(
        packed={
            "train": (
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            "test": (
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        },
        plain={
            "train": (
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            "test": (
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        },
    ),
    mirrors=(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        # The S3 website endpoint speaks http alone; the sha256 is what protects the download.
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    subfolders=("fashion_mnist", "fashion-mnist", "FashionMNIST/raw", "FashionMNIST"),
    system=(Path("/usr/share/datasets/fashion-mnist"),),  # Debian's dataset-fashion-mnist
)

# scripts/make_fashion_subset.py makes these files and prints these hashes.
_FASHION_MNIST_5000 = Published(
    title="Fashion-MNIST, the first 500 training images of each class",
    shape=(28, 28),
    sizes={"train": 5_000},
    licence="MIT (Zalando SE)",
    parse=parse_idx_pair,
    archives=_idx_archives(
        packed={
            "train": (
                "b240910d2f9a3dad10993db98ccd0cce3dd9149f4e70b24a0b03b57d41908dae",
                "ae0d767c2f6dbbdea3abe9cbf56dacf5c2069a5513b4a9e0ff10b1923bc33661",
            ),
        },
        plain={
            "train": (
                "444ed5f7ce17397f236f5eba17dd507d3f6912f04edd3e4f1701cdf82f2cc0c5",
                "35d691216f65485d010cc635af5574a9dc04aa5060de9be64ab6e5cb5ead38e9",
            ),
        },
    ),
    system=(Path(__file__).parent / "bundled",),
    bundled=True,
)

_CIFAR10_NAME = "cifar-10-python.tar.gz"
_CIFAR10_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
_CIFAR10_MEMBERS = {  # md5 is all that was published for the files inside
    "train": (
        Member("data_batch_1", "md5:c99cafc152244af753f735de768cd75f"),
        Member("data_batch_2", "md5:d4bba439e000b95fd0a9bffe97cbabec"),
        Member("data_batch_3", "md5:54ebc095f3ab1f0389bbae665268c751"),
        Member("data_batch_4", "md5:634d18415352ddfa80567beed471001a"),
        Member("data_batch_5", "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
    ),
    "test": (Member("test_batch", "md5:40351d587109b95175f43aff81a1287e"),),
}

_CIFAR10 = Published(
    title="CIFAR-10",
    shape=(32, 32, 3),
    sizes={"train": 50_000, "test": 10_000},
    licence="none stated (Krizhevsky 2009)",
    parse=parse_cifar,
    archives={
        split: (Archive(_CIFAR10_NAME, _CIFAR10_SHA256, members, "cifar-10-batches-py"),)
        for split, members in _CIFAR10_MEMBERS.items()
    },
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    subfolders=("cifar10", "cifar-10", "CIFAR10"),
)

# The first images of each batch of 10,000, as many as can be had outside the archive.
_PART_COUNTS = {"train": (4_000, 1_017, 1_017, 1_017, 1_017), "test": (1_017,)}
_PART_SHA256 = {
    "train": "6fd0693da58bb2df5f9d7c738d95ded804ba73c2001d799e561cf0aa78943c02",
    "test": "c77ad46116beb3508f55d38aa34893560beae9515f9aca4a4dd0ea3617ac289e",
}


def _part_archive(split: str) -> Archive:
    """The one file of a split of "cifar10_part", which is not packed."""
    name, sha256 = f"{split}_part.bin", _PART_SHA256[split]
    return Archive(name, sha256, (Member(name, f"sha256:{sha256}"),))


_CIFAR10_PART = Published(
    title="CIFAR-10, images 0 to 3,999 of the first batch and 1,017 of each other batch",
    shape=(32, 32, 3),
    sizes={split: sum(counts) for split, counts in _PART_COUNTS.items()},
    licence=_CIFAR10.licence,
    parse=parse_cifar_rows,
    archives={split: (_part_archive(split),) for split in _PART_COUNTS},
    subfolders=("cifar10_part", *_CIFAR10.subfolders),
    part=Part(
        "cifar10",
        _CIFAR10,
        {split: partial(cifar_rows, counts=counts) for split, counts in _PART_COUNTS.items()},
    ),
)

PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {
        "mnist": _MNIST,
        "fashion_mnist": _FASHION_MNIST,
        "fashion_mnist_5000": _FASHION_MNIST_5000,
        "cifar10": _CIFAR10,
        "cifar10_part": _CIFAR10_PART,
    }
)

# A user's own idx files under the usual names: nothing was published about them.
FOLDER_ARCHIVES: Mapping[str, tuple[Archive, ...]] = MappingProxyType(
    {
        split: tuple(Archive(f"{name}.gz", "", (Member(name),)) for name in names)
        for split, names in _IDX_NAMES.items()
    }
)
