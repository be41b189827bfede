"""Numbers and their errors: precision, rounding, checks of arguments, certificates."""
