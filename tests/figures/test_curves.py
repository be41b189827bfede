"""The curves of a figure are those of its published table, by slow references from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
from pandas import DataFrame

from figures import b2, c2, c3, c5, c6, fig07, fig08, fig10, fig23, t1, t4, t6
from figures.shared import captions, depths
from sweeps.rows import where
from tests.drawn import line, mean_and_interval
from tests.figures.drawing import drawn, published


class Curve(NamedTuple):
    """A curve with this label in a panel: at each x the geometric mean of y over the rows.

    ``dashed`` is for the bound in the color of that curve.
    """

    panel: int
    label: str
    rows: DataFrame
    x: str
    y: str = "kappa"
    dashed: bool = False


Curves = Iterator[Curve]


def _with_bound(panel: int, label: str, rows: DataFrame, x: str = "depth") -> Curves:
    yield Curve(panel, label, rows, x)
    yield Curve(panel, label, rows, x, "bound_convex", dashed=True)


def _fig02(frame: DataFrame) -> Curves:
    panels = (("2a", "width", "m"), ("2b-left", "multiplier", "c"), ("2b-right", "multiplier", "c"))
    for panel, (name, by, symbol) in enumerate(panels):
        for value, rows in where(frame, figure=name).groupby(by):
            label = f"${symbol} = {value:g}$"
            yield Curve(panel, label, rows, "depth")
            if name == "2a":
                yield Curve(panel, label, rows, "depth", "bound_convex", dashed=True)


def _fig03(frame: DataFrame) -> Curves:
    rows = where(frame, figure="3")
    yield Curve(0, "measured", rows, "depth")
    yield Curve(0, "convex\nbound", rows, "depth", "bound_convex")
    yield Curve(0, "maximum\nbound", rows, "depth", "bound_maximum")


def _fig05(frame: DataFrame) -> Curves:
    for panel, name in enumerate(("5-left", "5-right")):
        for beta, label in depths.PAIR.items():
            yield from _with_bound(panel, label, where(frame, figure=name, beta=beta))


def _fig06(frame: DataFrame) -> Curves:
    shown = where(frame, slope=0.01)
    one, mirrored = (where(shown, panel="one", sign=sign) for sign in ("alpha", "-alpha"))
    narrow = one["width"] < one["samples"]
    yield Curve(0, "measured", one, "width")
    yield Curve(0, "bound, $m < n$", one[narrow], "width", "bound")
    yield Curve(0, "bound (Eq 11)", one[~narrow], "width", "bound")
    yield Curve(1, r"$\alpha$", one, "width")
    yield Curve(1, r"$-\alpha$", mirrored, "width")
    yield Curve(1, "two\nhidden", where(shown, panel="two"), "width")


def _fig07(frame: DataFrame) -> Curves:
    shown = where(frame, figure="7")
    for panel, norms in enumerate((("none", "initial", "frozen", "batch"), ("none", "layer"))):
        for norm in norms:
            yield Curve(panel, fig07.LABELS[norm], where(shown, norm=norm), "width")
    yield Curve(1, "LayerNorm,\nleading", where(shown, norm="layer"), "width", "kappa_leading")


def _fig08(frame: DataFrame) -> Curves:
    for panel, protocol in enumerate(fig08.PANELS):
        bound = "bound_published" if "2" in protocol else "bound"  # that code's, where it is that
        for kernel, rows in where(frame, figure="8-line", protocol=protocol).groupby("kernel"):
            yield Curve(panel, f"$K = {kernel}$", rows, "filters")
            yield Curve(panel, f"$K = {kernel}$", rows, "filters", bound, dashed=True)
        for filters, rows in where(frame, figure="8-line", protocol=protocol).groupby("filters"):
            yield Curve(3 + panel, f"$F = {filters}$", rows, "kernel")


def _fig10(frame: DataFrame) -> Curves:
    first = 2 if (frame["reading"] == fig10.PAPERS).any() else 0  # the paper's own stands above
    for reading, name in fig10.NAMES.items():
        yield Curve(first, name, where(frame, reading=reading), "epoch", "loss")


def _fig11(frame: DataFrame) -> Curves:
    shown = where(frame, sizes="printed")
    smallest = ("right_smallest2", "left_smallest2")
    columns = [(1.0, "right_kappa2"), (1.0, "left_kappa2")]
    columns += [(gain, column) for gain in np.unique(shown["gain"]) for column in smallest]
    for panel, (gain, column) in enumerate(columns):
        for depth, rows in where(shown, gain=gain).groupby("depth"):
            yield Curve(panel, f"$L = {depth}$", rows, "layer", column)


def _fig12(frame: DataFrame) -> Curves:
    shown = where(frame, sizes="printed", gain=1.0)
    term = shown["left_kappa2"] * shown["right_kappa2"]
    for depth, rows in shown.assign(term=term, share=shown["weight"] * term).groupby("depth"):
        yield Curve(0, f"$L = {depth}$", rows, "layer", "term")
        yield Curve(1, f"$L = {depth}$", rows, "layer", "share")


def _pruned(network: str) -> Callable[[DataFrame], Curves]:
    def curves(frame: DataFrame) -> Curves:
        trained = where(frame, network=network, steps="printed")
        longest = trained.groupby("seed")["epoch"].transform("max") > 0  # not those at the start
        for rate, rows in trained[longest].groupby("pruned"):
            yield Curve(0, f"{rate:.0%} pruned", rows, "epoch", "loss")
            yield Curve(1, f"{rate:.0%} pruned", where(rows, measured=True), "epoch")

    return curves


def _resnet20(frame: DataFrame) -> Curves:
    """Every tensor pruned above, kernels alone below; kappas that all have an upper end."""
    rows = where(frame, network="resnet20", augment=True)
    unpruned = rows["pruned"] == 0
    for first, tensors in ((0, "every tensor"), (3, "kernels")):
        own = rows[unpruned | (rows["tensors"] == tensors)]
        for rate, run in own.groupby("pruned"):
            label = f"{rate:.0%} pruned"
            yield Curve(first, label, where(run, what="losses"), "epoch", "loss")
            stops = where(run, what="kappa", statistics="all")
            for panel, columns in ((first + 1, "all"), (first + 2, "left")):
                own_stops = where(stops, columns=columns)
                if np.isfinite(own_stops["kappa_high"]).all():
                    yield Curve(panel, label, own_stops, "epoch")


def _fig13(frame: DataFrame) -> Curves:
    rows = where(frame, network="vit", tensors="every tensor", augment=True)
    for rate, run in where(rows, what="losses").groupby("pruned"):
        yield Curve(0, f"{rate:.0%} pruned", run, "epoch", "loss")


def _fig17(frame: DataFrame) -> Curves:
    for rate, rows in where(frame, run="plotted").groupby("pruned"):
        yield Curve(0, f"{rate:.0%} pruned", rows[~rows["measured"]], "epoch", "loss")
        for panel, of in enumerate(("all", "left"), start=1):
            yield Curve(panel, f"{rate:.0%} pruned", where(rows, of=of), "epoch")


def _fig18(frame: DataFrame) -> Curves:
    for width, rows in where(frame, figure="18", reading="published").groupby("width"):
        yield Curve(0, f"$m = {width}$", rows, "epoch", "loss")


def _fig19(frame: DataFrame) -> Curves:
    frame = where(frame, figure="19")
    for kind in ("raw", "whitened"):
        yield from _with_bound(0, kind, where(frame, whitening=kind))
    for depth, rows in frame.groupby("depth"):
        yield Curve(1, f"$L = {depth}$", rows, "covariance_condition")


def _gains(figure: str) -> Callable[[DataFrame], Curves]:
    def curves(frame: DataFrame) -> Curves:
        shown = where(frame, figure=figure)
        linear = where(shown, beta="0").set_index(["depth", "seed"])["kappa"]
        for beta, label in depths.BETAS.items():
            rows = where(shown, beta=beta)
            places = rows.set_index(["depth", "seed"]).index
            yield from _with_bound(0, label, rows)
            gains = rows["kappa"].to_numpy() / linear.loc[places].to_numpy()
            yield Curve(1, label, rows.assign(gain_here=gains), "depth", "gain_here")

    return curves


def _fig21(frame: DataFrame) -> Curves:
    for beta, label in depths.PAIR.items():
        yield Curve(0, label, where(frame, figure="21", beta=beta), "depth")


def _fig23(frame: DataFrame) -> Curves:
    for panel, sign in enumerate(fig23.TITLES):
        for slope, rows in where(frame, panel="one", sign=sign).groupby("slope"):
            yield Curve(panel, rf"$\alpha = {slope:g}$", rows, "width")


def _shares(panel: int, rows: DataFrame) -> Curves:
    for name, own in rows.groupby(rows["data"].str.partition(",")[0]):
        label = captions.short_title(name)
        yield Curve(panel, label, own, "share", "measured")
        yield Curve(panel, label, own, "share", "least", dashed=True)


def _b1(frame: DataFrame) -> Curves:
    random = where(frame, figure="1a", seed=0)
    kept = random[random["printed"] > 0]  # the last one is zero
    yield Curve(0, "computed", kept, "index", "measured")
    yield Curve(0, "Eqs 9, 13", kept, "index", "printed")
    yield from _shares(2, where(frame, figure="1c"))


def _b2(frame: DataFrame) -> Curves:
    for panel, name in enumerate(b2.PANELS):
        yield from _shares(panel, where(frame, figure=name))
    for rate, rows in where(frame, figure="2d").groupby("rate"):
        yield Curve(3, f"$\\eta = {rate:.3g}$", rows, "epoch", "measured")


def _b3(frame: DataFrame) -> Curves:
    for panel, name in enumerate("abc"):
        for width, rows in where(frame, panel=name).groupby("width"):
            yield Curve(panel, f"Eq 7, $m = {width}$", rows, "epoch", "predicted")


def _b4(frame: DataFrame) -> Curves:
    for panel, name in enumerate("abc"):
        rows = where(frame, panel=name)
        off = 100 * abs(rows["predicted"] / rows["measured"] - 1)
        percent = rows.assign(off=off, weyl=100 * rows["bound"] / rows["measured"])
        means = percent.groupby(["epoch", "seed"], as_index=False)[["off", "weyl"]].mean()
        yield Curve(panel, "error of Eq 15", means, "epoch", "off")
        yield Curve(panel, r"bound $\|H - G\|_2$", means, "epoch", "weyl")


def _c1(frame: DataFrame) -> Curves:
    yield Curve(1, "largest", frame, "samples", "lambda_max")
    yield Curve(1, "smallest", frame, "samples", "lambda_min")


def _c2(frame: DataFrame) -> Curves:
    measured = where(frame, measured=True, steps="printed")
    share = measured["parameters"] / (measured["samples"] * measured["outputs"])
    shown = measured.assign(share=share, logs=np.log(measured["kappa"]))
    for network, rows in shown.groupby("network"):
        later = rows[rows["epoch"] > 0].groupby(["share", "seed"], as_index=False)["logs"].mean()
        yield Curve(0, c2.NAMES[network], rows[rows["epoch"] == 0], "share")
        yield Curve(1, c2.NAMES[network], later.assign(kappa=np.exp(later["logs"])), "share")


def _c3(frame: DataFrame) -> Curves:
    sizes = (("kernel", "filters", "F"), ("filters", "kernel", "K"))
    for reading, name in enumerate(c3.READINGS):
        for column, (over, by, symbol) in enumerate(sizes):
            for value, rows in where(frame, figure=name).groupby(by):
                yield Curve(4 * reading + column, f"${symbol} = {value}$", rows, over)


def _c5(frame: DataFrame) -> Curves:
    left, right = (where(frame, panel=panel) for panel in "ab")
    for share, rows in left[~left["data"].str.startswith("fitted")].groupby("share"):
        yield Curve(0, rf"$\alpha_{{\max}}$ = {share:.2g}", rows, "samples", "measured")
    for start, label in c5.STARTS.items():
        runs = where(right, initializer=start).groupby(["share", "seed"], as_index=False)
        yield Curve(1, label, runs["measured"].max(), "share", "measured")


def _c6(frame: DataFrame) -> Curves:
    losses = where(frame, what="losses", shrunk=False)
    ended = where(losses, epoch=losses["epoch"].max())
    widths = captions.listed(sorted(set(ended["width"])))
    yield Curve(0, f"dense, {widths} filters", ended, "live", "loss")
    largest = where(frame, what="largest", columns="all", tensor="all", epoch=0)
    rows = where(largest, tensors="every tensor", pruned=0.8)
    yield Curve(1, "80% every tensor", rows, "epsilon", "lambda_max")
    yield Curve(1, "unpruned", where(largest, pruned=0.0), "epsilon", "lambda_max")
    for tensors, name in (("kernels", "kernels"), (c6.SCATTERED, "ties at random")):
        rows = where(largest, tensors=tensors, pruned=0.8)
        complete = set.intersection(*(set(of["seed"]) for _, of in rows.groupby("epsilon")))
        groups = {idle: of for idle, of in rows.groupby(rows["idle"] > 0)}
        for idle, of in groups.items():
            told = (", idle" if idle else ", none idle") if len(groups) == 2 else ""
            own = of[of["seed"].isin(complete)]
            yield Curve(1, f"80% {name}{told}", own, "epsilon", "lambda_max")


def _t1(frame: DataFrame) -> Curves:
    for kind, label in t1.NAMES.items():
        yield Curve(0, label, where(frame, network=kind, panel="kappa"), "depth")
        spectrum = where(frame, network=kind, panel="spectrum")
        yield Curve(1, label, spectrum, "share", "eigenvalue")


def _t4(frame: DataFrame) -> Curves:
    for panel, (network, part, column, _) in enumerate(t4.PANELS):
        for stage, label in t4.STAGES.items():
            rows = where(frame, network=network, part=part, stage=stage)
            yield Curve(panel, label, rows, "share", column)


def _t5(frame: DataFrame) -> Curves:
    shown = frame.assign(relative=frame["preconditioned"] / frame["final_threshold"])
    for panel, (network, optimizer, warmup, column) in enumerate(
        (
            ("mlp", "gradient descent", 0, "sharpness"),
            ("mlp", "Adam", 0, "preconditioned"),
            ("gpt", "Adam", 0, "relative"),
            ("gpt", "Adam", 100, "relative"),
        )
    ):
        rows = where(shown, network=network, optimizer=optimizer, warmup=warmup)
        for rate, own in rows.groupby("rate"):
            suffix = ", warm-up" if warmup else ""
            yield Curve(panel, f"rate {rate:g}{suffix}", own, "step", column)


def _t6(frame: DataFrame) -> Curves:
    for panel, network in enumerate(t6.NETWORKS):
        for family, label in t6.FAMILIES.items():
            yield Curve(panel, label, where(frame, network=network, family=family), "share")


def _t8(frame: DataFrame) -> Curves:
    for panel, outputs, x in ((0, 3, "depth"), (3, 1, "scaled")):
        rows = where(frame.assign(scaled=12 * frame["depth"] / frame["width"]), outputs=outputs)
        for width, own in rows.groupby("width"):
            if own["resolved"].all():
                yield Curve(panel, f"$m/d = {width / 12:g}$", own, x)


CASES = {
    "fig01": _resnet20, "fig14": _resnet20,
    "fig02": _fig02, "fig03": _fig03, "fig05": _fig05, "fig06": _fig06, "fig07": _fig07,
    "fig08": _fig08, "fig10": _fig10, "fig11": _fig11, "fig12": _fig12, "fig13": _fig13,
    "fig16": _pruned("vgg5"), "fig17": _fig17, "fig18": _fig18, "fig19": _fig19,
    "fig20": _gains("20"), "fig21": _fig21, "fig22": _gains("22"), "fig23": _fig23,
    "b1": _b1, "b2": _b2, "b3": _b3, "b4": _b4, "c2": _c2, "c3": _c3,
    "c1": _c1, "c5": _c5, "c6": _c6, "t1": _t1, "t4": _t4, "t5": _t5, "t6": _t6, "t8": _t8,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_curves_are_the_geometric_means_of_their_rows(name: str) -> None:
    panels = drawn(name).axes
    for curve in CASES[name](published(name)):
        rows = curve.rows[np.isfinite(curve.rows[curve.y])]
        if rows.empty:
            continue
        found = line(panels[curve.panel], curve.label)
        if curve.dashed:
            color = found.get_color()
            (found,) = (
                one
                for one in panels[curve.panel].lines
                if one.is_dashed() and one.get_color() == color and len(one.get_xdata()) > 2
            )
        x, mean, *_ = mean_and_interval(rows, curve.x, rows[curve.y])
        np.testing.assert_array_equal(found.get_xdata(), x)
        np.testing.assert_allclose(found.get_ydata(), mean, rtol=1e-9)
