"""Integrations with other clients: Holdfast as their transport retries and resumes.

Each module needs the extra of its name, and is imported by itself:
`holdfast.integrations.a2a_sdk`, `holdfast.integrations.httpx` and `holdfast.integrations.httpx2`.
"""
