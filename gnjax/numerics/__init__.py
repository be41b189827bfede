"""Numbers and their errors: precision, rounding, what is refused at the door, certificates."""
