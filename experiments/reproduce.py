"""``python -m experiments.reproduce``: every figure from one command, see :mod:`reproduction`."""

import sys

from reproduction.reproduce import main

if __name__ == "__main__":
    sys.exit(main())
