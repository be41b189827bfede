"""Draw the pictures of how-tos again, as their pages say.

python -m scripts.draw_howtos docs/howto/laplace.md ...

The examples of a page are run from the top. Where its text has ``....savefig("NAME.png")`` as code,
the picture is saved there, into docs/howto/pictures.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import sys
from pathlib import Path

PICTURES = Path(__file__).parents[1] / "docs" / "howto" / "pictures"
_SAVES = re.compile(r"`([^`\n]*\.savefig\(\"[\w.]+\"\))`")


def draw(page: Path) -> None:
    """Run the examples and the lines that save pictures, in the order of the page."""
    names: dict[str, object] = {}
    for part in doctest.DocTestParser().parse(page.read_text(encoding="utf-8"), str(page)):
        if isinstance(part, doctest.Example):
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                exec(compile(part.source, str(page), "single"), names)
            continue
        for line in _SAVES.findall(part):
            with contextlib.chdir(PICTURES):
                exec(line, names)
            print(f"{page}: {line}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        draw(Path(name))
