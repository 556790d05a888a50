"""Signatures of agent cards."""
