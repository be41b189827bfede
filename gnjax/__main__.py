"""``python -m gnjax``: see :mod:`gnjax.cli.main`."""

import sys

from gnjax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
