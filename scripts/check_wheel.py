"""Try the wheel in an environment that has nothing else: its contents, an answer, missing extras.

    python -I scripts/check_wheel.py build/dist

The environment has the wheel with what it depends on, and none of its extras.
"""

from __future__ import annotations

import re
import sys
import tarfile
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

EXTRAS = ("matplotlib", "pandas", "pooch", "sklearn", "torch", "ml_collections")


def main(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    metadata = next(top for top in tops if top.endswith(".dist-info"))
    assert tops == {"gnjax", metadata}, f"the wheel holds {sorted(tops)}"
    assert not [name for name in names if "test" in name], "the wheel holds tests"
    description = zipfile.ZipFile(wheel).read(f"{metadata}/METADATA").decode()
    targets = re.findall(r"\]\(([^)\s]+)\)", description)
    assert targets, "the wheel has no description"
    relative = [target for target in targets if not target.startswith("https://")]
    assert not relative, f"the wheel's description has links that lead nowhere: {relative}"
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"gnjax/py.typed", "CHANGELOG.md", "CITATION.cff"} <= held, "the sdist lacks a file"
    assert not [name for name in held if name.startswith("tests")], "the sdist holds some tests"
    present = [module for module in EXTRAS if find_spec(module)]
    assert not present, f"{present} came with the wheel, which does without them"
    began = time.perf_counter()
    import gnjax

    print(f"import gnjax {gnjax.__version__}: {time.perf_counter() - began:.1f} s")
    assert "site-packages" in str(gnjax.__file__), gnjax.__file__
    began = time.perf_counter()
    _answer()
    print(f"the first kappa: {time.perf_counter() - began:.1f} s")
    _missing()


def _answer() -> None:
    import jax

    import gnjax

    gnjax.enable_x64()
    loaded = gnjax.data.load("fashion_mnist_5000", samples=20)
    model = gnjax.models.MLP((784, 8, 3), activation="tanh", key=jax.random.key(0))
    print(gnjax.condition_number(gnjax.gauss_newton(model, loaded.inputs.reshape(20, -1))))


def _missing() -> None:
    """What comes with an extra is refused by the name of the extra."""
    import numpy as np

    import gnjax

    spectrum = gnjax.eigenvalues(np.eye(3))
    for extra, task in (
        ("gnjax[plot]", lambda: gnjax.plot(spectrum)),
        ("gnjax[tables]", spectrum.to_pandas),
        ("gnjax[data]", lambda: gnjax.data.load("digits")),
        ("gnjax[data]", lambda: gnjax.data.load("photo_patches", samples=10)),
    ):
        try:
            task()
        except ModuleNotFoundError as error:
            said = str(error)
        else:
            said = "nothing"
        assert extra in said, f"what needs {extra} said {said}"
        print(said)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
