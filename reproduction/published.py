"""The data behind every picture: the table of its experiment and its provenance, beside it.

``python -m figures fig02 --from=figures/gallery/fig02.csv`` draws the picture again from it.
"""

from __future__ import annotations

from pathlib import Path

from sweeps.storage.files import write_atomically
from sweeps.table import provenance_beside

GALLERY = Path("figures/gallery")


def gallery(profile: str, root: Path = GALLERY) -> Path:
    """Where a profile's pictures and tables are: the laptop's on top, others in a folder."""
    return root if profile == "laptop" else root / profile


def publish(rows: Path, figure: str, folder: Path) -> None:
    """Write a table as fig02.csv, and how it was computed as fig02.json.

    It is the whole table of the experiment, as other figures of it have it too: the narrowest type
    of a column is then that of the run.
    """
    for path, ending in ((rows, "csv"), (provenance_beside(rows), "json")):
        write_atomically(folder / f"{figure}.{ending}", path.read_text(encoding="utf-8"))
