"""Blocking twins of the asynchronous classes."""
