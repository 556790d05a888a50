"""The part of HTTP/1.1 that a test server needs, with checks of what clients send."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.extend import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LARGEST_HEAD",
    "LAST_CHUNK",
    "BadRequestError",
    "chunk_of",
    "error_reply",
    "head_of",
    "read_request",
]

LARGEST_HEAD = 64 * 1024
_MAX_BODY_BYTES = 64 * 1024 * 1024


class BadRequestError(Exception):
    """The request is not valid, or not supported.

    Attributes:
        status: HTTP status to answer with before the connection is closed.
    """

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


async def read_request(reader: asyncio.StreamReader, base: str) -> HttpRequest | None:
    """Read the next request of a connection.

    Args:
        reader: The connection.
        base: Scheme, host and port of the server.

    Returns:
        The request; None if the client left before it sent a whole one.

    Raises:
        BadRequestError: The request is not valid, or not supported.
    """
    try:
        first = await reader.readexactly(1)
        if not first.isalpha():  # a TLS handshake, which may contain no line end
            raise BadRequestError(HTTPStatus.BAD_REQUEST)
        head = first + await reader.readuntil(b"\r\n\r\n")
        method, target, headers = _read_head(head)
        body = await reader.readexactly(_length(headers))
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
    return HttpRequest(method=method, url=f"{base}{target}", headers=headers, body=body)


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for line in filter(None, lines):
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequestError(HTTPStatus.BAD_REQUEST)
        headers[name.lower()] = value.strip()
    return words[0], words[1], headers


def _length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequestError(HTTPStatus.LENGTH_REQUIRED)
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()):
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    # A number of many digits, which int() would take long to parse, is too large in any case.
    if len(text) > 20 or int(text) > _MAX_BODY_BYTES:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return int(text)


def head_of(
    status: int, headers: Mapping[str, str], *, length: int | None, keep_alive: bool
) -> bytes:
    """Return the head of a reply, including the empty line.

    Args:
        status: HTTP status.
        headers: Headers except those that frame the body.
        length: Length of the body in bytes; None for one in chunks.
        keep_alive: Whether another request may follow.
    """
    headers = dict(headers)
    if length is None:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(length)
    if not keep_alive:
        headers["connection"] = "close"
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


LAST_CHUNK = b"0\r\n\r\n"


def chunk_of(data: bytes) -> bytes:
    """Return a chunk of a body; the data must not be empty, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def error_reply(status: HTTPStatus) -> bytes:
    """Return the reply to a request that is not valid; the connection is closed after it."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    body = status.phrase.encode()
    return head_of(status, headers, length=len(body), keep_alive=False) + body
