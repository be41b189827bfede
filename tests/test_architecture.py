"""The house rules that a machine can check."""

import ast
import re
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_PACKAGES = (
    "gnjax",
    "sweeps",
    "experiments",
    "configs",
    "figures",
    "reproduction",
    "benchmarks",
)


def _modules():
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            parts = path.relative_to(_ROOT).with_suffix("").parts
            yield ".".join(p for p in parts if p != "__init__"), path


@cache
def _nodes(path):
    return tuple(ast.walk(ast.parse(path.read_text())))


def _imports(path):
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_private_module_of_another_library_is_imported():
    for module, path in _modules():
        private = [name for name in _imports(path) if "_src" in name.split(".")]
        assert not private, f"{module} imports {private}"


_REFERENCE = _ROOT / "docs" / "reference" / "api"
_ROOMS = tuple(
    [
        "",
        ".answers",
        ".data",
        ".models",
        ".operators",
        ".operators.metrics",
        ".papers",
        ".papers.training",
    ]
)
_PROGRAMS = ("sweeps", "reproduction", "benchmarks")  # they share the terminal of the library's own


def _public_names():
    """What a user may import: the names of the rooms, and what the reference documents."""
    names = {f"gnjax{room}" for room in _ROOMS}
    for room in _ROOMS:
        names |= {f"gnjax{room}.{name}" for name in import_module(f"gnjax{room}").__all__}
    text = "\n".join(page.read_text() for page in _REFERENCE.glob("*.md"))
    names |= set(re.findall(r"\.\. auto(?:function|class):: (\S+)", text))
    for module in re.findall(r"\.\. automodule:: (\S+)\n   :members:", text):
        names |= {f"{module}.{name}" for name in vars(import_module(module)) if name[0] != "_"}
    return names


def test_what_uses_the_library_imports_public_names_alone():
    public = _public_names()
    for module, path in _modules():
        top = module.split(".")[0]
        used = {name for name in _imports(path) if name.split(".")[0] == "gnjax"}
        if top in _PROGRAMS:
            used = {name for name in used if not name.startswith("gnjax.cli.")}
        assert top == "gnjax" or used <= public, f"{module} imports {sorted(used - public)}"


def test_library_has_no_broad_handlers_and_prints_nothing():
    for module, path in _modules():
        source = path.read_text()
        handlers = len(re.findall(r"except (?:Exception|BaseException)\b(?!:\n\s+Path)", source))
        assert handlers == (1 if module == "sweeps.launchers.work" else 0), module
        assert not re.search(r"except\s*:", source), module
        if module.startswith("gnjax") and not module.startswith("gnjax.cli"):
            assert not re.search(r"^\s*print\(", source, re.MULTILINE), module


_ENGINE = ("gnjax.spectra", "gnjax.conditioning", "gnjax.operators.prepare")
_KINDS = ("gnjax.networks", "gnjax.operators.of_networks", "gnjax.operators.metrics")
_OF_FACTS = {"Operator", "Factorisation", "Product"}  # what operators are and state, and no kind


def test_the_engine_knows_operators_by_their_facts_alone():
    """Spectra and kappa import no class of an operator, and read no attribute of a network's."""
    modules = [(module, path) for module, path in _modules() if module.startswith(_ENGINE)]
    assert len(modules) > 50
    for module, path in modules:
        imports = list(_imports(path))
        assert not [name for name in imports if name.startswith(_KINDS)], module
        last = {name.split(".")[-1] for name in imports if name.startswith("gnjax.operators")}
        classes = {name for name in last if name[0].isupper() and not name.isupper()}
        assert not classes - _OF_FACTS, module
        nodes = _nodes(path)
        names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        names |= {node.value for node in nodes if isinstance(node, ast.Constant)}  # of getattr
        assert not names & {"net", "side"}, module


def _static_names(decorator):
    """The strings in ``static_argnames`` and ``donate_argnames`` of a decorator."""
    for call in ast.walk(decorator):
        for keyword in call.keywords if isinstance(call, ast.Call) else ():
            if keyword.arg in ("static_argnames", "donate_argnames"):
                for node in ast.walk(keyword.value):
                    if isinstance(node, ast.Constant):
                        yield node.value


def test_static_arguments_of_compiled_functions_name_parameters():
    """``bounded_jit`` compiles at the first call, and only then does JAX refuse a wrong name."""
    count = 0
    for module, path in _modules():
        for node in _nodes(path):
            if isinstance(node, ast.FunctionDef):
                names = [name for d in node.decorator_list for name in _static_names(d)]
                parameters = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                unknown = set(names) - {parameter.arg for parameter in parameters}
                assert not unknown, f"{module}.{node.name} has no parameter {sorted(unknown)}"
                count += len(names)
    assert count > 0


_TEXTS = {".py", ".md", ".toml", ".txt", ".json", ".yml", ".yaml", ".cff", ""}


def _tracked():
    try:
        done = subprocess.run(
            ["git", "ls-files"], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    for name in done.stdout.splitlines():
        path = _ROOT / name
        if path.is_file() and path.suffix in _TEXTS:
            yield path


def test_no_registry_and_no_path_of_a_machine():
    patterns = [
        "index" + "-url",
        "pypi" + r"\.org",
        "files." + "pythonhosted",
        "deb" + r"\.debian\.org",
        r"[\s\"'(=]/(?:work|root|home)" + "/",
    ]
    for path in _tracked():
        text = path.read_text(encoding="utf-8", errors="ignore")
        for pattern in patterns:
            assert not re.search(pattern, text), f"{path.name} contains {pattern}"


def test_no_unfinished_business():
    words = ["TO" + "DO", "FIX" + "ME", "Not" + "ImplementedError"]
    for path in _tracked():
        if path.suffix == ".py":
            text = path.read_text()
            assert not any(re.search(rf"\b{word}\b", text) for word in words), path.name
