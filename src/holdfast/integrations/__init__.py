"""Holdfast below other people's clients: one line, and their calls survive what Holdfast's do.

Each module needs the extra of its name, and is imported by itself; see `a2a_sdk` and `httpx`.
"""
