"""The rows of an accelerator, on the CPU at toy size."""

from __future__ import annotations

import jax
import pytest

from benchmarks import devices, gpt


@pytest.mark.slow
def test_kappa_is_the_same_with_the_jacobian_in_either_precision():
    with jax.numpy_rank_promotion("allow"):
        rows = devices.kappas(samples=2)
    assert [row.tool for row in rows] == [
        f"gnjax, J in {dtype}, {run}"
        for dtype in ("float32", "float64")
        for run in ("cold", "again")
    ]
    lows = [float(row.note[len("in [") :].split(",")[0]) for row in rows]
    assert lows == pytest.approx([lows[0]] * 4, rel=1e-4)


def test_a_language_model_has_eigenvalues_twice_and_a_density():
    shape = gpt.Shape(layers=1, width=8, heads=2, vocabulary=30, positions=8)
    with jax.numpy_rank_promotion("allow"):
        rows = devices.language_model(shape, tokens=4)
    assert [row.tool for row in rows] == ["gnjax, cold", "gnjax, again", "gnjax"]
    assert all("errors" in row.note for row in rows[:2])
    assert "one probe" in rows[2].note
