"""Integrations with other clients, whose transport Holdfast is, and with durable engines.

Each module needs the extra of its name, and is imported by itself: as a transport
`holdfast.integrations.a2a_sdk`, `holdfast.integrations.httpx` and `holdfast.integrations.httpx2`;
in workflows `holdfast.integrations.temporal` and `holdfast.integrations.dbos`.
"""
