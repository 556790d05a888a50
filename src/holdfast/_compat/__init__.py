"""The words of the official SDK and of error articles."""
