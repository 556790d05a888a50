"""What is wrong with an agent, and with the way to it."""
