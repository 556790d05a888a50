"""Holdfast as the transport of other people's clients, which then retry and resume as it does.

Each module needs the extra of its name, and is imported by itself; see `a2a_sdk` and `httpx`.
"""
