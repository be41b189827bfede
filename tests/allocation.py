"""How much memory a part of a test may allocate."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

MEBIBYTE = 2**20


@contextmanager
def at_most(most: float) -> Iterator[None]:
    """Python and NumPy allocate at most so many bytes at once within the block."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most, f"{peak / MEBIBYTE:.1f} MiB"
