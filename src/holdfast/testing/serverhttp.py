"""Just enough HTTP/1.1 for a server whose clients may not behave."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from holdfast.wire.http import HttpReply, HttpRequest

__all__ = ["LARGEST_HEAD", "BadRequestError", "error_reply", "head_of", "read_request"]

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
        head = await reader.readuntil(b"\r\n\r\n")
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


def head_of(reply: HttpReply, *, keep_alive: bool = True) -> bytes:
    """The beginning of a reply, up to and with the empty line."""
    headers = {**reply.headers, "content-length": str(len(reply.body))}
    if not keep_alive:
        headers["connection"] = "close"
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def error_reply(status: HTTPStatus) -> HttpReply:
    """The reply to what is no request."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    return HttpReply(status=status, headers=headers, body=status.phrase.encode())
