"""Options: how they are written, where their values come from, and what they mean."""
