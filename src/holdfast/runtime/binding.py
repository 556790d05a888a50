"""The bottom of the stack: a call becomes an HTTP request, its reply a value or an error."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._version import __version__
from holdfast.errors import A2AError, LimitExceededError
from holdfast.model.operations import GET_EXTENDED_AGENT_CARD
from holdfast.runtime.engine import HttpEngine, send
from holdfast.runtime.transport import Call, Reply
from holdfast.wire.bindings import BINDINGS, PROTOCOL_VERSION
from holdfast.wire.credentials import with_query
from holdfast.wire.http import HttpRequest
from holdfast.wire.limits import about_card, check_json_size, check_value, of_cards

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.policy.resilience import Resilience
    from holdfast.runtime.env import Env
    from holdfast.wire.http import HttpReply
    from holdfast.wire.limits import Limits

__all__ = ["HttpBinding", "protocol_headers"]

P = TypeVar("P")
R = TypeVar("R")

_MAX_IDLE = {"read": 4.0, "idempotent": 4.0, "conditional": 1.0}
"""Seconds that a connection may have idled, by safety. Common servers close idle connections
after 2 s (gunicorn) or 5 s (uvicorn, node); a request that meets the close is lost, which costs a
read a retry and a message its certainty."""

_ALWAYS: Mapping[str, str] = MappingProxyType(
    {"a2a-version": PROTOCOL_VERSION, "user-agent": f"holdfast/{__version__}"}
)


def protocol_headers(extensions: Collection[str] = ()) -> Mapping[str, str]:
    """The headers of every request (A2A 3.6.1, 3.2.6)."""
    if not extensions:
        return _ALWAYS
    return {**_ALWAYS, "a2a-extensions": ",".join(extensions)}


class HttpBinding:
    """Carries calls over the bindings that are HTTP."""

    def __init__(
        self, engine: HttpEngine, env: Env, resilience: Resilience, limits: Limits
    ) -> None:
        self._engine = engine
        self._env = env
        self._resilience = resilience
        self._limits = limits
        self._card_limits = of_cards(limits)
        # Bytes of a reply that cannot hold too much of anything, since each takes a byte.
        self._harmless = min(limits.parts, limits.artifacts, limits.history)

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
        is_card = call.operation is GET_EXTENDED_AGENT_CARD
        call.progress.secrets.note(call.headers, call.query, interface.url)
        encoded = codec.encode(call.operation, params, interface.url, call.request_id)
        request = HttpRequest(
            method=encoded.method,
            url=with_query(encoded.url, call.query) if call.query else encoded.url,
            headers={**call.headers, **protocol_headers(call.extensions), **encoded.headers},
            body=encoded.body,
            timeouts=self._resilience.timeouts,
            max_idle=_MAX_IDLE[call.operation.safety],
            limits=self._card_limits if is_card else self._limits,
            reach=call.reach,
            progress=call.progress,
        )
        try:
            reply = await send(self._engine, request)
            reply = _checked(reply, self._limits)
            value = codec.decode(
                call.operation,
                call.request_id,
                reply,
                now=self._env.wall(),
                refusals=self._resilience.refusals,
            )
            if len(reply.body) > self._harmless:
                check_value(value, self._limits)
        except A2AError as error:
            told = about_card(error, self._limits) if is_card else error
            told.agent = endpoint.agent
            if told is error:
                raise
            raise told from None
        return Reply(value=value, headers=reply.headers, raw=reply.body, endpoint=endpoint)

    async def close(self) -> None:
        """Nothing to free: the engine belongs to the client."""


def _checked(reply: HttpReply, limits: Limits) -> HttpReply:
    """A reply that may be decoded; of one that is no success, the status says enough."""
    try:
        check_json_size(reply.body, limits)
    except LimitExceededError:
        if reply.status < 300:
            raise
        return msgspec.structs.replace(reply, body=b"")
    return reply
