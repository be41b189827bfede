"""What is done with the equations (the jaxpr) of a network."""
