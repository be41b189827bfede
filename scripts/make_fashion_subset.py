"""Make the bundled subset: the first 500 Fashion-MNIST training images of each class.

    python scripts/make_fashion_subset.py --source /usr/share/datasets/fashion-mnist

The source is the full training set, as Debian's dataset-fashion-mnist installs it or as published;
it is verified before use. The same source gives the same bytes wherever zlib is the same version;
the decompressed bytes, which loading verifies, are the same everywhere.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnjax.data import places
from gnjax.data.published import PUBLISHED

PER_CLASS = 500


def main() -> None:
    """Write the two files and print the hashes that gnjax/data/published.py records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", type=Path, required=True, help="folder of the full set")
    bundled = PUBLISHED["fashion_mnist_5000"].system[0]
    parser.add_argument("--out", type=Path, default=bundled, help="default: %(default)s")
    parsed = parser.parse_args()
    images, labels = subset(parsed.source)
    for name, array in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)):
        plain = idx(array)
        packed = compress(plain)
        (parsed.out / f"{name}.gz").write_bytes(packed)
        print(f"{name}: {len(packed)} bytes, packed {sha256(packed)}, plain {sha256(plain)}")


def subset(source: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The first 500 images of each class with their labels, in file order."""
    data = PUBLISHED["fashion_mnist"]
    images, labels = data.parse(places.read_files("fashion_mnist", data, "train", source).members)
    chosen = np.sort(
        np.concatenate([np.flatnonzero(labels == c)[:PER_CLASS] for c in range(data.classes)])
    )
    return images[chosen], labels[chosen].astype(np.uint8)


def idx(array: NDArray[np.uint8]) -> bytes:
    """The idx file of an array of unsigned bytes."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def compress(plain: bytes) -> bytes:
    """gzip without name and time, so that the bytes depend on nothing but the contents."""
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as file:
        file.write(plain)
    return buffer.getvalue()


def sha256(data: bytes) -> str:
    """The hexadecimal sha256."""
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main()
