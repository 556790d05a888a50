"""The command `conformance`: the protocol's own test kit."""
