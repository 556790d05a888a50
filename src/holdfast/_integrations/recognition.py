"""Which operation of the protocol a request is that somebody else wrote.

Rules: a request is what its bytes say, in either version of the protocol; where its path and its
body say different things, the one counts that must not run twice; what cannot be told is taken for
an operation that must not run twice, unless HTTP itself says that it changes nothing (RFC 9110,
9.2.1: GET, HEAD, OPTIONS and TRACE). PUT and DELETE are not taken at their word, since nothing is
known of the server that takes them.

Safety is that of `holdfast._model.operations`, and so are methods and paths.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from holdfast._model.codec import UNREADABLE
from holdfast._model.operations import (
    CARD_BINDING,
    GET_AGENT_CARD,
    OPERATIONS,
    WELL_KNOWN,
    Operation,
)
from holdfast._wire.bindings import OLDER_VERSION, PROTOCOL_VERSION
from holdfast.types import Empty

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Recognized", "recognize"]

AnyOperation = Operation[Any, Any]


class Recognized(NamedTuple):
    """What a request is.

    Attributes:
        operation: A row of the table of operations, the fetch of a card, or a row made for what
            is neither, which is called after its HTTP method, as in ``"HTTP POST"``.
        binding: How it is spoken: ``"JSONRPC"``, ``"HTTP+JSON"``, ``"card"``; or ``"HTTP"``, if
            it is not known to be of the protocol.
        version: Version of the protocol; empty if it is of none.
        base: Path of the interface, to which the operation's own is added; empty for the whole
            origin.
        request_id: What a call of JSON-RPC is called by in its answers, of any type.
    """

    operation: AnyOperation
    binding: str
    version: str = ""
    base: str = ""
    request_id: Any = None

    @property
    def is_known(self) -> bool:
        """Whether it is of the protocol."""
        return self.binding != _FOREIGN


def recognize(method: str, url: str, body: bytes) -> Recognized:
    """Says what a request is. It never fails.

    Args:
        method: The HTTP method.
        url: The whole address, or its path; encoded.
        body: The whole body.
    """
    method = method.upper()
    path = _path_of(url)
    found = _by_path(method, path)
    if method == "POST":
        envelope = _envelope_of(body)
        if envelope is None:
            # What no agent can read as the parameters of that operation may be something else.
            certain = found is not None and (_is_conditional(found) or not body.strip())
            return found if found is not None and certain else _foreign(method)
        if envelope.jsonrpc is not UNSET:
            called = _by_envelope(envelope, path)
            if called is None:
                return _foreign(method)
            return found if found is not None and _is_conditional(found) else called
    return found or _foreign(method)


_FOREIGN = "HTTP"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class _Envelope(msgspec.Struct):
    """What of a JSON object tells whether it is a call of JSON-RPC, and which."""

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
    """Every path of the REST bindings, with its verb."""
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
    # What says more comes first: "/tasks/{id}:cancel" is a "/tasks/{id}" as well.
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
    """What the path says; before it there may be a path of the interface, and a tenant."""
    if method == "GET" and path.endswith(WELL_KNOWN):
        return Recognized(GET_AGENT_CARD, CARD_BINDING)
    for verb, pattern, operation, version in _PATHS:
        if verb == method and (match := pattern.search(path)) is not None:
            return Recognized(operation, "HTTP+JSON", version, path[: match.start()])
    return None


def _by_envelope(envelope: _Envelope, path: str) -> Recognized | None:
    called = envelope.method
    if envelope.jsonrpc != "2.0" or not isinstance(called, str) or called not in _METHODS:
        return None
    operation, version = _METHODS[called]
    return Recognized(operation, "JSONRPC", version, path, envelope.id)


def _envelope_of(body: bytes) -> _Envelope | None:
    """The body as a JSON object; None if it is none, as a batch of calls is not."""
    try:
        return _decoder.decode(body)
    except UNREADABLE:
        return None


def _is_conditional(recognized: Recognized) -> bool:
    return recognized.operation.safety == "conditional"


@lru_cache(maxsize=64)
def _foreign(method: str) -> Recognized:
    """What is not known to be of the protocol; it may be answered by events, or anything else."""
    operation: AnyOperation = Operation(
        name=f"HTTP {method}",
        request=Empty,
        response=Empty,
        safety="read" if method in _SAFE else "conditional",
        verb="POST",
        path="",
        streaming=True,
    )
    return Recognized(operation, _FOREIGN)
