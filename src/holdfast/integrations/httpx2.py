"""Holdfast as the transport of ``httpx2``, for the clients of other libraries.

Make a client with retries::

    import httpx2
    from holdfast.integrations.httpx2 import Transport

    client = httpx2.AsyncClient(transport=Transport(), timeout=120)

It needs the extra ``holdfast[httpx2]``.
"""

from holdfast._integrations.httpx2 import Transport
from holdfast._public import publish

__all__ = ["Transport"]

__getattr__, __dir__ = publish(__name__)
