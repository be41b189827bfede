"""The description of the wheel: README with links that lead to the repository.

A registry shows the description alone, where a path such as docs/start/install.md leads nowhere.
What a build makes on its way is in a folder that goes with it, so that ``pip install .`` leaves no
``build`` in the checkout. Everything else about the package stands in pyproject.toml.
"""

import re
import tempfile
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def described(readme: str, address: str) -> str:
    """README with each relative link and picture as an address below that of the repository."""

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}({address}/{kind}/main/{found[2]})"

    return re.sub(r"(!?\[[^\]]*\])\((?!https?:|#)([^)\s]+)\)", absolute, readme)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as made:
        setup(
            long_description=described(readme, project["urls"]["Repository"]),
            long_description_content_type="text/markdown",
            options={"build": {"build_base": made}},
        )
