"""Put the address of the project wherever it is repeated: pyproject.toml has it first.

python scripts/set_address.py https://github.com/someone/gnjax
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
REPEATED = (
    "pyproject.toml",
    "CITATION.cff",
    "SECURITY.md",
    "notebooks/colab.py",
    "notebooks/colab.ipynb",
)


def address() -> str:
    """The address as pyproject.toml states it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: str = project["urls"]["Repository"]
    return found


def main(new: str) -> None:
    if not new.startswith("https://") or new.endswith("/"):
        sys.exit(f"{new!r} is no address; say make address URL=https://host/owner/gnjax")
    old = address()
    for name in REPEATED:
        path = ROOT / name
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
