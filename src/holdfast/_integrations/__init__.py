"""Holdfast below the clients of others."""
