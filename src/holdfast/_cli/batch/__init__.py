"""The commands `run` and `resume`: many messages in one run, and pending calls."""
