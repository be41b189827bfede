"""Before a run: which published tables stand for cells that are left, and what the rest takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from figures import catalogue
from sweeps import command_line as cli
from sweeps import progress, table

Tables = Mapping[str, tuple[Path, Path]]  # of each figure: its table, and how it was computed


def published_tables(job: cli.Job, figures: Sequence[str], folder: Path) -> Tables:
    """The published tables of these figures of one experiment, or none.

    They are taken where cells are left to compute and none of them is published by itself, and
    where each of the figures has its table.
    """
    _, chosen = cli.plan(job)
    if not chosen.left or chosen.published:
        return {}
    rows = {figure: folder / f"{figure}.csv" for figure in figures}
    found = {figure: (path, table.provenance_beside(path)) for figure, path in rows.items()}
    return found if all(path.is_file() for pair in found.values() for path in pair) else {}


def told(job: cli.Job, tables: Tables) -> str:
    """The line that says that published tables are taken, and how long computing them took."""
    provenance = table.read_provenance(next(iter(tables.values()))[1])
    spent = f"{progress.duration(provenance['seconds'])} on {provenance['device']}"
    name = f"{job.experiment.name} {job.profile}"
    return f"{name}: taken from the published tables, which took {spent}"


def forecast(jobs: Iterable[cli.Job], folder: Path) -> str:
    """How long one process takes for the cells that are left, as the published tables tell.

    Empty where nothing is left or no table tells it.
    """
    seconds, devices, unknown = 0.0, set(), []
    for job in jobs:
        _, chosen = cli.plan(job)
        if not chosen.left or not job.compute:
            continue
        experiment = job.experiment
        provenance = _whole(experiment.name, folder)
        if provenance is None:
            unknown.append(experiment.name)
            continue
        left, all_of_them = (sum(map(experiment.cost_of, of)) for of in (chosen.left, chosen.cells))
        seconds += float(str(provenance["seconds"])) * left / all_of_them
        devices.add(str(provenance["device"]))
    if not devices:
        return ""
    text = f"about {progress.duration(seconds)} of one process, as the published tables tell"
    text += f" ({', '.join(sorted(devices))})"
    return text + (f", and what {', '.join(unknown)} takes" if unknown else "")


def _whole(experiment: str, folder: Path) -> Mapping[str, object] | None:
    """How a published table of the experiment was computed, if it has all cells."""
    for figure, module in catalogue.from_tables().items():
        path = table.provenance_beside(folder / f"{figure}.csv")
        if experiment == module.EXPERIMENT and path.is_file():
            provenance = table.read_provenance(path)
            if not provenance.get("missing"):
                return provenance
    return None
