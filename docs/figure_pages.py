"""One page a figure, and the findings, written from what the repository keeps of the last run."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from gallery_pages import card, columns

from figures import catalogue
from reproduction.appendices import PAGES
from reproduction.markdown import escaped
from reproduction.readings import all_claims, figure_of, name
from reproduction.records import PROFILES, Records, Section
from sweeps.claims import FAILS, Claim, Sentence

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "figures"
UNRECORDED = "not recorded"


def write(folder: Path) -> list[Path]:
    """A page for every figure, an index of them and the findings, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = KEPT / "expected.json"
    records = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    claims = all_claims()
    pages = {
        figure: page(figure, [c for c in claims if figure_of(c) == figure], records, folder)
        for figure in catalogue.names()
    }
    pages |= {"index": _index(folder), "findings": _findings(folder), **_behind()}
    return [_written(folder / f"{title}.md", text) for title, text in pages.items()]


def page(figure: str, claims: list[Claim], records: Records, folder: Path) -> str:
    """Picture and caption, the claims with what was found, and how to run it again."""
    section = _section(figure)
    parts = [
        f"# {escaped(_summary(figure))}",
        *_picture(section, folder),
        "## What the paper claims, and what we found",
        *(_verdicts(claims, records) if claims else ["The paper makes no claim about it."]),
        "## Run it again",
        f"```\n{_commands(section)}\n```",
        *_costs(figure),
    ]
    return "\n\n".join(parts) + "\n"


def _section(figure: str) -> Section:
    """What the gallery holds of a figure."""
    picture, caption = (KEPT / "gallery" / f"{figure}{suffix}" for suffix in (".png", ".txt"))
    both = picture.is_file() and caption.is_file()
    text = caption.read_text(encoding="utf-8").strip() if both else ""
    return Section(figure, picture if both else None, text, (), {})


def _picture(section: Section, folder: Path) -> Iterator[str]:
    if section.picture is None:
        yield escaped(_summary(section.figure))
        yield "The gallery does not hold its picture yet; `make gallery` draws it."
        return
    yield f"![{section.title}]({_picture_path(section, folder)})"
    yield escaped(section.caption)


def _picture_path(section: Section, folder: Path) -> str:
    """The picture as a page in ``folder`` names it; "" for none."""
    return Path(os.path.relpath(section.picture, folder)).as_posix() if section.picture else ""


def _verdicts(claims: list[Claim], records: Records) -> Iterator[str]:
    """A list for every recorded profile; the claims alone where nothing was recorded."""
    recorded = [p for p in PROFILES if any(name(claim) in records.get(p, {}) for claim in claims)]
    if not recorded:
        yield "No verdicts are recorded yet: the commands below check every claim and print them."
        yield "\n".join(_claim(claim) for claim in claims)
    for profile in recorded:
        yield f"At the {profile} profile:"
        yield "\n".join(_claim(claim, records[profile].get(name(claim), {})) for claim in claims)


def _claim(claim: Claim, found: Mapping[str, str] | None = None) -> str:
    """One line: the statement and its source, its verdict, the number and why it fails."""
    known = found or {}
    status = "" if found is None else f": **{known.get('status', UNRECORDED)}**"
    why = claim.mechanism if known.get("status") == FAILS else ""
    read = f", {claim.read_as}" if isinstance(claim.source, Sentence) else ""
    sentences = [
        f"- {escaped(f'({claim.figure}) {claim.statement} ({claim.source}{read})')}{status}",
        escaped(known.get("number", "")),
        f"Why: {escaped(why.rstrip('.'))}" if why else "",
    ]
    return ". ".join(sentence for sentence in sentences if sentence) + "."


def _commands(section: Section) -> str:
    number = section.anchor.removeprefix("fig")
    lines = [f"python -m experiments.reproduce --figures={number} --profile=laptop"]
    if (experiment := _experiment(section.figure)) is not None:
        config = f"configs/{experiment}.py:laptop"
        lines.append(f"python -m experiments.{experiment} --config={config}")
    lines.append(f"python -m figures {section.figure} --profile=laptop")
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
        card(f"{_section(f).title}: {_shown(f)}", f"{f}.md", _picture_path(_section(f), folder))
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
    kept = Path(os.path.relpath(KEPT, folder)).as_posix()
    text = path.read_text(encoding="utf-8")
    gallery = re.sub(r"(?<!!)\[([^\]]*)\]\(gallery[^)]*\)", r"figures/\1", text)
    gallery = gallery.replace("](gallery/", f"]({kept}/gallery/")
    listed = "\n".join(["```{toctree}", ":hidden:", *_behind(), "```"])
    return f"{gallery.replace('](findings/', '](')}\n{listed}\n"


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
