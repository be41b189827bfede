"""The claims of paper A about figure 7, as functions of the saved table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pandas import DataFrame

from sweeps.claims import (
    AS_PRINTED,
    BEYOND,
    OTHER,
    SOME,
    Claim,
    Sentence,
    Verdict,
)
from sweeps.claims import verdict as decided
from sweeps.comparisons import Compare, Prepare, Trend
from sweeps.rows import geometric_means, points, where

PRINTED, PUBLISHED = "7", "7-published"  # on the text's data, and on those of the published code
MODES = {
    "batch": "the statistics of the samples, differentiated through",
    "frozen": "the statistics of the samples, held fixed",
    "initial": "the mean 0 and variance 1 of evaluation mode before training",
}
"""Which statistics BatchNorm has is neither in the text nor to be read out of published code."""


def wide(frame: DataFrame) -> DataFrame:
    """The rows with m > max(d, k), which Lemma 1 asks for."""
    return frame[frame["width"] > np.maximum(frame["inputs"], frame["outputs"])]


def narrow(frame: DataFrame) -> DataFrame:
    """The rows with m <= max(d, k)."""
    return frame[frame["width"] <= np.maximum(frame["inputs"], frame["outputs"])]


def _lowers(better: str, worse: str, rows: Prepare | None, figure: str = PRINTED) -> Compare:
    """Whether kappa is lower under one norm than another at every width that both have."""
    return Compare(
        "kappa",
        {"figure": figure, "norm": better},
        over={"norm": worse},
        each="width",
        below=1.0,
        name=f"kappa({better}) / kappa({worse})",
        prepare=rows,
        missing=f"no width at which kappa was computed with {better} and with {worse}",
    )


def _both(frame: DataFrame, first: str, second: str) -> tuple[DataFrame, DataFrame]:
    """The rows of two norms at the widths that they share."""
    shared = np.intersect1d(where(frame, norm=first)["width"], where(frame, norm=second)["width"])
    common = frame[frame["width"].isin(shared)]
    return where(common, norm=first), where(common, norm=second)


def _layer_norm(frame: DataFrame) -> Verdict:
    """Whether LayerNorm lowers kappa, and the ratio with BatchNorm's rank in place of its own."""
    found = _lowers("layer", "none", wide)(frame)
    layer, none = _both(where(frame, figure=PRINTED), "layer", "none")
    if layer.empty:
        return found
    widths, leading = geometric_means(layer, "width", "kappa_leading")
    ratios = leading / geometric_means(none, "width", "kappa")[1]
    first = layer.iloc[0]
    own, whole = first["outputs"] * (first["inputs"] + 1), first["rank"]
    text = (
        f"{found.text}; up to BatchNorm's rank, {own} of {whole}, the ratio"
        f" is {points('m', widths, ratios)}"
    )
    return replace(found, text=text)


def _falls(norm: str) -> Trend:
    rows = {"figure": PRINTED, "norm": norm}
    return Trend("kappa", "width", "m", rises=False, rows=rows, prepare=wide)


def _ranks(frame: DataFrame) -> Verdict:
    off = np.abs(frame["rank_found"] - frame["rank"]).to_numpy()
    ranks = dict.fromkeys(zip(frame["norm"].tolist(), frame["rank"].tolist(), strict=True))
    listed = ", ".join(f"{norm} {rank}" for norm, rank in ranks)
    text = f"{listed}; {int((off > 0).sum())} of {len(off)} cells have another number"
    return decided(bool((off == 0).all()), float(off.max()), text)


_SIZES = ("d", "k", "n/d")
_IMPROVES = Sentence(
    "A",
    "Section 6, also Section 7 (a)",
    "a clear improvement of the condition number when Batch normalization layers are added",
    _SIZES,
    SOME,
)
_REMAINS = Sentence(
    "A",
    "Section 6",
    "the trend of improved conditioning with increasing width remains after adding BN",
    _SIZES,
)


def _improves(mode: str, figure: str) -> Claim:
    other = figure == PUBLISHED
    of = "on the published code's data, " if other else ""
    return Claim(
        "7",
        f"{of}BatchNorm lowers kappa at every m > d, with {MODES[mode]}",
        _IMPROVES,
        _lowers(mode, "none", wide, figure),
        panel=(("figure", figure),),
        column=OTHER if other else AS_PRINTED,
    )


CLAIMS = (
    *(_improves(mode, PRINTED) for mode in MODES),
    *(_improves(mode, PUBLISHED) for mode in MODES),
    Claim(
        "7",
        "kappa decreases with m without BatchNorm, for m > d",
        _REMAINS,
        _falls("none"),
        panel=(("figure", PRINTED),),
    ),
    Claim(
        "7",
        "kappa decreases with m with BatchNorm, for m > d",
        _REMAINS,
        _falls("batch"),
        panel=(("figure", PRINTED),),
    ),
    Claim(
        "7",
        "BatchNorm lowers kappa at every m <= d",
        BEYOND,
        _lowers("batch", "none", narrow),
    ),
    Claim(
        "7",
        "differentiating through the statistics lowers kappa",
        BEYOND,
        _lowers("batch", "frozen", None),
    ),
    Claim(
        "7",
        "LayerNorm lowers kappa at every m > d",
        BEYOND,
        _layer_norm,
        mechanism=(
            "LayerNorm's outputs are no linear function of x, so that J J^T has more eigenvalues"
            " that are not zero than under BatchNorm, and the additional ones are small"
        ),
    ),
    Claim("7", "as many eigenvalues as theory says are non-zero", BEYOND, _ranks),
)
