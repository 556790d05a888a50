"""Options: their syntax, the sources of their values, and their meaning."""
