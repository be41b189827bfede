"""What every experiment uses: cells, their store, launchers, tables, claims, the command line.

Experiments, figures and the reproduction import this package before anything else, so that the one
look at what they need together stands here.
"""

import sys
from importlib.util import find_spec

_NEEDED = {  # by module: the package; data sets name what they need when they are loaded
    "ml_collections": "ml_collections",
    "pandas": "pandas",
    "matplotlib": "matplotlib",
    "markdown_it": "markdown-it-py",
}


def _check_what_is_installed() -> None:
    """Say in one sentence what is missing; a command ends there, without a traceback."""
    missing = [package for module, package in _NEEDED.items() if find_spec(module) is None]
    if missing:
        msg = (
            f"experiments, figures and sweeps need {', '.join(missing)}, not installed here: "
            "pip install '.[experiments]' in the checkout of gnjax"
        )
        if hasattr(sys, "ps1"):  # an interactive session, which goes on
            raise ModuleNotFoundError(msg)
        sys.exit(msg)


_check_what_is_installed()
