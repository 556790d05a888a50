"""Holdfast as the transport of other clients."""
