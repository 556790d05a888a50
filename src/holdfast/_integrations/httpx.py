"""Holdfast below `httpx`: a transport for the clients that other people's SDKs take.

>>> import httpx
>>> from holdfast._integrations.httpx import Transport
>>> client = httpx.AsyncClient(transport=Transport(), timeout=120)

It needs the extra ``holdfast[httpx]``. What it does, and does not, is written at `Transport`.
"""

from __future__ import annotations

from typing import ClassVar

from holdfast._integrations.httpx_base import BaseBody, BaseTransport
from holdfast._model.extras import missing_extra

try:
    import httpx
except ModuleNotFoundError as error:
    if error.name != "httpx":
        raise
    raise missing_extra("holdfast.integrations.httpx", "httpx", library="httpx") from error

__all__ = ["Transport"]


class _Body(BaseBody, httpx.AsyncByteStream):
    """The body of a response while it comes."""


class Transport(BaseTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    __doc__ = BaseTransport.__doc__

    _library: ClassVar = httpx
    _body: ClassVar = _Body
