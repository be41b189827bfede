"""A series of checkpoints: one row each, the same whether it was stopped or not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from orbax.checkpoint import StandardCheckpointer

import gnjax
from gnjax.cli import series
from gnjax.cli.checkpoints import at_checkpoint, steps_of
from gnjax.cli.factories import MistakeError
from gnjax.cli.main import main

_ROOT = Path(__file__).parent.parent.parent
_MODULE = """
import jax, numpy as np, gnjax

def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((8, 3)), rng.standard_normal((8, 2))

def apply(p, x):
    return jax.numpy.tanh(x @ p["first"]["kernel"]) @ p["last"]["kernel"]

def pair():
    params = {"first": {"kernel": np.zeros((3, 4))}, "last": {"kernel": np.zeros((4, 2))}}
    return (apply, params), *data()

def from_path(path):
    loaded = np.load(path)
    params = {name: {"kernel": loaded[name]} for name in ("first", "last")}
    return (apply, params), *data()

def two(path, more):
    pass
"""
_COUNT = 20


def params_of(step):
    rng = np.random.default_rng(step)
    shapes = {"first": (3, 4), "last": (4, 2)}
    return {name: {"kernel": rng.standard_normal(shape)} for name, shape in shapes.items()}


def write_safetensors(path, arrays):
    """The format as its documentation says."""
    header, data = {}, b""
    for name, array in arrays.items():
        own = np.ascontiguousarray(array).tobytes()
        places = [len(data), len(data) + len(own)]
        header[name] = {"dtype": "F64", "shape": list(array.shape), "data_offsets": places}
        data += own
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A folder with a user's module and checkpoints of 20 steps in two formats."""
    (tmp_path / "users_series.py").write_text(_MODULE)
    for step in range(_COUNT):
        params = params_of(step)
        arrays = {f"params.{name}.kernel": leaf["kernel"] for name, leaf in params.items()}
        write_safetensors(tmp_path / f"at_{10 * step}.safetensors", arrays)
        np.savez(tmp_path / f"at_{10 * step}.npz", **{n: p["kernel"] for n, p in params.items()})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "users_series", raising=False)
    return tmp_path


def rows_in(path):
    header, *entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["gnjax series"] == 1
    return {e["checkpoint"]: gnjax.MonitorRow.from_json(json.dumps(e["row"])) for e in entries}


def command(*arguments):
    """The command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    call = [sys.executable, "-m", "gnjax", "series", "users_series:pair", *arguments]
    return subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_series_that_was_killed_goes_on_and_is_the_same(there):
    """Killed in the middle of it, without a chance to clean up, with half a line behind."""
    files = [f"at_{10 * step}.safetensors" for step in range(_COUNT)]
    with command(*files, "--rows=whole.jsonl") as whole:
        printed = whole.stdout.read()
    assert whole.returncode == 0
    with command(*files, "--rows=killed.jsonl") as killed:
        for _ in range(5):
            assert killed.stdout.readline()
        os.kill(killed.pid, signal.SIGKILL)
    text = Path("killed.jsonl").read_text()
    assert 5 <= len(rows_in(Path("killed.jsonl"))) < _COUNT
    Path("killed.jsonl").write_text(text + text.splitlines()[-1][:40])  # half a line
    with command(*files, "--rows=killed.jsonl") as again:
        assert again.stdout.read() == printed
    assert again.returncode == 0
    assert rows_in(Path("killed.jsonl")) == rows_in(Path("whole.jsonl"))


def test_rows_are_those_of_the_parameters_and_are_not_computed_again(there, capsys, monkeypatch):
    files = ["at_10.safetensors", "at_0.safetensors"]
    assert main(["series", "users_series:pair", *files, "--kappa"]) == 0
    printed = capsys.readouterr().out
    assert [line.split(":")[0] for line in printed.splitlines()] == ["step 0", "step 10"]
    apply, _ = sys.modules["users_series"].pair()[0]
    x, y = sys.modules["users_series"].data()
    for step, row in enumerate(
        rows_in(Path("series.jsonl"))[f"at_{10 * s}.safetensors"] for s in (0, 1)
    ):
        model = apply, params_of(step)
        largest = gnjax.eigenvalues(gnjax.hessian(model, x, y), k=1).values[0]
        assert abs(row.sharpness - largest) <= row.sharpness_error
        assert row.kappa == gnjax.condition_number(gnjax.gauss_newton(model, x)).value
    monkeypatch.setattr(series, "Monitor", None)  # nothing may be measured
    assert main(["series", "users_series:pair", *files, "--kappa"]) == 0
    assert capsys.readouterr().out == printed


def test_a_factory_may_take_the_path_and_a_changed_checkpoint_is_computed_again(there, capsys):
    assert main(["series", "users_series:from_path", "at_0.npz", "--out=picture.png"]) == 0
    first = capsys.readouterr().out
    assert Path("picture.png").stat().st_size > 1000
    np.savez("at_0.npz", **{name: leaf["kernel"] for name, leaf in params_of(7).items()})
    assert main(["series", "users_series:from_path", "at_0.npz"]) == 0
    assert capsys.readouterr().out != first
    assert len(Path("series.jsonl").read_text().splitlines()) == 3


def test_modules_come_from_folders_of_orbax_with_their_statistics(tmp_path):
    def module(seed):
        rngs = nnx.Rngs(seed)
        norm = nnx.BatchNorm(4, use_running_average=True, rngs=rngs)
        return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), norm, nnx.Dropout(0.5, rngs=rngs))

    saved = module(1)
    saved.layers[1].mean = nnx.BatchStat(jax.numpy.arange(4.0))
    keeper = StandardCheckpointer()
    state = nnx.state(saved, nnx.Not(nnx.RngState))
    keeper.save(tmp_path / "100" / "default", {"model": state, "step": np.int32(5)})
    keeper.wait_until_finished()
    empty = module(0)
    found = at_checkpoint(empty, tmp_path / "100")
    same = jax.tree.map(np.array_equal, nnx.state(found, nnx.Not(nnx.RngState)), state)
    assert all(jax.tree.leaves(same))
    assert not np.array_equal(empty.layers[0].kernel[...], saved.layers[0].kernel[...])


def test_parameters_beside_the_moments_of_an_optimiser_are_found(tmp_path):
    params, moments = params_of(0), params_of(1)
    trees = {"params": params, "opt_state": {"0": {"mu": moments, "nu": moments}}}
    keeper = StandardCheckpointer()
    keeper.save(tmp_path / "7", trees)
    keeper.wait_until_finished()
    _, found = at_checkpoint((None, params_of(2)), tmp_path / "7")
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, found, params)))


def test_steps_are_the_last_numbers_of_names():
    paths = [Path(name) for name in ("run2/ckpt-0100", "run2/ckpt-20.pt", "run2/ckpt-3")]
    assert steps_of(paths) == [100, 20, 3]
    assert steps_of([Path("a/best"), Path("b/7")]) == steps_of([Path("a/7"), Path("b/7")]) == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["users_series:pair", "none.safetensors"], "there is no checkpoint none.safetensors"),
        (["users_series:pair", "at_0.npz"], "at_0.npz is no checkpoint that is read here"),
        (["users_series:pair", "at_0.npz", "at_0.npz"], "named twice"),
        (["users_series:two", "at_0.npz"], "called with a path alone, but it needs path, more"),
        (["users_series:pair", "wrong_1.safetensors"], "first/kernel has shape (2, 2), and (3, 4)"),
        (["users_series:pair", "wrong_2.safetensors"], "does not hold first/kernel, last/kernel"),
        (["users_series:pair", "at_0.safetensors", "--rows=at_0.npz"], "gnjax series` did not"),
        (["users_series:pair", "at_0.safetensors", "--rows=users_series.py"], "not what `gnjax"),
        (["users_series:pair", "at_0.safetensors", "--rows=none/rows"], "cannot be written"),
    ],
)
def test_mistakes_end_with_a_sentence(there, capsys, arguments, said):
    wrong = {"first.kernel": np.ones((2, 2)), "last.kernel": np.ones((4, 2))}
    write_safetensors(there / "wrong_1.safetensors", wrong)
    write_safetensors(there / "wrong_2.safetensors", {"other": np.ones(2)})
    assert main(["series", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_was_begun_with_other_settings_is_kept(there, capsys):
    assert main(["series", "users_series:pair", "at_0.safetensors"]) == 0
    assert main(["series", "users_series:pair", "at_0.safetensors", "--probes=3"]) == 2
    assert "begun with other settings (probes)" in capsys.readouterr().err
    assert len(rows_in(Path("series.jsonl"))) == 1


def test_a_model_that_holds_the_parameters_twice_is_refused(tmp_path):
    arrays = {f"{where}.w": np.ones(2) for where in ("ema", "raw")}
    write_safetensors(tmp_path / "a.safetensors", arrays)
    with pytest.raises(MistakeError, match="holds the parameters 2 times, below ema/, raw/"):
        at_checkpoint((None, {"w": np.zeros(2)}), tmp_path / "a.safetensors")


def test_a_series_of_a_torch_module(there, capsys):
    torch = pytest.importorskip("torch", reason="PyTorch comes with `make test-torch`")
    Path("users_series.py").write_text(
        "import torch\n"
        "def one():\n"
        "    return torch.nn.Linear(2, 1, bias=False), torch.eye(2), torch.zeros(2, 1)\n"
    )
    for step in (1, 2):
        torch.save(torch.nn.Linear(2, 1, bias=False).state_dict(), f"{step}.pt")
    assert main(["series", "users_series:one", "1.pt", "2.pt"]) == 0
    assert capsys.readouterr().out.count("sharpness 0.5 ") == 2  # 1/n sum x x^T


def test_state_dicts_go_into_torch_modules(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch comes with `make test-torch`")

    def module(seed):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).double()

    saved = module(1)
    saved[1].running_mean += 2.0
    x = np.random.default_rng(0).standard_normal((5, 3))
    expected = saved.eval()(torch.from_numpy(x)).detach().numpy()
    torch.save({"state_dict": saved.state_dict(), "epoch": 3}, tmp_path / "3.pt")
    write_safetensors(
        tmp_path / "4.safetensors",
        {name: leaf.numpy() for name, leaf in saved.state_dict().items() if leaf.ndim},
    )
    for name in ("3.pt", "4.safetensors"):
        apply, params = at_checkpoint(module(0), tmp_path / name)
        np.testing.assert_allclose(apply(params, x), expected, rtol=1e-12)
    with pytest.raises(MistakeError, match="does not fit the module"):
        at_checkpoint(torch.nn.Linear(3, 5), tmp_path / "3.pt")
    with pytest.raises(MistakeError, match="is no file with a state dict"):
        at_checkpoint(module(0), tmp_path)
