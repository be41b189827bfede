"""Held-out trials: answers of the library beside references of sixty digits and more."""
