"""The rows of an accelerator, on the CPU at toy size."""

from __future__ import annotations

import json
from types import SimpleNamespace

import jax
import pytest

from benchmarks import devices, gpt, record, tables


@pytest.fixture(scope="module")
def found():
    with jax.numpy_rank_promotion("allow"):  # the rivals' models add biases to rows
        return devices.rows(samples=16, square=64, repeats=2)


def test_every_row_has_a_rate_beside_a_peak_or_an_error_bound(found, tmp_path):
    precisions = [row.tool.removeprefix("gnjax, ") for row in found]
    assert precisions == ["float64", "float32"] * 3 + ["float64"]
    for row in found[:-1]:
        assert row.rate["gflops"] > 0
        assert row.rate["peak"] > 0
        assert "peak of a product of 64 x 64" in row.note
    assert "error bound" in found[-1].note
    path = record.save("devices", found, record.environment(), tmp_path)
    assert len(json.loads(path.read_text())["rows"]) == 7
    assert "GFLOP/s" in tables.tables(tmp_path)


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


def test_float32_is_verified_against_float64(found):
    """Errors of rounding, above that of float64 and well below one."""
    errors = [row.error for row in found if row.tool == "gnjax, float32"]
    assert all(1e-9 < error < 1e-3 for error in errors), errors


def test_the_peak_of_a_known_device_is_that_of_its_sheet(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(device_kind="NVIDIA H200")])
    assert devices._peak("float64", 8, 1) == (67_000.0, "peak of the sheet")
