"""The code that counts: all that is imported and nothing else, whatever its comments say."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from sweeps import command_line
from sweeps.storage import closure

_EXPERIMENTS = sorted({path.stem for path in Path("configs").glob("*.py")} - {"__init__"})
_FILES = {
    "mine/__init__.py": "",
    "mine/sweep.py": (
        "import numpy.linalg\nfrom mine import direct\nfrom sweeps import launch\n"
        "def measure(cell):\n    from .inner import late\n    return late.value(cell)\n"
    ),
    "mine/direct.py": "from mine.inner.deep import VALUE as other\n",
    "mine/inner/__init__.py": "from ..beside import x\n",
    "mine/inner/late.py": "async def value(cell):\n    import optax\n    return 1 + 2 * cell\n",
    "mine/inner/deep.py": "VALUE = 3\n",
    "mine/beside.py": "x = 1\n",
    "mine/stranger.py": "x = 1\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in _FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    closure.read.cache_clear()
    yield tmp_path
    closure.read.cache_clear()


def _fingerprint(folder):
    return closure.fingerprint(closure.closure(folder / "mine/sweep.py"))


def _fingerprint_with(folder, name, text):
    (folder / name).write_text(text)
    closure.read.cache_clear()
    return _fingerprint(folder)


def test_imports_are_followed_wherever_they_stand(folder):
    found = closure.closure(folder / "mine/sweep.py")
    expected = {name for name in _FILES if name != "mine/stranger.py"}
    assert {str(path.relative_to(folder)) for path in found.files.values()} == expected
    assert found.packages == {"numpy", "optax"}


def test_the_package_of_the_experiment_itself_counts(folder):
    (folder / "other").mkdir()
    (folder / "other/__init__.py").write_text("import mine.beside\n")
    (folder / "other/sweep.py").write_text("def measure(cell):\n    return {}\n")
    found = closure.closure(folder / "other/sweep.py").files
    assert found.keys() == {"other", "other.sweep", "mine", "mine.beside"}


@pytest.mark.parametrize("name", [name for name in _FILES if name != "mine/stranger.py"])
def test_a_change_of_any_file_that_counts_is_seen(folder, name):
    before = _fingerprint(folder)
    assert _fingerprint_with(folder, name, _FILES[name] + "y = 2\n") != before
    assert _fingerprint_with(folder, name, _FILES[name]) == before


def test_a_file_that_nobody_imports_does_not_count(folder):
    before = _fingerprint(folder)
    assert _fingerprint_with(folder, "mine/stranger.py", "x = 2\n") == before


def test_comments_docstrings_and_formatting_do_not_count_and_numbers_do(folder):
    before = _fingerprint(folder)
    rewritten = (
        '"""A module."""\n\nasync def value(cell):\n    """A function."""\n'
        "    import optax  # late\n\n    return (\n        1\n        + 2 * cell\n    )\n"
    )
    assert _fingerprint_with(folder, "mine/inner/late.py", rewritten) == before
    changed = rewritten.replace("2 * cell", "3 * cell")
    assert _fingerprint_with(folder, "mine/inner/late.py", changed) != before


def test_a_text_that_is_used_counts(folder):
    name = "mine/beside.py"
    first = _fingerprint_with(folder, name, "x = 'a'\n")
    assert _fingerprint_with(folder, name, "x = 'b'\n") != first


def test_an_edit_during_a_run_does_not_change_what_this_process_runs(folder):
    before = _fingerprint(folder)
    (folder / "mine/beside.py").write_text("x = 2\n")
    assert _fingerprint(folder) == before


def test_python_imports_nothing_that_the_closures_miss():
    """The other road: what stands in sys.modules after every experiment was imported."""
    script = (
        "import sys\n"
        f"for name in {_EXPERIMENTS}: __import__('experiments.' + name)\n"
        "tops = ('gnjax', 'experiments')\n"
        "print(*(n for n in sys.modules if n.split('.')[0] in tops))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    imported = set(done.stdout.split())
    files = [Path(import_module(f"experiments.{name}").__file__) for name in _EXPERIMENTS]
    counted = set().union(*(closure.closure(path).files for path in files))
    assert {"gnjax.papers.closed_form.from_weights", "experiments.shared.whitened"} <= imported
    aside = ("gnjax.cli", "experiments.claims")  # no number of a cell comes from there
    assert {name for name in imported - counted if not name.startswith(aside)} == set()


@pytest.mark.parametrize("name", _EXPERIMENTS)
def test_of_the_machinery_only_checkpoints_count(name):
    module = import_module(f"experiments.{name}")
    counted = closure.closure(Path(module.__file__)).files
    machinery = {found for found in counted if found.split(".")[0] == "sweeps"}
    assert machinery <= {"sweeps.storage.checkpoint"}
    assert ("sweeps.storage.checkpoint" in counted) == command_line.named(name).resumes
    other = {f"experiments.{each}" for each in _EXPERIMENTS if each != name}
    assert other.isdisjoint(counted)
