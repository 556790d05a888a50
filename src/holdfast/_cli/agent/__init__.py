"""One agent: its reference, its card, credentials for it, and what commands do with it."""
