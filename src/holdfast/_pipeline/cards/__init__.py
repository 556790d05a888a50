"""Agent cards: fetched, verified, kept."""
