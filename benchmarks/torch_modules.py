"""Modules of PyTorch: kappa, ten Hessian eigenvalues and block spectra, beside other tools.

    pip install -e '.[torch]' -r benchmarks/rivals/requirements-torch-modules.txt
    python -m benchmarks.torch_modules [--models=cnn,vit] [--tasks=kappa,hessian,blocks] [--save]

Six modules (benchmarks/rivals/public_modules.py) in float64. Every tool runs in a process of its
own, one after the other, on the same cores. Seconds are of the first answer, with all that it
compiles, and of the median of those after it. The difference is the largest of all eigenvalues from
those of torch.func, relative to the largest; for kappa it is relative to kappa. Ten Hessian
eigenvalues are those of the cross-entropy to a residual of 1e-6 (gnjax: 1e-10, its default); kappa
and the blocks are those of its Gauss-Newton matrix, the blocks by layer. A tool that does not do a
task says why. Run it on an idle machine. ``--save`` writes the numbers of every model as soon as
they are there, keeps those of other models, and renews the table of
docs/howto/models/torch_modules.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import record, tables

NAME = "torch_modules"
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "models" / "torch_modules.md"
TASKS = {
    "kappa": "kappa of G",
    "hessian": "ten Hessian eigenvalues",
    "blocks": "spectra of all layers",
}
TOOLS = ("gnjax", "curvlinops", "hessian-eigenthings")
REFERENCE = "torch.func"
PATIENCE = 400.0  # seconds for one tool on one task
INTRODUCTION = f"""## How long it takes

Seconds of the first answer, compilation included, and where it was measured of the next one; in
brackets the largest difference from `torch.func`, relative to the largest eigenvalue or to kappa. A
dash: the tool does not do it, not at this size, or not in {PATIENCE:.0f} seconds, in which
hessian-eigenthings also has to find the number of steps that leaves a residual of 1e-6."""


def main() -> None:
    from benchmarks.rivals.public_modules import CASES  # which needs PyTorch

    by_function = {function.__name__: name for name, function in CASES.items()}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", default=",".join(by_function), help="separated by commas")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds for one tool on one task"
    )
    parser.add_argument("--save", action="store_true", help="write the numbers and the table")
    options = parser.parse_args()
    models, tasks = options.models.split(","), options.tasks.split(",")
    for given, known in ((models, by_function), (tasks, TASKS)):
        if wrong := [name for name in given if name not in known]:
            parser.error(f"no {', '.join(wrong)}; there are {', '.join(known)}")
    began = record.environment()
    for model in models:
        rows: list[record.Row] = []
        for task in tasks:
            found = list(_compared(by_function[model], task, options))
            record.show(found)
            rows += found
        if options.save:
            save(rows, began)
            PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")


def save(rows: Sequence[record.Row], began: dict[str, Any], folder: Path = record.FOLDER) -> None:
    """Write the rows of one model, in place of those of it that were written before."""
    measured = {_model(row.case) for row in rows}
    path = folder / f"{NAME}.json"
    before = json.loads(path.read_text("utf-8"))["rows"] if path.is_file() else []
    kept = [row for row in before if _model(row["case"]) not in measured]
    record.save(NAME, rows, began, folder, kept)


def _model(case: str) -> str:
    return case.partition(", ")[2]


def _compared(model: str, task: str, options: argparse.Namespace) -> Iterator[record.Row]:
    """A row for each tool, with its difference from the reference."""
    case = f"{TASKS[task]}, {model}"
    with tempfile.TemporaryDirectory() as folder:
        reference, exact = _run(model, task, REFERENCE, Path(folder), options, repeats=0)
        if exact is None:
            yield record.Row(case, REFERENCE, None, note=reference["refused"])
        for tool in TOOLS:
            report, arrays = _run(model, task, tool, Path(folder), options, options.repeats)
            if arrays is None:
                yield record.Row(case, tool, None, note=report["refused"])
                continue
            apart = None if exact is None else difference(task, arrays, exact)
            again = f", then {median(report['again']):.3g} s" if report["again"] else ""
            yield record.Row(
                case,
                tool,
                [report["first"]],
                error=apart,
                gigabytes=report["peak_gb"],
                note=f"{report['parameters']:,} parameters{again}",
            )


def _run(
    model: str, task: str, tool: str, folder: Path, options: argparse.Namespace, repeats: int
) -> tuple[dict[str, Any], dict[str, np.ndarray] | None]:
    """The report of a tool and its numbers; None where it has none, and the report says why."""
    out = folder / f"{tool}.json"
    command = [sys.executable, "-m", "benchmarks.rivals.torch_tools", model, task, tool, str(out)]
    command += [f"--threads={options.threads}", f"--repeats={repeats}"]
    try:
        subprocess.run(
            command, check=True, timeout=options.patience, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return {"refused": f"no answer in {options.patience:.0f} s"}, None
    except subprocess.CalledProcessError as error:
        return {"refused": _why(error)}, None
    report: dict[str, Any] = json.loads(out.read_text("utf-8"))
    if "refused" in report:
        return report, None
    with np.load(out.with_suffix(".npz")) as stored:
        return report, dict(stored)


def _why(error: subprocess.CalledProcessError) -> str:
    """The last line that a failed tool printed, or how it ended if it printed nothing."""
    if lines := error.stderr.strip().splitlines():
        return str(lines[-1])
    if error.returncode < 0:
        return f"killed by signal {-error.returncode}; 9 often means that memory ran out"
    return f"ended with the status {error.returncode} and printed nothing"


def difference(
    task: str, found: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray]
) -> float:
    """The largest difference of eigenvalues over the largest one, or of kappa over kappa."""
    if task == "kappa":
        values = exact["all"]
        kappa = values[0] / values[int(found["rank"]) - 1]
        return float(abs(found["kappa"] / kappa - 1))
    names = set(exact) if task == "blocks" else {"values"}
    largest = max(float(exact[name].max()) for name in names)
    return max(_apart(found[name], exact[name]) for name in names) / largest


def _apart(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference of two descending spectra; what one has more of counts as zero."""
    size = max(len(found), len(exact))
    one, other = (np.pad(values, (0, size - len(values))) for values in (found, exact))
    return float(np.abs(one - other).max())


def renewed(text: str, folder: Path = record.FOLDER) -> str:
    """The page with its table made anew from the measurement in a folder."""
    before, _, rest = text.partition(tables.BEGIN)
    _, found, after = rest.partition(tables.END)
    if not found:
        msg = f"the page has no lines {tables.BEGIN} and {tables.END}, between which the table goes"
        raise ValueError(msg)
    measured = json.loads((folder / f"{NAME}.json").read_text("utf-8"))
    text = f"{INTRODUCTION}\n\n{table(measured)}"
    return f"{before}{tables.BEGIN}\n\n{text}\n{tables.END}{after}"


def table(measured: Mapping[str, Any]) -> str:
    """A line for each model, and a column for each task and tool: seconds first, and then."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    for row in measured["rows"]:
        title = row["case"].partition(", ")[0]
        found.setdefault(_model(row["case"]), {})[title, row["tool"]] = _cell(row)
    columns = [("kappa", "gnjax"), *(("hessian", tool) for tool in TOOLS)]
    columns += [("blocks", "gnjax"), ("blocks", "curvlinops")]
    heads = [f"{TASKS[task]}: {tool}" for task, tool in columns]
    lines = [f"| model | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for model, cells in found.items():
        shown = (cells.get((TASKS[task], tool), "-") for task, tool in columns)
        lines.append(f"| {model} | {' | '.join(shown)} |")
    return "\n".join([*lines, "", _measured(measured["environment"]), ""])


def _cell(row: Mapping[str, Any]) -> str:
    if "seconds" not in row:
        return "-"
    then = row["note"].partition(" parameters")[2].removesuffix(" s")
    apart = f" ({row['error']:.0e})" if row.get("error") is not None else ""
    return f"{row['seconds']['median']:.3g}{then}{apart}"


def _measured(environment: Mapping[str, Any]) -> str:
    """A sentence that says when, on what machine and with which versions it was measured."""
    return (
        f"`python -m benchmarks.torch_modules` on {environment['cores']} cores"
        f" ({environment['cpu']}), {environment['date']} at {environment['commit']}."
    )


if __name__ == "__main__":
    main()
