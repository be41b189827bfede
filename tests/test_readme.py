"""What the README says runs: its Python, its calls, its links in the wheel."""

import ast
import doctest
import inspect
import re
import runpy
import tomllib
from functools import reduce
from pathlib import Path

import gnjax

_ROOT = Path(__file__).parent.parent
_README = _ROOT / "README.md"
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_examples():
    found = doctest.testfile(str(_README), module_relative=False)
    assert found.attempted >= 4
    assert found.failed == 0


def test_kappa_is_explained_before_it_is_used():
    text = _README.read_text(encoding="utf-8")
    assert text.index("kappa") == text.index("kappa, measures that: it is the largest eigenvalue")


def test_the_calls_are_calls_of_public_functions():
    """Each is parsed, and its arguments are those that the function takes."""
    code = re.findall(r"`(gnjax\.[^`]*)`", _README.read_text(encoding="utf-8"))
    found = [node for text in code for node in ast.walk(ast.parse(text)) if _is_call(node)]
    assert len(found) > 15
    for call in found:
        path = ast.unparse(call.func).split(".")[1:]
        function = reduce(getattr, path, gnjax)
        keywords = {keyword.arg: None for keyword in call.keywords}
        inspect.signature(function).bind(*call.args, **keywords)


def _is_call(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("gnjax.")


def _setup(monkeypatch):
    """What setup.py makes a description with, and what it gives to a build."""
    given = {}
    monkeypatch.setattr("setuptools.setup", lambda **options: given.update(options))
    names = runpy.run_path(str(_ROOT / "setup.py"), run_name="__main__")
    return names["described"], given


def test_a_build_leaves_nothing_in_the_checkout(monkeypatch):
    _, given = _setup(monkeypatch)
    assert not Path(given["options"]["build"]["build_base"]).is_relative_to(_ROOT)


def test_links_of_the_wheels_description_lead_into_the_repository(monkeypatch):
    """Class: a path in README that leads nowhere where the description stands alone."""
    described, given = _setup(monkeypatch)
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address, text = project["urls"]["Repository"], _README.read_text(encoding="utf-8")
    targets = _LINK.findall(given["long_description"])
    assert len(targets) == len(_LINK.findall(text)) > 20
    for target in targets:
        found = re.fullmatch(re.escape(address) + r"/(blob|raw)/main/([^#]*)(#.*)?", target)
        assert found, target
        assert (_ROOT / found[2]).is_file(), target
        assert (found[1] == "raw") == (Path(found[2]).suffix == ".png"), target
    assert described("[a](https://x.org) [b](#c)", address) == "[a](https://x.org) [b](#c)"
