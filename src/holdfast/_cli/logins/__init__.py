"""Logins at agents, by OAuth: the flows and the store."""
