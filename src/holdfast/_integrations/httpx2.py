"""The transport for clients of httpx2; `holdfast.integrations.httpx2` publishes it."""

from __future__ import annotations

from typing import ClassVar

from holdfast._integrations.httpx_base import BaseBody, BaseTransport
from holdfast._model.extras import missing_extra

try:
    import httpx2
except ModuleNotFoundError as error:
    if error.name != "httpx2":
        raise
    raise missing_extra("holdfast.integrations.httpx2", "httpx2", library="httpx2") from error

__all__ = ["Transport"]


class _Body(BaseBody, httpx2.AsyncByteStream):
    """The streamed body of a response."""


class Transport(BaseTransport[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    __doc__ = BaseTransport.__doc__

    _library: ClassVar = httpx2
    _body: ClassVar = _Body
