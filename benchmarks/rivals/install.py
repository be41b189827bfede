"""Make an environment for every rival, outside the one gnjax lives in.

    python -m benchmarks.rivals.install [NAME ...]

An environment that is up to date with its requirements is left alone. One that cannot be made
leaves its reason behind, which the benchmark prints in that rival's rows.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import venv
from pathlib import Path

NAMES = (
    "curvlinops",
    "hessian-eigenthings",
    "matfree",
    "kfac-jax",
    "laplace-torch",
    "neural-tangents",
)
_COMPLETE = ("neural-tangents",)  # requirements that list every dependency that is needed
_HERE = Path(__file__).parent
_ENVIRONMENTS = _HERE.parents[1] / ".venv-rivals"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    for name in parser.parse_args().names or NAMES:
        if name not in NAMES:
            parser.error(f"{name!r} is not one of {', '.join(NAMES)}")
        install(name)
        print(f"{name}: {missing(name) or 'ready'}")


def interpreter(name: str) -> Path:
    return _ENVIRONMENTS / name / "bin" / "python"


def missing(name: str) -> str | None:
    """Why a rival cannot be run, or None where it can."""
    failure = _failure(name)
    if failure.exists():
        return f"not installed: {failure.read_text()}"
    if not _ready(name).exists():
        return "not installed: run python -m benchmarks.rivals.install"
    return None


def install(name: str) -> None:
    """Make the environment anew if its requirements changed or an earlier attempt failed."""
    requirements = _HERE / f"requirements-{name}.txt"
    ready, failure = _ready(name), _failure(name)
    if ready.exists() and ready.read_text() == requirements.read_text():
        return
    shutil.rmtree(_ENVIRONMENTS / name, ignore_errors=True)
    failure.unlink(missing_ok=True)
    venv.create(_ENVIRONMENTS / name, with_pip=True)
    command = [str(interpreter(name)), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    command += ["--no-deps"] if name in _COMPLETE else []
    done = subprocess.run(
        [*command, "--requirement", str(requirements)], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        ready.write_text(requirements.read_text())
        return
    shutil.rmtree(_ENVIRONMENTS / name)
    failure.write_text(_reason(done.stderr))


def _ready(name: str) -> Path:
    return _ENVIRONMENTS / name / ".ready"


def _failure(name: str) -> Path:
    return _ENVIRONMENTS / f"{name}.failed"


def _reason(stderr: str) -> str:
    """The last error pip reported, on one line."""
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    return f"{(errors or stderr.splitlines() or ['pip failed'])[-1]} ({version})"


if __name__ == "__main__":
    main()
