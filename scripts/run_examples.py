"""Run the examples of pages; a page that imports a missing package of an extra is left out.

python -m scripts.run_examples docs/howto/hessian.md ...
"""

from __future__ import annotations

import doctest
import re
import sys
from importlib.util import find_spec
from pathlib import Path

_OF_EXTRAS = ("torch",)


def main(pages: list[str]) -> int:
    failures = 0
    for page in pages:
        absent = missing(Path(page).read_text())
        if absent:
            print(f"{page}: left out, {absent} is not installed")
            continue
        failures += doctest.testfile(page, module_relative=False).failed
    return 1 if failures else 0


def missing(text: str) -> str:
    """The package that examples import and that is not there, else nothing."""
    return next(
        (
            name
            for name in _OF_EXTRAS
            if re.search(rf"^>>> import {name}\b", text, re.MULTILINE) and not find_spec(name)
        ),
        "",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
