"""Holdfast as the transport of the official SDK's client."""
