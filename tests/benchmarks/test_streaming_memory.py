"""Ten times more data take the same memory: what was measured, and what the page says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks import record, streaming_memory

PAGE = Path(__file__).parents[2] / "docs/howto/models/larger_than_memory.md"
ROWS = json.loads((record.FOLDER / "streaming_memory.json").read_text("utf-8"))["rows"]


def test_ten_times_more_data_take_the_same_memory():
    """Within a tenth, where the data grow by more than a quarter of all memory."""
    few, many = (row["gigabytes"] for row in ROWS if "on the fly" in row["tool"])
    assert abs(many - few) < 0.1 * few
    images = streaming_memory.BATCH * streaming_memory.BATCHES * (streaming_memory.TIMES - 1)
    assert 4 * images * 3 * streaming_memory.SIDE**2 > 0.25e9 * few


def test_the_page_states_what_was_measured():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    streamed = [row["note"] for row in ROWS if "on the fly" in row["tool"]]
    assert len(streamed) == 2
    assert all(f"| {note.removeprefix('peaks ')} |" in text for note in streamed)
    arrays = [row["note"].split()[1] for row in ROWS if "one array" in row["tool"]]
    assert f"{' and '.join(arrays)} MiB" in text


def test_batches_are_made_anew_and_the_same_in_every_pass():
    data = streaming_memory.Generated(2)
    first, again = list(data), list(data)
    assert first[0][0] is not again[0][0]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert (first[0][0] != first[1][0]).any()
