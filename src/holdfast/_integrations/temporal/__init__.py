"""Holdfast on Temporal; `holdfast.integrations.temporal` publishes it."""
