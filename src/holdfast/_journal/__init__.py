"""Journals: durable records of calls, which survive a crash."""

from __future__ import annotations
