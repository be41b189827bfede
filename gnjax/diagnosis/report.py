"""A diagnosis as text: kappa, learning rates, layers and remedies, with their numbers."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from gnjax.conditioning.answer import ASSUMED, is_assumed, short, without_smallest
from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.course import NO_TIME
from gnjax.diagnosis.layer_shares import shortened
from gnjax.diagnosis.remedies.learning_rate import own_rate
from gnjax.diagnosis.remedies.suggestion import HELPS, UNKNOWN, LeftOut, Suggestion, count_of
from gnjax.numerics.stages import in_words

if TYPE_CHECKING:
    from gnjax.diagnosis.diagnose import Diagnosis

_FOUR_DIGITS = 1e-4  # four digits are certain if the relative width of the interval is at most this
_WIDTH = 80
_FAR_BELOW = 0.01  # a curvature up to this share of the eigenvalue above a gap lies below the gap
OF_HESSIAN = "lambda_max of the Hessian"  # the stage that needs targets
IN_FLOAT64 = "kappa of the same weights in float64"  # the stage
_COLUMNS = 50  # letters of a row behind the name of its layer
_CALL = "write with gnjax.x64(): gnjax.diagnose(..)"
_FALLS = 10.0  # times that a lower bound of kappa is smaller, to be told
_LAYERS = 8  # how many layers have a line of their own


def report(diagnosis: Diagnosis) -> str:
    """The whole report, its parts separated by empty lines."""
    parts = (_heading, _kappa, _rates, _optimizer, _layers, _classes, _remedies, _mark)
    return "\n\n".join(text for text in (part(diagnosis) for part in parts) if text)


def _heading(diagnosis: Diagnosis) -> str:
    """The counts of parameters, layers, samples and outputs, the loss, and the measured part."""
    counts = {
        "parameter": diagnosis.parameters,
        "layer": len(diagnosis.layers),
        "sample": diagnosis.samples,
        "output": diagnosis.outputs,
    }
    lines = [", ".join(count_of(count, noun) for noun, count in counts.items())]
    if diagnosis.loss:  # answers saved by earlier versions have none
        default = ": |f - y|^2 / 2, which is taken where no loss is named"
        meaning = default if diagnosis.loss == "squared_error" else ""
        lines += _filled(f"loss {diagnosis.loss}{meaning}")
    if diagnosis.part:
        lines += _filled(
            f"measured on {diagnosis.part}, which can be decomposed; learning rates are for all "
            "data"
        )
    return "\n".join(lines)


def _kappa(diagnosis: Diagnosis) -> str:
    """Kappa and both ends of the spectrum, each with what it rests on, as lines of the report."""
    condition = diagnosis.condition
    if condition is None:
        return "kappa was not measured"
    low, high = condition.at_rank
    relation = "=" if condition.bounded else ">="
    lines = [
        f"kappa {relation} {condition.value:.6g} in [{low:.6g}, {high:.6g}]",
        f"  method {condition.method}, {condition.certificate.kind}",
        f"  lambda_max {condition.lambda_max:.4g}, lambda_min {condition.lambda_min:.4g}, "
        f"floor {condition.floor:.2g}",
        *_filled(_rank_sentence(diagnosis, condition)),
        *_filled(_resolved_sentence(condition)),
    ]
    if condition.below_gap:
        lines += _filled(_gap_sentence(condition, diagnosis.rescaling))
    return "\n".join(lines)


def _gap_sentence(condition: ConditionNumber, rescaling: float | None) -> str:
    """kappa without the eigenvalues below a gap, and whether the smallest rescales weights."""
    text = ", kappa is ".join(without_smallest(condition))
    assert condition.above_gap is not None
    above = condition.lambda_max / condition.above_gap[1]
    if rescaling is None or rescaling > _FAR_BELOW * above:
        return text
    return (
        f"{text}. A direction that only rescales whole arrays of weights has the curvature "
        f"{rescaling:.3g}, below the gap as well: the outputs hardly depend on the size of these "
        "weights. Before a normalisation, as LayerNorm or BatchNorm, they depend on it through its "
        "epsilon alone, and then kappa depends on that epsilon"
    )


def _rank_sentence(diagnosis: Diagnosis, condition: ConditionNumber) -> str:
    """The rank of G, and how far it is below the shorter side of the Jacobian (k n, p)."""
    p, kn = diagnosis.parameters, diagnosis.samples * diagnosis.outputs
    rank, source = condition.rank, condition.rank_source
    text = f"rank {rank:,} ({source}) of p = {p:,} and k n = {kn:,}"
    if rank == min(p, kn):
        return f"{text}: as large as it can be"
    missing = min(p, kn) - rank
    text += f"; {'taken to be ' if source == 'gap' else ''}without curvature: "
    if p <= kn:
        return text + count_of(missing, "parameter direction")
    return (
        f"{text}{count_of(missing, 'combination')} of outputs, which no parameter changes (as the "
        "difference of two equal samples) or to which the loss gives no weight"
    )


def _resolved_sentence(condition: ConditionNumber) -> str:
    """Whether kappa is resolved, at an assumed rank or a lower bound, and what that means."""
    if condition.resolved:
        return "resolved: the smallest non-zero eigenvalue is certified to lie above its error"
    if condition.bounded:
        return (
            "NOT RESOLVED: this is kappa at a numerical rank, which was taken from a gap in the "
            f"spectrum; eigenvalues below {condition.floor:.2g} are assumed to be zero"
        )
    return (
        "NOT RESOLVED: the smallest eigenvalues cannot be told from zero, so kappa is a lower "
        "bound, and the rank is not known"
    )


def _rates(diagnosis: Diagnosis) -> str:
    """The stable and the best learning rates of gradient descent, as lines of the report."""
    limits = {"G": diagnosis.learning_rate, "H": diagnosis.hessian_learning_rate}
    known = {matrix: limit for matrix, limit in limits.items() if limit is not None}
    lines = ["learning rate of gradient descent, on quadratic models of the loss"]
    for matrix, limit in known.items():
        name = {"G": "the Gauss-Newton matrix G", "H": "the Hessian H"}[matrix]
        lines.append(f"  with {name}: stable below 2 / lambda_max({matrix}) = {limit:.4g}")
    if diagnosis.condition is not None:
        lines += _best_rate(diagnosis, diagnosis.condition, known)
    if diagnosis.sharpness is None and not any(
        left_out.name == OF_HESSIAN for left_out in diagnosis.left_out
    ):
        lines += _filled("the limit by the Hessian, which may be lower, needs targets y")
    lines += _filled(
        "these are facts about the quadratic models at these weights, and no orders: the curvature "
        "changes while the weights do, and training may go on, and end lower, above a limit"
    )
    return "\n".join(lines)


def _best_rate(
    diagnosis: Diagnosis, condition: ConditionNumber, limits: dict[str, float]
) -> list[str]:
    """The best constant rate with its steps, and which of the ``limits`` it is above."""
    bound = "" if condition.bounded else "at least "
    best, factor = diagnosis.best_learning_rate, diagnosis.rate
    assert best is not None
    assert factor is not None
    rate = f"{factor:.4g}"
    if factor >= 0.999:
        rate = f"1 - {2 / (condition.value + 1):.3g}"
    lines = _filled(
        f"with G at its best constant rate, {best:.4g}, each step multiplies the error by {bound}"
        f"(kappa - 1) / (kappa + 1) = {rate}: one more decimal digit takes "
        f"{bound}{diagnosis.steps_per_decade:.3g} steps"
    )
    # lambda_max(G) of a part of the samples may be smaller than that of all
    for matrix, limit in limits.items():
        if best > limit:
            lines += _filled(
                f"that rate is above 2 / lambda_max({matrix})"
                f"{' of all data' if matrix == 'G' else ''} = {limit:.4g}, from which on gradient "
                f"descent on the model with {matrix} diverges"
            )
    return lines


def _optimizer(diagnosis: Diagnosis) -> str:
    """The limit of the optimiser whose state was given, as lines of the report; "" without one."""
    if diagnosis.without:
        return "\n".join(["your optimiser", *_filled(f"no limit: {diagnosis.without}")])
    value, limit = diagnosis.preconditioned, diagnosis.preconditioned_threshold
    if value is None:
        return ""
    matrix = "G" if diagnosis.sharpness is None else "H"
    text = f"lambda_max(P^-1/2 {matrix} P^-1/2) = {value:.4g} for the metric P of its next update"
    if limit is None:
        text += "; from which value on it is unstable is not known: "
        text += "pass optimizer= beside its state, or it keeps gradients in more than one mean"
        return "\n".join(["your optimiser", *_filled(text)])
    text += f", and it is unstable from {limit:.4g} on, on the quadratic model with P held fixed"
    lines = ["your optimiser, on the same quadratic model", *_filled(text)]
    factor = diagnosis.rate_to_limit
    if factor is None:
        lines += _filled("no positive eigenvalue, and no limit of its rate")
    elif factor > 1:
        lines += _filled(f"its rate is below its limit, by a factor of {factor:.3g}")
    else:
        lines += _filled(f"its rate is above its limit, by a factor of {1 / factor:.3g}")
    return "\n".join(lines)


def _layers(diagnosis: Diagnosis) -> str:
    """A table of the layers' shares of both ends, and a sentence on what it shows.

    The names are whole where the terminal, or 80 letters without one, has room for them.
    """
    room = max(shutil.get_terminal_size().columns, _WIDTH) - _COLUMNS
    whole = [layer.name for layer in diagnosis.layers]
    names = dict(zip(whole, shortened(whole, room), strict=True))
    by_share = sorted(diagnosis.layers, key=lambda layer: -max(layer.top, layer.bottom or 0.0))
    most = {layer.name for layer in by_share[:_LAYERS]}
    telling = [layer for layer in diagnosis.layers if layer.name in most]
    width = max(len("layer"), *(len(names[layer.name]) for layer in telling))
    lines = [
        f"{'layer':{width}}  {'parameters':>11}  {'lambda_max':>10}  {'lambda_min':>10}  "
        f"{'kappa alone':>11}"
    ]
    for layer in telling:
        bottom = "-" if layer.bottom is None else f"{layer.bottom:.1%}"
        alone = "-" if layer.block is None else short(layer.block)
        lines.append(
            f"{names[layer.name]:{width}}  {layer.parameters:11,}  {layer.top:10.1%}  "
            f"{bottom:>10}  {alone:>11}"
        )
    if len(diagnosis.layers) > _LAYERS:
        lines += _filled(f"and {len(diagnosis.layers) - _LAYERS} more with smaller shares")
    if diagnosis.differentiated:
        lines += _filled(_by_differentiation(diagnosis))
    return "\n".join([*lines, *_filled(_verdict(diagnosis))])


def _by_differentiation(diagnosis: Diagnosis) -> str:
    """The parameters that belong to no known layer, counted by the last name in their paths."""
    last_names = [path.rpartition("/")[2] for path in diagnosis.differentiated]
    counts = Counter(last_names)
    texts = dict.fromkeys(  # each text once, in the order of the paths
        path if counts[last_name] == 1 else f"{counts[last_name]} called {last_name}"
        for path, last_name in zip(diagnosis.differentiated, last_names, strict=True)
    )
    return (
        "computed by automatic differentiation rather than by the structure of their layers: "
        + ", ".join(texts)
    )


def _verdict(diagnosis: Diagnosis) -> str:
    """A sentence on the layer that makes kappa large, or on why none is named."""
    if len(diagnosis.layers) == 1:
        return "one layer holds every parameter"
    if any(layer.bottom is None for layer in diagnosis.layers):
        if diagnosis.condition is None:
            return "the shares of lambda_min come with kappa, which was not measured"
        return "the shares of lambda_min are not available: the matrix is too large"
    suspect = diagnosis.suspect
    if suspect is None:
        return "no layer stands out: each has about the same share at both ends"
    assert suspect.bottom is not None
    shares = f"{suspect.top:.1%} of lambda_max and {suspect.bottom:.1%} of lambda_min"
    own_rates = [s for s in diagnosis.suggestions if s.name.startswith(own_rate(suspect.name))]
    if diagnosis.culprit is not None:
        return (
            f"{suspect.name} contributes most to kappa: it makes {shares}, and a lower learning "
            f"rate for it changed kappa {_change(own_rates[0])} when it was tried"
        )
    if own_rates and own_rates[0].verdict == UNKNOWN:
        return (
            f"{suspect.name} has the most uneven shares, {shares}, and it cannot be told whether "
            f"it is the cause of kappa: with a learning rate of its own the bound went "
            f"{_change(own_rates[0])}"
        )
    outcome = f"changed kappa only {_change(own_rates[0])}" if own_rates else "was not tried"
    return (
        f"{suspect.name} has the most uneven shares, {shares}, but it is not the cause of kappa: "
        f"a learning rate of its own {outcome}"
    )


def _change(suggestion: Suggestion) -> str:
    """The change of kappa by a remedy, as a part of a sentence."""
    return f"from {short(suggestion.before)} to {short(suggestion.after)}"


def _classes(diagnosis: Diagnosis) -> str:
    """A table of the classes' shares of both ends; "" without classes."""
    if not diagnosis.classes:
        return ""
    width = max(14, *(len(share.name) for share in diagnosis.classes))
    lines = [f"{'class':{width}}  {'of all labels':>13}  {'lambda_max':>10}  {'lambda_min':>10}"]
    lines += [
        f"{share.name:{width}}  {share.weight:13.1%}  {share.top:10.1%}  {share.bottom:10.1%}"
        for share in diagnosis.classes
    ]
    return "\n".join(lines)


def _remedies(diagnosis: Diagnosis) -> str:
    """The remedies as lines: those that help by their effect, the others, those not measured."""
    helping = [s for s in diagnosis.suggestions if s.verdict == HELPS]
    helping.sort(key=lambda s: s.after.value / s.before.value)
    unknown = [s for s in diagnosis.suggestions if s.verdict == UNKNOWN]
    not_helping = [s for s in diagnosis.suggestions if s.verdict not in (HELPS, UNKNOWN)]
    lines = ["what would help (measured on this model, without training)"]
    in_float64 = _float64(diagnosis)
    lines += in_float64
    if not helping and not in_float64:
        lines.append(
            "  nothing that was tried" if diagnosis.suggestions else "  nothing could be tried"
        )
    for suggestion in helping:
        lines += [*_filled(_numbers(suggestion)), *_filled(suggestion.reason, 4)]
    for suggestion in unknown:
        lines += _filled(f"cannot be told: {_numbers(suggestion)}{_fall(suggestion)}")
    if unknown and diagnosis.dtype == "float32" and not in_float64:
        lines += _filled(f"in float64 this may be told: {_CALL}", 4)
    for suggestion in not_helping:
        lines += _filled(f"does not help here ({suggestion.verdict}): {_numbers(suggestion)}")
    left_out: dict[str, list[LeftOut]] = {}  # by the reason
    for remedy in diagnosis.left_out:
        left_out.setdefault(remedy.reason, []).append(remedy)
    for reason, parts in left_out.items():
        names = ", ".join(
            part.name if part.seconds is None else f"{part.name} (about {in_words(part.seconds)})"
            for part in parts
        )
        lines += _filled(f"not measured: {names}: {reason}")
    if any(part.reason == NO_TIME for part in diagnosis.left_out):
        lines += _filled("diagnose(.., seconds=math.inf) measures all that was left out for time")
    return "\n".join(lines)


def _float64(diagnosis: Diagnosis) -> list[str]:
    """The first remedy where float32 decides what is resolved: the same weights in float64."""
    condition, wider = diagnosis.condition, diagnosis.in_float64
    if condition is None or condition.resolved or diagnosis.dtype != "float32":
        return []
    outcome = "it was not measured what kappa is then"
    if wider is not None:
        state = "resolved" if wider.resolved else "not resolved there, either"
        outcome = f"kappa {_within(condition)} -> {_within(wider)}, {state}"
    return [
        *_filled(f"the same weights in float64: {outcome}"),
        *_filled(
            f"the floor {condition.floor:.2g} is that of float32 and not of the model: {_CALL}", 4
        ),
    ]


def _fall(suggestion: Suggestion) -> str:
    """What the lower bounds of kappa say where it has no upper one, as the end of a sentence."""
    before, after = suggestion.before.at_rank[0], suggestion.after.at_rank[0]
    if before >= _FALLS * after and not suggestion.after.bounded:
        return (
            f"; the lower bound fell {before / after:.2g} times and no upper one is known, so that "
            "this may help much"
        )
    return ""


def _mark(diagnosis: Diagnosis) -> str:
    """A note that says what * means; "" if no kappa of a layer or of a remedy has that mark."""
    conditions = [layer.block for layer in diagnosis.layers]
    for suggestion in diagnosis.suggestions:
        conditions += [suggestion.before, suggestion.after]
    return "\n".join(_filled(ASSUMED, 0)) if any(map(is_assumed, conditions)) else ""


def _numbers(suggestion: Suggestion) -> str:
    """The name of a remedy, and kappa before and after it with intervals, and ranks that differ."""
    before, after = suggestion.before, suggestion.after
    ranks = "" if before.rank == after.rank else f", rank {before.rank} -> {after.rank}"
    return f"{suggestion.name}: kappa {_within(before)} -> {_within(after)}{ranks}"


def _within(condition: ConditionNumber) -> str:
    """kappa to four digits, with its interval if not all four digits are certain."""
    low, high = condition.at_rank
    if condition.bounded and high - low <= _FOUR_DIGITS * condition.value:
        return short(condition, 4)
    return f"{short(condition)} in [{low:.4g}, {high:.4g}]"


def _filled(text: str, indent: int = 2) -> list[str]:
    """A text as lines of at most 80 letters; all but the first are indented by two more."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )
