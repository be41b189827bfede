"""The data behind every picture: a table of its rows and their provenance, beside it.

``python -m figures fig02 --from=figures/gallery/fig02.csv`` draws the picture again from it.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from reproduction.readings import module_of
from sweeps.storage.files import write_atomically
from sweeps.table import provenance_beside

GALLERY = Path("figures/gallery")


def gallery(profile: str, root: Path = GALLERY) -> Path:
    """Where a profile's pictures and tables are: the laptop's on top, others in a folder."""
    return root if profile == "laptop" else root / profile


def publish(rows: Path, figure: str, folder: Path) -> None:
    """Write the rows of a figure as fig02.csv, and how they were computed as fig02.json."""
    provenance = provenance_beside(rows).read_text(encoding="utf-8")
    write_atomically(folder / f"{figure}.csv", of_figure(rows.read_text("utf-8"), figure))
    write_atomically(folder / f"{figure}.json", provenance)


def of_figure(text: str, figure: str) -> str:
    """The lines of a table whose panels are a figure's own; all of them where none is named so."""
    header, *lines = list(csv.reader(io.StringIO(text)))
    if "figure" in header:
        place = header.index("figure")
        lines = [line for line in lines if module_of(line[place]) == figure] or lines
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([header, *lines])
    return written.getvalue()
