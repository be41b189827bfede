"""A result as a picture: eigenvalues with their errors, densities, both ends of a kappa."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.block_spectra import BlockSpectra
from gnjax.diagnosis.diagnose import Diagnosis
from gnjax.diagnosis.monitor import Monitor
from gnjax.diagnosis.picture import (
    LETTER_POINTS,
    blank,
    draw,
    explain_mark,
    in_points,
    tick_texts,
    two_axes,
    write_title,
)
from gnjax.numerics.extras import optional
from gnjax.spectra.density import SpectralDensity
from gnjax.spectra.spectrum import Spectrum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, _GREY = "#0072B2", "#D55E00", "#5F5F5F"
_WIDE = 100.0  # an axis is logarithmic if largest / smallest is at least this
_SPREAD = 2.0  # standard errors in the band of a density
_MANY = 60  # with so many eigenvalues or more, markers are small and have no caps
_DEEPEST_NAME = 0.75  # of the height of the axes: the longest line of an upright name
_FEW = 12  # up to so many eigenvalues have a tick each
_DEEPEST = 1e-30  # relative to the largest: the smallest value on a logarithmic axis


def plot(result: object, ax: Axes | Sequence[Axes] | None = None) -> Figure:
    """A matplotlib figure of a spectrum, a density, a condition number, a monitor or a diagnosis.

    ``plot(result).savefig("name.png")`` writes it to a file. With ``ax`` the result is drawn on
    those axes, and their figure is returned; a diagnosis takes two: ``ax=(left, right)``. Any other
    result may draw itself by a method ``draw(axes)``.

    >>> figure = gnjax.plot(gnjax.eigenvalues(np.diag([4.0, 2.0, 1.0])))
    >>> len(figure.axes)
    1
    """
    drawing = _drawing_of(result)
    axes = _axes_for(result, ax)
    drawing(axes if len(axes) == 2 else axes[0], result)
    figure: Any = axes[0].figure
    return figure


def _drawing_of(result: Any) -> Callable[[Any, Any], None]:
    """The function that draws a result of this class on axes; others draw themselves."""
    for kind, drawing in _DRAWN.items():
        if isinstance(result, kind):
            return drawing
    if hasattr(result, "draw"):
        return lambda axes, drawn: drawn.draw(axes)
    kinds = ", ".join(kind.__name__ for kind in _DRAWN)
    msg = f"gnjax.plot draws a {kinds}, got a {type(result).__name__}; print shows other results"
    raise ValueError(msg)


def _axes_for(result: Any, ax: Any) -> Sequence[Axes]:
    """The one pair of axes that a result is drawn on, or the two of a diagnosis.

    They are the caller's, ``ax``, or new ones where that is None.
    """
    takes_two = isinstance(result, Diagnosis)
    if ax is None:
        if takes_two:
            return two_axes(result)
        axes = blank(6.0, 4.0).subplots()
        axes.spines[["top", "right"]].set_visible(False)
        return [axes]
    given: list[Any] = list(np.ravel(np.array(ax, dtype=object)))
    if len(given) == 1 + takes_two and all(hasattr(axes, "get_xaxis") for axes in given):
        return given
    needed = "two pairs of axes, ax=(left, right)" if takes_two else "one pair of axes"
    msg = f"a {type(result).__name__} is drawn on {needed}; ax={ax!r} is something else"
    raise ValueError(msg)


def _spectrum(axes: Axes, spectrum: Spectrum) -> None:
    """Eigenvalues over their index, with bars from value - error to value + error.

    The axis of the values is logarithmic on both sides of zero where some eigenvalue is certainly
    negative, and logarithmic where values differ much or some may be zero. On the latter a value
    that cannot be told from zero is a triangle at its upper bound. Zeros by structure are counted
    in the title, and not drawn.
    """
    zeros, spectrum = spectrum.zeros, spectrum.nonzero
    values, errors = spectrum.values, np.where(np.isfinite(spectrum.errors), spectrum.errors, 0.0)
    index = np.arange(1, len(values) + 1)
    style: dict[str, Any] = {"fmt": ".", "ms": 3, "capsize": 0} if len(values) > _MANY else {}
    style = {"fmt": "o", "ms": 5, "capsize": 3, "elinewidth": 0.9, "color": BLUE, **style}
    is_nonzero = np.abs(values) > errors  # certainly, for each eigenvalue
    if (values[is_nonzero] < 0).any():
        sizes = np.abs(values[is_nonzero])
        if _is_wide(sizes):  # linear around zero, up to the smallest size or 1e-8 of the largest
            linear = max(float(sizes.min()), 1e-8 * float(sizes.max()))
            axes.set_yscale("symlog", linthresh=linear)
        axes.errorbar(index, values, errors, **style)
        axes.axhline(0, color=_GREY, lw=0.7)
    elif _is_wide(values[is_nonzero]) or (is_nonzero.any() and not is_nonzero.all()):
        _bars_and_bounds(axes, values, errors, is_nonzero, style)
    else:
        axes.errorbar(index, values, errors, **style)
    if len(values) <= _FEW:
        axes.set_xticks(index)
    axes.set_xlabel("index")
    axes.set_ylabel("eigenvalue")
    evidence = "errors unknown" if np.isinf(spectrum.errors).any() else spectrum.certificate.brief
    state = "" if spectrum.converged else ", not converged"
    counted = f"{len(values)} eigenvalues"
    counted += f" and {zeros:,} zeros by structure" if zeros else ""
    write_title(axes, f"{counted} ({spectrum.method}, {evidence}{state})")


def _bars_and_bounds(
    axes: Axes,
    values: np.ndarray,
    errors: np.ndarray,
    is_nonzero: np.ndarray,
    style: dict[str, Any],
) -> None:
    """Non-zero eigenvalues with bars for their errors on a logarithmic axis, the others as bounds.

    The upper bound value + error of an eigenvalue that may be zero is a triangle. Bounds below
    1e-30 of the largest value are left out, and a note says how many.
    """
    index, upper = np.arange(1, len(values) + 1), values + errors
    downward = np.minimum(errors, values * (1 - 1e-12))  # no bar may reach zero
    axes.set_yscale("log")
    bars = (downward[is_nonzero], errors[is_nonzero])
    axes.errorbar(index[is_nonzero], values[is_nonzero], bars, **style)
    has_triangle = ~is_nonzero & (upper > _DEEPEST * values.max())
    axes.plot(
        index[has_triangle],
        upper[has_triangle],
        "v",
        ms=4,
        mfc="none",
        color=_GREY,
        label="upper bound",
    )
    left_out = int((~is_nonzero & ~has_triangle).sum())
    if has_triangle.any():
        axes.legend(frameon=False)
    if left_out:
        _note(axes, f"{left_out} more are zero")


def _density(axes: Axes, density: SpectralDensity) -> None:
    """The smoothed density of eigenvalues, with a band of two standard errors over the probes.

    The axis of the eigenvalues is logarithmic where none is below the floor's negative and the
    positive nodes differ much; the density is then that of the decimal logarithm. Otherwise the
    axis of the density is logarithmic.
    """
    nodes = density.nodes  # of the quadrature of each probe, (probes, steps)
    log = bool((nodes > -density.floor).all()) and _is_wide(nodes[nodes > 0])
    points = density.grid(log=log)
    curve = density.pdf(points, log=log)
    axes.plot(points, curve.value, color=BLUE, lw=1.4)
    if np.isfinite(curve.standard_error).all():
        half_width = _SPREAD * curve.standard_error
        low, high = np.maximum(curve.value - half_width, 0), curve.value + half_width
        axes.fill_between(points, low, high, color=BLUE, alpha=0.25, lw=0)
    if log:
        axes.set_xscale("log")
    else:
        top = float(curve.value.max())
        # The least density that shows is a hundredth of one eigenvalue over the whole axis.
        least = 1e-2 / density.n / float(np.ptp(points))
        axes.set_yscale("log")
        axes.set_ylim(max(least, 1e-8 * top), 2 * top)
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density of log10" if log else "density")
    work = f"{len(nodes)} probes, {density.steps} steps"
    write_title(axes, f"density of {density.n} eigenvalues ({work})")


def _condition(axes: Axes, condition: ConditionNumber) -> None:
    """lambda_max and the smallest non-zero eigenvalue over their indices 1 and rank.

    A dashed line is the floor, the smallest eigenvalue that could have been told from zero. The
    title has kappa at this rank with its interval, and ">=" where that has no upper end.
    """
    ends = np.array([condition.lambda_max, condition.lambda_min])
    indices = np.array([1, max(condition.rank, 1)])
    is_positive = ends > 0
    if is_positive.any():
        axes.set_yscale("log")
    axes.plot(indices[is_positive], ends[is_positive], "o", color=BLUE)
    for index, value, name in zip(indices, ends, ("largest", "smallest"), strict=True):
        if value > 0:
            text_is_right = index < condition.size / 2  # of the point, where there is room
            axes.annotate(
                f"{name}: {value:.4g}",
                (index, value),
                xytext=(7 if text_is_right else -7, 4),
                textcoords="offset points",
                ha="left" if text_is_right else "right",
            )
    if condition.floor > 0:
        axes.axhline(condition.floor, color=_GREY, ls="--", lw=0.9)
        _note(axes, f"dashed: the floor, {condition.floor:.2g}")
    low, high = condition.at_rank
    axes.set_xlim(0, max(condition.size, 2) * 1.05)
    axes.margins(y=0.2)
    axes.set_xlabel("index")
    axes.set_ylabel("eigenvalue")
    sign = "=" if condition.resolved else "at this rank" if condition.bounded else ">="
    interval = f"[{low:.6g}, {high:.6g}]"
    write_title(axes, f"kappa {sign} {condition.value:.6g} in {interval}, rank {condition.rank}")


def _blocks(axes: Axes, spectra: BlockSpectra) -> None:
    """The spectra of the diagonal blocks of a matrix G, one column for each block.

    A column has a dash at the absolute value of each eigenvalue beyond the floor, orange for
    negative ones. Below it are the block's name and its own kappa; kappa at an assumed rank has the
    mark *, which a line below the axes explains. The title has the share of |G|_F^2 that lies
    outside the diagonal blocks, and the mean of the distances between the spectra of two blocks.
    """
    conditions = [block.condition for block in spectra.blocks]
    axes.set_yscale("log")
    for column, block in enumerate(spectra.blocks):
        values = block.spectrum.values
        positive, negative = values > spectra.floor, values < -spectra.floor
        for color, of_this_sign in ((BLUE, positive), (ORANGE, negative)):
            sizes = np.abs(values[of_this_sign])
            axes.plot(np.full(len(sizes), column), sizes, "_", ms=9, color=color, alpha=0.6)
    width, height = in_points(axes)
    names = [block.name for block in spectra.blocks]
    texts = tick_texts(names, conditions, width, _DEEPEST_NAME * height)
    longest = max(len(line) for text in texts for line in text.split("\n"))
    rotation = 0 if longest * LETTER_POINTS * len(texts) < width else 90
    axes.set_xticks(range(len(texts)), texts, rotation=rotation, fontsize="small")
    axes.set_xlim(-0.6, len(texts) - 0.4)
    explain_mark(axes, conditions)
    axes.set_ylabel("size of eigenvalue")
    share = f"{100 * spectra.off_block_share:.3g}% off the blocks"
    write_title(axes, f"{share}, mean distance {spectra.mean_distance:.3g}")


def _monitor(axes: Axes, monitor: Monitor) -> None:
    """The largest eigenvalues of H, G and P^{-1/2} H P^{-1/2} over the steps of training.

    Each has a band for its error. A dashed line is the limit of the optimiser at hand: where the
    rows have one of P^{-1/2} H P^{-1/2} it is that, and else 2 / rate, above which the largest
    eigenvalue of H makes gradient descent unstable. Quantities that were not measured are left out.
    """
    rows = monitor.history
    steps = [row.step for row in rows]
    drawn_values = []
    for name, color, text in (
        ("sharpness", BLUE, "largest of H"),
        ("gauss_newton", _GREY, "largest of G"),
        ("preconditioned", ORANGE, "largest of $P^{-1/2} H P^{-1/2}$"),
    ):
        values = np.array([row[name] for row in rows], float)  # None becomes nan
        errors = np.array([row[f"{name}_error"] for row in rows], float)
        if np.isfinite(values).any():
            axes.plot(steps, values, "o-", ms=3, lw=1.2, color=color, label=text)
            axes.fill_between(steps, values - errors, values + errors, color=color, alpha=0.2, lw=0)
            drawn_values.append(values[np.isfinite(values)])
    limits = np.array([row.preconditioned_threshold for row in rows], float)
    thresholds, color = np.array([row.threshold for row in rows], float), "black"
    is_other_method = any(row.preconditioned is not None for row in rows)
    text = "2 / rate, for H in gradient descent" if is_other_method else "2 / rate"
    if np.isfinite(limits).any():
        thresholds, color, text = limits, ORANGE, "limit of $P^{-1/2} H P^{-1/2}$"
    if np.isfinite(thresholds).any():
        axes.plot(steps, thresholds, color=color, ls="--", lw=0.9, label=text)
        drawn_values.append(thresholds[np.isfinite(thresholds)])
    _set_readable_scales(axes, np.concatenate(drawn_values))
    axes.legend(frameon=False)
    axes.set_xlabel("step")
    axes.set_ylabel("eigenvalue")
    write_title(axes, f"curvature at {len(rows)} steps")


_DRAWN: dict[type, Callable[[Any, Any], None]] = {
    Spectrum: _spectrum,
    SpectralDensity: _density,
    ConditionNumber: _condition,
    BlockSpectra: _blocks,
    Monitor: _monitor,
    Diagnosis: draw,
}


def _set_readable_scales(axes: Axes, values: np.ndarray) -> None:
    """Set ticks at whole steps, and at values as plain numbers such as 0.2.

    The axis of the ``values`` is logarithmic where they differ much.
    """
    ticker = optional("matplotlib.ticker", "a picture")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins="auto", integer=True))
    if _is_wide(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))


def _is_wide(values: np.ndarray) -> bool:
    """Whether all values are positive and the largest is more than 100 times the smallest."""
    return bool(len(values) and values.min() > 0 and values.max() > _WIDE * values.min())


def _note(axes: Axes, text: str) -> None:
    """Write a grey text in the upper right corner."""
    axes.annotate(text, (0.99, 0.97), xycoords="axes fraction", ha="right", va="top", color=_GREY)
