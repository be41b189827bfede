"""Functions that read, change or evaluate the equations (the jaxpr) of a network."""
