"""Declarations of the commands: options, help, and which action runs; light to import."""
