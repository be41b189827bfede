"""Directions of the parameters in which no output of a network moves, whatever the data."""
