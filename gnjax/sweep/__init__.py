"""Sweeps: cells of a grid, measured one by one, stored as they finish, collected into a table."""
