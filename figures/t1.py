"""Figure T1: condition number and spectrum of G of a GPT, by norm and skips, over its depth."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds
from sweeps.rows import where

EXPERIMENT = "transformer_depth"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("panel", "network", "samples", "parameters", "share", "eigenvalue"),
)
NAMES = {  # in the order of the legend
    "pre": "LayerNorm before branches",
    "post": "LayerNorm behind sums",
    "none": "no norm, skip 1",
    "none, 1/sqrt(L)": r"no norm, skip $1/\sqrt{L}$",
    "none, 1/L": "no norm, skip $1/L$",
    "none, no skip": "no norm, no skip",
}


def draw(frame: DataFrame) -> Figure:
    """Kappa over depth (left), and the spectra of the deepest networks (right)."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 3.0)
        left, right = figure.subplots(1, 2)
        kappa, spectra = (where(frame, panel=panel) for panel in ("kappa", "spectrum"))
        style.logarithmic(left)
        style.logarithmic(right)
        names = [name for name in NAMES if name in distinct(kappa, "network")]
        for name, look in zip(names, style.looks(len(names)), strict=True):
            style.band(
                left, kappa_over_seeds(where(kappa, network=name), "depth"), look, NAMES[name]
            )
            curve = over_seeds(where(spectra, network=name), "share", "eigenvalue")
            style.band(right, curve, look, NAMES[name])
        left.set_title("(a) at initialisation")
        left.set_ylabel(style.KAPPA)
        style.whole_numbers(left, kappa["depth"], "blocks $L$")
        deepest = captions.listed(distinct(spectra, "depth"))
        right.set_title(f"(b) spectrum at $L = {deepest}$")
        right.set_ylabel(r"eigenvalue $\lambda_i / \lambda_1$")
        right.set_xlabel("share of eigenvalues that are larger")
        handles = left.get_legend_handles_labels()[0]
        figure.legend(handles=handles, loc="outside upper center", ncols=3)
        style.footer(figure, captions.data_line(kappa))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    kappa = where(frame, panel="kappa")
    share = kappa["parameters"] / (kappa["samples"] * kappa["outputs"])
    width = captions.listed(distinct(kappa, "width"))
    return captions.paragraph(
        "Figure T1, beyond the papers. (a) Condition number of the Gauss-Newton matrix J J^T of"
        f" GPTs of width {width} at initialisation (variance 1 / fan-in) over the number L of"
        " blocks: with a LayerNorm before every branch, behind every sum of a branch and its skip,"
        " and with none and skips of several strengths. J is of the logits behind the last"
        " character of every piece of text."
        f" p / (k n) goes from {share.min():.2g} to {share.max():.2g}, a regime of our own."
        " (b) The ordered spectra of the deepest networks. Logarithmic vertical axes.",
        captions.seeds(kappa),
        captions.certificates(kappa),
        captions.data(kappa, provenance),
    )
