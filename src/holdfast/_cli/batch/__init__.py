"""The commands `run` and `resume`: many messages, and what is left of them."""
