"""The protocol's data model: values that cross the wire, and the table of operations."""
