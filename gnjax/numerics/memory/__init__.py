"""How much memory a computation can have, and how much goes through a device at once."""
