"""Everything from one command: run, draw, check and report every figure."""
