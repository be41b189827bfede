"""What is installed: the engine runs on its own dependencies, and what is missing is named."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import gnjax
import sweeps
from gnjax.cli.main import main
from gnjax.numerics.extras import MissingExtraError, optional

_ROOT = Path(__file__).parent.parent
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
_MODULES = {
    "orbax-checkpoint": "orbax",
    "scikit-learn": "sklearn",
    "markdown-it-py": "markdown_it",
}  # of packages whose module is called otherwise


def _modules(requirements):
    names = [re.split(r"[\[><=]", requirement)[0] for requirement in requirements]
    return {_MODULES.get(name, name) for name in names}


def _imports(tree):
    """The modules that are imported when the code runs, inside of functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_the_library_imports_what_it_depends_on_and_nothing_else():
    """Anything more would be missing where the wheel alone is installed."""
    allowed = {*sys.stdlib_module_names, "gnjax", *_modules(_PROJECT["dependencies"])}
    for path in (_ROOT / "gnjax").rglob("*.py"):
        named = {name.split(".")[0] for name in _imports(ast.parse(path.read_text()))}
        assert named <= allowed, (path, named - allowed)


def test_every_extra_that_a_message_names_installs_the_package():
    extras = _PROJECT["optional-dependencies"]
    for module in ("matplotlib", "orbax", "pandas", "pooch", "safetensors", "sklearn", "torch"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtraError, match="pip install") as refused:
                optional(module, "this")
        (extra,) = re.findall(r"gnjax\[(\w+)\]", str(refused.value))
        assert module in _modules(extras[extra])


@pytest.mark.parametrize(
    ("module", "extra", "ask"),
    [
        ("matplotlib", "plot", lambda: gnjax.plot(gnjax.eigenvalues(np.eye(2)))),
        ("pandas", "tables", lambda: gnjax.eigenvalues(np.eye(2)).to_pandas()),
        ("sklearn", "data", lambda: gnjax.data.load("digits")),
        ("sklearn", "data", lambda: gnjax.data.load("photo_patches", samples=10)),
    ],
)
def test_what_comes_with_an_extra_says_so_where_it_is_missing(monkeypatch, module, extra, ask):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=rf"gnjax\[{extra}\]"):
        ask()


def test_commands_say_what_is_missing_before_they_compute(monkeypatch, capsys, tmp_path):
    for module in ("matplotlib", "pooch"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    picture = ["spectrum", "tests.toy:nothing_of_this_name", "--out=a.png"]
    for command, extra in ((picture, "plot"), (["data", "fetch", "mnist"], "data")):
        assert main(command) == 1
        assert f"gnjax[{extra}]" in capsys.readouterr().err


_COMMANDS = (
    "-m experiments.depth_sweep --config=configs/depth_sweep.py:smoke --dry_run",
    "-m experiments.reproduce --profile=smoke",
    "-m figures fig02",
    "-m reproduction.verdicts",
    "docs/howto/own_sweep.py --config=docs/howto/own_sweep.py:small",
)


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_command_of_the_checkout_names_the_extra_in_one_sentence(command, tmp_path):
    """Class: with gnjax[plot] alone every experiment and figure ends in a traceback."""
    code = "import sys\nfor name in ('ml_collections', 'pandas'):\n    sys.modules[name] = None\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{_ROOT}"}
    done = subprocess.run(
        [sys.executable, *command.split()],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (told,) = done.stderr.splitlines()
    assert "ml_collections, pandas" in told
    assert told.endswith("pip install '.[experiments]' in the checkout of gnjax")


def test_everything_that_experiments_look_for_comes_with_their_extra():
    extras = _PROJECT["optional-dependencies"]
    parts = [*extras["experiments"], *extras["plot"], *extras["tables"]]
    assert set(sweeps._NEEDED) == _modules(parts) - {"gnjax"}


def test_something_else_that_is_missing_is_not_called_an_extra(monkeypatch, tmp_path):
    """A package whose own dependency is missing is installed, and the first message is right."""
    (tmp_path / "pooch.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pooch", raising=False)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name") as refused:
        optional("pooch", "a download")
    assert not isinstance(refused.value, MissingExtraError)


def test_the_engine_answers_with_no_extra_installed():
    code = """
import sys
for name in ("matplotlib", "pandas", "pooch", "sklearn", "torch", "ml_collections", "ray"):
    sys.modules[name] = None
import numpy as np, gnjax, gnjax.papers
gnjax.enable_x64()
print(gnjax.condition_number(np.diag([4.0, 1.0])).value)
print(gnjax.data.load("fashion_mnist_5000", samples=3).inputs.shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "4.0"


def _text(name):
    return (_ROOT / name).read_text()


def _cited(field):
    return re.search(rf"^{field}: (.*)$", _text("CITATION.cff"), re.MULTILINE).group(1)


def test_each_release_has_a_page_and_the_next_changes_have_their_place():
    """The page is for a user; what else has changed stands in the file of docs/history."""
    _, unreleased, *pages = re.split(r"^## ", _text("CHANGELOG.md"), flags=re.MULTILINE)
    assert unreleased.startswith("Unreleased\n")
    assert pages[0].startswith(f"{_PROJECT['version']} - {_cited('date-released')}\n")
    for page in pages:
        assert f"(docs/history/{page.split()[0]}.md)" in page


def test_version_and_address_have_one_place():
    assert _cited("version") == _PROJECT["version"]
    address = _PROJECT["urls"]["Repository"]
    for name in ("CITATION.cff", "SECURITY.md", "notebooks/colab.py", "notebooks/colab.ipynb"):
        assert address in _text(name), name
        assert name in _text("scripts/set_address.py")
    assert all(url.startswith(address) for url in _PROJECT["urls"].values())


def test_the_wheel_is_the_library_alone():
    found = tomllib.loads(_text("pyproject.toml"))["tool"]["setuptools"]["packages"]["find"]
    assert found == {"include": ["gnjax*"]}
    assert not [path for path in (_ROOT / "gnjax").rglob("*test*")]


def test_workflows_and_hooks_call_what_is_there():
    makefile = _text("Makefile")
    for path in [*(_ROOT / ".github" / "workflows").glob("*.yml"), _ROOT / ".ci" / "run"]:
        for target in re.findall(r"(?:step|run:) make ([a-z-]+)", path.read_text()):
            assert f"\n{target}:" in makefile, (path, target)
    for command in re.findall(r"entry: \.venv/bin/([\w-]+)", _text(".pre-commit-config.yaml")):
        package = {"lint-imports": "import-linter"}.get(command, command)
        assert package in {
            re.split(r"[\[><=]", needed)[0] for needed in _PROJECT["optional-dependencies"]["dev"]
        }
