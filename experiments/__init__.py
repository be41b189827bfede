"""One runnable module for each sweep."""

import sweeps  # noqa: F401  (it says what is not installed)
