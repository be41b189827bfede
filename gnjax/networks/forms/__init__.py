"""The forms in which models and samples come in."""
