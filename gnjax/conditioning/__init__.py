"""Condition numbers with certified intervals (the words: ``docs/reference/evidence.md``)."""
