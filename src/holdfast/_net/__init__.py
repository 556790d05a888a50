"""Engines: what carries HTTP requests over real sockets."""
