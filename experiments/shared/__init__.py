"""Ingredients that several experiments share."""
