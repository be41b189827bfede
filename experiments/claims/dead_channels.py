"""Claims."""

CLAIMS: tuple = ()
