"""How kappa of ResNet20's NTK grows with the number of images, and with the share that is pruned.

    python -m benchmarks.resnet_scaling [--samples 125 250 500 1000] [--pruned 0 0.5 0.9] [--save]

Every size is one cold run of ``benchmarks.resnet_kappa``, and every pruned share one more at
``--pruned_samples`` images. The exponents are the slopes of log seconds and log bytes over log n,
by least squares over all sizes. ``--save`` writes the measurements and the picture; ``--draw``
draws it again from what was saved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import record, resnet_kappa
from benchmarks.scaling import panel, slope

MEASURED = record.FOLDER / "resnet_scaling.json"
PICTURE = Path(__file__).parents[1] / "docs" / "answers" / "resnet_scaling.svg"
_QUANTITIES = {"seconds": "seconds of kappa, cold", "gigabytes": "GB, the peak of the process"}


def main(
    samples: tuple[int, ...] = (125, 250, 500, 1000),
    pruned: tuple[float, ...] = (0.0, 0.5, 0.9),
    pruned_samples: int = 250,
    save: bool = False,
    draw: bool = False,
) -> None:
    if not draw:
        began = record.environment()
        sizes = [_cold(n, 0.0) for n in sorted(samples)]
        shares = [_cold(pruned_samples, share) for share in pruned]
        found = {"sizes": sizes, "pruned": shares, "exponents": exponents(sizes)}
        print(json.dumps(found["exponents"], indent=1))
        if save:
            record.write(MEASURED, {"environment": began, **found})
    if save or draw:
        saved = json.loads(MEASURED.read_text("utf-8"))
        figure(saved).savefig(PICTURE, metadata={"Date": None})


def exponents(sizes: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The slopes of log seconds and log bytes over log n."""
    samples = [size["samples"] for size in sizes]
    return {
        name: round(slope(samples, [size[name] for size in sizes]), 2)
        for name in _QUANTITIES
        if len(sizes) > 1
    }


def _cold(samples: int, pruned: float) -> dict[str, Any]:
    """Seconds and gigabytes of one run in a process of its own."""
    (row,) = resnet_kappa.measure(samples, pruned)
    (seconds,) = row.seconds or ()
    held = {"seconds": seconds, "gigabytes": row.gigabytes, "note": row.note}
    return {"samples": samples, "pruned": pruned, **held}


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
    main(**record.options(main))
