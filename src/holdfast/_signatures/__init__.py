"""Signing and verification of agent cards."""
