"""The table of each experiment, published beside the pictures that are drawn from it.

``python -m figures fig02 --from=figures/gallery/depth_sweep.csv`` draws a picture again from it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from figures import catalogue
from sweeps.storage.files import write_atomically
from sweeps.table import TableError, provenance_beside

GALLERY = catalogue.GALLERY


def gallery(profile: str, root: Path = GALLERY) -> Path:
    """Where a profile's pictures and tables are: the laptop's on top, others in a folder."""
    return root if profile == "laptop" else root / profile


def table_of(figure: str, folder: Path) -> Path:
    """Where the table that a figure is drawn from is published."""
    return folder / f"{getattr(catalogue.load(figure), 'EXPERIMENT', figure)}.csv"


def to_publish(rows: Path, experiment: str, folder: Path) -> str:
    """The text that is published of a table.

    A figure of one network or one stage of a large table says in ``PART`` which values of which
    columns it needs. Where each figure of an experiment does, their rows are published alone.

    Raises:
      TableError: it has fewer rows than the published table, of which cells would be lost; the
        text says what to do.
    """
    modules = catalogue.from_tables().values()
    parts = [getattr(one, "PART", {}) for one in modules if experiment == one.EXPERIMENT]
    text = rows.read_text(encoding="utf-8")
    chosen = _chosen(text, parts) if all(parts) else text
    _check_rows_are_kept(chosen, rows, folder / f"{experiment}.csv")
    return chosen


def _check_rows_are_kept(text: str, rows: Path, kept: Path) -> None:
    """Refuse a text with fewer rows than the published table, of which cells would be lost."""
    if not kept.is_file():
        return
    texts = text, kept.read_text(encoding="utf-8")
    new, old = (len(text.splitlines()) - 1 for text in texts)  # without the header
    if new < old:
        msg = (
            f"nothing is published: {rows} has {new} rows to publish and {kept} {old};"
            " compute the cells that are missing, or remove the published table first"
        )
        raise TableError(msg)


def publish(text: str, rows: Path, experiment: str, folder: Path) -> None:
    """Write the text of a table as depth_sweep.csv, and how it was computed as depth_sweep.json."""
    write_atomically(folder / f"{experiment}.csv", text)
    provenance = provenance_beside(rows).read_text(encoding="utf-8")
    write_atomically(folder / f"{experiment}.json", provenance)


def _chosen(text: str, parts: Sequence[Mapping[str, str]]) -> str:
    """The header, and the rows that have the values of one of the parts, as they are."""
    chosen = io.StringIO()
    table = csv.DictReader(io.StringIO(text))
    writer = csv.DictWriter(chosen, table.fieldnames or (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for row in table if any(part.items() <= row.items() for part in parts))
    return chosen.getvalue()
