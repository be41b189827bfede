"""How kappa's time and memory grow with d, k, m, L, n and p, on log-log axes.

    python -m benchmarks.scaling [--repeats=3] [--save]

One size grows and the others stay. Linear networks (d inputs, k outputs, m hidden units, L layers)
are timed with the forming of their operator; the MLP d-m-k with n samples is timed from the model
to kappa of its NTK. Times are warm. Memory is by how much the peak of the process rises over what
it held before. Hidden layers are wider than the input, without which products of weights are nearly
singular and kappa takes more work. Exponents are fitted to the larger half of the sizes, as far as
the method is that of the largest: small ones are overhead, and another method has other exponents.
``--save`` writes the measurements, and the picture from them.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

import gnjax
from benchmarks import harness, record
from gnjax import papers

MEASURED = record.FOLDER / "scaling.json"
PICTURE = Path(__file__).parents[1] / "docs" / "answers" / "scaling.svg"
_REFERENCES = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Axis:
    """One size that grows.

    Attributes:
      sizes: its values, from the smallest.
      ask: returns, for a size, the function that is timed and answers kappa.
      time, memory: the exponents that the work and the sizes of the arrays predict.
      case: the sizes that stay, and the most expensive step, in words.
    """

    sizes: Sequence[int]
    ask: Callable[[int], Any]
    time: float
    memory: float
    case: str


def _linear(d: int, k: int, m: int, depth: int) -> Callable[[], Any]:
    widths = (d, *[m] * (depth - 1), k)
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    return lambda: gnjax.condition_number(papers.linear_gauss_newton(weights))


def _mlp(n: int, m: int) -> Callable[[], Any]:
    model = gnjax.models.MLP((32, m, 4), activation="tanh", key=jax.random.key(0))
    x = np.random.default_rng(0).standard_normal((n, 32))
    return lambda: gnjax.condition_number(gnjax.ntk(model, x))


AXES = {
    "d": Axis(
        (128, 256, 512, 1024, 2048),
        lambda d: _linear(d, 4, 3072, 3),
        3,
        2,
        "linear, k=4 m=3072 L=3: decompositions of d x d matrices",
    ),
    "k": Axis(
        (4, 8, 16, 32, 64),
        lambda k: _linear(256, k, 384, 3),
        1,
        1,
        "linear, d=256 m=384 L=3: products of k d (k + d), a basis of k d rows",
    ),
    "m": Axis(
        (512, 1024, 2048, 4096, 6144),
        lambda m: _linear(128, 8, m, 3),
        2,
        2,
        "linear, d=128 k=8 L=3: products of m x m weights",
    ),
    "L": Axis(
        (3, 6, 12, 24, 36),
        lambda depth: _linear(256, 8, 384, depth),
        1,
        1,
        "linear, d=256 k=8 m=384: a term for every layer",
    ),
    "n": Axis(
        (64, 128, 256, 512, 1024),
        lambda n: _mlp(n, 64),
        3,
        2,
        "NTK of 32-64-4: eigenvalues of n k rows",
    ),
    "p": Axis(
        (512, 1024, 2048, 4096, 8192, 16384),  # hidden units
        lambda m: _mlp(64, m),
        1,
        1,
        "NTK of 32-m-4, n=64, p = 37 m + 4: inner products of sensitivities",
    ),
}


def main(repeats: int = 3, points: int = 6, save: bool = False) -> None:
    """Measure ``points`` of the smallest sizes of every axis."""
    gnjax.enable_x64()
    found: dict[str, Any] = {"environment": record.environment(), "axes": {}}
    for name, axis in AXES.items():
        found["axes"][name] = measured(axis, axis.sizes[:points], repeats)
        print(f"{name}: {summary(found['axes'][name])}", flush=True)
    if save:
        record.write(MEASURED, found)
        figure(found).savefig(PICTURE, metadata={"Date": None})


def measured(axis: Axis, sizes: Sequence[int], repeats: int) -> dict[str, Any]:
    """Seconds, bytes, the method and its products at every size, and both exponents."""
    times, grown, methods, products = [], [], [], []
    for size in sizes:
        ask = axis.ask(size)
        seconds, kappa = harness.timed(ask, repeats)
        times.append(record.spread(seconds))
        grown.append(_grown(ask))
        methods.append(kappa.method)
        products.append(kappa.products)
    medians = [one["median"] for one in times if one is not None]
    return {
        "case": axis.case,
        "sizes": list(sizes),
        "seconds": times,
        "bytes": grown,
        "methods": methods,
        "products": products,
        "time": {"predicted": axis.time, "fitted": exponent(sizes, medians, methods)},
        "memory": {"predicted": axis.memory, "fitted": exponent(sizes, grown, methods)},
    }


def exponent(
    sizes: Sequence[int], values: Sequence[float | None], methods: Sequence[str]
) -> float | None:
    """The slope of log value over log size, by least squares over the larger half of the sizes.

    Only sizes with the same method as the largest size count; None for fewer than two.
    """
    rows = list(zip(sizes, values, methods, strict=True))[-(len(sizes) // 2 + 1) :]
    kept = [(size, value) for size, value, method in rows if value and method == methods[-1]]
    if len(kept) < 2:
        return None
    return round(slope(*zip(*kept, strict=True)), 2)


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of log value over log size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _grown(ask: Callable[[], Any]) -> float | None:
    """The bytes by which the peak of the process rises; None where the system does not say."""
    if not _REFERENCES.exists():
        return None
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # what was freed goes back to the system, or it would be taken again unseen
    _REFERENCES.write_text("5")  # the peak starts again from here
    before = harness.peak_bytes()
    ask()
    return max(harness.peak_bytes() - before, 0)


def summary(axis: dict[str, Any]) -> str:
    parts = [
        f"{what} grows with exponent {axis[what]['fitted']}, predicted {axis[what]['predicted']}"
        for what in ("time", "memory")
    ]
    return f"{'; '.join(parts)} ({axis['case']})"


def figure(found: dict[str, Any]) -> Figure:
    """A column for every size: seconds above, bytes below, with the predicted slope beside."""
    canvas = Figure(figsize=(15, 5.5), layout="constrained")
    FigureCanvasAgg(canvas)
    panels = canvas.subplots(2, len(found["axes"]), squeeze=False)
    for column, (name, axis) in zip(panels.T, found["axes"].items(), strict=True):
        seconds = [one["median"] for one in axis["seconds"]]
        low, high = ([one[end] for one in axis["seconds"]] for end in ("low", "high"))
        panel(column[0], axis["sizes"], seconds, axis["time"], (low, high))
        for size, value, method in zip(axis["sizes"], seconds, axis["methods"], strict=True):
            column[0].annotate(
                method, (size, value), (0, 6), textcoords="offset points", fontsize=6, ha="center"
            )
        panel(column[1], axis["sizes"], axis["bytes"], axis["memory"])
        column[1].set_xlabel(name if name != "p" else "m, as p = 37 m + 4")
    panels[0, 0].set_ylabel("seconds of kappa, warm")
    panels[1, 0].set_ylabel("bytes above what was held")
    return canvas


def panel(
    axes: Axes,
    sizes: Sequence[int],
    values: Sequence[float | None],
    exponents: dict[str, float | None],
    quartiles: tuple[Sequence[float], Sequence[float]] | None = None,
) -> None:
    known = [(size, value) for size, value in zip(sizes, values, strict=True) if value]
    fitted = "unknown" if exponents["fitted"] is None else f"{exponents['fitted']:.2f}"
    axes.set_title(f"fitted {fitted}, predicted {exponents['predicted']}", fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes], fontsize=7, rotation=45)
    for side in (axes.xaxis, axes.yaxis):
        side.set_minor_formatter(NullFormatter())
    if not known:
        return
    x, y = np.array(known, float).T
    axes.plot(x, y, "o-", label="measured")
    axes.margins(y=0.15)
    axes.plot(x, y[-1] * (x / x[-1]) ** exponents["predicted"], ":", color="gray")
    if quartiles is not None:
        axes.fill_between(sizes, *quartiles, alpha=0.3)


if __name__ == "__main__":
    main(**record.options(main))
