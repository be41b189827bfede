"""The claims on figures B1 and B2. lambda_* and Eq 14 are the columns ``least`` and ``printed``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import BEYOND, Check, Claim, Sentence, Verdict, implied, not_testable, verdict
from sweeps.rows import geometric_means, means, where

FAR = 2.0  # the factor from which on two sharpnesses are far apart


def _by_data(frame: DataFrame, figure: str) -> dict[str, DataFrame]:
    shown = where(frame, figure=figure)
    return {str(name): where(shown, data=name) for name in np.unique(shown["data"])}


def _over(rows: DataFrame, least: str) -> NDArray:
    """The measured sharpness over another column."""
    return (rows["measured"] / rows[least]).to_numpy()


def _spectrum(frame: DataFrame) -> Verdict:
    """Whether all eigenvalues are as predicted, to 1e-10 lambda_max (lambda_max sets rounding)."""
    shown = where(frame, figure="1a")
    if shown.empty:
        return not_testable("no random network")
    largest = {seed: where(shown, seed=seed)["measured"].max() for seed in np.unique(shown["seed"])}
    scale = np.array([largest[seed] for seed in shown["seed"]])
    off = float((np.abs(shown["measured"] - shown["printed"]).to_numpy() / scale).max())
    text = (
        f"of {len(scale)} eigenvalues of {len(largest)} networks the farthest is off by {off:.1e}"
        " lambda_max"
    )
    return verdict(off <= 1e-10, off, text)


def _nonzero(frame: DataFrame) -> Verdict:
    """Whether d^2 eigenvalues exceed their error, of the d^2 + 1 that the table has."""
    shown = where(frame, figure="1a")
    if shown.empty:
        return not_testable("no random network")
    expected = int(shown["inputs"][0]) ** 2
    counts = {
        int(seed): int((one["measured"] > one["error"]).sum())
        for seed in np.unique(shown["seed"])
        for one in [where(shown, seed=seed)]
    }
    text = f"{sorted(counts.values())} of them exceed their error, d^2 = {expected}"
    return verdict(set(counts.values()) == {expected}, min(counts.values()), text)


def _contour(frame: DataFrame) -> Verdict:
    shown = where(frame, figure="1b")
    if shown.empty:
        return not_testable("no grid")
    printed = shown["printed"].to_numpy()
    off = float((np.abs(shown["measured"].to_numpy() - printed) / printed).max())
    text = f"of {len(shown)} networks the farthest is off by {off:.1e} of its sharpness"
    return verdict(off <= 1e-10, off, text)


def _growth(frame: DataFrame) -> Verdict:
    """Whether sharpness rises with L above ln(1 / alpha) and falls below it, for alpha = norm^2."""
    shown = where(frame, figure="1b")
    above, below, wrong = 0, 0, 0
    for norm in np.unique(shown["norm"]) if len(shown) else ():
        depths, sharpness = means(where(shown, norm=norm), "depth", "measured")
        line, steps = -2 * np.log(norm), np.diff(sharpness)
        up, down = steps[depths[:-1] >= line], steps[depths[1:] <= line]
        above, below = above + len(up), below + len(down)
        wrong += int((up <= 0).sum() + (down >= 0).sum())
    if not above or not below:
        return not_testable("no step on one side of the line")
    text = f"{wrong} of {above} steps of depth above the line and {below} below it go the other way"
    return verdict(wrong == 0, wrong, text)


def _increasing(figure: str) -> Check:
    """Whether log sharpness has a positive slope over log alpha_max, on every data set."""

    def check(frame: DataFrame) -> Verdict:
        curves = _by_data(frame, figure)
        if not curves or min(len(np.unique(one["share"])) for one in curves.values()) < 3:
            return not_testable("fewer than 3 proportions")
        found = {
            f"on {_short(name)}, {_range_of_means(one)}": effects.exponent(one, "share", "measured")
            for name, one in curves.items()
        }
        return effects.decide(found, "sharpness goes like alpha_max to the power", above=0.0)

    return check


def _range_of_means(rows: DataFrame) -> str:
    means = geometric_means(rows, "share", "measured")[1]
    return f"from {means[0]:.3f} to {means[-1]:.3f}"


def _not_monotone(frame: DataFrame) -> Verdict:
    """Whether on every data set the sharpness falls from some proportion to the next larger one.

    On each data set the fall that is surest is picked.
    """
    found: dict[str, effects.Effect] = {}
    by_data = _by_data(frame, "2a")
    for name, one in by_data.items():
        shares = np.unique(one["share"])
        pairs = list(pairwise(shares))
        if len(shares) < 3:
            return not_testable("fewer than 3 proportions")
        falls = {
            f"on {_short(name)} from alpha {a:.2g} to {b:.2g}": effects.ratio(
                where(one, share=b), where(one, share=a), "measured"
            )
            for a, b in pairs
        }
        found |= effects.extreme(falls, largest=False)
    return effects.decide(found, "sharpness ratio", below=1.0)


def _near_printed(figure: str, limit: float, *, least: float = 0.0) -> Check:
    """Whether |measured / Eq 14 - 1| <= limit in every run with a share of at least ``least``."""

    def check(frame: DataFrame) -> Verdict:
        shown = where(frame, figure=figure)
        tested = shown["share"].to_numpy() >= least
        if not tested.any():
            return not_testable("no run")
        off = _over(shown, "printed") - 1
        worst = float(np.abs(off[tested]).max())
        text = f"{_range(off[tested])} of Eq 14"
        text += f" ({_range((_over(shown, 'least') - 1)[tested])} of lambda_*)"
        return verdict(worst <= limit, worst, text + _regime(shown, np.abs(off) <= limit))

    return check


def _range(off: NDArray) -> str:
    return f"{off.min():+.1%} to {off.max():+.1%}"


def _regime(shown: DataFrame, passes: NDArray) -> str:
    """The ranges of proportions in which all runs of a data set pass; empty where all runs do."""
    if passes.all():
        return ""
    clauses = []
    for name in np.unique(shown["data"]):
        here = shown["data"] == name
        shares = np.unique(shown["share"][here])
        good = [bool(passes[here & (shown["share"] == share)].all()) for share in shares]
        stretches = [
            list(stretch)
            for holds, stretch in groupby(zip(good, shares, strict=True), key=lambda pair: pair[0])
            if holds
        ]
        listed = ", ".join(_first_to_last([share for _, share in stretch]) for stretch in stretches)
        clauses.append(f"{_short(str(name))} at {'alpha ' + listed if listed else 'no alpha'}")
    return f"; holds for {'; '.join(clauses)}"


def _first_to_last(shares: Sequence[float]) -> str:
    first, last = f"{shares[0]:.2g}", f"{shares[-1]:.2g}"
    return first if first == last else f"{first} to {last}"


def _short(name: str) -> str:
    return name.partition(",")[0]


def _close_to_least(frame: DataFrame) -> Verdict:
    """Whether every run is within 1e-3 of lambda_*, 5e-3 at alpha 0.1 (it converges slowly)."""
    shown = where(frame, figure="1c")
    if shown.empty:
        return not_testable("no run")
    off = np.abs(_over(shown, "least") - 1)
    limit = np.where(shown["share"] > 0.15, 1e-3, 5e-3)
    passes = off <= limit
    text = f"farthest {off.max():.1e} of lambda_*" + _regime(shown, passes)
    return verdict(bool(passes.all()), off.max(), text)


def _below_printed(frame: DataFrame) -> Verdict:
    shown = where(frame, figure="1c")
    if shown.empty:
        return not_testable("no run")
    ratio = _over(shown, "printed")
    passes = (ratio <= 1 + 1e-3) & (ratio >= 0.8)
    text = f"measured over Eq 14: from {ratio.min():.3f} to {ratio.max():.3f}"
    text += _regime(shown, passes)
    return verdict(bool(passes.all()), ratio.min(), text)


def _above_least(figure: str) -> Check:
    """Whether no run is flatter than lambda_* by more than 1e-3, which stopping early can cause."""

    def check(frame: DataFrame) -> Verdict:
        shown = where(frame, figure=figure)
        if shown.empty:
            return not_testable("no run")
        ratio = _over(shown, "least")
        excess = (shown["loss"] - shown["floor"])[ratio.argmin()]
        text = (
            f"smallest measured over lambda_*: {ratio.min():.6f} over {len(ratio)} runs, there with"
            f" a loss {excess:.1e} above its floor"
        )
        return verdict(ratio.min() >= 1 - 1e-3, ratio.min(), text)

    return check


def _far(frame: DataFrame) -> Verdict:
    shown = where(frame, figure="2a")
    if shown.empty:
        return not_testable("no run")
    found = {}
    for name, one in _by_data(frame, "2a").items():
        ratio = one.assign(ratio=one["measured"] / one["printed"])
        shares, means_ = geometric_means(ratio, "share", "ratio")
        farthest = int(np.abs(np.log(means_)).argmax())
        found[name] = (float(means_[farthest]), float(shares[farthest]))
    listed = ", ".join(
        f"{ratio:.3g} on {_short(name)} at alpha {share:.2g}"
        for name, (ratio, share) in found.items()
    )
    nearest = min((ratio for ratio, _ in found.values()), key=lambda ratio: abs(np.log(ratio)))
    holds = abs(np.log(nearest)) > np.log(FAR)
    text = f"measured sharpness over that of Eq 14, where it is farthest from 1: {listed}"
    return verdict(bool(holds), nearest, text)


def _raw_inputs_matter(frame: DataFrame) -> Verdict:
    """Whether on every data set raw inputs end far from orthogonalised ones at some proportion.

    On each data set the proportion is picked at which they surely are farthest.
    """
    orthogonal = {_short(name): one for name, one in _by_data(frame, "1c").items()}
    found: dict[str, effects.Effect] = {}
    for name, one in _by_data(frame, "2a").items():
        other = orthogonal.get(_short(name))
        if other is None:
            continue
        ratios = {
            f"on {_short(name)} at alpha {share:.2g}": effects.ratio(
                where(one, share=share), where(other, share=share), "measured"
            )
            for share in np.intersect1d(one["share"], other["share"])
        }
        if ratios:
            found |= effects.extreme(ratios, largest=True)
    if not found:
        return not_testable("no proportion with both kinds of inputs")
    return effects.decide(found, "final sharpness, raw over orthogonalised", above=FAR)


def _runs(frame: DataFrame) -> dict[float, DataFrame]:
    """The rows of 2d for each fraction; their loss is finite."""
    shown = where(frame, figure="2d")
    return {float(f): where(shown, fraction=f) for f in np.unique(shown["fraction"])}


def _far_from_edge(frame: DataFrame) -> Verdict:
    run = _runs(frame).get(0.0)
    if run is None:
        return not_testable("no run at the rate of the other panels")
    share = (run["measured"] * run["rate"] / 2).to_numpy()
    text = f"at most {share.max():.4f} of 2 / rate, at rate {run['rate'][0]:g}"
    return verdict(share.max() < 0.5, share.max(), text)


def _settles(frame: DataFrame) -> Verdict:
    """Whether training ends at the edge, where sharpness is 2 / rate, at rates in between.

    They lie between 2 / (the sharpness that a small rate ends at) and 2 / lambda_*.
    """
    runs = _runs(frame)
    flow = runs[0.0]["measured"].iloc[-1] if 0.0 in runs else np.inf
    between = {f: one for f, one in runs.items() if 0 < f < 1 and 2 / one["rate"].iloc[-1] < flow}
    if not between:
        return not_testable(
            "no rate between 2 / (the sharpness reached at a small rate) and 2 / lambda_*"
        )
    edges = {f: one["measured"].iloc[-1] * one["rate"].iloc[-1] / 2 for f, one in between.items()}
    flattest = min(one["measured"].iloc[-1] / one["least"].iloc[-1] for one in between.values())
    excess = max((one["loss"] - one["floor"]).iloc[-1] for one in between.values())
    listed = ", ".join(f"{edge:.4f} at rate {2 * f:.3g} / lambda_*" for f, edge in edges.items())
    text = f"final sharpness in units of 2 / rate: {listed}; excess loss at most {excess:.1e}"
    holds = max(edges.values()) <= 1 + 1e-3 and flattest >= 1 - 1e-3 and excess < 1e-6
    return verdict(bool(holds), max(edges.values()), text)


def _never_fits(frame: DataFrame) -> Verdict:
    """Whether the loss stays above its floor above 2 / lambda_*, where no minimum is stable."""
    above = {f: one for f, one in _runs(frame).items() if f > 1}
    if not above:
        return not_testable("no rate above 2 / lambda_*")
    excess = {f: float((one["loss"] - one["floor"]).iloc[-1]) for f, one in above.items()}
    listed = ", ".join(f"{value:.1e} at rate {2 * f:.3g} / lambda_*" for f, value in excess.items())
    return verdict(min(excess.values()) > 1e-6, min(excess.values()), f"final excess loss {listed}")


def _amplified(frame: DataFrame) -> Verdict:
    """Whether sharpness over the label norms, largest over smallest, grows with every layer."""
    shown = where(frame, figure="1b")
    if shown.empty or len(np.unique(shown["depth"])) < 2:
        return not_testable("no grid")
    norms = np.unique(shown["norm"])
    depths, most = means(where(shown, norm=norms[-1]), "depth", "measured")
    _, least = means(where(shown, norm=norms[0]), "depth", "measured")
    steps = np.diff(np.log(most / least))
    text = f"largest / smallest sharpness {(most / least)[0]:.3g} at L={depths[0]:g}"
    text += f", {(most / least)[-1]:.3g} at L={depths[-1]:g}"
    return verdict(bool((steps > 0).all()), float(steps.min()), text)


_RATIO = ("n/d",)
_EXACT = Sentence(
    "B", "Section 4, of Figure 1a", "the theory predicts the non-zero eigenvalues exactly"
)
_DEPTH = Sentence("B", "Section 4, of Figure 1b", "This effect is amplified by large depths")
_SHARPER = Sentence(
    "B",
    "Section 4, of Figure 1c",
    "sharper solutions when there is one class with disproportionately large number of labels",
    _RATIO,
)
_BREAKS = Sentence(
    "B", "Section 5, of Figure 2a",
    "our theory breaks down immediately .. inconsistent variations with maximum label proportion",
    _RATIO,
)  # fmt: skip
_GEOMETRY = Sentence(
    "B", "Section 4, of Figure 2a",
    "the left panel in Figure 2 .. suggests that peak-sharpness is strongly influenced by the "
    "input-geometry",
    _RATIO,
)  # fmt: skip
_KAIMING = Sentence(
    "B", "Section 5, of Figure 2b",
    "the theoretical predictions .. stay intact, as the final sharpness increasing with label "
    "imbalance",
    _RATIO,
)  # fmt: skip


def _slightly(frame: DataFrame) -> Verdict:
    """Whether tanh networks lie farther from Eq 14 than linear ones, and nearer than raw inputs.

    The linear networks have the same start (Figure 1c); of linear networks on raw inputs (2a) the
    paper says that its theory breaks down.
    """
    tanh, linear, raw = (_distances(frame, figure) for figure in ("2c", "1c", "2a"))
    seeds = sorted(set(tanh) & set(linear) & set(raw))
    if not seeds:
        return not_testable("no seed of all three kinds of network")
    found = {
        name: effects.geometric_mean([far[s] / near[s] for s in seeds])
        for name, far, near in (
            ("for tanh over linear networks", tanh, linear),
            ("for raw inputs over tanh", raw, tanh),
        )
    }
    return effects.decide(found, "mean |log(sharpness / Eq 14)|, ratio", above=1.0)


def _distances(frame: DataFrame, figure: str) -> dict[int, float]:
    """The mean of |log(measured / Eq 14)| over data sets and proportions, by seed."""
    shown = where(frame, figure=figure)
    return {
        int(seed): float(np.abs(np.log(_over(rows, "printed"))).mean())
        for seed in np.unique(shown["seed"])
        for rows in [where(shown, seed=seed)]
    }


_TANH = Sentence(
    "B", "Section 5, of Figure 2c",
    "slightly different from the theoretical predictions, they are qualitatively similar",
    _RATIO,
)  # fmt: skip


def _on(panel: str) -> tuple[tuple[str, object], ...]:
    return (("figure", panel),)


CLAIMS = (
    Claim(
        "B1a",
        "every eigenvalue is that of Eqs 9, 13 within 1e-10 lambda_max",
        _EXACT,
        _spectrum,
    ),
    Claim("B1a", "d^2 eigenvalues are not zero", implied("Eq 9"), _nonzero),
    Claim("B1b", "the sharpness of balanced networks is Eq 14", implied("Eq 14"), _contour),
    Claim(
        "B1b",
        "the sharpness over the label norms spreads further with every layer",
        _DEPTH,
        _amplified,
    ),
    Claim("B1b", "it grows with L above ln(sigma_x^2 / alpha) and only there", BEYOND, _growth),
    Claim("B1c", "increasing in alpha_max", _SHARPER, _increasing("1c"), panel=_on("1c")),
    Claim("B1c", "within 1e-3 of lambda_* (5e-3 at alpha 0.1)", BEYOND, _close_to_least),
    Claim(
        "B1c",
        "at most Eq 14 as printed and within 20% of it",
        implied("Eq 14, which needs fitted labels"),
        _below_printed,
        ("n/d",),
        _on("1c"),
        mechanism=(
            "with n > d the inputs do not fit the labels. Every run meets lambda_* to 1e-3, which"
            " is Eq 14 of the part of the labels that the inputs fit. The smaller this part is,"
            " the further lambda_* lies below Eq 14 as printed"
        ),
    ),
    Claim("B1c", "no run is flatter than lambda_*", BEYOND, _above_least("1c")),
    Claim(
        "B2a",
        "raw inputs: at some proportion farther than a factor 2 from the theory",
        _BREAKS,
        _far,
        panel=_on("2a"),
    ),
    Claim(
        "B2a",
        "raw inputs: not monotone in alpha_max",
        _BREAKS,
        _not_monotone,
        panel=_on("2a"),
    ),
    Claim(
        "B2a",
        "at some proportion raw inputs end at twice the sharpness of orthogonalised ones",
        _GEOMETRY,
        _raw_inputs_matter,
        panel=_on("2a"),
    ),
    Claim(
        "B2b",
        "Kaiming uniform: increasing in alpha_max",
        _KAIMING,
        _increasing("2b"),
        panel=_on("2b"),
    ),
    Claim("B2b", "Kaiming uniform: no run is flatter than lambda_*", BEYOND, _above_least("2b")),
    Claim(
        "B2b",
        "Kaiming uniform: within 10% of Eq 14 as printed for alpha >= 0.2",
        BEYOND,
        _near_printed("2b", 0.10, least=0.2 - 1e-3),
        mechanism=(
            "an unbalanced start ends above lambda_*, and Eq 14 as printed lies above lambda_*,"
            " too, each by tens of per cent. No theorem says that these two agree"
        ),
    ),
    Claim(
        "B2c",
        "tanh: increasing in alpha_max",
        _TANH,
        _increasing("2c"),
        panel=_on("2c"),
    ),
    Claim(
        "B2c",
        "tanh networks differ from theory more than linear ones from the same start and less than"
        " linear ones on raw inputs, where theory breaks down",
        _TANH,
        _slightly,
        panel=_on("2c"),
    ),
    Claim(
        "B2c",
        "tanh: within 25% of Eq 14 as printed",
        BEYOND,
        _near_printed("2c", 0.25),
        mechanism=(
            "Eq 14 as printed is of labels that are fitted, and these are not; the same runs are"
            " much closer to lambda_*"
        ),
    ),
    Claim(
        "B2d",
        "at the paper's rate training stays far from the edge 2 / rate",
        BEYOND,
        _far_from_edge,
    ),
    Claim(
        "B2d", "a rate between the edge of flow and 2 / lambda_* ends at the edge", BEYOND, _settles
    ),
    Claim("B2d", "above 2 / lambda_* the loss stays above its floor", BEYOND, _never_fits),
)
