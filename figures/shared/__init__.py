"""Shared by all figures: series from tables, phrases of captions, panels and style."""
