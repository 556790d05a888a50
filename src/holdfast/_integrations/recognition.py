"""Recognition of the protocol's operation in a request of another library.

Rules: a request is recognized by its bytes, in either version of the protocol; if its path and its
body disagree, the operation that must not run twice counts; an unrecognized request counts as an
operation that must not run twice, unless its HTTP method is safe (RFC 9110, 9.2.1: GET, HEAD,
OPTIONS and TRACE). PUT and DELETE do not count as idempotent, since the server is unknown.

Safety, methods and paths are those of `holdfast.protocol`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from holdfast._model.codec import UNREADABLE
from holdfast.protocol import (
    CARD_BINDING,
    CARD_PATHS,
    GET_AGENT_CARD,
    OLDER_VERSION,
    OPERATIONS,
    PROTOCOL_VERSION,
    Operation,
)
from holdfast.types import Empty

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Recognized", "recognize"]

AnyOperation = Operation[Any, Any]


class Recognized(NamedTuple):
    """The operation of a request.

    Attributes:
        operation: A row of the table of operations, the fetch of a card, or otherwise a row named
            after the HTTP method, as in ``"HTTP POST"``.
        binding: The binding: ``"JSONRPC"``, ``"HTTP+JSON"``, ``"card"``; or ``"HTTP"`` if the
            request is not known to be one of the protocol.
        version: Version of the protocol; empty if there is none.
        base: Path of the interface, to which the operation's own path is added; empty for the
            whole origin.
        request_id: The id of a JSON-RPC call, of any type.
    """

    operation: AnyOperation
    binding: str
    version: str = ""
    base: str = ""
    request_id: Any = None

    @property
    def is_known(self) -> bool:
        """Whether it is a request of the protocol."""
        return self.binding != _FOREIGN


def recognize(method: str, url: str, body: bytes) -> Recognized:
    """Return the operation of a request; never fails.

    Args:
        method: The HTTP method.
        url: The complete URL, or its path; percent-encoded.
        body: The complete body.
    """
    method = method.upper()
    path = _path_of(url)
    by_path = _by_path(method, path)
    if method == "POST":
        envelope = _envelope_of(body)
        if envelope is None:
            # A body that is not the parameters of that operation may be another request.
            is_certain = by_path is not None and (_is_conditional(by_path) or not body.strip())
            return by_path if by_path is not None and is_certain else _foreign(method)
        if envelope.jsonrpc is not UNSET:
            by_envelope = _by_envelope(envelope, path)
            if by_envelope is None:
                return _foreign(method)
            is_path_safer = by_path is not None and _is_conditional(by_path)
            return by_path if by_path is not None and is_path_safer else by_envelope
    return by_path or _foreign(method)


_FOREIGN = "HTTP"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class _Envelope(msgspec.Struct):
    """The members of a JSON object that identify a call of JSON-RPC."""

    jsonrpc: Any = UNSET
    method: Any = UNSET
    id: Any = None


_decoder = msgspec.json.Decoder(_Envelope)

_METHODS: Mapping[str, tuple[AnyOperation, str]] = {
    name: (operation, version)
    for operation in OPERATIONS.values()
    for name, version in (
        (operation.method_v03, OLDER_VERSION),
        (operation.name, PROTOCOL_VERSION),
    )
    if name
}


def _templates() -> Iterator[tuple[str, str, AnyOperation, str]]:
    """Yield every path of the REST bindings, with its HTTP method."""
    for operation in OPERATIONS.values():
        for template, version in (
            (operation.path, PROTOCOL_VERSION),
            (operation.path_v03, OLDER_VERSION),
        ):
            for verb in (operation.verb, operation.other_verb):
                if verb is not None and template:
                    yield verb, template, operation, version


def _pattern(template: str) -> re.Pattern[str]:
    literals = re.split(r"\{\w+\}", template)
    return re.compile("[^/]+".join(map(re.escape, literals)) + r"\Z")


_PATHS: tuple[tuple[str, re.Pattern[str], AnyOperation, str], ...] = tuple(
    (verb, _pattern(template), operation, version)
    # Longer templates come first: "/tasks/{id}:cancel" matches "/tasks/{id}" as well.
    for verb, template, operation, version in sorted(
        _templates(), key=lambda row: -len(re.sub(r"\{\w+\}", "", row[1]))
    )
)


def _path_of(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _by_path(method: str, path: str) -> Recognized | None:
    """Return the operation by its path, after the interface's own path and a tenant."""
    if method == "GET" and path.endswith(CARD_PATHS):
        return Recognized(GET_AGENT_CARD, CARD_BINDING)
    for verb, pattern, operation, version in _PATHS:
        if verb == method and (match := pattern.search(path)) is not None:
            return Recognized(operation, "HTTP+JSON", version, path[: match.start()])
    return None


def _by_envelope(envelope: _Envelope, path: str) -> Recognized | None:
    method = envelope.method
    if envelope.jsonrpc != "2.0" or not isinstance(method, str) or method not in _METHODS:
        return None
    operation, version = _METHODS[method]
    return Recognized(operation, "JSONRPC", version, path, envelope.id)


def _envelope_of(body: bytes) -> _Envelope | None:
    """Return the body as a JSON object; None if it is not one, such as a batch of calls."""
    try:
        return _decoder.decode(body)
    except UNREADABLE:
        return None


def _is_conditional(recognized: Recognized) -> bool:
    return recognized.operation.safety == "conditional"


@lru_cache(maxsize=64)
def _foreign(method: str) -> Recognized:
    """Return a request that is not known to be of the protocol; any answer is possible."""
    operation: AnyOperation = Operation(
        name=f"HTTP {method}",
        request=Empty,
        response=Empty,
        safety="read" if method in _SAFE_METHODS else "conditional",
        verb="POST",
        path="",
        streaming=True,
    )
    return Recognized(operation, _FOREIGN)
