"""The claims of the papers about the figures of each experiment, as functions of its table."""
