"""A diagnosis as text: kappa, learning rates, layers and remedies, with their numbers."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.suggestion import HELPS, Suggestion, counted

if TYPE_CHECKING:
    from gnjax.diagnosis.diagnose import Diagnosis

_FOUR_DIGITS = 1e-4  # the relative width of an interval from which on four digits are certain
_WIDTH = 80


def report(found: Diagnosis) -> str:
    """The whole report, its parts separated by empty lines."""
    parts = (_heading, _kappa, _rates, _layers, _remedies)
    return "\n\n".join(part(found) for part in parts)


def _heading(found: Diagnosis) -> str:
    counts = {
        "parameter": found.parameters,
        "layer": len(found.layers),
        "sample": found.samples,
        "output": found.outputs,
    }
    return ", ".join(counted(count, noun) for noun, count in counts.items())


def _kappa(found: Diagnosis) -> str:
    condition = found.condition
    low, high = condition.at_rank
    relation = "=" if condition.bounded else ">="
    lines = [
        f"kappa {relation} {condition.value:.6g} in [{low:.6g}, {high:.6g}]",
        f"  method {condition.method}, {condition.certificate.kind}",
        f"  lambda_max {condition.lambda_max:.4g}, lambda_min {condition.lambda_min:.4g}, "
        f"floor {condition.floor:.2g}",
        *_filled(_rank(found)),
        *_filled(_resolved(found)),
    ]
    return "\n".join(lines)


def _rank(found: Diagnosis) -> str:
    p, kn, rank = found.parameters, found.samples * found.outputs, found.condition.rank
    sides = f"rank {rank:,} ({found.condition.rank_source}) of p = {p:,} and k n = {kn:,}"
    if rank == min(p, kn):
        return f"{sides}: as large as it can be"
    which = "parameter" if p <= kn else "output"
    return f"{sides}: {min(p, kn) - rank:,} {which} directions have no curvature"


def _resolved(found: Diagnosis) -> str:
    if found.condition.resolved:
        return "resolved: the smallest non-zero eigenvalue is certified to lie above its error"
    if found.condition.bounded:
        return (
            "NOT RESOLVED: this is kappa at a numerical rank, which was read off a gap; "
            f"eigenvalues below {found.condition.floor:.2g} are taken for zero"
        )
    return (
        "NOT RESOLVED: eigenvalues run down into the floor of this arithmetic, so kappa is a "
        "lower bound and the rank counts what exceeds the floor"
    )


def _rates(found: Diagnosis) -> str:
    bound = "" if found.condition.bounded else "at least "
    lines = [
        "learning rate of gradient descent",
        f"  stable below 2 / lambda_max(G) = {found.learning_rate:.4g}",
    ]
    if found.hessian_learning_rate is not None:
        lines.append(f"  stable below 2 / lambda_max(H) = {found.hessian_learning_rate:.4g}")
    lines += _filled(
        f"at the best constant one, {found.best_learning_rate:.4g}, the error is multiplied by "
        f"{bound}(kappa - 1) / (kappa + 1) = {_near_one(found)} in each step: {bound}"
        f"{found.steps_per_decade:.3g} steps for one decimal digit"
    )
    return "\n".join(lines)


def _near_one(found: Diagnosis) -> str:
    if found.rate < 0.999:
        return f"{found.rate:.4g}"
    return f"1 - {2 / (found.condition.value + 1):.3g}"


def _layers(found: Diagnosis) -> str:
    width = min(max(len("layer"), *(len(layer.name) for layer in found.layers)), 28)
    lines = [
        f"{'layer':{width}}  {'parameters':>11}  {'lambda_max':>10}  {'lambda_min':>10}  "
        f"{'kappa alone':>11}"
    ]
    for layer in found.layers:
        name = layer.name if len(layer.name) <= width else "~" + layer.name[1 - width :]
        bottom = "-" if layer.bottom is None else f"{layer.bottom:.1%}"
        alone = "-" if layer.block is None else _short(layer.block)
        lines.append(
            f"{name:{width}}  {layer.parameters:11,}  {layer.top:10.1%}  {bottom:>10}  {alone:>11}"
        )
    if found.differentiated:
        lines += _filled(_by_differentiation(found))
    return "\n".join([*lines, *_filled(_verdict(found))])


def _by_differentiation(found: Diagnosis) -> str:
    """The parameters in no known layer; of several with one name, the name and their number."""
    named = Counter(name.rpartition("/")[2] for name in found.differentiated)
    shown = dict.fromkeys(
        name if named[last] == 1 else f"{named[last]} called {last}"
        for name in found.differentiated
        for last in [name.rpartition("/")[2]]
    )
    return (
        "computed by automatic differentiation rather than by the structure of their layers: "
        + ", ".join(shown)
    )


def _short(condition: ConditionNumber) -> str:
    if condition.rank == 0:
        return "zero"
    return f"{'' if condition.bounded else '>='}{condition.value:.3g}"


def _verdict(found: Diagnosis) -> str:
    if len(found.layers) == 1:
        return "one layer holds every parameter"
    if any(layer.bottom is None for layer in found.layers):
        return "the bottom of the spectrum is not available: the matrix is too large for it"
    culprit = found.culprit
    if culprit is None:
        return "no layer stands out: each has about the same share at both ends"
    assert culprit.bottom is not None
    return (
        f"{culprit.name} ill-conditions the model most: it contributes {culprit.top:.1%} of "
        f"lambda_max and {culprit.bottom:.1%} of lambda_min; a learning rate for it that is "
        f"1% below that of the others lowers kappa by {culprit.top - culprit.bottom:.2f}%"
    )


def _remedies(found: Diagnosis) -> str:
    helping = [s for s in found.suggestions if s.verdict == HELPS]
    helping.sort(key=lambda s: s.after.value / s.before.value)
    others = [s for s in found.suggestions if s.verdict != HELPS]
    lines = ["what would help (measured on this model, nothing trained)"]
    if not helping:
        lines.append(
            "  nothing that was tried" if found.suggestions else "  nothing could be tried"
        )
    for suggestion in helping:
        lines += [*_filled(_numbers(suggestion)), *_filled(suggestion.reason, 4)]
    for suggestion in others:
        lines += _filled(f"does not help here ({suggestion.verdict}): {_numbers(suggestion)}")
        lines += _filled(suggestion.reason, 4)
    for missing in found.left_out:
        lines += _filled(f"not measured: {missing.name}: {missing.reason}")
    return "\n".join(lines)


def _numbers(suggestion: Suggestion) -> str:
    before, after = suggestion.before, suggestion.after
    ranks = "" if before.rank == after.rank else f", rank {before.rank} -> {after.rank}"
    return f"{suggestion.name}: kappa {_within(before)} -> {_within(after)}{ranks}"


def _within(condition: ConditionNumber) -> str:
    """Four digits, and the interval where they are not all certain."""
    low, high = condition.at_rank
    if condition.bounded and high - low <= _FOUR_DIGITS * condition.value:
        return f"{condition.value:.4g}"
    return f"{_short(condition)} in [{low:.4g}, {high:.4g}]"


def _filled(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )
