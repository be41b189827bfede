"""Before a run: which published tables stand for cells that are left, and what the rest takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweeps import command_line as cli
from sweeps import progress, table

Files = tuple[Path, Path]  # a table, and how it was computed


def published_table(job: cli.Job, folder: Path) -> Files | None:
    """The published table of an experiment, if it is to be taken.

    It is where cells are left to compute and none of them is published by itself.
    """
    _, chosen = cli.plan(job)
    if not chosen.left or chosen.published:
        return None
    return _published(job.experiment.name, folder)


def _published(experiment: str, folder: Path) -> Files | None:
    rows = folder / f"{experiment}.csv"
    origin = table.provenance_beside(rows)
    return (rows, origin) if rows.is_file() and origin.is_file() else None


def told(job: cli.Job, files: Files) -> str:
    """The line that says that a published table is taken, and how long computing it took."""
    provenance = table.read_provenance(files[1])
    spent = f"{progress.duration(provenance['seconds'])} on {provenance['device']}"
    name = f"{job.experiment.name} {job.profile}"
    return f"{name}: taken from the published table, which took {spent}"


@dataclass(frozen=True)
class Forecast:
    """How long one process takes for the cells that are left, as the published tables tell.

    Attributes:
      seconds: of each experiment of which a table tells it and of which cells are left.
      devices: on which those tables were computed.
      unknown: the experiments of which cells are left and no table tells it.
    """

    seconds: Mapping[str, float]
    devices: frozenset[str]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        """Empty where nothing is left or no table tells it."""
        if not self.seconds:
            return ""
        text = f"about {progress.duration(sum(self.seconds.values()))} of one process, as the"
        text += f" published tables tell ({', '.join(sorted(self.devices))})"
        return text + (f", and what {', '.join(self.unknown)} takes" if self.unknown else "")

    def done(self, names: Iterable[str]) -> str:
        """The share of the time that these experiments take, as text; empty where none is known."""
        total = sum(self.seconds.values())
        return f"{sum(self.seconds.get(n, 0.0) for n in names) / total:.0%} done" if total else ""


def forecast(jobs: Iterable[cli.Job], folder: Path) -> Forecast:
    """What these runs take; their published tables are in ``folder``."""
    seconds, devices, unknown = {}, set(), []
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
        seconds[experiment.name] = float(str(provenance["seconds"])) * left / all_of_them
        devices.add(str(provenance["device"]))
    return Forecast(seconds, frozenset(devices), tuple(unknown))


def _whole(experiment: str, folder: Path) -> Mapping[str, object] | None:
    """How the published table of the experiment was computed, if it has all cells."""
    files = _published(experiment, folder)
    provenance = {"missing": True} if files is None else table.read_provenance(files[1])
    return None if provenance.get("missing") else provenance
