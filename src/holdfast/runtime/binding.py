"""The bottom of the stack: a call becomes an HTTP request, its reply a value or an error."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast._version import __version__
from holdfast.errors import A2AError
from holdfast.runtime.engine import HttpEngine, send
from holdfast.runtime.transport import Call, Reply
from holdfast.wire.bindings import BINDINGS, PROTOCOL_VERSION
from holdfast.wire.http import HttpReply, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.policy.resilience import Resilience
    from holdfast.runtime.env import Env

__all__ = ["HttpBinding", "protocol_headers", "redact"]

P = TypeVar("P")
R = TypeVar("R")

_MAX_IDLE = {"read": 4.0, "idempotent": 4.0, "conditional": 1.0}
"""Seconds that a connection may have idled, by safety. Common servers close idle connections
after 2 s (gunicorn) or 5 s (uvicorn, node); a request that meets the close is lost, which costs a
read a retry and a message its certainty."""

_SHORTEST_SECRET = 4
"""What is shorter is no secret, and would only make holes in the errors."""

_OWN = frozenset({"agent", "request_id"})
"""What the client itself says in an error."""

_DEEPEST = 50
"""What is nested deeper in an error is not looked through, and left out."""

_SHORTEST_CUT = 200
"""Length from which a text may be the beginning of a longer one; see `wire.http.excerpt`."""


def protocol_headers(extensions: Collection[str] = ()) -> dict[str, str]:
    """The headers of every request (A2A 3.6.1, 3.2.6)."""
    headers = {"a2a-version": PROTOCOL_VERSION, "user-agent": f"holdfast/{__version__}"}
    if extensions:
        headers["a2a-extensions"] = ",".join(extensions)
    return headers


class HttpBinding:
    """Carries calls over the bindings that are HTTP."""

    def __init__(self, engine: HttpEngine, env: Env, resilience: Resilience) -> None:
        self._engine = engine
        self._env = env
        self._resilience = resilience

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Makes the call once."""
        endpoint = call.endpoint
        if endpoint is None:
            message = "the call has no endpoint yet"
            raise RuntimeError(message)
        interface = endpoint.interface
        codec = BINDINGS[interface.protocol_binding]
        params: Any = call.params
        if params.tenant != interface.tenant:
            params = msgspec.structs.replace(params, tenant=interface.tenant)
        encoded = codec.encode(call.operation, params, interface.url, call.request_id)
        request = HttpRequest(
            method=encoded.method,
            url=encoded.url,
            headers={**call.headers, **protocol_headers(call.extensions), **encoded.headers},
            body=encoded.body,
            timeouts=self._resilience.timeouts,
            max_idle=_MAX_IDLE[call.operation.safety],
            progress=call.progress,
        )
        try:
            reply = await send(self._engine, request)
            value = self._decode(call, reply)
        except A2AError as error:
            error.agent = endpoint.agent
            redact(error, call.headers)
            raise
        return Reply(value=value, headers=reply.headers, raw=reply.body, endpoint=endpoint)

    async def close(self) -> None:
        """Nothing to free: the engine belongs to the client."""

    def _decode(self, call: Call[P, R], reply: HttpReply) -> R:
        endpoint = call.endpoint
        binding = "" if endpoint is None else endpoint.interface.protocol_binding
        value = BINDINGS[binding].decode(
            call.operation,
            call.request_id,
            reply,
            now=self._env.wall(),
            refusals=self._resilience.refusals,
        )
        return cast("R", value)


def redact(error: A2AError, headers: Mapping[str, str]) -> None:
    """Takes the caller's header values out of an error, for agents that echo requests."""
    secrets = sorted(_secrets(headers), key=len, reverse=True)
    if not secrets:
        return
    for name, value in vars(error).items():
        if name not in _OWN:
            setattr(error, name, _without(secrets, value))
    error.args = (error.message,)


def _secrets(headers: Mapping[str, str]) -> set[str]:
    """Each value whole and without its scheme, plain and as JSON and HTML write it."""
    values = {value.strip() for value in headers.values()}
    values |= {value.partition(" ")[2].strip() for value in values}
    values |= {json.dumps(value)[1:-1] for value in values} | {escape(value) for value in values}
    return {value for value in values if len(value) >= _SHORTEST_SECRET}


def _without(secrets: list[str], value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return "***"
    if isinstance(value, str):
        text = str(value)
        for secret in secrets:
            text = text.replace(secret, "***")
        if len(value) >= _SHORTEST_CUT:
            text = _without_beginning(secrets, text)
        return value if text == value else text
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {name: _without(secrets, member, depth + 1) for name, member in members.items()}
    if isinstance(value, list):
        return [_without(secrets, item, depth + 1) for item in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return tuple(_without(secrets, item, depth + 1) for item in cast("tuple[Any, ...]", value))
    return value


def _without_beginning(secrets: list[str], text: str) -> str:
    """Cuts off the beginning of a secret at the end of a text that was itself cut off there."""
    for secret in secrets:
        for length in range(min(len(secret), len(text)), _SHORTEST_SECRET - 1, -1):
            if text.endswith(secret[:length]):
                return f"{text[:-length]}***"
    return text
