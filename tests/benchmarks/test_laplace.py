"""What the benchmark asks of gnjax is what its dense reference says."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

from benchmarks import laplace


@pytest.fixture
def case(monkeypatch):
    monkeypatch.setattr(laplace, "_SAMPLES", 12)
    monkeypatch.setattr(laplace, "_HIDDEN", 4)
    monkeypatch.setattr(laplace, "_NEW", 3)
    monkeypatch.setattr(laplace.install, "missing", lambda name: "not asked for")
    with jax.numpy_rank_promotion("allow"):  # of the benchmark's own networks
        yield laplace._case()


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["_solutions", "_log_determinants", "_predictions"])
def test_answers_are_within_the_errors_that_their_rows_show(case, rows):
    found = list(getattr(laplace, rows)(case, laplace._dense(case), 1))
    ours = [row for row in found if row.tool == "gnjax"]
    assert ours
    for row in ours:
        error, stated = map(float, re.search(r"error (\S+), (\S+) stated", row.note).groups())
        assert error <= max(stated, 1e-12)  # that of the reference
        assert stated < (0.02 if "quadrature" in row.note else 1e-8)
        assert np.isfinite(row.seconds).all()
    others = [row for row in found if row.tool != "gnjax"]
    assert {row.note for row in others} == {"not asked for"}
