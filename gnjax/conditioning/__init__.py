"""Condition numbers with certified intervals."""
