"""The claims of paper B about figure 4, as functions of the saved table."""

from __future__ import annotations

import numpy as np
from pandas import DataFrame, Series

from sweeps import effects
from sweeps.claims import BEYOND, Claim, Sentence, Verdict, every, not_testable, verdict
from sweeps.rows import means, where

LONG = 10_000  # epochs that the paper trains for
EARLY = 0.1  # the share of the epochs that count as early
NEGLIGIBLE = 0.1  # of the largest eigenvalue


def percentage(frame: DataFrame) -> Series:
    """The error of each predicted eigenvalue, in per cent of the eigenvalue."""
    return 100 * np.abs(frame["predicted"] - frame["measured"]) / frame["measured"]


def _curves(frame: DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each panel the epochs, and the error averaged over eigenvalues and seeds at each."""
    with_error = frame.assign(**{"per cent": percentage(frame)})
    return {
        str(panel): means(where(with_error, panel=panel), "epoch", "per cent")
        for panel in np.unique(frame["panel"])
    }


def _falling(frame: DataFrame) -> Verdict:
    """Whether the error is smaller at the last checkpoint than at the first, in every panel."""
    curves = _curves(frame)
    if min(len(epochs) for epochs, _ in curves.values()) < 3:
        return not_testable("fewer than 3 checkpoints")
    with_error = frame.assign(**{"per cent": percentage(frame)})
    found = {}
    for panel in curves:
        rows = where(with_error, panel=panel)
        first, last = (
            where(rows, epoch=epoch) for epoch in (rows["epoch"].min(), rows["epoch"].max())
        )
        found[f"({panel})"] = effects.ratio(last, first, "per cent")
    return effects.decide(found, "error at the last checkpoint / at the first", below=1.0)


def _final(frame: DataFrame) -> Verdict:
    curves = _curves(frame)
    last = int(frame["epoch"].max())
    finals = {panel: float(errors[-1]) for panel, (_, errors) in curves.items()}
    worst = max(finals.values())
    listed = ", ".join(f"{final:.2g}% ({panel})" for panel, final in finals.items())
    text = f"after {last} epochs {listed}; at first "
    text += ", ".join(f"{errors[0]:.2g}% ({panel})" for panel, (_, errors) in curves.items())
    if last < LONG:
        return not_testable(f"{text}; the claim is about {LONG} epochs")
    return verdict(worst < 0.1, worst, text)


def _proved(frame: DataFrame) -> Verdict:
    """Whether the eigenvalues' errors are far below their distances from Eq 15.

    Otherwise these distances would not be known.
    """
    error = float((frame["error"] / frame["measured"]).to_numpy().max())
    apart = np.abs(frame["measured"] - frame["predicted"])
    share = float((frame["error"] / apart).to_numpy().max())
    text = f"an eigenvalue lies within {error:.1e} (relative) of each value"
    text += f", at most {share:.1e} of its distance from Eq 15"
    return verdict(error < 1e-6 and share < 0.01, error, text)


def _bounded(frame: DataFrame) -> Verdict:
    apart = np.abs(frame["measured"] - frame["predicted"]) - frame["error"]
    ratio = float((apart / frame["bound"]).to_numpy().max())
    return verdict(ratio <= 1, ratio, f"largest |lambda - Eq 15| / |H - G| {ratio:.3f}")


def _tops(rows: DataFrame) -> DataFrame:
    """One row for each seed and epoch: that of the largest eigenvalue, with |H - G| over it."""
    largest = where(rows, index=1)
    return largest.assign(share=largest["bound"] / largest["measured"])


def _flattens_early(frame: DataFrame) -> Verdict:
    """Whether the sharpness is lower after a tenth of the training, and the weights' norms, too.

    The largest value of Eq 15 is a multiple of ||W_1||^2 + ||W_2||^2, so that it tells the norms.
    """
    epochs = np.unique(frame["epoch"])
    early = epochs[(epochs > 0) & (epochs <= EARLY * epochs[-1])]
    if epochs[0] > 0 or not len(early):
        return not_testable("no stop in the first tenth of the training")
    sharpness = _between(frame, "measured", early[-1], 0)
    norms = _between(frame, "predicted", early[-1], 0)
    found = sharpness | {f"of the squared norms {panel}": norm for panel, norm in norms.items()}
    return effects.decide(found, f"sharpness at epoch {early[-1]} over that at epoch 0", below=1.0)


def _functional_part_vanishes(frame: DataFrame) -> Verdict:
    """Whether |H - G| falls along training, to less than a tenth of the largest eigenvalue."""
    first, last = frame["epoch"].min(), frame["epoch"].max()
    if last < LONG:
        return not_testable(f"{last} epochs; the remark is about networks close to convergence")
    shares = _between(frame, "share", last, None)
    falls = _between(frame, "share", last, first)
    both = len(shares) + len(falls)
    name = f"|H - G| / lambda_max at epoch {last}"
    small = effects.decide(shares, name, below=NEGLIGIBLE, judged=both)
    less = effects.decide(falls, f"over that at epoch {first}", below=1.0, judged=both)
    return every(lambda _: small, lambda _: less)(frame)


def _between(frame: DataFrame, of: str, epoch: int, start: int | None) -> dict[str, effects.Effect]:
    """``of`` at one epoch, over that at another if one is given, in each panel."""
    found = {}
    for panel in np.unique(frame["panel"]):
        rows = _tops(where(frame, panel=panel))
        later = where(rows, epoch=epoch)
        if start is None:
            effect = effects.geometric_mean(later[of])
        else:
            effect = effects.ratio(later, where(rows, epoch=start), of)
        found[f"({panel})"] = effect
    return found


CLAIMS = (
    Claim(
        "B4",
        "Eq 15 becomes more precise as training progresses",
        Sentence("B", "Appendix B", "increasingly precise as training progresses", ("n/d",)),
        _falling,
    ),
    Claim(
        "B4",
        "after a tenth of the training the sharpness and the norms of the weights are lower than at"
        " its start",
        Sentence(
            "B",
            "Section 3, of Eq 11 for two layers",
            "progressive flattening .. sharpness decreases since the parameter norm decreases in"
            " early-training",
        ),
        _flattens_early,
    ),
    Claim(
        "B4",
        "after training |H - G| has fallen to less than a tenth of the largest eigenvalue",
        Sentence(
            "A",
            "Remark R1 of Section 2, also paper B's Section 2.1",
            "close to convergence .. the contribution of H_F will also be negligible and G is"
            " essentially equal to H_L",
        ),
        _functional_part_vanishes,
    ),
    Claim("B4", "final error of the top eigenvalues < 0.1%", BEYOND, _final, ("n/d",)),
    Claim("B4", "the Hessian's eigenvalues are proved by residuals", BEYOND, _proved),
    Claim("B4", "no eigenvalue is further from Eq 15 than |H - G|", BEYOND, _bounded),
)
