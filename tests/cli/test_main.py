"""The command line as a user runs it: in processes of its own, with pipes and mistakes."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import gnjax
from gnjax.cli.main import main

_ROOT = Path(__file__).parent.parent.parent
_MODULE = """
import jax, numpy as np, scipy.sparse, time
import gnjax

def operator():
    return gnjax.dense(np.diag(np.arange(1.0, 51.0))) + 0.5

def matrix():
    return np.diag([3.0, 2.0, 1.0])

def many():
    return np.eye(3000)

def sparse():
    return scipy.sparse.diags_array(1 / np.arange(1.0, 4001.0)).tocsr()

def model():
    rng = np.random.default_rng(0)
    net = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    return net, rng.standard_normal((5, 3)), rng.standard_normal((5, 2))

def with_loss():
    return *model(), lambda f, y: ((f - y) ** 2).sum()

def labelled():
    net, x, _ = model()
    return net, x, np.array([0, 1, 1, 0, 1])

def alone():
    return model()[0]

def number():
    return 3

def without_its_file():
    return np.load("weights.npy")

def with_a_folder():
    return open(".").read()

def slow():
    print("started", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A folder with a user's module, which is where the command is run."""
    (tmp_path / "users_module.py").write_text(_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "users_module", raising=False)
    return tmp_path


def _run(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def test_the_version_has_one_source(capsys):
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert gnjax.__version__ == importlib.metadata.version("gnjax")
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert (stopped.value.code, capsys.readouterr().out) == (0, f"gnjax {gnjax.__version__}\n")
    module, _, name = project["scripts"]["gnjax"].partition(":")
    assert getattr(sys.modules[module], name) is main


def test_eigenvalues_kappa_and_density_go_to_stdout(there, capsys):
    code, out, _ = _run(capsys, "spectrum", "users_module:operator", "--k=2")
    assert code == 0
    assert out.startswith("2 eigenvalues 50.5, 49.5, each to ")
    assert float(out.splitlines()[2].split()[0]) == pytest.approx(50.5)
    code, out, _ = _run(capsys, "spectrum", "users_module:matrix", "--kappa", "--json")
    assert gnjax.answers.ConditionNumber.from_json(out).interval[1] == pytest.approx(3)
    code, out, _ = _run(capsys, "spectrum", "users_module:matrix", "--density", "--json")
    assert gnjax.answers.SpectralDensity.from_json(out).n == 3
    code, out, err = _run(
        capsys,
        "spectrum",
        "users_module:matrix",
        "--k=1",
        "--which=smallest",
        "--json",
        "--out=a.png",
    )
    assert gnjax.answers.Spectrum.from_json(out).values == pytest.approx([1.0])
    assert (there / "a.png").stat().st_size > 1000
    assert err == "picture: a.png\n"


def test_the_seed_reaches_the_random_vectors_of_eigenvalues(there, capsys):
    matrix = scipy.sparse.diags_array(1 / np.arange(1.0, 4001.0)).tocsr()
    for seed in (0, 1):
        asked = ("users_module:sparse", "--k=1", "--json", f"--seed={seed}")
        _, out, _ = _run(capsys, "spectrum", *asked)
        assert out.strip() == gnjax.eigenvalues(matrix, k=1, seed=seed).to_json()


def test_matrices_of_a_model(there, capsys):
    sys.path.insert(0, str(there))
    import users_module

    net, x, y = users_module.model()
    for options, op in (
        ((), gnjax.gauss_newton(net, x)),
        (("--matrix=ntk",), gnjax.ntk(net, x)),
        (("--matrix=hessian",), gnjax.hessian(net, x, y)),
    ):
        code, out, _ = _run(capsys, "spectrum", "users_module:model", "--json", *options)
        assert code == 0
        found = gnjax.answers.Spectrum.from_json(out)
        assert found.to_json() == gnjax.eigenvalues(op).to_json()
    _, out, _ = _run(capsys, "spectrum", "users_module:model", "--k=1")
    assert out.splitlines()[0] == repr(gnjax.gauss_newton(net, x))  # which says the loss
    _, out, _ = _run(capsys, "spectrum", "users_module:with_loss", "--json", "--k=1")
    doubled = 2 * gnjax.eigenvalues(gnjax.gauss_newton(net, x)).values[0]
    assert gnjax.answers.Spectrum.from_json(out).values[0] == pytest.approx(doubled)
    for name, factor, loss in (("with_loss", 2, ()), ("labelled", 1, ("--loss=cross_entropy",))):
        _, out, _ = _run(
            capsys, "spectrum", f"users_module:{name}", "--matrix=ntk", "--json", "--k=1", *loss
        )
        kernel = gnjax.ntk(net, x, loss="cross_entropy") if loss else gnjax.ntk(net, x)
        exact = factor * gnjax.eigenvalues(kernel).values[0]
        assert gnjax.answers.Spectrum.from_json(out).values[0] == pytest.approx(exact)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["users_module:operator", "--k=0"], "integer k between 1 and 50"),
        (["users_module:operator", "--kappa", "--k=3"], "are for eigenvalues"),
        (["users_module:operator", "--density", "--rtol=0.1"], "--rtol is for"),
        (["users_module:operator", "--loss=mse"], "returns an operator, and --loss"),
        (["users_module:with_loss", "--loss=mse"], "a loss of its own"),
        (["users_module:model", "--loss=cross_entropy"], "users_module:model: "),
        (["users_module:alone"], "returns no inputs"),
        (["users_module:number"], "not int"),
        (["users_module:nothing"], "no function nothing"),
        (["users_module:operator", "--out=a.doc"], "does not end in .png"),
        (["no_module_of_this_name:f"], "cannot be imported"),
    ],
)
def test_mistakes_are_one_sentence(there, capsys, arguments, words):
    _is_refused(capsys, "spectrum", arguments, words)


@pytest.mark.parametrize("command", ["spectrum", "diagnose", "series"])
def test_a_factory_that_finds_no_file_is_one_sentence(there, capsys, command):
    """Whatever an operating system refuses: a file that is not there, or a folder in its place."""
    for factory, words in (("without_its_file", "weights.npy"), ("with_a_folder", "directory")):
        more = ["users_module.py", f"--rows={factory}"] if command == "series" else []
        _is_refused(capsys, command, [f"users_module:{factory}", *more], words)


def _is_refused(capsys, command, arguments, words):
    code, out, err = _run(capsys, command, *arguments)
    assert (code, out) == (2, "")
    assert arguments[0].split(":")[0] in err
    assert words in err
    assert err.count("\n") == 1


def _process(there, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{there}"}
    return subprocess.Popen(
        [sys.executable, "-m", "gnjax", *arguments],
        cwd=there,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("spectrum", "users_module:many"), 141),
        (("diagnose", "users_module:model"), 141),
        (("data",), 141),
        (("doctor",), 141),
        (("--help",), 141),
        (("spectrum", "--help"), 141),
    ],
)
def test_a_reader_that_goes_away_is_no_traceback(there, arguments, code):
    """As in ``gnjax diagnose .. | head``, with a real pipe whose reader is gone."""
    process = _process(there, *arguments)
    process.stdout.close()
    _, err = process.communicate(timeout=120)
    assert (err, process.returncode) == ("", code)


@pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
    reason="a shell that runs this in the background has Ctrl-C ignored",
)
def test_ctrl_c_prints_one_line(there):
    process = _process(there, "spectrum", "users_module:slow")
    assert process.stdout.readline() == "started\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")


def test_a_spectrum_that_did_not_converge_says_so_by_its_code(there, capsys, monkeypatch):
    found = gnjax.answers.Spectrum(np.ones(1), np.ones(1), "krylov", converged=False)
    monkeypatch.setattr("gnjax.cli.spectrum_command.eigenvalues", lambda op, **options: found)
    code, out, err = _run(capsys, "spectrum", "users_module:matrix", "--k=1")
    assert code == 1
    assert "NOT CONVERGED" in out
    assert err == "not finished: these are the best values so far\n"
