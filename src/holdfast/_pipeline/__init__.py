"""The running part: calls go down through layers to a binding, replies and errors come up."""
