"""Answers as data: how they are saved, read and checked."""
