"""The data behind every picture: the table of its experiment and its provenance, beside it.

``python -m figures fig02 --from=figures/gallery/fig02.csv`` draws the picture again from it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from figures import catalogue
from sweeps.storage.files import write_atomically
from sweeps.table import provenance_beside

GALLERY = Path("figures/gallery")


def gallery(profile: str, root: Path = GALLERY) -> Path:
    """Where a profile's pictures and tables are: the laptop's on top, others in a folder."""
    return root if profile == "laptop" else root / profile


def publish(rows: Path, figure: str, folder: Path) -> None:
    """Write a table as fig02.csv, and how it was computed as fig02.json.

    It is the whole table of the experiment, as other figures of it have it too: the narrowest type
    of a column is then that of the run. A figure of one network or one stage of a large table says
    in ``PART`` which values of which columns it needs.
    """
    part: Mapping[str, str] = getattr(catalogue.load(figure), "PART", {})
    text = rows.read_text(encoding="utf-8")
    write_atomically(folder / f"{figure}.csv", _chosen(text, part) if part else text)
    provenance = provenance_beside(rows).read_text(encoding="utf-8")
    write_atomically(folder / f"{figure}.json", provenance)


def _chosen(text: str, part: Mapping[str, str]) -> str:
    """The header and the rows that have these values, as they are."""
    chosen = io.StringIO()
    table = csv.DictReader(io.StringIO(text))
    writer = csv.DictWriter(chosen, table.fieldnames or (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for row in table if all(row[name] == part[name] for name in part))
    return chosen.getvalue()
