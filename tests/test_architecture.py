"""The house rules that a machine can check."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_STAGES = [
    {"gnjax.numerics.precision", "gnjax.numerics.validation"},
    {"gnjax.data"},
    {"gnjax.numerics.rounding", "gnjax.models.initializers"},
    {"gnjax.models"},
    {"gnjax.operators.base"},
    {"gnjax.operators.closed_form.staircase", "gnjax.operators.closed_form.formation"},
    {"gnjax.networks.model", "gnjax.networks.losses", "gnjax.networks.jaxprs"},
    {"gnjax.networks.layers", "gnjax.networks.samples_last"},
    {
        "gnjax.training.pruning",
        "gnjax.training.minibatch",
        "gnjax.training.linear_descent",
        "gnjax.training.descent",
    },
    {"gnjax.networks.network"},
    {"gnjax.networks.kernels"},
    {"gnjax.operators.closed_form.linear", "gnjax.operators.network"},
    {
        "gnjax.operators.closed_form.leaky_relu",
        "gnjax.operators.closed_form.convolution",
        "gnjax.operators.closed_form.linear_map",
    },
    {"gnjax.operators.linearised"},
    {"gnjax.operators.stored_jacobian"},
    {"gnjax.spectra.lanczos"},
    {"gnjax.spectra.few", "gnjax.spectra.host_products"},
    {"gnjax.spectra.float32_first"},
    {"gnjax.spectra.eigenvalues"},
    {"gnjax.spectra.kronecker", "gnjax.spectra.trace", "gnjax.conditioning.rank_sensitivity"},
    {
        "gnjax.conditioning.condition_number",
        "gnjax.theory.bounds",
        "gnjax.spectra.density",
        "gnjax.theory.balanced",
    },
    {"gnjax.diagnosis.remedies"},
    {"gnjax.diagnosis.diagnose"},
    {"gnjax.diagnosis.picture"},
    {"gnjax"},
    {"gnjax.sweep", "gnjax.cli.doctor", "gnjax.cli.main"},
    {"sweeps.table"},
    {"sweeps.config", "sweeps.claims", "sweeps.launching"},
    {"configs"},
    {"sweeps.command_line"},
    {"experiments"},
    {"figures", "benchmarks"},
    {"reproduction.report", "reproduction.findings", "reproduction.reproduce"},
]
_EXPERIMENTS = {path.stem for path in (_ROOT / "configs").glob("*.py")} - {"__init__"}
_PACKAGES = ("gnjax", "experiments", "configs", "figures", "benchmarks")


def _modules():
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            parts = path.relative_to(_ROOT).with_suffix("").parts
            yield ".".join(p for p in parts if p != "__init__"), path


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _stage(module):
    """The stage of the longest prefix that has one."""
    while module:
        for order, stage in enumerate(_STAGES):
            if module in stage:
                return order, module
        module = module.rpartition(".")[0]
    return None


@pytest.mark.parametrize(("module", "path"), list(_modules()), ids=lambda v: str(v))
def test_imports_flow_one_way(module, path):
    own = _stage(module)
    assert own is not None, f"{module} has no stage"
    for imported in _imports(path):
        if imported.split(".")[0] not in _PACKAGES:
            continue
        found = _stage(imported)
        assert found is not None
        assert found[0] <= own[0], f"{module} imports {imported} from a later stage"


@pytest.mark.parametrize(("module", "path"), list(_modules()), ids=lambda v: str(v))
def test_boundaries_between_packages(module, path):
    package = module.split(".")[0]
    for imported in _imports(path):
        top, *rest = imported.split(".")
        if package == "gnjax":
            assert top not in _PACKAGES[1:], f"{module} imports {imported}"
        if package == "experiments" and top == "experiments" and rest:
            assert rest[0] not in _EXPERIMENTS, f"{module} imports the experiment {imported}"
        if package == "figures":
            assert top not in ("jax", "gnjax", "flax"), f"{module} imports {imported}"
            assert imported.split(".")[:2] != ["experiments", "cli"]
        assert "_src" not in imported.split("."), f"{module} imports the private {imported}"


def test_importing_changes_nothing_and_says_nothing():
    script = (
        "import jax, gnjax, gnjax.sweep.launch\n"
        "assert jax.numpy.ones(1).dtype == 'float32'\n"
        "import logging, warnings\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_library_has_no_broad_handlers_and_prints_nothing():
    for module, path in _modules():
        source = path.read_text()
        handlers = len(re.findall(r"except (?:Exception|BaseException)\b(?!:\n\s+Path)", source))
        assert handlers == (1 if module == "sweeps.work" else 0), module
        assert not re.search(r"except\s*:", source), module
        if module.startswith("gnjax") and module != "gnjax.cli.main":
            assert not re.search(r"^\s*print\(", source, re.MULTILINE), module


def _tracked():
    try:
        done = subprocess.run(
            ["git", "ls-files"], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    for name in done.stdout.splitlines():
        path = _ROOT / name
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".txt", ".json", ".yml", ""}:
            yield path


def test_no_registry_and_no_path_of_a_machine():
    patterns = [
        "index" + "-url",
        "pypi" + r"\.org",
        "files." + "pythonhosted",
        "deb" + r"\.debian\.org",
        r"[\s\"'(=]/(?:work|root|home)" + "/",
    ]
    for path in _tracked():
        text = path.read_text(encoding="utf-8", errors="ignore")
        for pattern in patterns:
            assert not re.search(pattern, text), f"{path.name} contains {pattern}"


def test_no_unfinished_business():
    words = ["TO" + "DO", "FIX" + "ME", "Not" + "ImplementedError"]
    for path in _tracked():
        if path.suffix == ".py":
            text = path.read_text()
            assert not any(re.search(rf"\b{word}\b", text) for word in words), path.name
