"""Everything from one command: run, draw, check and report every figure."""

import sweeps  # noqa: F401  (it says what is not installed)
