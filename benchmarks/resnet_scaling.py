"""How kappa of ResNet20's NTK grows with the number of images, and with the share that is pruned.

    python -m benchmarks.resnet_scaling [--samples 125 250 500 1000] [--pruned 0 0.5 0.9] [--save]

Every size is one cold run of ``benchmarks.resnet_kappa`` in a process of its own, and every pruned
share one more at ``--pruned_samples`` images. The exponents are the slopes of log seconds and log
bytes over log n, by least squares over all sizes. ``--save`` writes the measurements and the
picture; ``--draw`` draws it again from what was saved.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import record
from benchmarks.scaling import panel, slope

MEASURED = record.FOLDER / "resnet_scaling.json"
PICTURE = Path(__file__).parents[1] / "docs" / "answers" / "resnet_scaling.svg"
_QUANTITIES = {"seconds": "seconds of kappa, cold", "gigabytes": "GB, the peak of the process"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--samples", type=int, nargs="+", default=[125, 250, 500, 1000])
    parser.add_argument("--pruned", type=float, nargs="*", default=[0.0, 0.5, 0.9])
    parser.add_argument("--pruned_samples", type=int, default=250)
    parser.add_argument("--save", action="store_true", help="write the numbers and the picture")
    parser.add_argument("--draw", action="store_true", help="draw what was saved, measure nothing")
    options = parser.parse_args()
    if options.draw:
        found = json.loads(MEASURED.read_text("utf-8"))
    else:
        found = measured(options.samples, options.pruned, options.pruned_samples)
        print(json.dumps(found["exponents"], indent=1))
    if options.save:
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.save or options.draw:
        figure(found).savefig(PICTURE, metadata={"Date": None})


def measured(samples: Sequence[int], pruned: Sequence[float], count: int) -> dict[str, Any]:
    """The cold runs of all sizes and of all pruned shares at ``count`` images, and exponents."""
    began = record.environment()
    sizes = [_cold(n, 0.0) for n in sorted(samples)]
    return {
        "environment": began,
        "sizes": sizes,
        "pruned": [_cold(count, share) for share in pruned],
        "exponents": exponents(sizes),
    }


def exponents(sizes: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The slopes of log seconds and log bytes over log n."""
    samples = [size["samples"] for size in sizes]
    return {
        name: round(slope(samples, [size[name] for size in sizes]), 2)
        for name in _QUANTITIES
        if len(sizes) > 1
    }


def _cold(samples: int, pruned: float) -> dict[str, Any]:
    """Seconds, gigabytes and the answer of one run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--samples={samples}", f"--pruned={pruned}", f"--folder={folder}", "--save"]
        command = [sys.executable, "-m", "benchmarks.resnet_kappa", *options]
        subprocess.run(command, check=True)
        saved = json.loads((Path(folder) / "resnet_kappa.json").read_text("utf-8"))
    (row,) = saved["rows"]
    return {
        "samples": samples,
        "pruned": pruned,
        "seconds": row["seconds"]["median"],
        "gigabytes": row["gigabytes"],
        "note": row["note"],
    }


def figure(found: dict[str, Any]) -> Figure:
    """Seconds and gigabytes over n, with a line that is proportional to n beside each."""
    canvas = Figure(figsize=(9, 3.8), layout="constrained")
    FigureCanvasAgg(canvas)
    samples = [size["samples"] for size in found["sizes"]]
    for axes, (name, label) in zip(canvas.subplots(1, 2), _QUANTITIES.items(), strict=True):
        values = [size[name] for size in found["sizes"]]
        fitted = {"fitted": found["exponents"].get(name), "predicted": 1}
        panel(axes, samples, values, fitted)
        axes.set_xlabel("n, images of 10 classes")
        axes.set_ylabel(label)
    return canvas


if __name__ == "__main__":
    main()
