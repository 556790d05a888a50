"""What tests need: an agent that fails as told, and time that passes at once."""
