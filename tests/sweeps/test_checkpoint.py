"""Checkpoints: what is read back is what was saved, and a killed run ends as an unbroken one."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gnjax.papers.training import minibatch as training
from gnjax.papers.training.recipe import Recipe
from sweeps.storage.checkpoint import Checkpoint, load, resumed, save

STOPS = [0, 1, 3, 4]
_DTYPES = ("float64", "float32", "int32", "uint8", "bool")


def _apply(w, x):
    return jnp.matmul(x, w.T, precision="highest")


def start():
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(20, 4)), rng.integers(0, 3, 20), rng.normal(size=(3, 4))
    recipe = Recipe("sgd", 0.1, 8, "cross_entropy", momentum=0.9, decay=1e-4, drop_after=2)
    return training.begin((_apply, jnp.asarray(w)), x, y, recipe, jax.random.key(3))


def step(problem, state, stop):
    state, losses = training.train(problem, state, stop - int(state.epoch))
    return state, {"losses": losses.tolist(), "norm": float(jnp.linalg.norm(state.params))}


def _run(checkpoint, killed_at=None):
    problem, state = start()

    def one(state, stop):
        if stop == killed_at:
            raise KeyboardInterrupt
        return step(problem, state, stop)

    return resumed(checkpoint, state, STOPS, one)


@pytest.mark.parametrize("killed_at", STOPS)
def test_a_killed_run_goes_on_to_the_same_records(tmp_path, killed_at):
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    with pytest.raises(KeyboardInterrupt):
        _run(checkpoint, killed_at)
    done = STOPS.index(killed_at)
    saved = load(checkpoint, start()[1])
    assert (0 if saved is None else len(saved[1])) == done
    assert _run(checkpoint) == _run(None)
    assert [path.name for path in tmp_path.iterdir()] == ["cell.checkpoint"]


def test_a_process_killed_without_warning_is_continued_by_another(tmp_path):
    path = tmp_path / "cell.checkpoint"
    script = (
        "import os, signal\n"
        "from gnjax.numerics.precision import enable_x64; enable_x64()\n"
        "from pathlib import Path\n"
        "from sweeps.storage.checkpoint import Checkpoint, resumed\n"
        "from tests.sweeps.test_checkpoint import STOPS, start, step\n"
        "problem, state = start()\n"
        "def one(state, stop):\n"
        "    if stop == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return step(problem, state, stop)\n"
        f"resumed(Checkpoint(Path({str(path)!r})), state, STOPS, one)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    saved = load(Checkpoint(path), start()[1])
    assert saved is not None
    assert len(saved[1]) == 2
    assert _run(Checkpoint(path)) == _run(None)


@given(
    leaves=st.lists(
        st.sampled_from(_DTYPES).flatmap(
            lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))
        ),
        max_size=4,
    ),
    seeds=st.lists(st.integers(0, 2**31), max_size=2),
    numbers=st.lists(st.floats()),
)
def test_what_is_read_is_what_was_saved(tmp_path_factory, leaves, seeds, numbers):
    checkpoint = Checkpoint(tmp_path_factory.mktemp("saved") / "cell.checkpoint")
    keys = [jax.random.key(seed) for seed in seeds]
    state = {"arrays": jax.device_put(leaves), "keys": keys, "none": None}
    save(checkpoint, state, [{"numbers": numbers}])
    zeros = jax.device_put([np.zeros_like(leaf) for leaf in leaves])
    like = {**state, "arrays": zeros, "keys": [jax.random.key(0) for _ in seeds]}
    found, records = load(checkpoint, like)
    assert repr(records) == repr([{"numbers": numbers}])  # nan is not itself, its text is
    assert found["none"] is None
    for new, old in zip(found["arrays"], state["arrays"], strict=True):
        assert new.dtype == old.dtype
        assert np.asarray(new).tobytes() == np.asarray(old).tobytes()
    for new, old in zip(found["keys"], keys, strict=True):
        assert jax.random.bits(new) == jax.random.bits(old)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "binary"])
def test_a_damaged_file_is_set_aside_and_the_run_starts_again(tmp_path, damage):
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    _run(checkpoint)
    whole = checkpoint.path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    broken = {"cut": whole[:middle], "flipped": flipped, "empty": b"", "binary": b"\xff" + whole}
    checkpoint.path.write_bytes(broken[damage])
    assert load(checkpoint, start()[1]) is None
    assert checkpoint.path.with_suffix(".corrupt").read_bytes() == broken[damage]
    assert not checkpoint.path.exists()
    assert _run(checkpoint) == _run(None)


def test_a_state_of_another_shape_is_not_taken(tmp_path):
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    save(checkpoint, [jnp.zeros(3)], [])
    assert load(checkpoint, [jnp.zeros(4)]) is None
    assert load(checkpoint, [jnp.zeros(3)]) is not None  # it is not damaged, so it is still there
    assert load(Checkpoint(tmp_path / "nothing"), [jnp.zeros(3)]) is None
