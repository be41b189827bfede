"""One page a figure, and the findings, written from what the repository keeps of the last run."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from gallery_pages import card, columns

from figures import catalogue
from reproduction import figure_findings, questioned, records, sides
from reproduction.appendices import PAGES
from reproduction.markdown import escaped
from reproduction.readings import all_claims, title
from reproduction.sides import Side

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "figures"


def write(folder: Path) -> list[Path]:
    """A page for every figure, an index of them and the findings, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    known = sides.of_records(records.read(KEPT / "expected.json"), all_claims(), KEPT / "gallery")
    pages = {figure: page(figure, known, folder) for figure in catalogue.names()}
    pages |= {"index": _index(folder), "findings": _findings(folder), **_behind()}
    _written(folder / questioned.NAME, questioned.page(known, None))
    return [_written(folder / f"{title}.md", text) for title, text in pages.items()]


def page(figure: str, known: Sequence[Side], folder: Path) -> str:
    """Its page of findings under the title of its module, and how to run it again."""
    shown = "\n\n".join(figure_findings.below_title(figure, known, folder))
    parts = [
        f"# {escaped(_summary(figure))}",
        re.sub(r"(?<!!)\[([^\]]*)\]\([^)]*\.csv\)", r"\1", shown),  # no page of the site
        "## Run it again",
        f"```\n{_commands(figure)}\n```",
        *_costs(figure),
    ]
    return "\n\n".join(parts) + "\n"


def _kept(folder: Path) -> str:
    """The way from a folder of pages to the figures of the repository."""
    return Path(os.path.relpath(KEPT, folder)).as_posix()


def _commands(figure: str) -> str:
    number = title(figure).removeprefix("Figure ").lower()
    lines = [f"python -m experiments.reproduce --figures={number} --profile=laptop"]
    if (experiment := _experiment(figure)) is not None:
        config = f"configs/{experiment}.py:laptop"
        lines.append(f"python -m experiments.{experiment} --config={config}")
    lines.append(f"python -m figures {figure} --profile=laptop")
    return "\n".join(lines)


def _costs(figure: str) -> Iterator[str]:
    """What the config's docstring says below its command: sizes, choices and time."""
    experiment = _experiment(figure)
    if experiment is not None:
        described = inspect.getdoc(import_module(f"configs.{experiment}")) or ""
        paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", described)]
        yield from (escaped(p) for p in paragraphs[1:] if not p.startswith("python -m "))


def _experiment(figure: str) -> str | None:
    module = catalogue.load(figure)
    return module.EXPERIMENT if isinstance(module, catalogue.TableFigure) else None


def _summary(figure: str) -> str:
    """The first line of the module's docstring, "Figure 2: condition number ..."."""
    return (inspect.getdoc(catalogue.load(figure)) or figure).splitlines()[0].removesuffix(".")


def _shown(figure: str) -> str:
    """What the figure shows, without its number."""
    return _summary(figure).split(": ", 1)[-1]


def _index(folder: Path) -> str:
    """A card for each figure: its picture, titled by what it shows."""
    cards = (
        card(f"{title(f)}: {_shown(f)}", f"{f}.md", f"{_kept(folder)}/gallery/{f}.png")
        for f in catalogue.names()
    )
    contents = "\n".join(["```{toctree}", ":hidden:", *catalogue.names(), "```"])
    return "\n\n".join(["# Figures", columns(cards), contents]) + "\n"


def _findings(folder: Path) -> str:
    """FINDINGS.md, whose links lead to the pages of the site, and its pictures to the gallery."""
    path = KEPT / "FINDINGS.md"
    if not path.is_file():
        return (
            "# Findings\n\nNone are recorded yet; `make gallery` runs everything and writes them.\n"
        )
    text = path.read_text(encoding="utf-8")
    gallery = re.sub(r"(?<!!)\[([^\]]*)\]\(gallery[^)]*\)", r"figures/\1", text)
    gallery = gallery.replace("](gallery/", f"]({_kept(folder)}/gallery/")
    listed = "\n".join(["```{toctree}", ":hidden:", *_behind(), "```"])
    pages = gallery.replace("](findings/", "](")
    table = re.escape(questioned.NAME)  # no page of Sphinx; docs/conf.py copies it
    pages = re.sub(rf"\[([^\]]*)\]\({table}\)", rf'<a href="{questioned.NAME}">\1</a>', pages)
    return f"{pages}\n{listed}\n"


def _behind() -> dict[str, str]:
    """The summary, the authors' numbers beside ours, and the pages that no run writes."""
    folder = KEPT / "findings"
    paths = [folder / f"{title}.md" for title in ("summary", "authors", *PAGES)]
    return {
        path.stem: path.read_text(encoding="utf-8").replace("](../FINDINGS.md)", "](findings.md)")
        for path in paths
        if path.is_file()
    }


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
