"""The client: calls, streams, conversations, batches, several agents."""
