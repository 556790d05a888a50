"""The agent to try things with."""
