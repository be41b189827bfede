"""``python -m gnjax doctor``: its report, every problem with its remedy, and the exit status."""

import os
from collections import namedtuple
from contextlib import nullcontext
from importlib import metadata

import jax
import pytest

from gnjax import data
from gnjax.cli import doctor
from gnjax.cli.main import main
from gnjax.numerics import precision
from gnjax.numerics.memory import free as memory

Device = namedtuple("Device", "platform device_kind")


@pytest.fixture(autouse=True)
def _healthy(monkeypatch, tmp_path):
    """A machine without problems: 4 cores, 8 GB, an empty cache, one CPU device."""
    for name in (*doctor.THREADS, "GNJAX_DATA", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor, "usable_cores", lambda: 4)
    monkeypatch.setattr(doctor, "cache_folder", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(doctor, "_NVIDIA", tmp_path / "driver")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    _meminfo(monkeypatch, tmp_path, 8_000_000_000)
    _free_disk(monkeypatch, 50e9)
    monkeypatch.setattr(jax, "devices", lambda: [Device("cpu", "cpu")])
    monkeypatch.setattr(data, "state", lambda name: "here")


def _meminfo(monkeypatch, folder, available):
    path = folder / "meminfo"
    path.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available // 1024} kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", path)


def _free_disk(monkeypatch, free):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage(free))


def _text(name, findings=None):
    (found,) = [f for f in findings or doctor.examine() if f.name == name]
    return found.text


def _problem(name):
    """The one problem there is."""
    (found,) = doctor.problems(doctor.examine())
    assert found.name == name
    return found


def test_a_healthy_machine_at_the_shell(capsys, tmp_path):
    assert main(["doctor", f"--results={tmp_path}"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.rstrip().endswith("no problems found")
    for name in doctor.PACKAGES:
        assert f"{name} " in printed.out
        assert metadata.version(name) in printed.out
    for words in ("64-bit arithmetic", "GB free", "up to 16,32", "cpu: cpu", "laptop; paper wants"):
        assert words in printed.out
    for name in data.names():
        assert name in printed.out


def test_problems_are_said_with_their_remedy_and_status_one(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("GNJAX_DATA", str(tmp_path / "[red]gone"))
    assert main(["doctor"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "OMP_NUM_THREADS: 64. Remedy: set OMP_NUM_THREADS=4" in out
    assert "[red]gone" in out.replace(" ", "")  # a path is never read as markup
    assert out.endswith("2 problems found")


@pytest.mark.parametrize("package", ["gnjax", "optax"])
def test_a_package_that_is_not_installed(monkeypatch, package):
    version = metadata.version

    def missing(name):
        if name == package:
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    assert f"pip install {'-e .' if package == 'gnjax' else package}" in _problem(package).remedy


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({}, "no checkout"),
        ({"commit": "0123456789abcdef", "clean": True}, "0123456789"),
        ({"commit": "0123456789abcdef", "clean": False}, "0123456789, with changes"),
    ],
)
def test_the_state_of_the_checkout(monkeypatch, state, text):
    monkeypatch.setattr(doctor, "git_state", lambda folder: state)
    assert _text("git").startswith(text)


def test_a_device_that_cannot_be_had(monkeypatch):
    def fails():
        msg = "Unable to initialize backend 'cuda'\nand more"
        raise RuntimeError(msg)

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", fails)
    found = _problem("JAX")
    assert found.text == "Unable to initialize backend 'cuda'"
    assert "unset JAX_PLATFORMS (it is 'cuda')" in found.remedy


def test_a_gpu_that_jax_does_not_see(monkeypatch, tmp_path):
    (tmp_path / "driver").write_text("")
    assert "gnjax[cuda]" in _problem("NVIDIA driver").remedy
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert doctor.problems(doctor.examine()) == ()


def test_accelerators_and_what_they_are_for(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [Device("gpu", "H200")] * 2)
    findings = doctor.examine()
    assert _text("gpu: H200", findings) == "2 devices"
    assert _text("training, products", findings) == "GPU"
    assert _text("dense eigenvalues", findings) == "CPU, by LAPACK"
    monkeypatch.setattr(jax, "devices", lambda: [Device("tpu", "v4")])
    findings = doctor.examine()
    assert "on the host" in _text("TPU", findings)
    assert "JAX_PLATFORMS=cpu" in _text("dense eigenvalues", findings)


def test_sixty_four_bits_by_default_and_on_demand(monkeypatch):
    assert _text("by default") == "on"  # conftest switches it on
    monkeypatch.setattr(precision, "x64_enabled", lambda: False)
    monkeypatch.setattr(precision, "x64", nullcontext)
    assert _text("by default").startswith("off")
    assert "JAX_ENABLE_X64" in _problem("can be on").remedy


@pytest.mark.parametrize(
    ("threads", "words"), [("5", "=4"), ("0", "from 1 to 4"), ("many", "from 1 to 4")]
)
@pytest.mark.parametrize("name", doctor.THREADS)
def test_threads_that_do_not_fit(monkeypatch, name, threads, words):
    monkeypatch.setenv(name, threads)
    found = _problem(name)
    assert found.text == threads
    assert words in found.remedy
    monkeypatch.setenv(name, "4")
    assert doctor.problems(doctor.examine()) == ()


def test_usable_cores_where_the_system_does_not_say(monkeypatch):
    monkeypatch.undo()
    assert 1 <= doctor.usable_cores() <= (os.cpu_count() or 1)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert doctor.usable_cores() == 1


def test_data_sets_that_are_not_here_are_no_problem(monkeypatch):
    monkeypatch.setattr(data, "state", lambda name: "not here" if name == "mnist" else "here")
    findings = doctor.examine()
    assert _text("mnist", findings) == "not here; python -m gnjax data fetch mnist"
    assert _text("cifar10", findings) == "here"
    assert doctor.problems(findings) == ()
    assert "the data set mnist" in _text("profile", findings)


def test_a_data_folder_that_is_there(monkeypatch, tmp_path):
    monkeypatch.setenv("GNJAX_DATA", str(tmp_path))
    assert _text("GNJAX_DATA") == str(tmp_path)
    monkeypatch.setenv("GNJAX_DATA", str(tmp_path / "gone"))
    assert "unset it" in _problem("GNJAX_DATA").remedy


def test_the_cache(monkeypatch, tmp_path):
    assert _text("cache").endswith("made when something is fetched")
    (tmp_path / "cache").mkdir()
    assert _text("cache") == str(tmp_path / "cache")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    assert f"make {tmp_path / 'cache'} writable" in _problem("cache").remedy


def test_little_memory(monkeypatch, tmp_path):
    _meminfo(monkeypatch, tmp_path, 1_000_000_000)
    assert "--jobs=1" in _problem("memory").remedy
    assert _text("memory") == "1 GB free"
    assert _text("profile").startswith("smoke; laptop wants 2 GB")


def test_the_limit_of_a_container(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000000000\n")
    assert _text("memory") == "8 GB free"
    (tmp_path / "memory.max").write_text("4000000000\n")
    assert _text("memory") == "3 GB free"


def test_memory_where_the_system_says_only_how_much_there_is(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "gone")
    amounts = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf_names", amounts, raising=False)
    monkeypatch.setattr(os, "sysconf", amounts.__getitem__, raising=False)
    assert memory.free_memory() == (4_096_000.0, "in all")
    monkeypatch.setattr(os, "sysconf_names", {})
    findings = doctor.examine()
    assert _text("memory", findings) == "this system does not say"
    assert not [f for f in findings if f.name == "dense kappa"]
    assert doctor.problems(findings) == ()


def test_a_full_disk(monkeypatch):
    _free_disk(monkeypatch, 5e8)
    wrong = doctor.problems(doctor.examine())
    assert [f.name for f in wrong] == ["disk for results", "disk for cache"]
    assert all(f.remedy.startswith("free 1 GB") for f in wrong)


def test_the_largest_dense_matrix_fits_with_its_copies():
    for room in (1e6, 2e9, 7.7e9):
        size = doctor.largest_dense(room)
        assert 3 * 8 * size**2 <= 0.8 * room < 3 * 8 * (size + 1) ** 2
    assert doctor.largest_dense(1e15) == 20_000


def test_the_paper_profile_where_it_is_sensible(monkeypatch, tmp_path):
    _meminfo(monkeypatch, tmp_path, 32_000_000_000)
    assert _text("profile") == "laptop; paper wants 8 cores or a GPU"
    monkeypatch.setattr(doctor, "usable_cores", lambda: 16)
    assert _text("profile") == "paper"
    _meminfo(monkeypatch, tmp_path, 8_000_000_000)
    assert _text("profile") == "laptop; paper wants 24 GB of memory"
