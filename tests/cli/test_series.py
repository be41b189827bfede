"""A series of checkpoints: one row each, the same whether it was stopped or not."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from orbax.checkpoint import StandardCheckpointer
from safetensors.numpy import save_file

import gnjax
from gnjax.cli import series
from gnjax.cli.checkpoints import at_checkpoint, numbers_of_steps
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


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A folder with a user's module and checkpoints of 20 steps in two formats."""
    (tmp_path / "users_series.py").write_text(_MODULE)
    for step in range(_COUNT):
        params = params_of(step)
        arrays = {f"params.{name}.kernel": leaf["kernel"] for name, leaf in params.items()}
        save_file(arrays, tmp_path / f"at_{10 * step}.safetensors")
        np.savez(tmp_path / f"at_{10 * step}.npz", **{n: p["kernel"] for n, p in params.items()})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "users_series", raising=False)
    return tmp_path


def rows_in(path):
    header, *entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["gnjax series"] == 1
    return {
        e["checkpoint"]: gnjax.answers.MonitorRow.from_json(json.dumps(e["row"])) for e in entries
    }


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
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["series", "users_series:pair", *files, "--kappa"]) == 0
    printed, told = capsys.readouterr()
    assert told.splitlines() == ["at_0.safetensors, 1 of 2", "at_10.safetensors, 2 of 2"]
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
    assert capsys.readouterr() == (printed, "")


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
    assert numbers_of_steps(paths) == [100, 20, 3]
    assert (
        numbers_of_steps([Path("a/best"), Path("b/7")])
        == numbers_of_steps([Path("a/7"), Path("b/7")])
        == [0, 1]
    )


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
        (["users_series:pair", "at_0.safetensors", "--rows=users_series.py"], "did not write"),
        (["users_series:pair", "at_0.safetensors", "--rows=none/rows"], "cannot be written"),
        (["users_series:pair", "at_0.safetensors", "--rtol=nan"], "--rtol=nan is not between"),
        (["users_series:pair", "at_0.safetensors", "--out=pipe.png"], "it is a folder, a pipe"),
    ],
)
def test_mistakes_end_with_a_sentence(there, capsys, arguments, said):
    wrong = {"first.kernel": np.ones((2, 2)), "last.kernel": np.ones((4, 2))}
    save_file(wrong, there / "wrong_1.safetensors")
    save_file({"other": np.ones(2)}, there / "wrong_2.safetensors")
    os.mkfifo("pipe.png")
    assert main(["series", *arguments]) == 2
    assert said in capsys.readouterr().err


OURS = b'{"gnjax series": 1, "factory": "users_series:pair", "probes": 7}\n'
FOREIGN = {
    "a line without its end": b"my notes",
    "a letter": b"{",
    "some lines": b"my notes\nof last year\n",
    "numbers": b"1\n2\n3\n",
    "other rows": b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n',
    "a list": b"[1, 2]\n",
    "bytes": bytes(range(256)) * 9,
    "no text and no line": b"\xff" * 200_000,
    "half a line behind a header of other settings": OURS + b'{"checkpoint": "at_0',
    "a line that is no row": OURS + b"and my notes\n",
    "a row of something else": OURS + b'{"content": 3}\n',
    "an empty line": b"\n",
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_file_that_the_command_did_not_begin_stays_as_it_is(there, capsys, content):
    """The class: data of the user's that are lost by a slip in --rows."""
    Path("mine").write_bytes(content)
    assert main(["series", "users_series:pair", "at_0.safetensors", "--rows=mine"]) == 2
    assert "name another file by --rows" in capsys.readouterr().err.replace("\n", " ")
    assert Path("mine").read_bytes() == content


@pytest.mark.parametrize("kind", ["folder", "pipe", "of others", "a long name"])
def test_rows_go_into_files_alone(there, capsys, kind):
    name = "x" * 300 if kind == "a long name" else "mine"
    if kind == "folder":
        Path(name).mkdir()
    elif kind == "pipe":
        os.mkfifo(name)
    elif kind == "of others":
        Path(name).symlink_to("/proc/1/mem/nothing")
    assert main(["series", "users_series:pair", "at_0.safetensors", f"--rows={name}"]) == 2
    assert re.search("no file of rows|cannot be (read|written)", capsys.readouterr().err)


@pytest.mark.parametrize("size", [0, 17, 40])
def test_a_header_that_was_cut_off_is_written_again(there, size):
    assert main(["series", "users_series:pair", "at_0.safetensors"]) == 0
    whole = Path("series.jsonl").read_bytes()
    Path("series.jsonl").write_bytes(whole[:size])
    assert main(["series", "users_series:pair", "at_0.safetensors"]) == 0
    assert Path("series.jsonl").read_bytes() == whole


@pytest.mark.parametrize("below", ["opt_state.0.trace.", "0.mu.", "ema.", "optimizer.momentum."])
def test_the_state_of_an_optimiser_is_not_read_as_parameters(tmp_path, below):
    """It has arrays of the same names and shapes as the parameters."""
    path = tmp_path / "a.safetensors"
    save_file({f"{below}w": np.ones(2), "step": np.ones(())}, path)
    with pytest.raises(MistakeError, match=r"below .* alone, which may be an optimiser's"):
        at_checkpoint((None, {"w": np.zeros(2)}), path)
    save_file({f"{below}w": np.ones(2), "train_state.params.w": np.full(2, 3.0)}, path)
    with pytest.raises(MistakeError, match="2 times"):
        at_checkpoint((None, {"w": np.zeros(2)}), path)
    save_file({"train_state.params.w": np.full(2, 3.0)}, path)
    assert at_checkpoint((None, {"w": np.zeros(2)}), path)[1]["w"].tolist() == [3.0, 3.0]


COLLIDING = {
    "in the checkpoint": ({"w": np.zeros(2)}, ["params.w", "value.w"]),
    "in both, by other names": (
        {"params": {"w": np.zeros(2)}, "w": np.zeros(2)},
        ["value.w", "raw_value.w"],
    ),
    "in the model": ({"params": {"w": np.zeros(2)}, "w": np.zeros(2)}, ["value.w"]),
}


@pytest.mark.parametrize("case", COLLIDING)
def test_names_that_collide_are_refused(tmp_path, case):
    tree, names = COLLIDING[case]
    save_file({n: np.full(2, i) for i, n in enumerate(names)}, tmp_path / "a.safetensors")
    with pytest.raises(MistakeError, match="differ only by how frameworks wrap"):
        at_checkpoint((None, tree), tmp_path / "a.safetensors")


def test_names_that_are_the_same_to_the_letter_do_not_collide(tmp_path):
    tree = {"params": {"w": np.zeros(2)}, "w": np.zeros(2)}
    arrays = {"params/w": np.ones(2), "w": np.full(2, 2.0)}
    save_file(arrays, tmp_path / "a.safetensors")
    _, found = at_checkpoint((None, tree), tmp_path / "a.safetensors")
    assert (found["params"]["w"].tolist(), found["w"].tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_a_checkpoint_keeps_its_own_precision_and_no_integers_become_weights(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"w": np.array([1 / 3, 1.0])}, path)
    _, found = at_checkpoint((None, {"w": np.zeros(2, np.float32)}), path)
    assert found["w"][0] == 1 / 3
    with pytest.raises(MistakeError, match="is float64, and int32 in the model"):
        at_checkpoint((None, {"w": np.zeros(2, np.int32)}), path)


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\xff" * 8 + b"{}", bytes(40)])
def test_a_damaged_file_of_safetensors_ends_with_a_sentence(tmp_path, content):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(
        MistakeError, match=r"a\.safetensors is damaged, or no checkpoint of this form"
    ):
        at_checkpoint((None, {"w": np.zeros(2)}), tmp_path / "a.safetensors")


def test_bfloat16_is_read_as_it_is(tmp_path):
    save_file({"w": np.array([1.5, -2.0], jax.numpy.bfloat16)}, tmp_path / "a.safetensors")
    _, found = at_checkpoint((None, {"w": np.zeros(2)}), tmp_path / "a.safetensors")
    assert (found["w"].tolist(), found["w"].dtype) == ([1.5, -2.0], np.float64)


def test_a_damaged_folder_of_orbax_ends_with_a_sentence(tmp_path):
    keeper = StandardCheckpointer()
    keeper.save(tmp_path / "7", params_of(0))
    keeper.wait_until_finished()
    for file in sorted(file for file in (tmp_path / "7").rglob("*") if file.is_file()):
        if file.name in ("_METADATA", "manifest.ocdbt") or "d" in file.parent.name:
            file.write_bytes(file.read_bytes()[:5])
    with pytest.raises(MistakeError, match="damaged, or no checkpoint"):
        at_checkpoint((None, params_of(1)), tmp_path / "7")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("users_series.py:pair", "write it as users_series:pair"),
        ("sub/users_series.py:pair", "write it as users_series:pair, in the folder sub"),
        ("users_series:INSTANCE", "is no function but of type Linear"),
        ("users_series:TUPLE", "is no function but of type tuple"),
        ("users_series:pairs", "did you mean pair?"),
    ],
)
def test_what_is_no_function_of_a_module_is_named(there, capsys, name, said):
    more = "from flax import nnx\nINSTANCE = nnx.Linear(3, 2, rngs=nnx.Rngs(0))\nTUPLE = pair()\n"
    Path("users_series.py").write_text(_MODULE + more)
    assert main(["series", name, "at_0.safetensors"]) == 2
    assert said in capsys.readouterr().err


def test_a_checkpoint_that_is_a_pipe_is_refused_and_not_waited_for(there, capsys):
    os.mkfifo("pipe.safetensors")
    assert main(["series", "users_series:pair", "pipe.safetensors"]) == 2
    assert "is a pipe or a device" in capsys.readouterr().err


def test_a_file_that_was_begun_with_other_settings_is_kept(there, capsys):
    assert main(["series", "users_series:pair", "at_0.safetensors"]) == 0
    assert main(["series", "users_series:pair", "at_0.safetensors", "--probes=3"]) == 2
    assert "begun with other settings (probes)" in capsys.readouterr().err
    assert len(rows_in(Path("series.jsonl"))) == 1


def test_rows_of_a_module_that_was_edited_since_are_refused_and_kept(there, capsys):
    module = there / "users_series.py"
    assert main(["series", "users_series:pair", "at_0.safetensors"]) == 0
    module.write_text(module.read_text() + "\n# other data\n")
    assert main(["series", "users_series:pair", "at_0.safetensors"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "begun with other settings (code of the factory); name another file" in said
    assert len(rows_in(Path("series.jsonl"))) == 1


def test_a_model_that_holds_the_parameters_twice_is_refused(tmp_path):
    arrays = {f"{where}.w": np.ones(2) for where in ("ema", "raw")}
    save_file(arrays, tmp_path / "a.safetensors")
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


TORCH_FILES = {
    "damaged": lambda torch, good: good[: len(good) // 2],
    "no archive": lambda torch, good: b"not a checkpoint",
    "empty": lambda torch, good: b"",
    "a pickle of a class": lambda torch, good: saved(torch, torch.nn.Linear(2, 1)),
    "a tensor": lambda torch, good: saved(torch, torch.ones(3)),
    "a list": lambda torch, good: saved(torch, [torch.ones(3)]),
    "numbers": lambda torch, good: saved(torch, {"weight": 3.0}),
    "no names": lambda torch, good: saved(torch, {0: torch.ones(2)}),
    "an optimiser": lambda torch, good: saved(
        torch, torch.optim.SGD([torch.ones(2, requires_grad=True)], 0.1).state_dict()
    ),
    "integers": lambda torch, good: saved(torch, {"weight": torch.ones((1, 2), dtype=torch.int8)}),
    "another module": lambda torch, good: saved(torch, torch.nn.Linear(3, 1).state_dict()),
}


def saved(torch, value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("case", TORCH_FILES)
def test_foreign_files_of_torch_end_with_a_sentence(tmp_path, case):
    torch = pytest.importorskip("torch", reason="PyTorch comes with `make test-torch`")
    module = torch.nn.Linear(2, 1, bias=False)
    path = tmp_path / "1.pt"
    path.write_bytes(TORCH_FILES[case](torch, saved(torch, module.state_dict())))
    with pytest.raises(MistakeError, match=str(path)):
        at_checkpoint(module, path)


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
    save_file(
        {name: leaf.numpy() for name, leaf in saved.state_dict().items() if leaf.ndim},
        tmp_path / "4.safetensors",
    )
    for name in ("3.pt", "4.safetensors"):
        apply, params = at_checkpoint(module(0), tmp_path / name)
        np.testing.assert_allclose(apply(params, x), expected, rtol=1e-12)
    with pytest.raises(MistakeError, match="does not fit the module"):
        at_checkpoint(torch.nn.Linear(3, 5), tmp_path / "3.pt")
    with pytest.raises(MistakeError, match="is no file with a state dict"):
        at_checkpoint(module(0), tmp_path)
