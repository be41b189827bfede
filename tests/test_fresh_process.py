"""What a process sees that has just begun: importing gnjax changes nothing and brings little.

All tests read what one process reports, since a second of each process goes into importing JAX.
"""

import json
import subprocess
import sys

import pytest

_SCRIPT = """
import io, json, sys, warnings
from contextlib import redirect_stdout
said = io.StringIO()
with redirect_stdout(said):
    import jax, numpy as np, gnjax, sweeps.launchers.launch
from gnjax.numerics import precision

def dtype():
    return str(jax.numpy.ones(1).dtype)

report = {"said": said.getvalue(), "dtype": dtype(), "x64": precision.x64_enabled()}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    kappa = gnjax.condition_number(np.diag([1.0, 1e-9]))
    gnjax.dense(np.eye(3))
report |= {"warnings": [str(w.message) for w in caught], "rank": kappa.rank, "floor": kappa.floor}
with precision.x64():
    report["scoped"] = precision.x64_enabled(), dtype()
report["afterwards"] = precision.x64_enabled(), dtype()
gnjax.diagnose, gnjax.plot
report["modules"] = list(sys.modules)
report["papers"] = callable(gnjax.papers.linear_gauss_newton)
precision.enable_x64()
report["switched"] = precision.x64_enabled(), dtype(), str(np.dtype(precision.real_dtype()))
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def process():
    """What the process reports, and what it wrote on stderr."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_importing_changes_nothing_and_says_nothing(process):
    report, errors = process
    assert (report["said"], errors) == ("", "")
    assert (report["dtype"], report["x64"]) == ("float32", False)


@pytest.mark.parametrize("module", ["matplotlib", "gnjax.papers"])
def test_what_few_need_is_imported_when_it_is_used_and_no_sooner(process, module):
    report, _ = process
    assert "gnjax.conditioning.condition_number" in report["modules"]
    assert module not in report["modules"]
    assert report["papers"]


def test_single_precision_is_reported(process):
    """Without 64 bits the answer stands on float32 and says so once, with a floor to match."""
    report, _ = process
    assert ["float32" in text for text in report["warnings"]] == [True]
    assert report["rank"] == 1
    assert report["floor"] > 1e-8


def test_the_switch_to_64_bits_is_scoped_and_global(process):
    """Whatever this version of JAX calls it."""
    report, _ = process
    assert report["scoped"] == [True, "float64"]
    assert report["afterwards"] == [False, "float32"]
    assert report["switched"] == [True, "float64", "float64"]
