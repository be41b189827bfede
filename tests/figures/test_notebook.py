"""The grey curves are the numbers that stand beside ours on the page of the authors' numbers."""

import re

import numpy as np

from figures.shared import notebook
from reproduction import authors


def _told(figure, quantity):
    """The numbers of a quantity on that page, by the epoch in its name, or listed by the stops."""
    found = {}
    for one in authors.targets():
        name = re.fullmatch(quantity, one.quantity) if one.figure == figure else None
        if name and one.listed:
            stops, numbers = (text.split(", ") for text in (name[1], one.listed))
            found |= {float(at): float(k) for at, k in zip(stops, numbers, strict=True)}
        elif name:
            found[float(name[1])] = one.theirs
    return found


def _assert_drawn(curve, told, **renamed):
    drawn = {float(renamed.get(f"at_{x}", x)): y for x, y in zip(*curve, strict=True)}
    assert set(told) == set(drawn)
    for place, number in told.items():
        np.testing.assert_allclose(drawn[place], number, rtol=1e-3)


def test_the_notebooks_kappa_of_pruned_networks_is_that_of_the_page_of_numbers():
    for rate, curve in notebook.RESNET32.items():
        _assert_drawn(curve, _told("fig15", rf"{rate:.0%} pruned, kappa after ([\d, ]+) epochs"))
    for rate, curve in notebook.FEED_FORWARD.items():
        told = _told("fig17", rf"plotted run, {rate:.0%} pruned, kappa at epoch (\d+)")
        _assert_drawn(curve, told, at_200=199)


def test_the_notebooks_path_of_kappa_is_that_of_the_page_of_numbers():
    _assert_drawn(notebook.PATH, _told("fig10", r"kappa at epoch (\d+)"))
