"""The README's Python runs and prints what it says."""

import doctest
from pathlib import Path


def test_examples():
    readme = Path(__file__).parent.parent / "README.md"
    found = doctest.testfile(str(readme), module_relative=False)
    assert found.attempted >= 4
    assert found.failed == 0
