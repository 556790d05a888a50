"""One agent: its reference, its card, its credentials, and the actions of commands on it."""
