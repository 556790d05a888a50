"""How classes that block are made of those that do not."""
