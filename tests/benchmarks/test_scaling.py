"""Exponents of powers, and an axis with its picture at toy size."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import scaling


@pytest.mark.parametrize("power", [1, 2.5])
def test_the_exponent_of_a_power_is_found_beside_an_overhead(power):
    sizes = [2, 4, 64, 128, 256]
    values = [1e3, 1e3, *(3e-3 * size**power for size in sizes[2:])]
    assert scaling.exponent(sizes, values, ["dense"] * 5) == pytest.approx(power, abs=0.005)
    assert scaling.exponent(sizes, [None] * 5, ["dense"] * 5) is None


def test_sizes_of_another_method_do_not_count():
    methods = ["dense", "dense", "dense", "krylov", "krylov"]
    values = [1.0, 1.0, 50.0, 2.0, 8.0]
    assert scaling.exponent([2, 4, 8, 16, 32], values, methods) == pytest.approx(2)


def test_memory_is_seen_to_grow():
    grown = [scaling._grown(lambda size=size: np.ones(size).sum()) for size in (2**22, 2**23)]
    if grown[0] is None:
        pytest.skip("the system does not say")
    assert grown[0] == pytest.approx(8 * 2**22, rel=0.2)
    assert grown[1] == pytest.approx(8 * 2**23, rel=0.2)


def test_an_axis_and_the_picture(tmp_path):
    axis = scaling.AXES["L"]
    toy = scaling.Axis((3, 4), lambda depth: scaling._linear(6, 2, 6, depth), 1, 1, axis.case)
    found = {"axes": {"L": scaling.measured(toy, toy.sizes, 1)}}
    assert len(found["axes"]["L"]["seconds"]) == 2
    path = tmp_path / "scaling.svg"
    scaling.figure(found).savefig(path)
    assert "predicted 1" in scaling.summary(found["axes"]["L"])
    assert path.stat().st_size > 1000


def test_every_axis_has_sizes_that_grow_and_an_operator_at_its_smallest():
    for axis in scaling.AXES.values():
        assert list(axis.sizes) == sorted(set(axis.sizes))
        assert axis.ask(axis.sizes[0])().resolved
