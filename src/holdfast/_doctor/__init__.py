"""The examination of an agent and of the connection to it."""
