"""Modules of PyTorch: kappa, ten Hessian eigenvalues and block spectra, beside other tools.

    pip install -e '.[torch]' -r benchmarks/rivals/requirements-torch-modules.txt
    python -m benchmarks.torch_modules [--models cnn vit] [--tasks kappa hessian blocks] [--save]

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

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness, record, tables

NAME = "torch_modules"
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "models" / "torch_modules.md"
MODELS = {
    "cnn": "CNN with BatchNorm",
    "resnet18": "resnet18 of torchvision",
    "resnet10t": "resnet10t of timm",
    "vit": "ViT of transformers",
    "gpt2": "GPT-2 of transformers",
    "bert": "BERT of transformers",
}
TASKS = {
    "kappa": "kappa of G",
    "hessian": "ten Hessian eigenvalues",
    "blocks": "spectra of all layers",
}
TOOLS = {
    "gnjax": "benchmarks.torch_modules:gnjax_answer",
    "curvlinops": "benchmarks.rivals.curvlinops:module",
    "hessian-eigenthings": "benchmarks.rivals.hessian_eigenthings:module",
}
REFERENCE = "torch.func"
PATIENCE = 400.0  # seconds for one tool on one task
_BASIS = 4e9  # bytes of a Krylov basis: 40 vectors of ResNet18, as ARPACK has for curvlinops
INTRODUCTION = f"""## How long it takes

Seconds of the first answer, compilation included, and where it was measured of the next one; in
brackets the largest difference from `torch.func`, relative to the largest eigenvalue or to kappa. A
dash: the tool does not do it, not at this size, or not in {PATIENCE:.0f} seconds, in which
hessian-eigenthings also has to find the number of steps that leaves a residual of 1e-6."""


def main(
    models: tuple[str, ...] = tuple(MODELS),
    tasks: tuple[str, ...] = tuple(TASKS),
    threads: int = os.cpu_count() or 1,
    repeats: int = 3,
    patience: float = PATIENCE,
    save: bool = False,
) -> None:
    for given, known in ((models, MODELS), (tasks, TASKS)):
        if wrong := [name for name in given if name not in known]:
            sys.exit(f"no {', '.join(wrong)}; there are {', '.join(known)}")
    began = record.environment()
    for model in models:
        rows: list[record.Row] = []
        for task in tasks:
            for row in compared(model, task, repeats, threads, patience):
                record.show(row)
                rows.append(row)
        if save:
            kept_and(rows, began)
            PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")


def kept_and(
    rows: Sequence[record.Row], began: dict[str, Any], folder: Path = record.FOLDER
) -> None:
    """Write the rows of one model, in place of those of it that were written before."""
    measured = {_model(row.case) for row in rows}
    path = folder / f"{NAME}.json"
    before = json.loads(path.read_text("utf-8"))["rows"] if path.is_file() else []
    kept = [row for row in before if _model(row["case"]) not in measured]
    record.save(NAME, rows, began, folder, kept)


def _model(case: str) -> str:
    return case.partition(", ")[2]


def compared(
    model: str, task: str, repeats: int, threads: int, patience: float
) -> Iterator[record.Row]:
    """A row for each tool, with its difference from the reference."""
    case, exact = f"{TASKS[task]}, {MODELS[model]}", None
    functions = {REFERENCE: "benchmarks.rivals.public_modules:reference"} | TOOLS
    for tool, function in functions.items():
        count = 0 if tool == REFERENCE else repeats
        given = {"name": model, "task": task, "repeats": count}
        try:
            report = harness.apart(function, given, threads=threads, patience=patience)
        except harness.NoAnswerError as reason:
            yield record.Row(case, tool, None, note=str(reason))
            continue
        if tool == REFERENCE:
            exact = report["found"]
            continue
        apart = None if exact is None else difference(task, report["found"], exact)
        again = f", then {median(report['again']):.3g} s" if len(report["again"]) else ""
        yield record.Row(
            case,
            tool,
            [report["first"]],
            error=apart,
            gigabytes=report["gigabytes"],
            note=f"{report['parameters']:,} parameters{again}",
        )


def gnjax_answer(name: str, task: str, repeats: int) -> dict[str, Any]:
    from benchmarks.rivals import public_modules

    return public_modules.answer(gnjax_solver, name, task, repeats)


def gnjax_solver(case: Any, task: str) -> Callable[[], harness.Arrays]:
    import gnjax

    gnjax.enable_x64()
    models: list[Any] = []  # made with the first answer
    options: dict[str, Any] = {"y": case.y, "loss": "cross_entropy"}

    def solve() -> harness.Arrays:
        from benchmarks.rivals.public_modules import nonzero

        models[:] = models or [gnjax.from_torch(case.module)]
        if task == "hessian":
            limits = gnjax.Limits(basis_bytes=_BASIS)
            hessian = gnjax.hessian(models[0], case.x, **options)
            found = gnjax.eigenvalues(hessian, k=harness.EIGENVALUES, limits=limits)
            return {"values": found.values, "errors": found.errors}
        if task == "kappa":
            op = gnjax.gauss_newton(models[0], case.x, side="outputs", **options)
            kappa = gnjax.condition_number(op)
            value = kappa.value if kappa.resolved or kappa.at_rank is None else kappa.at_rank[0]
            return {"kappa": np.array(value), "rank": np.array(kappa.rank)}
        spectra = gnjax.block_spectra(models[0], case.x, **options)
        return {block.name: nonzero(block.spectrum.values) for block in spectra.blocks}

    return solve


def difference(task: str, found: Mapping[str, Any], exact: Mapping[str, Any]) -> float:
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
    measured = json.loads((folder / f"{NAME}.json").read_text("utf-8"))
    return tables.between_marks(text, f"{INTRODUCTION}\n\n{table(measured)}")


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
    where = measured["environment"]
    when = f"{where['cores']} cores ({where['cpu']}), {where['date']} at {where['commit']}."
    return "\n".join([*lines, "", f"`python -m benchmarks.torch_modules` on {when}", ""])


def _cell(row: Mapping[str, Any]) -> str:
    if "seconds" not in row:
        return "-"
    then = row["note"].partition(" parameters")[2].removesuffix(" s")
    apart = f" ({row['error']:.0e})" if row.get("error") is not None else ""
    return f"{row['seconds']['median']:.3g}{then}{apart}"


if __name__ == "__main__":
    main(**record.options(main))
