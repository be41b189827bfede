"""One page for each file of docs/examples: its text, its code, and the picture that it draws."""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

from figures.shared.style import COLOURS, paper_style

EXAMPLES = Path(__file__).parent / "examples"
_SIZE = (5.2, 3.2)  # inches
_DPI = 160


@dataclass(frozen=True)
class Example:
    """A file of docs/examples: a docstring whose first line is the title, then code."""

    name: str
    title: str
    text: str
    code: str


def examples() -> list[Example]:
    """In the order of their names."""
    return [_example(path) for path in sorted(EXAMPLES.glob("*.py"))]


def write(folder: Path) -> list[Path]:
    """Run every example, and write its picture, its page and an index of all into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    found = examples()
    pages = {example.name: page(example, run(example, folder)) for example in found}
    pages |= {"index": _index(found)}
    paths = []
    for name, text in pages.items():
        paths.append(folder / f"{name}.md")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def run(example: Example, folder: Path) -> str:
    """Draw the picture of an example into ``folder``; what it prints is returned."""
    printed = io.StringIO()
    cycle = mpl.cycler(color=COLOURS)
    settings = {
        "figure.figsize": _SIZE,
        "figure.constrained_layout.use": True,
        "axes.prop_cycle": cycle,
    }
    with paper_style(), mpl.rc_context(settings), contextlib.redirect_stdout(printed):
        pyplot.switch_backend("agg")
        exec(compile(example.code, f"{example.name}.py", "exec"), {"__name__": "__main__"})
        pyplot.gcf().savefig(folder / f"{example.name}.png", dpi=_DPI)
        pyplot.close("all")
    return printed.getvalue()


def page(example: Example, printed: str) -> str:
    """The picture first, then the lines that draw it."""
    parts = [
        f"# {example.title}",
        f"![{example.title}]({example.name}.png)",
        example.text,
        f"```python\n{example.code.strip()}\n```",
    ]
    if printed:
        parts += ["It prints", f"```\n{printed.rstrip()}\n```"]
    parts.append(
        f"Run it with `python docs/examples/{example.name}.py` and `plt.show()` at its end."
    )
    return "\n\n".join(parts) + "\n"


def _example(path: Path) -> Example:
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source))
    if not docstring:
        msg = f"{path} needs a docstring: a title, an empty line, and what the picture shows"
        raise ValueError(msg)
    title, _, text = docstring.partition("\n")
    code = source.split('"""', 2)[2].strip() + "\n"
    return Example(path.stem, title.strip(), text.strip(), code)


def _index(found: Sequence[Example]) -> str:
    cards = (card(e.title, f"{e.name}.md", f"{e.name}.png") for e in found)
    contents = "\n".join(["```{toctree}", ":hidden:", *(e.name for e in found), "```"])
    text = "Small examples, each drawn by the lines that its page shows when this site is built."
    return "\n\n".join(["# Gallery", text, columns(cards), contents]) + "\n"


def card(title: str, page: str, picture: str) -> str:
    """A picture below its title, both links to the page; the title alone where there is none."""
    shown = f"\n\n[![{title}]({picture})]({page})" if picture else ""
    return f":::{{container}}\n[{title}]({page}){shown}\n:::"


def columns(cards: Iterable[str]) -> str:
    """Cards side by side, as many as the window has room for."""
    return "\n".join(["::::{container} gallery", *cards, "::::"])
