"""Commands keep what they compile; the library does not; the user has the last word."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gnjax.cli import compilation, doctor

_MODEL = """
import numpy as np
def make():
    w = np.arange(6.0).reshape(3, 2)
    return (lambda p, x: np.tanh(1) * (x @ p) ** 2, w), np.eye(3)
"""
_LIBRARY = """
import jax, gnjax
before = jax.config.jax_compilation_cache_dir
gnjax.condition_number(gnjax.dense(jax.numpy.eye(3)))
assert jax.config.jax_compilation_cache_dir is before is None
"""


def _clean(tmp_path, **more):
    """The environment of a user who has said nothing about a cache."""
    kept = {k: v for k, v in os.environ.items() if "CACHE" not in k}
    folder = os.path.dirname(os.path.dirname(compilation.__file__))
    path = os.pathsep.join([str(tmp_path), os.path.dirname(folder)])
    everything = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e-9"}  # however soon compiled
    own = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "home")}
    return kept | everything | own | more


def _run(tmp_path, *command, **more):
    (tmp_path / "mine.py").write_text(_MODEL)
    call = [sys.executable, *command]
    done = subprocess.run(
        call, env=_clean(tmp_path, **more), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(path.name for path in (tmp_path / "home").rglob("*-cache"))


def test_a_command_keeps_its_programs_and_the_next_one_adds_none(tmp_path):
    command = "-m", "gnjax", "spectrum", "mine:make", "--kappa"
    kept = _run(tmp_path, *command)
    assert kept
    assert _run(tmp_path, *command) == kept


def test_a_process_that_was_killed_while_writing_leaves_no_broken_cache(tmp_path):
    """JAX would warn at every program that it compiles from then on, and keep none of them."""
    command = "-m", "gnjax", "spectrum", "mine:make", "--kappa"
    kept = _run(tmp_path, *command)
    assert len(kept) > 1
    folder = next(iter((tmp_path / "home").rglob(kept[0]))).parent
    (folder / "jit_another-cache").write_bytes(b"half a program")
    (folder / kept[-1]).unlink()
    call = [sys.executable, *command]
    done = subprocess.run(call, env=_clean(tmp_path), capture_output=True, text=True, check=True)
    assert "compilation cache" not in done.stderr
    assert sorted(path.name for path in folder.glob("*-cache")) == kept


def test_a_cache_without_a_limit_keeps_its_programs(tmp_path):
    """JAX writes down when a program was last used only where the size has a limit."""
    command = "-m", "gnjax", "spectrum", "mine:make", "--kappa"
    said = {"JAX_COMPILATION_CACHE_MAX_SIZE": "-1"}
    kept = _run(tmp_path, *command, **said)
    folder = next(iter((tmp_path / "home").rglob(kept[0]))).parent
    (folder / "jit_another-cache").write_bytes(b"of another model")
    assert _run(tmp_path, *command, **said) == sorted([*kept, "jit_another-cache"])


@pytest.mark.parametrize(
    "said", [{"GNJAX_CACHE": "off"}, {"JAX_ENABLE_COMPILATION_CACHE": "false"}]
)
def test_what_the_user_says_stands(tmp_path, said):
    assert not _run(tmp_path, "-m", "gnjax", "spectrum", "mine:make", "--kappa", **said)


def test_the_library_keeps_nothing(tmp_path):
    assert not _run(tmp_path, "-c", _LIBRARY)


def test_the_folder_and_what_overrides_it():
    assert compilation.compiled_folder({}).parent.name == "compiled"
    assert compilation.compiled_folder({"GNJAX_CACHE": "off"}) is None
    assert compilation.compiled_folder({"JAX_COMPILATION_CACHE_DIR": "/mine"}) is None
    with pytest.raises(ValueError, match="neither on nor off"):
        compilation.compiled_folder({"GNJAX_CACHE": "yes"})


def test_the_doctor_says_where_programs_are_kept_and_what_is_wrong():
    kept, own, off, wrong = (
        doctor._programs(said)
        for said in (
            {},
            {"JAX_COMPILATION_CACHE_DIR": "/mine"},
            {"GNJAX_CACHE": "off"},
            {"GNJAX_CACHE": "no"},
        )
    )
    assert kept.text.endswith(compilation.compiled_folder({}).name)
    assert own.text == "/mine"
    assert off.text == "nothing (GNJAX_CACHE=off)"
    assert [bool(finding.remedy) for finding in (kept, own, off, wrong)] == [False] * 3 + [True]
