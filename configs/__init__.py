"""One file for each experiment, whose ``get_config(profile)`` returns the settings."""
