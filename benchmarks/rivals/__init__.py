"""The tools gnjax is compared with, each run in an environment of its own (see ``install``)."""
