"""The documentation says what is there: pages, names, commands, and a notebook with its text."""

import importlib.util
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import gnjax
from figures import catalogue
from gnjax.conditioning.methods import METHODS
from reproduction.findings import figure_of, name
from sweeps.claims import Claim, verdict

_ROOT = Path(__file__).parent.parent
_COMMANDS = ("gnjax", "sweeps", "experiments", "figures", "reproduction", "benchmarks")
_PAGES = sorted((_ROOT / "docs").glob("*.md"))
_TEXT, _NOTEBOOK = (_ROOT / "notebooks" / f"colab{suffix}" for suffix in (".py", ".ipynb"))


@pytest.fixture(scope="module")
def figure_pages():
    spec = importlib.util.spec_from_file_location("figure_pages", _ROOT / "docs/figure_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cells_of_text(text):
    """(kind, source) of every cell in the percent format."""
    body = re.sub(r"\A# ---\n.*?^# ---\n", "", text, flags=re.DOTALL | re.MULTILINE)
    for marker, source in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", body, re.MULTILINE):
        if "[markdown]" in marker:
            yield "markdown", re.sub(r"^# ?", "", source.strip(), flags=re.MULTILINE)
        else:
            yield "code", source.strip()


def test_notebook_is_its_text():
    cells = json.loads(_NOTEBOOK.read_text())["cells"]
    stored = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    assert stored == list(_cells_of_text(_TEXT.read_text()))
    assert len(stored) > 5


def test_notebook_is_its_text_for_jupytext():
    jupytext = pytest.importorskip("jupytext", reason="jupytext comes with gnjax[docs]")
    text, stored = jupytext.read(_TEXT), jupytext.read(_NOTEBOOK)
    assert [(c.cell_type, c.source) for c in text.cells] == [
        (c.cell_type, c.source) for c in stored.cells
    ]


def test_notebook_keeps_no_outputs():
    for cell in json.loads(_NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_notebook_installs_and_keeps_the_jax_it_finds(tmp_path, monkeypatch):
    """On a machine without checkout and gnjax: clone, then install under pins of jax."""
    calls = []

    def run(command, **options):
        assert options == {"check": True}
        calls.append([str(part) for part in command])
        if "clone" in command:
            (command[-1] / "experiments").mkdir(parents=True)
            (command[-1] / "experiments" / "reproduce.py").touch()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cells = [source for kind, source in _cells_of_text(_TEXT.read_text()) if kind == "code"]
    exec("\n".join(cells[:2]), {})
    clone, install = calls
    checkout, pins = tmp_path / "gnjax-checkout", tmp_path / "pins.txt"
    assert clone[-1] == install[-1] == str(checkout)
    assert install[install.index("-c") + 1] == str(pins)
    assert pins.read_text() == f"jax=={version('jax')}\njaxlib=={version('jaxlib')}\n"


def test_every_figure_has_a_page(figure_pages, tmp_path):
    written = {path.stem: path.read_text() for path in figure_pages.write(tmp_path / "figures")}
    assert set(written) == {*catalogue.names(), "index", "findings"}
    for figure in catalogue.names():
        assert f"({figure}.md)" in written["index"]
        assert re.search(rf"^{figure}$", written["index"], re.MULTILINE)
        assert f"python -m figures {figure} --profile=laptop" in written[figure]
        for picture in re.findall(r"!\[.*\]\((.*)\)", written[figure]):
            assert (tmp_path / "figures" / picture).resolve().is_file()


def test_every_claim_is_on_its_figures_page(figure_pages, tmp_path):
    figure_pages.write(tmp_path)
    claims = figure_pages.all_claims()
    assert len(claims) > 50
    for claim in claims:
        page = (tmp_path / f"{figure_of(claim)}.md").read_text().replace("\\", "")
        assert f"({claim.figure}) {claim.statement}".replace("\\", "") in page


_CLAIM = Claim(
    "2a", "kappa <= bound_1", lambda table: verdict(True, 1.0, "always"), paper="6 to 12"
)


def test_page_shows_recorded_verdicts(figure_pages, tmp_path):
    entry = {"figure": "fig02", "status": "holds", "number": "worst ratio 0.9 * 1"}
    records = {"laptop": {name(_CLAIM): entry}, "smoke": {name(_CLAIM): entry | {"status": "no"}}}
    page = figure_pages.page("fig02", [_CLAIM], records, tmp_path)
    line = r"- (2a) kappa \<= bound\_1: **holds**. worst ratio 0.9 \* 1. The paper: 6 to 12."
    assert line in page
    assert "At the laptop profile:" in page
    assert "smoke profile" not in page
    assert "python -m experiments.depth_sweep --config=configs/depth_sweep.py:laptop" in page


def test_page_says_what_is_missing(figure_pages, tmp_path, monkeypatch):
    monkeypatch.setattr(figure_pages, "KEPT", tmp_path / "nothing")
    page = figure_pages.page("fig02", [_CLAIM], {}, tmp_path)
    assert "does not hold its picture yet" in page
    assert "No verdicts are recorded yet" in page
    assert "![" not in page
    other = Claim("2b", "another", _CLAIM.check)
    known = {"laptop": {name(other): {"figure": "fig02", "status": "holds", "number": "1"}}}
    page = figure_pages.page("fig02", [_CLAIM, other], known, tmp_path)
    assert f"**{figure_pages.UNRECORDED}**" in page


def test_the_table_of_methods_is_that_of_the_code():
    page = (_ROOT / "docs" / "choosing.md").read_text()
    for method in METHODS.values():
        assert f"| `{method.name}` | {method.summary} | {method.needs} |" in page


def test_every_public_name_is_in_the_reference():
    reference = (_ROOT / "docs" / "api.md").read_text()
    documented = set(
        re.findall(r"auto(?:function|class|module):: gnjax\.([\w.]+)$", reference, re.MULTILINE)
    )
    documented |= {name.rpartition(".")[2] for name in documented}
    assert documented >= set(gnjax.__all__)


@pytest.mark.parametrize("page", [*_PAGES, _ROOT / "README.md"], ids=lambda path: path.name)
def test_commands_name_modules_and_configs_that_exist(page):
    text = page.read_text()
    for module in re.findall(r"python -m ([\w.]+)", text):
        if module.split(".")[0] in (
            "gnjax",
            "experiments",
            "figures",
            "benchmarks",
            "sweeps",
            "reproduction",
        ):
            assert importlib.util.find_spec(module) is not None, module
        else:
            assert module in sys.stdlib_module_names, module
    for config in re.findall(r"configs/\w+\.py", text):
        assert (_ROOT / config).is_file(), config
    for target in re.findall(
        r"make ([a-z-]+)", "\n".join(re.findall(r"^make .*|`make .*?`", text))
    ):
        assert f"\n{target}:" in (_ROOT / "Makefile").read_text(), target


@pytest.mark.parametrize("page", _PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page):
    text = page.read_text()
    known = {path.stem for path in _PAGES}
    for target in re.findall(r"\{doc\}`(\w+)`", text):
        assert target in known
    generated = {*catalogue.names(), "index", "findings"}
    for target in re.findall(r"\(figures/(\w+)\.md\)", text):
        assert target in generated
    for picture in re.findall(r"\]\((\.\./.*?\.png)\)", text):
        assert (page.parent / picture).is_file()


def test_the_site_needs_no_network():
    """Formulas are plain text: typesetting them would fetch a script."""
    settings = (_ROOT / "docs" / "conf.py").read_text()
    assert "intersphinx" not in settings
    for page in _PAGES:
        assert not re.search(r"\{math\}|\$\$|https?://", page.read_text()), page.name
