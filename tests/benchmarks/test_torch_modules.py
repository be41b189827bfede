"""The table of modules of PyTorch: differences, cells, and what the page shows."""

import numpy as np
import pytest

from benchmarks import record, tables, torch_modules


def test_differences_are_those_of_the_numbers():
    exact = {"all": np.array([8.0, 4.0, 1.0])}
    kappa = {"kappa": np.array(2.2), "rank": np.array(2)}
    assert torch_modules.difference("kappa", kappa, exact) == pytest.approx(0.1)
    blocks = {"a": np.array([8.0, 4.0]), "b": np.array([2.0])}
    exact = {"a": np.array([8.0, 4.0, 0.8]), "b": np.array([2.4])}
    assert torch_modules.difference("blocks", blocks, exact) == pytest.approx(0.1)
    values = {"values": np.array([8.0, 4.0])}
    assert torch_modules.difference("hessian", values, values) == 0


def test_the_table_has_a_line_for_each_model(tmp_path):
    rows = [
        record.Row("kappa of G, CNN", "gnjax", [3.0], error=2e-15, note="9 parameters, then 0.5 s"),
        record.Row("kappa of G, CNN", "curvlinops", None, note="products find none"),
        record.Row(
            "ten Hessian eigenvalues, CNN",
            "curvlinops",
            [4.0],
            error=1e-9,
            note="9 parameters, then 4 s",
        ),
    ]
    record.save("torch_modules", rows, record.environment(), tmp_path)
    page = f"before {tables.BEGIN} old {tables.END} after"
    renewed = torch_modules.renewed(page, tmp_path)
    cells = "| CNN | 3, then 0.5 (2e-15) | - | 4, then 4 (1e-09) | - | - | - |"
    assert cells in renewed.splitlines()
    assert torch_modules.renewed(renewed, tmp_path) == renewed
    with pytest.raises(ValueError, match="has no lines"):
        torch_modules.renewed("a page", tmp_path)


def test_the_page_shows_the_committed_measurement():
    if (record.FOLDER / "torch_modules.json").is_file():
        text = torch_modules.PAGE.read_text(encoding="utf-8")
        assert torch_modules.renewed(text) == text, "run python -m benchmarks.torch_modules --save"
