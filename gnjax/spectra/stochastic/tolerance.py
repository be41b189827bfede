"""Random vectors are added until the error is small enough, and what is stated stays honest.

An interval that holds with 95% for a number of samples fixed beforehand does not where the samples
choose their number: who stops at the first small spread stops where it is small by chance. So the
spread is looked at rarely, at numbers of samples that are fixed beforehand and double. Each of K
looks has a K-th of the 5%, so that the intervals of all looks together hold with 95% (the union
bound), and so does the one of the look where the work stops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnjax.numerics.validation import is_count

_FIRST = 16  # samples at the first look; fewer tell little of their spread
_MOST = 10_000  # samples, where the caller gives a tolerance and no number
SHARE = 0.9  # of the tolerance for the random vectors; the rest is for rounding and the matrix


def most_probes(
    probes: Any, rtol: float | None, usual: int, least: int = 1, most: int = _MOST
) -> int:
    """The largest number of random vectors: ``probes``, or one of two numbers where that is None.

    It is then the ``usual`` one, or ``most`` where there is a tolerance.
    """
    if rtol is not None and not (isinstance(rtol, int | float | np.floating) and 0 < rtol < 1):
        msg = f"rtol={rtol!r} is not a number between 0 and 1, such as 0.01"
        raise ValueError(msg)
    if probes is None:
        return usual if rtol is None else most
    if not is_count(probes) or probes < least:
        msg = f"probes={probes!r} is not an integer of at least {least}"
        raise ValueError(msg)
    return int(probes)


def looks(most: int, rtol: float | None, first: int = _FIRST) -> list[int]:
    """After how many samples the spread is looked at: ``first``, twice as many, .. and ``most``.

    Without a tolerance that is ``most`` alone.
    """
    counts = []
    doubled = first if rtol is not None else most
    while doubled < most:
        counts.append(doubled)
        doubled *= 2
    return [*counts, most]
