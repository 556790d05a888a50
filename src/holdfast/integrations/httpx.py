"""Holdfast below `httpx`: a transport for the clients that other people's SDKs take.

>>> import httpx
>>> from holdfast._integrations.httpx import Transport
>>> client = httpx.AsyncClient(transport=Transport(), timeout=120)

It needs the extra ``holdfast[httpx]``. What it does, and does not, is written at `Transport`.
"""

from holdfast._integrations.httpx import Transport

__all__ = ["Transport"]
