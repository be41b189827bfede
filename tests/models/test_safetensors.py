"""The reader of safetensors files: every type that PyTorch writes, and damaged files."""

import json
from pathlib import Path

import numpy as np
import pytest

from gnjax.models import safetensors

_TYPES = Path(__file__).parents[1] / "fixtures" / "torch_types.safetensors"
_NUMBERS = np.array([[1.5, -2.0, 0.0], [0.15625, 3e4, -7.0]])


def _write(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def _entry(first, last, shape, kind="F32"):
    return {"dtype": kind, "shape": shape, "data_offsets": [first, last]}


def test_every_type_is_read_as_it_was_written():
    """By PyTorch and its own package; see scripts/make_torch_states.py for the numbers."""
    read = safetensors.read_tensors(_TYPES)
    small = _NUMBERS.clip(-100, 100)
    assert set(read) == {
        *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8"),
        *("uint8", "bool", "empty", "scalar"),
    }
    for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8"):
        np.testing.assert_array_equal(read[name], small.astype(name))
        assert read[name].dtype == name
    np.testing.assert_array_equal(read["bfloat16"], small)  # few bits, so bfloat16 has them too
    assert read["bfloat16"].dtype == np.float32
    np.testing.assert_array_equal(read["uint8"], _NUMBERS.clip(0, 9).astype(np.uint8))
    np.testing.assert_array_equal(read["bool"], _NUMBERS > 0)
    assert read["empty"].shape == (0, 3)
    assert read["scalar"].shape == ()
    assert read["scalar"] == 2.5


def test_bfloat16_is_the_upper_half_of_float32(tmp_path):
    exact = np.array([1.0, -3.0, 1e30, np.inf], np.float32)
    upper = (exact.view(np.uint32) >> 16).astype("<u2")
    path = _write(tmp_path / "a.safetensors", {"a": _entry(0, 8, [4], "BF16")}, upper.tobytes())
    found = safetensors.read_tensors(path)["a"]
    np.testing.assert_allclose(found, exact, rtol=2.0**-7)
    np.testing.assert_array_equal(found.view(np.uint32) >> 16, upper)
    np.testing.assert_array_equal(found.view(np.uint32) & 0xFFFF, 0)


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path):
    whole, cut = _TYPES.read_bytes(), tmp_path / "cut.safetensors"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cut"):
            safetensors.read_tensors(cut)
    cut.write_bytes(whole + b"0")
    with pytest.raises(ValueError, match="cut off or damaged"):
        safetensors.read_tensors(cut)


@pytest.mark.parametrize(
    ("header", "bytes_of_data", "words"),
    [
        ({"a": _entry(0, 8, [2]), "b": _entry(4, 12, [2])}, 12, "one behind the other"),
        ({"a": _entry(0, 8, [2]), "b": _entry(0, 8, [2])}, 8, "one behind the other"),
        ({"a": _entry(0, 4, [1]), "b": _entry(8, 12, [1])}, 12, "one behind the other"),
        ({"a": _entry(4, 8, [1])}, 8, "one behind the other"),
        ({"a": _entry(0, 8, [3])}, 8, "a in .* needs 12 bytes"),
        ({"a": _entry(8, 0, [2])}, 8, "a in .* needs 8 bytes"),
        ({"a": _entry(0, 8, [-2])}, 8, "a in .* no readable"),
        ({"a": _entry(0, 8, [2.0])}, 8, "a in .* no readable"),
        ({"a": _entry(0, 8, [True, 2])}, 8, "a in .* no readable"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "a in .* no readable"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, 8, "needs 4 bytes"),
        ({"a": 3}, 0, "a in .* no readable"),
        ({"a": _entry(0, 2, [2], "F8_E4M3")}, 2, "a in .* is of type F8_E4M3; save it as"),
        ([1, 2], 0, "names no arrays"),
        (b"{not json", 0, "no JSON"),
        (b"\xff\xfe", 0, "no JSON"),
        (b"[" * 9000 + b"]" * 9000, 0, "no JSON"),
    ],
)
def test_headers_that_contradict_the_file_are_refused(tmp_path, header, bytes_of_data, words):
    path = _write(tmp_path / "a.safetensors", header, bytes(bytes_of_data))
    with pytest.raises(ValueError, match=words):
        safetensors.read_tensors(path)
