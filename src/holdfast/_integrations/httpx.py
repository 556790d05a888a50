"""The transport for clients of httpx; `holdfast.integrations.httpx` publishes it."""

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
    """The streamed body of a response."""


class Transport(BaseTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    __doc__ = BaseTransport.__doc__

    _library: ClassVar = httpx
    _body: ClassVar = _Body
