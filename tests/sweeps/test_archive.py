"""Published cells: taken where the code is the same, refused where it is not, and never lost."""

import dataclasses
import io
import json

import pytest

from gnjax.cli.terminal import Terminal
from sweeps import command_line, progress
from sweeps.launchers import work
from sweeps.launchers.work import Launcher, attempt
from sweeps.storage import archive
from sweeps.storage.store import Finished
from tests import toy

CELLS = 6


def _sources(config):
    return [f"{config.cells} toys"]


EXPERIMENT = dataclasses.replace(toy.EXPERIMENT, sources=_sources)


def _job(folder, experiment=EXPERIMENT, *, cells=CELLS, launcher=work.here, **options):
    """A run in a fresh checkout: nothing but the archive, in the folder beside it, was there."""
    return command_line.Job(
        experiment,
        toy.config(cells),
        "tiny",
        folder / "results",
        folder,
        launcher=launcher,
        cells=folder.parent / "published",
        **options,
    )


def _run(job):
    said = io.StringIO()
    done = command_line.run(job, Terminal(file=said, width=200))
    return done, said.getvalue()


def _table(folder):
    return (folder / "table.csv").read_bytes()


def _counting(computed, stop_after=CELLS):
    """A launcher that remembers what it computed, and is killed before it computes more."""

    def compute(task, cells):
        for cell in cells:
            if len(computed) == stop_after:
                raise KeyboardInterrupt
            computed.append(cell.keywords["depth"])
            yield cell, attempt(task, cell)

    return Launcher(compute, work.here.device)


@pytest.mark.parametrize("killed_after", [0, 1, 4])
def test_a_killed_run_goes_on_in_a_fresh_checkout_to_the_same_table(tmp_path, killed_after):
    _run(_job(tmp_path / "whole"))
    first, second = [], []
    with pytest.raises(KeyboardInterrupt):
        _run(_job(tmp_path / "first", archive=True, launcher=_counting(first, killed_after)))
    launcher = _counting(second)
    _run(_job(tmp_path / "second", published=True, archive=True, launcher=launcher))
    assert sorted(first + second) == list(range(1, CELLS + 1))  # nothing twice
    assert _table(tmp_path / "second") == _table(tmp_path / "whole")
    done, _ = _run(_job(tmp_path / "third", published=True, launcher=_counting([], 0)))
    assert done.collected
    assert _table(tmp_path / "third") == _table(tmp_path / "whole")


def test_the_last_shard_writes_the_table_with_published_cells(tmp_path):
    _run(_job(tmp_path / "whole"))
    _run(_job(tmp_path / "first", cells=3, archive=True))
    shards = [_job(tmp_path / "second", published=True, shard=(i, 2)) for i in (1, 2)]
    done = [_run(shard)[0].collected for shard in shards]
    assert done == [False, True]
    assert _table(tmp_path / "second") == _table(tmp_path / "whole")


def test_without_the_option_published_cells_are_computed(tmp_path):
    _run(_job(tmp_path / "first", archive=True))
    computed = []
    _run(_job(tmp_path / "second", launcher=_counting(computed)))
    assert len(computed) == CELLS


def test_cells_that_were_stored_before_are_published_too(tmp_path):
    """As after a kill between the two files of a cell."""
    folder = tmp_path / "here"
    _run(_job(folder))
    assert not (tmp_path / "published").exists()
    _run(_job(folder, archive=True, launcher=_counting([], 0)))
    assert len(list((tmp_path / "published" / "toy").glob("*.json"))) == CELLS


def test_a_published_cell_says_everything_about_itself(tmp_path):
    _run(_job(tmp_path / "here", archive=True))
    paths = list((tmp_path / "published" / "toy").glob("*.json"))
    told = [json.loads(path.read_text().partition("\n")[2]) for path in paths]
    assert {one["keywords"]["depth"] for one in told} == set(range(1, CELLS + 1))
    for one in told:
        assert one["measurement"]["rows"][0]["kappa"] == one["keywords"]["depth"] ** 2 / 7
        assert one["provenance"]["data"] == ["6 toys"]
        assert {"versions", "machine", "device", "git", "date"} <= one["provenance"].keys()
        assert one["seconds"] >= 0


@pytest.mark.parametrize("changed", ["version", "cell", "damage"])
def test_what_is_of_other_code_or_damaged_is_refused(tmp_path, changed):
    _run(_job(tmp_path / "first", archive=True))
    job = _job(tmp_path / "second", published=True)
    if changed == "version":
        job = dataclasses.replace(job, experiment=dataclasses.replace(EXPERIMENT, version=2))
    elif changed == "cell":
        job = dataclasses.replace(job, config=toy.config(CELLS, 1e-9))
    else:
        for path in (tmp_path / "published" / "toy").glob("*.json"):
            path.write_text(path.read_text().replace("kappa", "Kappa"))
    computed = []
    _, said = _run(dataclasses.replace(job, launcher=_counting(computed)))
    assert len(computed) == CELLS
    told = f"{CELLS} published cells are damaged or of other code, and are not taken"
    assert (told in said) == (changed != "cell")


def test_cells_of_other_machines_and_versions_are_taken_and_named(tmp_path):
    _run(_job(tmp_path / "first", archive=True))
    folder = archive.archive(toy.EXPERIMENT, tmp_path / "published")
    moved = archive.archive(toy.EXPERIMENT, tmp_path / "moved")
    for depth in range(1, CELLS):
        (finished,) = archive.published(folder, [toy.cell(depth, 0.0)]).values()
        versions = {**finished.provenance["versions"], "jax": "0.0.1"}
        told = {**finished.provenance, "versions": versions, "device": "tpu"}
        archive.add(
            moved, toy.cell(depth, 0.0), dataclasses.replace(finished, provenance=told), ["toys"]
        )
    job = dataclasses.replace(_job(tmp_path / "second", published=True), cells=tmp_path / "moved")
    _run(job)
    provenance = json.loads((tmp_path / "second" / "provenance.json").read_text())
    here = command_line.environment(toy.measure)
    assert provenance["device"] == f"{here.device}, tpu"
    assert provenance["versions"]["jax"] == f"{here.versions['jax']}, 0.0.1"
    assert provenance["versions"]["numpy"] == here.versions["numpy"]


def test_where_all_is_published_no_data_are_loaded(tmp_path):
    _run(_job(tmp_path / "first", archive=True))

    def missing(config):
        raise command_line.DataUnavailableError

    experiment = dataclasses.replace(EXPERIMENT, sources=missing)
    _run(_job(tmp_path / "second", experiment, published=True))
    assert json.loads((tmp_path / "second" / "provenance.json").read_text())["data"] == ["6 toys"]
    with pytest.raises(command_line.DataUnavailableError):
        _run(_job(tmp_path / "third", experiment))


def test_a_table_of_what_is_there_says_what_is_missing(tmp_path):
    _run(_job(tmp_path / "first", cells=4, archive=True))
    job = _job(tmp_path / "second", published=True, compute=False, launcher=_counting([], 0))
    done, said = _run(job)
    assert done.collected
    assert "6 cells, 0 stored, 4 published, 2 left" in said
    provenance = json.loads((tmp_path / "second" / "provenance.json").read_text())
    assert (provenance["cells"], provenance["missing"]) == (4, 2)
    assert len(_table(tmp_path / "second").splitlines()) == 1 + 4


def test_a_run_that_ends_says_what_is_left(tmp_path):
    done, said = _run(_job(tmp_path / "here", cells=13))  # the last one fails
    assert len(done.failures) == 1
    assert "1 of 13 cells are left: about" in said


def test_on_a_busy_machine_the_work_counts_and_not_the_time():
    cell = toy.cell(1, 0.0)
    busy = {"device": "cpu: cpu", "cpu_seconds": 20.0}
    for told, seconds in ((busy, 20), (busy | {"device": "gpu: H"}, 90), ({}, 90)):
        done = {cell: Finished({}, 90.0, told)}
        told = progress.forecast(toy.EXPERIMENT, [toy.cell(2, 0.0)], done, told.get("device", ""))
        assert told.startswith(f"about {progress.duration(2 * seconds)}, 1 of them")


def test_the_time_that_is_left_is_judged_by_cells_of_the_same_shape():
    """Cells of odd depth took 2 s for a unit of cost, those of even depth 5 s."""
    experiment = dataclasses.replace(toy.EXPERIMENT, shape=lambda depth: depth % 2)
    seconds = {1: 2.0, 3: 6.0, 2: 10.0}
    done = {toy.cell(depth, 0.0): toy.finished({}, taken) for depth, taken in seconds.items()}
    left = [toy.cell(5, 0.0), toy.cell(4, 0.0)]
    assert progress.forecast(experiment, left, done, "cpu") == "about 30 s"
    odd = {cell: result for cell, result in done.items() if cell.keywords["depth"] % 2}
    told = progress.forecast(experiment, left, odd, "cpu")
    assert told == "about 18 s, 1 of them judged by other shapes"
    assert "unknown" in progress.forecast(experiment, left, {}, "cpu")


def test_the_time_that_is_left_is_judged_by_cells_of_this_device():
    """A cell of depth 1 takes 7 s on a CPU and 1 s on a GPU."""
    left = [toy.cell(2, 0.0)]
    gpu = {toy.cell(1, 0.0): Finished({}, 1.0, {"device": "gpu: H"})}
    cpu = {toy.cell(3, 0.0): Finished({}, 21.0, {"device": "cpu: cpu"})}
    told = [progress.forecast(toy.EXPERIMENT, left, gpu | cpu, d) for d in ("cpu: cpu", "gpu: H")]
    assert [one.partition(",")[0] for one in told] == ["about 14 s", "about 2 s"]
    told = progress.forecast(toy.EXPERIMENT, left, gpu, "cpu: cpu")
    assert told.startswith("about 2 s on gpu: H, and unknown on cpu: cpu")
