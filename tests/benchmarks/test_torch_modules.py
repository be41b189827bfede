"""The table of modules of PyTorch: differences, cells, and what the page shows."""

import json

import numpy as np
import pytest

from benchmarks import harness, record, tables, torch_modules


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


@pytest.mark.parametrize(
    ("again", "error", "cell"), [(", then 0.5 s", None, "3, then 0.5"), ("", 2e-15, "3 (2e-15)")]
)
def test_what_was_not_measured_is_left_out(again, error, cell, tmp_path):
    """No reference, and no second answer."""
    note = f"9 parameters{again}"
    rows = [record.Row("kappa of G, CNN", "gnjax", [3.0], error=error, note=note)]
    record.save("torch_modules", rows, record.environment(), tmp_path)
    page = torch_modules.renewed(f"{tables.BEGIN} {tables.END}", tmp_path)
    assert f"| CNN | {cell} | - | - | - | - | - |" in page.splitlines()


def test_a_model_is_measured_again_and_the_others_are_kept(tmp_path):
    def seconds():
        rows = json.loads((tmp_path / "torch_modules.json").read_text())["rows"]
        return {(row["case"], row["tool"]): row["seconds"]["median"] for row in rows}

    def row(model, tool, seconds):
        return record.Row(f"kappa of G, {model}", tool, [seconds], note="9 parameters, then 1 s")

    for rows in (
        [row("CNN", "gnjax", 1.0), row("CNN", "curvlinops", 2.0)],
        [row("ViT", "gnjax", 3.0)],
        [row("CNN", "gnjax", 4.0)],
    ):
        torch_modules.kept_and(rows, record.environment(), tmp_path)
    kept, new = ("kappa of G, ViT", "gnjax"), ("kappa of G, CNN", "gnjax")
    assert seconds() == {kept: 3.0, new: 4.0}


def test_a_tool_without_an_answer_says_why(monkeypatch):
    def apart(function, given, **options):
        raise harness.NoAnswerError(f"{function} has none")

    monkeypatch.setattr(harness, "apart", apart)
    rows = list(torch_modules.compared("cnn", "kappa", 1, threads=1, patience=1.0))
    assert [row.tool for row in rows] == ["torch.func", *torch_modules.TOOLS]
    assert all(row.seconds is None and row.note.endswith("has none") for row in rows)


def test_the_page_shows_the_committed_measurement():
    if (record.FOLDER / "torch_modules.json").is_file():
        text = torch_modules.PAGE.read_text(encoding="utf-8")
        assert torch_modules.renewed(text) == text, "run python -m benchmarks.torch_modules --save"
