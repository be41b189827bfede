"""One file an experiment: get_config(profile)."""
