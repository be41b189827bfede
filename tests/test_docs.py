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
from gnjax import papers
from gnjax.conditioning.methods import METHODS
from gnjax.papers.methods import METHODS as OF_LINEAR_NETWORKS
from reproduction import sides
from reproduction.appendices import PAGES
from reproduction.readings import all_claims, figure_of, name
from sweeps.claims import Claim, implied, verdict

_ROOT = Path(__file__).parent.parent
_COMMANDS = ("gnjax", "sweeps", "experiments", "figures", "reproduction", "benchmarks")
_DOCS = _ROOT / "docs"
_PARTS = (
    "start",
    "howto",
    "howto/models",
    "howto/tools",
    "howto/science",
    "answers",
    "reference",
    "reference/api",
)
_PAGES = [
    *_DOCS.glob("*.md"),
    *(page for part in _PARTS for page in sorted((_DOCS / part).glob("*.md"))),
]
_OF_RELEASES = [_ROOT / "CHANGELOG.md", *sorted((_DOCS / "history").glob("*.md"))]
_TEXT, _NOTEBOOK = (_ROOT / "notebooks" / f"colab{suffix}" for suffix in (".py", ".ipynb"))


def _module(name):
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, _DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page",
    [*sorted({*_ROOT.glob("*.md"), *_OF_RELEASES}), *_PAGES],
    ids=lambda page: page.stem,
)
def test_no_page_has_the_marks_of_an_unfinished_merge(page):
    lines = page.read_text().splitlines()
    assert not [line for line in lines if line.startswith(("<<<<<<<", "=======", ">>>>>>>"))]


@pytest.fixture(scope="module")
def figure_pages():
    _module("gallery_pages")  # from which it takes the columns of pictures
    return _module("figure_pages")


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


def test_notebook_has_outputs_that_tell_nothing_of_the_machine_that_made_them():
    """Class: a path, an address or an error of the machine where it ran; after `KEEP=1`."""
    cells = json.loads(_NOTEBOOK.read_text())["cells"]
    ran = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in ran] == list(range(1, len(ran) + 1))
    outputs = [output for cell in ran for output in cell["outputs"]]
    pictures = [output["data"].pop("image/png", "") for output in outputs if "data" in output]
    assert len(list(filter(None, pictures))) > 5
    for output in outputs:
        assert output["output_type"] != "error"
        told = "".join(output.get("text", json.dumps(output)))
        assert not re.search(r"https?:|Traceback|(?<![\w./<])/\w+/", told)
    assert _NOTEBOOK.stat().st_size < 300_000


@pytest.fixture
def installs(tmp_path, monkeypatch):
    """Runs the notebook's first cells where there is no gnjax; gives the commands that it ran."""
    calls = []

    def run(command, **options):
        assert options == {"check": True}
        calls.append([str(part) for part in command])
        if "clone" in command:
            (command[-1] / "experiments").mkdir(parents=True)
            (command[-1] / "experiments" / "reproduce.py").touch()

    def execute(owner):
        cells = [source for kind, source in _cells_of_text(_TEXT.read_text()) if kind == "code"]
        address, install = cells[:2]
        exec("\n".join([address.replace("/OWNER/", owner), install]), {})
        return calls

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return execute


def test_notebook_installs_and_keeps_the_jax_it_finds(installs, tmp_path):
    """On a machine without checkout and gnjax: clone, then install under pins of jax."""
    clone, install = installs("/someone/")
    checkout, pins = tmp_path / "gnjax-checkout", tmp_path / "pins.txt"
    assert clone[-1] == str(checkout)
    assert install[-1] == f"{checkout}[experiments]"
    assert install[install.index("-c") + 1] == str(pins)
    assert pins.read_text() == f"jax=={version('jax')}\njaxlib=={version('jaxlib')}\n"


def test_notebook_runs_from_a_wheel_where_there_is_no_address(installs, tmp_path):
    with pytest.raises(SystemExit, match="upload a wheel"):
        installs("/OWNER/")
    wheel = tmp_path / "gnjax-0.2.0-py3-none-any.whl"
    wheel.touch()
    (install,) = installs("/OWNER/")
    assert install[-1] == f"{wheel}[experiments]"


def test_notebook_begins_with_a_model_of_ones_own():
    text = _TEXT.read_text()
    assert text.index("## Your model") < text.index("gnjax.diagnose") < text.index("## The papers")


def test_every_figure_has_a_page(figure_pages, tmp_path):
    written = {path.stem: path.read_text() for path in figure_pages.write(tmp_path / "figures")}
    behind = {"summary", "authors", *PAGES}
    assert set(written) == {*catalogue.names(), "index", "findings", *behind}
    assert all(re.search(rf"^{page}$", written["findings"], re.MULTILINE) for page in behind)
    texts = "".join(written[page] for page in ("findings", *behind))
    links = re.findall(r"(?<!!)\[[^\]]*\]\((.*?)\)", texts)
    assert {path.removesuffix(".md") for path in links} <= set(written)
    for picture in re.findall(r"!\[.*\]\((.*)\)", written["findings"]):
        assert (tmp_path / "figures" / picture).resolve().is_file()
    for figure in catalogue.names():
        assert f"({figure}.md)" in written["index"]
        heading = (catalogue.load(figure).__doc__ or "").splitlines()[0].removesuffix(".")
        assert written[figure].replace("\\", "").startswith(f"# {heading}\n")
        assert re.search(rf"^{figure}$", written["index"], re.MULTILINE)
        assert f"python -m figures {figure} --profile=laptop" in written[figure]
        for picture in re.findall(r"!\[.*\]\((.*)\)", written[figure]):
            assert (tmp_path / "figures" / picture).resolve().is_file()


def test_every_claim_is_on_its_figures_page(figure_pages, tmp_path):
    figure_pages.write(tmp_path)
    claims = all_claims()
    assert len(claims) > 50
    for claim in claims:
        page = (tmp_path / f"{figure_of(claim)}.md").read_text().replace("\\", "")
        assert f"| {claim.figure} | {claim.statement}".replace("\\", "") in page


def test_page_shows_recorded_verdicts_and_leads_to_no_table(figure_pages, tmp_path):
    claim = Claim("2a", "kappa <= bound_1", implied("Lemma 2"), lambda frame: verdict(True, 1, ""))
    entry = {"figure": "fig02", "status": "holds", "number": "worst ratio 0.9 * 1", "data": "MNIST"}
    known = sides.of_records({"laptop": {name(claim): entry}, "smoke": {}}, [claim])
    page = figure_pages.page("fig02", known, tmp_path)
    assert r"| 2a | kappa \<= bound\_1 (implied: Lemma 2) | **holds**. worst ratio" in page
    assert "## At the laptop profile" in page
    assert "are in depth_sweep.csv;" in page
    assert "smoke profile" not in page
    assert "python -m experiments.depth_sweep --config=configs/depth_sweep.py:laptop" in page
    assert "![" not in figure_pages.page("fig02", [], tmp_path)  # nothing is recorded


def test_the_table_of_methods_is_that_of_the_code():
    page = (_DOCS / "answers" / "choosing.md").read_text()
    for method in (*METHODS.values(), *OF_LINEAR_NETWORKS.values()):
        assert f"| `{method.name}` | {method.summary} | {method.needs} |" in page


def test_every_public_name_is_in_the_reference():
    pages = (_DOCS / "reference" / "api").glob("*.md")
    reference = "\n".join(page.read_text() for page in pages)
    documented = set(
        re.findall(r"auto(?:function|class|module):: gnjax\.([\w.]+)$", reference, re.MULTILINE)
    )
    last = {name: name.rpartition(".")[2] for name in documented}
    documented |= set(last.values())
    documented |= {f"papers.{own}" for name, own in last.items() if name.startswith("papers.")}
    rooms = {
        "answers": gnjax.answers,
        "papers": papers,
        "operators": gnjax.operators,
        "metrics": gnjax.metrics,
    }
    public = {f"{room}.{name}" for room, module in rooms.items() for name in module.__all__}
    missing = sorted({*gnjax.__all__, *public} - documented)
    assert not missing, f"no page of docs/reference/api lists {missing}"


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
            "tests",
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


def test_contributing_shows_lines_that_stand_in_the_files_it_links_to():
    """A line that ends in ``..`` is shown up to there."""
    text = (_ROOT / "CONTRIBUTING.md").read_text()
    files = (_ROOT / name for name in re.findall(r"\]\((\S+\.py)\)", text))
    lines = {line.strip() for file in files for line in file.read_text().splitlines()}
    for block in re.findall(r"^```\n(.*?)```", text, flags=re.DOTALL | re.MULTILINE):
        for line in map(str.strip, block.splitlines()):
            shown = line.removesuffix("..")
            cut = shown != line
            assert any(each.startswith(shown) if cut else each == shown for each in lines), line


_WRITTEN_FOR_THE_SITE = ("reference/figures", "gallery")  # they are in no fresh checkout


@pytest.mark.parametrize(
    "page",
    [*_PAGES, _ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *_OF_RELEASES],
    ids=lambda path: path.name,
)
def test_links_lead_somewhere(page):
    """They are relative, so that they work in the site and in the repository alike."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert "{doc}" not in text
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, part = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not any(path.is_relative_to(_DOCS / each) for each in _WRITTEN_FOR_THE_SITE), target
        assert not part or part in _anchors(path), target


def _anchors(page):
    """The headings of a page as GitHub and the site name them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_experiment_is_in_the_table_of_experiments():
    page = (_DOCS / "reference" / "experiments.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in (_ROOT / "configs").glob("[a-z]*.py"))


def test_every_how_to_page_is_listed_and_has_examples():
    folder = _DOCS / "howto"
    listed = re.findall(r"\]\(([\w/]+)\.md\)", (folder / "index.md").read_text())
    pages = {
        str(path.relative_to(folder).with_suffix("")): path.read_text()
        for path in folder.rglob("*.md")
    }
    assert sorted([*listed, "index"]) == sorted(pages)
    assert all(">>> " in pages[name] for name in listed)


def test_every_picture_of_a_how_to_is_drawn_by_a_line_of_its_page():
    pages = {page: page.read_text() for page in (_DOCS / "howto").rglob("*.md")}
    shown = [
        (text, picture)
        for text in pages.values()
        for picture in re.findall(r"!\[[^\]]*\]\(.*?pictures/([\w.]+)\)", text)
    ]
    assert all(f'savefig("{picture}")' in text for text, picture in shown)
    kept = {path.name for path in (_DOCS / "howto" / "pictures").iterdir()}
    assert kept == {picture for _, picture in shown}


def test_the_gallery_shows_the_picture_that_the_code_draws(tmp_path, monkeypatch):
    gallery = _module("gallery_pages")
    (tmp_path / "line.py").write_text(
        '"""A line\n\nIt rises.\n"""\n\nfrom matplotlib import pyplot\n\n'
        "pyplot.plot([1, 2], [3, 4])\nprint('two points')\n"
    )
    monkeypatch.setattr(gallery, "EXAMPLES", tmp_path)
    page, index = gallery.write(tmp_path / "pages")
    assert page.read_text().startswith("# A line\n\n![A line](line.png)\n\nIt rises.\n")
    assert "pyplot.plot([1, 2], [3, 4])" in page.read_text()
    assert "two points\n" in page.read_text()
    assert "[A line](line.md)" in index.read_text()
    assert "[![A line](line.png)](line.md)" in index.read_text()
    assert (tmp_path / "pages" / "line.png").stat().st_size > 1000


def test_every_example_of_the_gallery_says_what_it_shows():
    found = _module("gallery_pages").examples()
    assert len(found) >= 6
    for example in found:
        assert example.title
        assert example.text
        assert "pyplot" in example.code


def test_the_site_needs_no_network():
    """Formulas are MathML: typesetting them by a script would fetch it."""
    settings = (_DOCS / "conf.py").read_text()
    assert "intersphinx" not in settings
    assert 'html_math_renderer = "mathml"' in settings
    for page in [*_PAGES, *(_DOCS / "_static").iterdir()]:
        assert not re.search(r"https?://", page.read_text()), page.name


def test_formulas_can_be_set():
    """Class: a command of LaTeX that the converter does not know is an error of the whole build."""
    pytest.importorskip("docutils.utils.math.latex2mathml", reason="with gnjax[docs]")
    spaced = _module("mathml").spaced
    assert "&ApplyFunction;" not in spaced(r"\operatorname{rank} G")  # browsers set it as "rankG"
    found = 0
    for page in _PAGES:
        text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
        for formula in re.findall(r"\$\$(.*?)\$\$|\$([^$\n]+)\$", text, re.DOTALL):
            found += 1
            assert spaced("".join(formula), as_block=True).startswith("<math"), page.name
    assert found > 5
