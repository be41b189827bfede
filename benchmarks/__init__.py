"""One file a row of the speed table; each prints ratios from one run."""
