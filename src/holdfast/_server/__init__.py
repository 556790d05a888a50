"""Agents served from Python functions."""
