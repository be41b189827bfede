"""What is published beside a picture is enough to draw it and to judge it again."""

import json
import re
import shutil

import pytest

from figures import __main__ as figures
from figures import catalogue
from reproduction import (
    beforehand,
    markdown,
    published,
    readings,
    records,
    reproduce,
    verdicts,
)
from sweeps.table import TableError
from tests.reproduction.threads import draw_in_a_thread


@pytest.fixture(scope="module", autouse=True)
def _drawn_without_a_process():
    """A run draws in a process of its own, as tests of ``reproduce`` see; here in a thread."""
    with pytest.MonkeyPatch.context() as patch:
        draw_in_a_thread(patch)
        yield


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """A folder into which figure 12 was published at the smallest sizes, and figure 11 with it."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "FIGURES", folder)
        patch.setattr(reproduce, "EXPECTED", folder / "gallery" / "expected.json")
        command = ["--profile=smoke", "--figures=12", f"--results={folder}", "--publish"]
        assert reproduce.main(command) == 0
    return folder / "gallery"


@pytest.mark.slow
def test_a_picture_is_drawn_again_from_what_is_published_beside_it(gallery, tmp_path):
    """Class: a picture whose numbers nobody can look up."""
    table = gallery / "smoke" / "layer_sweep.csv"
    for figure in ("fig11", "fig12"):
        assert figures.main([figure, f"--from={table}", f"--out={tmp_path}"]) == 0
        for suffix in (".png", ".txt"):
            again = (tmp_path / figure).with_suffix(suffix).read_bytes()
            assert again == (gallery / "smoke" / figure).with_suffix(suffix).read_bytes()


def _verdicts(folder, expected):
    return verdicts.main(["--profile=smoke", f"--gallery={folder}", f"--expected={expected}"])


def test_verdicts_are_computed_again_from_what_is_published(gallery, tmp_path, capsys):
    """Class: a verdict that only who computed the cells can check."""
    assert _verdicts(gallery, gallery / "expected.json") == 0
    shown = capsys.readouterr().out
    assert "12: not testable: printed: caption of Figure 12" in shown
    assert re.search(r"^printed by paper A: \d+: .*not testable here$", shown, re.MULTILINE)
    assert "no table in" in shown
    known = json.loads((gallery / "expected.json").read_text())
    for entry in known["smoke"].values():
        entry["status"] = {"holds": "fails"}.get(entry["status"], "holds")
    other = tmp_path / "expected.json"
    other.write_text(json.dumps(known))
    assert _verdicts(gallery, other) == 1
    assert "changed: 12: " in capsys.readouterr().out


def test_verdicts_of_new_readings_are_recorded_without_a_run(gallery, tmp_path):
    """Class: a reading that is written down anew, and a record that only a run can renew."""
    folder, expected = tmp_path / "figures", tmp_path / "expected.json"
    shutil.copytree(gallery, folder / "gallery")
    known = json.loads((gallery / "expected.json").read_text())
    before = known["smoke"].popitem()
    expected.write_text(json.dumps(known))
    command = ["--profile=smoke", f"--gallery={folder / 'gallery'}", f"--expected={expected}"]
    assert verdicts.main(command) == 1
    assert verdicts.main([*command, "--record"]) == 0
    assert json.loads(expected.read_text())["smoke"][before[0]] == before[1]
    assert "# Findings" in (folder / "FINDINGS.md").read_text()
    assert verdicts.main(command) == 0


def test_a_table_of_another_version_is_told_and_its_records_stay(tmp_path, capsys):
    """Class: one old table, and a trace in place of all verdicts (a column was renamed)."""
    folder, expected = tmp_path / "figures" / "gallery", tmp_path / "expected.json"
    folder.mkdir(parents=True)
    for name in ("alpha_sweep", "batch_norm_sweep"):
        for suffix in (".csv", ".json"):
            shutil.copy((published.GALLERY / name).with_suffix(suffix), folder)
    header, rest = (folder / "alpha_sweep.csv").read_text().split("\n", 1)
    (folder / "alpha_sweep.csv").write_text(header.replace("width", "units") + "\n" + rest)
    known = records.read(records.EXPECTED)
    expected.write_text(json.dumps(known))
    command = ["--profile=laptop", f"--gallery={folder}", f"--expected={expected}", "--record"]
    assert verdicts.main(command) == 1
    shown = capsys.readouterr()
    assert "alpha_sweep.csv has no column 'width'; another version wrote it" in shown.err
    assert records.read(expected) == known


def test_a_damaged_published_table_is_a_mistake_and_no_trace(gallery, tmp_path, capsys):
    folder = tmp_path / "smoke"
    folder.mkdir()
    (folder / "layer_sweep.csv").write_text("depth\n")
    (folder / "layer_sweep.json").write_bytes((gallery / "smoke" / "layer_sweep.json").read_bytes())
    assert _verdicts(tmp_path, gallery / "expected.json") == 1
    assert "layer_sweep.csv has no rows" in capsys.readouterr().err


@pytest.fixture
def reproduces(gallery, monkeypatch):
    """Figure 12 of the smallest sizes by ``reproduce``, where its table is published."""
    monkeypatch.setattr(reproduce, "FIGURES", gallery.parent)
    monkeypatch.setattr(reproduce, "EXPECTED", gallery / "expected.json")

    def run(results, *options):
        chosen = ["--profile=smoke", "--figures=12", f"--results={results}", *options]
        return reproduce.main(chosen)

    return run


def test_with_published_tables_all_is_drawn_and_judged_and_nothing_computed(
    gallery, reproduces, tmp_path, monkeypatch, capsys
):
    """Class: hours of computing for pictures whose tables stand beside the code."""
    monkeypatch.setattr(reproduce.cli, "run", lambda *_: pytest.fail("a cell is computed"))
    assert reproduces(tmp_path, "--published", "--strict") == 0
    shown = capsys.readouterr().out
    assert "layer_sweep smoke: taken from the published table, which took" in shown
    drawn = tmp_path / "figures" / "smoke" / "fig12.png"
    assert drawn.read_bytes() == (gallery / "smoke" / "fig12.png").read_bytes()
    report = (tmp_path / "smoke" / "report.md").read_text()
    recorded = json.loads((gallery / "expected.json").read_text())["smoke"]
    about = [entry["number"] for entry in recorded.values() if entry["figure"] == "fig12"]
    assert about
    for number in about:
        assert markdown.escaped(number) in report


def test_what_has_no_published_table_is_computed(gallery, reproduces, tmp_path, capsys):
    assert reproduces(tmp_path) == 0  # is not asked to take it
    assert reproduces(tmp_path, "--published") == 0  # has its cells already
    assert "published table, which took" not in capsys.readouterr().out
    (gallery / "smoke" / "layer_sweep.json").rename(gallery / "layer_sweep.json")
    try:
        assert reproduces(tmp_path / "other", "--published", "--dry_run") == 0
        assert "to compute" in capsys.readouterr().out
    finally:
        (gallery / "layer_sweep.json").rename(gallery / "smoke" / "layer_sweep.json")


def test_how_long_all_of_it_takes_is_said_before_it_begins(gallery, reproduces, tmp_path, capsys):
    """Class: a run of hours that says so when they are over."""
    origin = gallery / "smoke" / "layer_sweep.json"
    before = json.loads(origin.read_text())
    origin.write_text(json.dumps({**before, "seconds": 7200, "device": "abacus"}))
    try:
        assert reproduces(tmp_path, "--dry_run") == 0
        told = "about 2 h 0 min of one process, as the published tables tell (abacus)"
        shown = capsys.readouterr().out
        assert shown.startswith(f"to compute: {told}")
        assert "1/1 layer_sweep, 0% done" in shown
        origin.write_text(json.dumps({**before, "missing": 3}))  # of a part no whole is told
        assert reproduces(tmp_path, "--dry_run") == 0
        assert "of one process" not in capsys.readouterr().out
    finally:
        origin.write_text(json.dumps(before))
    assert reproduces(tmp_path) == 0
    capsys.readouterr()
    assert reproduces(tmp_path) == 0  # nothing is left
    assert "of one process" not in capsys.readouterr().out


def test_a_run_says_which_share_of_its_time_is_over():
    known = beforehand.Forecast({"long": 30.0, "short": 10.0}, frozenset({"cpu"}), ("new",))
    shares = [known.done(names) for names in ((), ["short"], ["short", "new", "long"])]
    assert shares == ["0% done", "25% done", "100% done"]
    assert "about 40 s of one process" in str(known)
    assert str(known).endswith("and what new takes")
    nothing = beforehand.Forecast({}, frozenset(), ("new",))
    assert str(nothing) == nothing.done(["new"]) == ""


def test_several_figures_are_not_drawn_from_the_table_of_one(gallery, capsys):
    with pytest.raises(SystemExit):
        figures.main(["fig11", "fig12", "--from=layer_sweep.csv"])
    assert "is the table of one figure, and 2 are named; name one" in capsys.readouterr().err
    assert figures.main(["fig04", f"--from={gallery / 'smoke' / 'layer_sweep.csv'}"]) == 1
    assert "fig04 is drawn from no table; leave --from out" in capsys.readouterr().err


def test_of_a_large_table_the_parts_of_its_figures_are_published_as_they_are(tmp_path):
    """Class: a table that has grown beyond what its figures show; c2 takes the printed steps."""
    header = "figure,network,steps,measured,data,loss"
    rows = {
        "resnet20": '14,resnet20,printed,True,"images, padded",0.1',
        "between": "14,resnet20,printed,False,images,0.2",
        "vgg5": "16,vgg5,printed,True,images,0.10000000000000001",
        "vgg5 between": "16,vgg5,printed,False,images,",
        "smaller": "16,vgg5,smaller,True,images,0.3",
        "other": "17,resnet20,smaller,True,images,0.3",
    }
    (tmp_path / "table.csv").write_text("\n".join([header, *rows.values()]) + "\n")
    (tmp_path / "provenance.json").write_text("{}")
    parts = {
        "pruning_sweep": ["resnet20", "vgg5", "vgg5 between", "smaller"],
        "depth_sweep": list(rows),
    }
    for experiment, chosen in parts.items():
        path = tmp_path / "table.csv"
        text = published.to_publish(path, experiment, tmp_path)
        published.publish(text, path, experiment, tmp_path)
        lines = (tmp_path / f"{experiment}.csv").read_text().splitlines()
        assert lines == [header, *(rows[name] for name in chosen)], experiment
        assert (tmp_path / f"{experiment}.json").read_text() == "{}"


def test_a_table_with_fewer_rows_does_not_take_the_place_of_the_published_one(tmp_path):
    """Class: publishing where data are not at hand dropped 2,421 rows that took hours."""
    (tmp_path / "depth_sweep.csv").write_text("depth,kappa\n2,1.0\n3,2.0\n")
    (tmp_path / "table.csv").write_text("depth,kappa\n2,1.0\n")
    with pytest.raises(TableError, match=r"has 1 rows to publish and .* 2; compute the cells"):
        published.to_publish(tmp_path / "table.csv", "depth_sweep", tmp_path)
    published.to_publish(tmp_path / "table.csv", "beta_sweep", tmp_path)  # none is there


@pytest.mark.parametrize("profile", records.PROFILES)
def test_each_table_is_published_once_and_beside_every_picture_is_its_table(profile):
    """Class: eighteen copies of six tables."""
    folder = published.gallery(profile)
    drawn = [name for name in catalogue.from_tables() if (folder / f"{name}.png").is_file()]
    wanted = {published.table_of(name, folder) for name in drawn}
    assert set(folder.glob("*.csv")) == wanted
    assert set(folder.glob("*.json")) == {path.with_suffix(".json") for path in wanted}
    assert len({path.read_bytes() for path in wanted}) == len(wanted)


def test_figures_of_the_same_table_are_published_together(tmp_path):
    """Class: a picture of an older table than that beside it."""
    options = reproduce._parsed(["--figures=12,2", "--publish"])
    assert options.figures == ["fig02", "fig03", "fig11", "fig12"]
    assert reproduce._parsed(["--figures=12,2"]).figures == ["fig02", "fig12"]


def test_without_a_profile_both_are_judged(gallery, capsys):
    """From the tables that are there: of the paper's sizes there is none here."""
    assert verdicts.main([f"--gallery={gallery}", f"--expected={gallery / 'expected.json'}"]) == 0
    shown = capsys.readouterr().out
    for profile, folder in (("laptop", gallery), ("paper", gallery / "paper")):
        assert f"{profile}: the tables in {folder}" in shown
        assert f"no table in {folder} of " in shown


@pytest.mark.slow
@pytest.mark.parametrize("profile", records.PROFILES)
def test_the_verdicts_from_the_published_tables_are_those_recorded(profile):
    """Statuses and numbers; the same table gives the same text."""
    known = json.loads(records.EXPECTED.read_text(encoding="utf-8"))[profile]
    again = {}
    for section in verdicts.judged(profile, published.gallery(profile)):
        for claim, found in section.verdicts:
            name = readings.name(claim)
            again[name] = found
            assert name in known, f"{name}: python -m reproduction.verdicts --record records it"
            assert (found.status, found.text) == (known[name]["status"], known[name]["number"])
    if profile == "laptop":  # every figure has its table, and nothing recorded is left out
        assert again.keys() == known.keys()
