"""`python -m figures fig02 --profile=laptop`: draw figures from the saved tables.

`python -m figures fig02 --from=figures/gallery/depth_sweep.csv` draws one from a published table.
"""

import argparse
import difflib
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib

from figures import catalogue
from figures.catalogue import TableFigure
from figures.shared import points, style
from sweeps import table
from sweeps.storage.files import StoreError, write_atomically

POINTS = ".points.svg"
SUFFIXES = (".png", POINTS, ".pdf", ".txt")  # points after the picture, whose layout they have
_PASSING = ("dates", "git", "machine", "python", "device", "seconds")  # not in a stamp


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the named figures and print the files, and return 0.

    It is 1 where a table is not what its figure needs, 2 for another mistake that the user can
    mend, and 130 after Ctrl-C.
    """
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        print("stopped; every file that was printed is complete", file=sys.stderr)
        return 130


def _main(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    names = _chosen(options.names, parser)
    if options.table is not None and len(names) > 1:
        parser.error(f"--from is the table of one figure, and {len(names)} are named; name one")
    folder = options.profile if options.table is None else options.table.resolve().parent.name
    out = options.out or options.results / "figures" / folder
    try:
        for name in names:
            if options.table is None:
                files = saved(name, options.profile, options.results)
            else:
                files = _published(name, options.table)
            for path in render(name, files, out, foreign=options.table is not None):
                print(path)
    except (table.TableError, StoreError, OSError) as error:
        print(f"figures: {error}", file=sys.stderr)
        return 1 if isinstance(error, table.TableError) else 2
    return 0


def render(
    name: str, files: tuple[Path, Path] | None, out: Path, *, foreign: bool = False
) -> Iterator[Path]:
    """Write one figure in every format, what its points tell, its caption, and yield each path.

    Args:
      name: the figure.
      files: its table, and how the table was computed; None for a figure without a table.
      out: the folder to write to.
      foreign: whether others can have changed the table (:func:`sweeps.table.read`).
    """
    module = catalogue.load(name)
    if not isinstance(module, TableFigure):
        figure, caption = module.draw(), module.caption()
    else:
        assert files is not None
        frame = table.read(files[0], needed=module.COLUMNS, foreign=foreign)
        provenance = table.read_provenance(files[1])
        figure, caption = module.draw(frame), module.caption(frame, provenance)
    for suffix in SUFFIXES:
        path = out / f"{name}{suffix}"
        if suffix == POINTS:
            write_atomically(path, points.overlay(figure))
        elif suffix == ".txt":
            write_atomically(path, caption + "\n")
        else:
            style.save(figure, path)
        yield path


def drawn(name: str, files: tuple[Path, Path] | None, out: Path) -> list[Path]:
    """The files of :func:`render`, written again only where the table or the code changed."""
    paths = [out / f"{name}{suffix}" for suffix in SUFFIXES]
    stamp, current = out / f"{name}.stamp", _stamp(files)
    if stamp.is_file() and stamp.read_text() == current and all(p.is_file() for p in paths):
        return paths
    paths = list(render(name, files, out))
    write_atomically(stamp, current)
    return paths


def _stamp(files: tuple[Path, Path] | None) -> str:
    """A hash of the table, of its provenance but dates and machine, and of the code that draws."""
    digest = hashlib.sha256(matplotlib.__version__.encode())
    if files is not None:
        rows, origin = files
        provenance = table.read_provenance(origin)
        lasting = {key: value for key, value in provenance.items() if key not in _PASSING}
        digest.update(rows.read_bytes())
        digest.update(json.dumps(lasting, sort_keys=True).encode())
    for path in (*sorted(Path(__file__).parent.rglob("*.py")), Path(table.__file__)):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def saved(name: str, profile: str, results: Path) -> tuple[Path, Path] | None:
    """The table of a figure and its provenance, or an error that says how to make them.

    None for a figure without a table.
    """
    module = catalogue.load(name)
    if not isinstance(module, TableFigure):
        return None
    experiment = module.EXPERIMENT
    folder = results / experiment / profile
    found = folder / "table.csv", folder / "provenance.json"
    for path in found:
        if not path.is_file():
            msg = (
                f"{path} does not exist; make it with\n"
                f"  python -m experiments.{experiment}"
                f" --config=configs/{experiment}.py:{profile}"
            )
            others = sorted(other.parent.name for other in folder.parent.glob("*/table.csv"))
            if others:
                msg += f"\nor draw a profile that has its table: {', '.join(others)}"
            raise table.TableError(msg)
    return found


def _published(name: str, rows: Path) -> tuple[Path, Path]:
    """A table anywhere, and its provenance, which stands beside it."""
    module = catalogue.load(name)
    if not isinstance(module, TableFigure):
        msg = f"{name} is drawn from no table; leave --from out"
        raise table.TableError(msg)
    if not rows.is_file():
        what = "is a folder" if rows.is_dir() else "does not exist"
        msg = (
            f"{rows} {what}, where the table of {name} is looked for; --from takes a file, such as "
            f"the published one: --from={catalogue.GALLERY / module.EXPERIMENT}.csv"
        )
        raise FileNotFoundError(msg)
    return rows, table.provenance_beside(rows)


def _chosen(names: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """The figures asked for, `all` standing for every one; a wrong name ends the program."""
    known = catalogue.names()
    for name in names:
        if name not in (*known, "all"):
            padded = re.sub(r"\d+", lambda digits: digits.group().zfill(2), name)  # fig2 -> fig02
            near = difflib.get_close_matches(padded, known, n=1, cutoff=0.0)[0]
            parser.error(f"no figure {name!r}; did you mean {near!r}? {', '.join(known)} or all")
    return known if "all" in names else list(names)


def _parser() -> argparse.ArgumentParser:
    known = catalogue.names()
    parser = argparse.ArgumentParser(
        prog="python -m figures", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("names", nargs="+", metavar="figure", help=f"{', '.join(known)} or all")
    parser.add_argument("--profile", default="laptop", help="whose tables to draw (%(default)s)")
    parser.add_argument(
        "--from", dest="table", type=Path, metavar="FILE", help="a published table of one figure"
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="where tables are")
    parser.add_argument("--out", type=Path, help="where to write (RESULTS/figures/PROFILE)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
