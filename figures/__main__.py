"""`python -m figures fig02 --profile=laptop`: draw figures from the saved tables."""

import argparse
import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from matplotlib.figure import Figure

from experiments import table
from figures import fig02, fig03, fig04, fig11, fig12, style
from figures.series import Columns


class TableFigure(Protocol):
    """A module whose figure is a function of the table of one experiment."""

    @property
    def EXPERIMENT(self) -> str: ...

    @property
    def COLUMNS(self) -> tuple[str, ...]: ...

    def draw(self, table: Columns) -> Figure: ...

    def caption(self, table: Columns, provenance: Mapping[str, Any]) -> str: ...


FROM_TABLES: dict[str, TableFigure] = {
    "fig02": fig02,
    "fig03": fig03,
    "fig11": fig11,
    "fig12": fig12,
}
SCHEMATICS = {"fig04": fig04}
NAMES = sorted([*FROM_TABLES, *SCHEMATICS])
FORMATS = (".png", ".pdf")


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the named figures and print what was written; 2 where the user has something to mend."""
    parser = _parser()
    options = parser.parse_args(arguments)
    names = _chosen(options.names, parser)
    out = options.out or options.results / "figures" / options.profile
    try:
        for name in names:
            for path in render(name, options.profile, options.results, out):
                print(path)
    except (table.TableError, OSError) as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    return 0


def render(name: str, profile: str, results: Path, out: Path) -> Iterator[Path]:
    """Write one figure in every format with its caption beside it, and yield each path."""
    if name in SCHEMATICS:
        figure, caption = SCHEMATICS[name].draw(), SCHEMATICS[name].caption()
    else:
        module = FROM_TABLES[name]
        columns, provenance = _saved(module, profile, results)
        figure, caption = module.draw(columns), module.caption(columns, provenance)
    for suffix in FORMATS:
        path = out / f"{name}{suffix}"
        style.save(figure, path)
        yield path
    path = out / f"{name}.txt"
    with style.replacing(path) as partial:
        partial.write_text(caption + "\n", encoding="utf-8")
    yield path


def _saved(module: TableFigure, profile: str, results: Path) -> tuple[Columns, dict[str, Any]]:
    """The table and provenance that a figure needs, or an error that says how to make them."""
    experiment = module.EXPERIMENT
    folder = results / experiment / profile
    for path in (folder / "table.csv", folder / "provenance.json"):
        if not path.is_file():
            msg = (
                f"{path} does not exist; make it with\n"
                f"  python -m experiments.{experiment}"
                f" --config=configs/{experiment}.py:{profile}"
            )
            others = sorted(found.parent.name for found in folder.parent.glob("*/table.csv"))
            if others:
                msg += f"\nor draw a profile that has its table: {', '.join(others)}"
            raise table.TableError(msg)
    columns = table.read(folder / "table.csv", needed=module.COLUMNS)
    return columns, table.read_provenance(folder / "provenance.json")


def _chosen(names: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """The figures asked for, `all` standing for every one; a wrong name ends the program."""
    for name in names:
        if name not in (*NAMES, "all"):
            padded = re.sub(r"\d+", lambda digits: digits.group().zfill(2), name)  # fig2 -> fig02
            near = difflib.get_close_matches(padded, NAMES, n=1, cutoff=0.0)[0]
            parser.error(f"no figure {name!r}; did you mean {near!r}? {', '.join(NAMES)} or all")
    return NAMES if "all" in names else list(names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m figures", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="figure", help=f"{', '.join(NAMES)} or all")
    parser.add_argument("--profile", default="laptop", help="whose tables to draw (%(default)s)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where tables are")
    parser.add_argument("--out", type=Path, help="where to write (RESULTS/figures/PROFILE)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
