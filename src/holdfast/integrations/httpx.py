"""Holdfast below `httpx`: a transport for the clients that other people's SDKs take.

>>> import httpx
>>> from holdfast.integrations.httpx import Transport
>>> client = httpx.AsyncClient(transport=Transport(), timeout=120)

It needs the extra ``holdfast[httpx]``. What it does, and does not, is written at `Transport`.
"""

from holdfast._integrations.httpx import Transport
from holdfast._public import publish

__all__ = ["Transport"]

__getattr__, __dir__ = publish(__name__)
