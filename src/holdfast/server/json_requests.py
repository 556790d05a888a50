"""Requests whose JSON is read here: what is none is said to be none, whatever it made of Python.

The SDK tells a client what an exception says, and calls it an internal error, where JSON is nested
too deeply, or holds a number that is too long. And it takes a body whatever it is called: but
browsers let any page send text to any server of the machine or its network, and ask the server
first before they send what is called JSON, as it has to be (A2A 9.1, 11.1).
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from holdfast.wire.http import media_type

__all__ = ["JsonRequest"]


class JsonRequest(Request):
    """A request, as the SDK's routes take it."""

    _read: Any = None

    async def is_called_json(self) -> bool:
        """Whether the body, if there is one, may be taken for JSON."""
        return "json" in media_type(self.headers) or not await self.body()

    async def json(self) -> Any:
        """What the body holds.

        Raises:
            JSONDecodeError: It cannot be read as JSON (RFC 8259).
        """
        if self._read is None:
            self._read = _parsed(await self.body())
        return self._read


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_json)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        raise json.JSONDecodeError("no JSON that can be read", "", 0) from None


def _no_json(constant: str) -> Any:
    raise json.JSONDecodeError(f"{constant} is no JSON", "", 0)
