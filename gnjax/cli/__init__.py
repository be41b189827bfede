"""The command line ``python -m gnjax``."""
