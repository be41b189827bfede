"""The code that can change the numbers of a cell: found from its source, hashed without comments.

The closure of an experiment is the file that defines its ``measure`` and every file that this one
imports, directly or through others, imports inside functions included. Files of gnjax count, and
files that lie below the folder from which the experiment is imported. Other packages count by
their versions, see :mod:`sweeps.storage.environment`.

One rule leaves files out: ``sweeps`` computes no number, it starts, stores and shows. Of it only
``sweeps.storage.checkpoint`` counts, because the state of a killed measurement passes through it.
``experiments.claims`` reads tables that are already there, so that a claim may be worded anew
without computing anything again.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_COUNTED = "sweeps.storage.checkpoint"
_READ_TABLES = ("sweeps", "experiments.claims")


@dataclass(frozen=True)
class Source:
    """One file: a hash of what it does, and the names that it imports."""

    fingerprint: str
    imports: tuple[str, ...]


@dataclass(frozen=True)
class Closure:
    """The files that count, by the names of their modules, and the other packages they import."""

    files: dict[str, Path]
    packages: frozenset[str]


def closure(start: Path) -> Closure:
    """All files that can change what the functions of the file ``start`` return."""
    home, name = _place(start)
    files: dict[str, Path] = {}
    packages: set[str] = set()
    left = _with_parents(name)  # Python runs the packages around a module before the module
    while left:
        name = left.pop()
        path = _file(name, home)
        if path is None:
            packages |= set() if "." in name else {name}
        elif name not in files and _counts(name):
            files[name] = path
            left += read(path, name).imports
    return Closure(files, frozenset(packages))


def fingerprint(found: Closure) -> str:
    """A hash of what the files do; comments, docstrings and formatting do not change it."""
    digest = hashlib.sha256()
    for name, path in sorted(found.files.items()):
        digest.update(f"{name} {read(path, name).fingerprint}\n".encode())
    return digest.hexdigest()


@cache
def read(path: Path, name: str) -> Source:
    """The file as it is when this process first asks, which is soon after it was imported.

    What is read later may be an edited file that this process does not run.
    """
    tree = ast.parse(path.read_bytes())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports: set[str] = set()
    for node in ast.walk(tree):
        imports.update(_imported(node, package))
        _drop_texts(node)
    return Source(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(sorted(imports)))


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """The modules that a statement may import; ``from a import b`` may mean the module a.b."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _with_parents(alias.name)
    elif isinstance(node, ast.ImportFrom):
        outer = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*outer, *([node.module] if node.module else [])])
        yield from _with_parents(base)
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> list[str]:
    """a.b.c as a, a.b and a.b.c."""
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _drop_texts(node: ast.AST) -> None:
    """Remove a node's statements that are only a text, such as docstrings: they compute nothing."""
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if isinstance(statements, list):
            setattr(node, field, [each for each in statements if not _is_text(each)])


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _counts(name: str) -> bool:
    inside = any(name == each or name.startswith(f"{each}.") for each in _READ_TABLES)
    return name == _COUNTED or not inside


def _place(path: Path) -> tuple[Path, str]:
    """The folder from which a file is imported, and the name of its module there."""
    home, parts = path.resolve().parent, [path.stem]
    while (home / "__init__.py").is_file():
        home, parts = home.parent, [home.name, *parts]
    return home, ".".join(parts)


@cache
def _file(name: str, home: Path) -> Path | None:
    """The source of a module of this repository; None for whatever else the name may mean.

    Asked once for each name, because the same modules are imported all over the repository.
    """
    top = name.split(".")[0]
    stem = (_folder_of(top) or home).joinpath(*name.split("."))
    candidates = (stem / "__init__.py", stem.with_name(f"{stem.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


@cache
def _folder_of(package: str) -> Path | None:
    """Where Python finds a package of this repository, for experiments that lie elsewhere."""
    spec = find_spec(package) if package in ("gnjax", "sweeps", "experiments") else None
    return Path(spec.origin).resolve().parents[1] if spec and spec.origin else None
