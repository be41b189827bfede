"""What the papers say of the figures of each experiment, as functions of its saved table."""
