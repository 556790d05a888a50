"""Holdfast below the official SDK."""
