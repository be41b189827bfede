"""Make the bundled text: the topics of Python's documentation, from the standard library.

    python scripts/make_python_topics.py

The topics (``pydoc_data.topics``, which ``help()`` shows) differ from one version of Python to the
next; those of 3.11.7 are bundled. They stand in the order of their names, parted by two empty
lines. Loading verifies the decompressed bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import platform
from pathlib import Path
from pydoc_data import topics  # type: ignore[import-untyped]

from gnjax.data.text import BUNDLED


def main() -> None:
    """Write the file and print the hashes that gnjax/data/text.py records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=BUNDLED, help="default: %(default)s")
    parsed = parser.parse_args()
    plain = joined()
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as file:  # bytes of the contents alone
        file.write(plain)
    packed = buffer.getvalue()
    (parsed.out / "python_topics.txt.gz").write_bytes(packed)
    print(f"Python {platform.python_version()}: {len(plain)} bytes, {len(packed)} packed")
    print(f"packed {hashlib.sha256(packed).hexdigest()}, plain {hashlib.sha256(plain).hexdigest()}")


def joined() -> bytes:
    """All topics in the order of their names, as UTF-8."""
    return "\n\n\n".join(topics.topics[name].strip("\n") for name in sorted(topics.topics)).encode()


if __name__ == "__main__":
    main()
