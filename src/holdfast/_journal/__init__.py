"""Journals: where calls are written down, so that no crash loses one."""

from __future__ import annotations
