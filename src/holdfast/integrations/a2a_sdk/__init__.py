"""Holdfast for users of the official SDK, `a2a-sdk` 1.x."""
