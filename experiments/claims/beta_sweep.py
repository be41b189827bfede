"""The claims of paper A about figures 5, 20, 21 and 22, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable

from sweeps import effects
from sweeps.claims import BEYOND, Claim, Source, Verdict, implied, not_testable, printed
from sweeps.effects import Effect, bound_holds
from sweeps.rows import kept, where
from sweeps.table import Columns

PRINTED_BETAS = ("1/L", "1/sqrt(L)", "1")


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


def _both_networks(figure: str, panel: str, of: str, source: Source) -> Claim:
    return Claim(
        figure,
        f"{of}residual kappa < linear kappa, averaged over L > 1",
        source,
        _lower(panel, "1", "0"),
        ("d/k", "m/d"),
        (("figure", panel),),
    )


def _bound(figure: str, panel: str, of: str = "") -> Claim:
    return Claim(
        figure,
        f"{of}kappa <= first bound in every cell",
        implied("Eq 7"),
        bound_holds(figure=panel),
    )


def _figure(figure: str) -> tuple[Claim, ...]:
    """The claims about figure 20 or 22, which have the same curves on two data sets."""
    sizes, panel = ("d/k", "m/d"), (("figure", figure),)
    return (
        Claim(
            figure,
            "beta = 1 has the lowest kappa, averaged over L > 1",
            printed('Appendix I.2, "the condition number is smaller for" beta = 1'),
            _lower(figure, "1", *(beta for beta in PRINTED_BETAS if beta != "1")),
            sizes,
            panel,
        ),
        _bound(figure, figure),
        *(
            Claim(
                figure,
                f"beta = {beta} improves on beta = 0, averaged over L > 1",
                implied("Eq 8"),
                _lower(figure, beta, "0"),
                sizes,
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
    _both_networks("5", "5-left", "MNIST: ", printed("Section 4.3, of Figure 5")),
    _bound("5", "5-left", "MNIST: "),
    _both_networks("5", "5-right", "CIFAR-10: ", printed("Section 4.3, of Figure 5")),
    _bound("5", "5-right", "CIFAR-10: "),
    *_figure("20"),
    _both_networks("21", "21", "", printed("caption of Figure 21")),
    *_figure("22"),
)
