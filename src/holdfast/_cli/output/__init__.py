"""The output of commands: text, JSON, and progress."""
