"""Where cells are computed: here, in processes of this machine, or on a Ray cluster."""
