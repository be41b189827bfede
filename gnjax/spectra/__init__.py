"""Numbers from operators: eigenvalues, densities and traces, each with its error."""
