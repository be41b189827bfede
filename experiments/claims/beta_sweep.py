"""The claims of paper A about figures 5, 20, 21 and 22, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable

from sweeps import effects
from sweeps.claims import BEYOND, Claim, Sentence, Verdict, implied, not_testable, verdict
from sweeps.effects import Effect, bound_holds
from sweeps.rows import geometric_means, kept, length, where
from sweeps.table import Columns

PRINTED_BETAS = ("1/L", "1/sqrt(L)", "1")
TIGHT = 2.0  # as at figure 2: the bound is at most twice kappa


def _deep(table: Columns, figure: str, beta: str) -> Columns:
    """The rows with L > 1: for L = 1, G is I (x) Sigma whatever beta."""
    rows = where(table, figure=figure, beta=beta)
    return kept(rows, rows["depth"] > 1)


def _lower(figure: str, better: str, *others: str) -> Callable[[Columns], Verdict]:
    """Whether kappa's geometric mean over L > 1 is lower at one beta than at each of the others."""

    def check(table: Columns) -> Verdict:
        low = _deep(table, figure, better)
        if not len(low["depth"]):
            return not_testable("no network of L > 1")
        found: dict[str, Effect] = {}
        for other in others:
            high = _deep(table, figure, other)
            by_depth = effects.compared(low, high, "depth", "L")
            listed = ", ".join(f"{effect.value:.3g} {label}" for label, effect in by_depth.items())
            over_all = effects.ratio(low, high, together=len(others))
            found[f"over that at beta={other} ({listed})"] = over_all
        return effects.decide(found, f"kappa at beta={better}", below=1.0)

    return check


def _tight(figure: str) -> Callable[[Columns], Verdict]:
    """Whether bound / kappa, a geometric mean over seeds, is at most 2 at beta = 1 and each L."""

    def check(table: Columns) -> Verdict:
        bounded = where(table, figure=figure, beta="1", bound_applicable=True)
        if not length(bounded):
            return not_testable("no network with beta = 1 where Eq 7 applies")
        gaps = {**bounded, "gap": bounded["bound_convex"] / bounded["kappa"]}
        worst = float(geometric_means(gaps, "depth", "gap")[1].max())
        return verdict(worst <= TIGHT, worst, f"largest mean of bound / kappa {worst:.3f}")

    return check


def _bound_lower(figure: str, bound: str) -> Callable[[Columns], Verdict]:
    """Whether a bound of Eq 7 at beta = 1 lies below that at beta = 0, over the L > 1."""

    def check(table: Columns) -> Verdict:
        one, none = (
            where(_deep(table, figure, beta), bound_applicable=True) for beta in ("1", "0")
        )
        if not length(one) or not length(none):
            return not_testable("no network of L > 1 where Eq 7 applies")
        found = {"": effects.ratio(one, none, bound)}
        return effects.decide(found, "bound at beta=1 over that at beta=0", below=1.0)

    return check


_SIZES = ("d/k", "m/d")
_SKIPS_HELP = Sentence(
    "A",
    "Section 4.3, of Figure 5, also Section 7 (c)",
    "adding skip connections improves the conditioning",
    _SIZES,
)
_BOUND_TOO = Sentence(
    "A", "Section 4.3, of Figure 5", "also holds for .. the tight upper bound in Eq. (7)", _SIZES
)
_SECOND_BOUND = Sentence(
    "A",
    "Section 4.3, behind Eq 8",
    "the second upper bound in Eq. (7) for residual networks is smaller than the second upper bound"
    " for linear networks in Lemma 2",
    _SIZES,
)
_TIGHT_TOO = Sentence(
    "A",
    "Section 1, also Section 4.3",
    "tight upper bounds for the condition number .. for linear and residual networks",
    _SIZES,
)
_MORE_FOR_LARGER = Sentence(
    "A", "Section 4.3, of Figure 20", "is improved more for larger beta", _SIZES
)
_ONE_IS_LOWEST = Sentence(
    "A",
    "Appendix I.3, of Figures 20 and 22",
    "the condition number is smaller for beta = 1 compared to the other two settings",
    _SIZES,
)


def _both_networks(figure: str, panel: str, of: str) -> Claim:
    return Claim(
        figure,
        f"{of}residual kappa < linear kappa, averaged over L > 1",
        _SKIPS_HELP,
        _lower(panel, "1", "0"),
        panel=(("figure", panel),),
    )


def _bound(figure: str, panel: str, of: str = "") -> Claim:
    return Claim(
        figure,
        f"{of}kappa <= first bound in every cell",
        implied("Eq 7"),
        bound_holds(figure=panel),
    )


def _lower_bounds(panel: str, of: str) -> tuple[Claim, ...]:
    """What is said of the bounds of residual networks on one data set."""
    shown = (("figure", panel),)
    return (
        Claim(
            "5",
            f"{of}first bound at beta = 1 < that at beta = 0, averaged over L > 1",
            _BOUND_TOO,
            _bound_lower(panel, "bound_convex"),
            panel=shown,
        ),
        Claim(
            "5",
            f"{of}second bound at beta = 1 < that at beta = 0, averaged over L > 1",
            _SECOND_BOUND,
            _bound_lower(panel, "bound_maximum"),
            panel=shown,
        ),
        Claim(
            "5",
            f"{of}the first bound at beta = 1 is tight: at most twice kappa",
            _TIGHT_TOO,
            _tight(panel),
            panel=shown,
        ),
    )


def _figure(figure: str) -> tuple[Claim, ...]:
    """The claims about figure 20 or 22, which have the same curves on two data sets."""
    panel = (("figure", figure),)
    return (
        Claim(
            figure,
            "beta = 1 has the lowest kappa, averaged over L > 1",
            _ONE_IS_LOWEST,
            _lower(figure, "1", *(beta for beta in PRINTED_BETAS if beta != "1")),
            panel=panel,
        ),
        _bound(figure, figure),
        *(
            Claim(
                figure,
                f"beta = {beta} improves on beta = 0, averaged over L > 1",
                implied("Eq 8"),
                _lower(figure, beta, "0"),
                _SIZES,
                panel,
            )
            for beta in ("1/L", "1/sqrt(L)")
        ),
        Claim(
            figure,
            "beta = 2 improves on beta = 1, averaged over L > 1",
            BEYOND,
            _lower(figure, "2", "1"),
        ),
    )


CLAIMS = (
    _both_networks("5", "5-left", "MNIST: "),
    *_lower_bounds("5-left", "MNIST: "),
    _bound("5", "5-left", "MNIST: "),
    _both_networks("5", "5-right", "CIFAR-10: "),
    *_lower_bounds("5-right", "CIFAR-10: "),
    _bound("5", "5-right", "CIFAR-10: "),
    Claim(
        "20",
        "beta = 1 improves on 1/sqrt(L), averaged over L > 1",
        _MORE_FOR_LARGER,
        _lower("20", "1", "1/sqrt(L)"),
        panel=(("figure", "20"),),
    ),
    Claim(
        "20",
        "beta = 1/sqrt(L) improves on 1/L, averaged over L > 1",
        _MORE_FOR_LARGER,
        _lower("20", "1/sqrt(L)", "1/L"),
        panel=(("figure", "20"),),
    ),
    *_figure("20"),
    _both_networks("21", "21", ""),
    *_figure("22"),
)
