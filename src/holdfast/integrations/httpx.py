"""Holdfast as the transport of ``httpx``, for the clients of other libraries.

Make a client with retries::

    import httpx
    from holdfast.integrations.httpx import Transport

    client = httpx.AsyncClient(transport=Transport(), timeout=120)

It needs the extra ``holdfast[httpx]``.
"""

from holdfast._integrations.httpx import Transport
from holdfast._public import publish

__all__ = ["Transport"]

__getattr__, __dir__ = publish(__name__)
