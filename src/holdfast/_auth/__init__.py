"""Credentials: where they come from."""
