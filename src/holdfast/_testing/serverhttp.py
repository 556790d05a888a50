"""Just enough HTTP/1.1 for a server whose clients may not behave."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast._wire.http import HttpRequest

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
_LARGEST_BODY = 64 * 1024 * 1024


class BadRequestError(Exception):
    """What came is no request that this server reads.

    Attributes:
        status: HTTP status to answer before the connection is closed.
    """

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


async def read_request(reader: asyncio.StreamReader, base: str) -> HttpRequest | None:
    """Reads the next request of a connection.

    Args:
        reader: The connection.
        base: Scheme, host and port of the server.

    Returns:
        The request; None if the client left instead of sending all of one.

    Raises:
        BadRequestError: What came is no request.
    """
    try:
        first = await reader.readexactly(1)
        if not first.isalpha():  # a TLS handshake, which may have no line end to wait for
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
    # Numbers that Python would take long to read are too large in any case.
    if len(text) > 20 or int(text) > _LARGEST_BODY:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return int(text)


def head_of(
    status: int, headers: Mapping[str, str], *, length: int | None, keep_alive: bool
) -> bytes:
    """The beginning of a reply, up to and with the empty line.

    Args:
        status: HTTP status.
        headers: Those that do not frame the body.
        length: Of the body; None for one that comes in chunks.
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
    """A piece of a body that comes in chunks; not empty, which would be the end of it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def error_reply(status: HTTPStatus) -> bytes:
    """The reply to what is no request; nothing may follow it."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    body = status.phrase.encode()
    return head_of(status, headers, length=len(body), keep_alive=False) + body
