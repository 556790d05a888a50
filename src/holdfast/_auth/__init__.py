"""Providers of credentials."""
