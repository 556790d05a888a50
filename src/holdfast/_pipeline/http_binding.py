"""The bottom of the stack: a call becomes an HTTP request, its reply a value or an error."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._model.codec import MalformedError, parse
from holdfast._model.operations import GET_EXTENDED_AGENT_CARD, GET_TASK, SUBSCRIBE_TO_TASK
from holdfast._net.engine import HttpEngine, redirected
from holdfast._pipeline.connection import Connection
from holdfast._pipeline.event_reader import EventReader
from holdfast._pipeline.extensions import requested_extensions
from holdfast._pipeline.pending_stream import subscribed
from holdfast._pipeline.transport import AnyCall, Call, Reply, Stream, addressed, endpoint_of
from holdfast._wire.bindings import codec_for, protocol_headers
from holdfast._wire.credentials import with_query
from holdfast._wire.http import HttpRequest
from holdfast._wire.limits import (
    as_card_error,
    card_limits,
    check_json_size,
    check_value,
    harmless_size,
)
from holdfast._wire.rest import read_error_event
from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    LimitExceededError,
    note_task,
)

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._policy.resilience import Resilience
    from holdfast._wire.bindings import Codec
    from holdfast._wire.http import HttpReply
    from holdfast._wire.limits import Limits
    from holdfast._wire.network_scope import Network

__all__ = ["MAX_IDLE", "HttpBinding", "name_task"]

P = TypeVar("P")
R = TypeVar("R")

MAX_IDLE = {"read": 4.0, "idempotent": 4.0, "conditional": 1.0}
"""Seconds that a reused connection may have been idle, by the safety of the request. Common
servers close idle connections after 2 s (gunicorn) or 5 s (uvicorn, node); a request that
coincides with the close is lost, which costs a read a retry, and leaves the outcome of a message
unknown."""


class HttpBinding:
    """Carries calls over the HTTP bindings.

    Args:
        engine: Carries the requests.
        env: The clock.
        resilience: Its timeouts apply, and its rules for refusals.
        limits: How large a reply to accept.
        networks: Networks that a redirect may always reach.
    """

    def __init__(
        self,
        engine: HttpEngine,
        env: Env,
        resilience: Resilience,
        limits: Limits,
        *,
        networks: tuple[Network, ...] = (),
    ) -> None:
        self._engine = engine
        self._env = env
        self._resilience = resilience
        self._limits = limits
        self._networks = networks
        self._card_limits = card_limits(limits)
        self._harmless = harmless_size(limits)

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Make one attempt."""
        endpoint = call.endpoint or endpoint_of(call)
        codec = codec_for(endpoint.interface.protocol_binding, endpoint.version)
        is_card = call.operation is GET_EXTENDED_AGENT_CARD
        try:
            request = self._request(call, endpoint, codec)
            reply = await self._engine.request(request)
            if 300 <= reply.status < 400:
                reply = await redirected(self._engine, request, reply, allowed=self._networks)
            body, depth = reply.body, self._limits.json_depth
            # Removing brackets is the fastest way to count them while there are few.
            left = len(body.replace(b"{", b"", depth + 1)) + len(
                body.replace(b"[", b"", depth + 1)
            )
            if 2 * len(body) - left > depth or len(body) > self._limits.json_values:
                reply = _checked(reply, self._limits)
            is_unknown = call.operation is GET_TASK and reply.status == HTTPStatus.NOT_FOUND
            if endpoint.has_two_file_forms and is_unknown:
                with suppress(MalformedError):
                    endpoint.learn_file_form(parse(reply.body))
            value: R = codec.decode(
                call.operation,
                call.request_id,
                reply,
                now=self._env.wall(),
                refusals=self._resilience.refusals,
            )
            if len(reply.body) > self._harmless:
                check_value(value, self._limits)
        except A2AError as error:
            reported = as_card_error(error, self._limits) if is_card else error
            reported.agent = endpoint.agent
            name_task(reported, call)
            if reported is error:
                raise
            raise reported from None
        return Reply(value=value, headers=reply.headers, raw=reply.body, endpoint=endpoint)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Make one attempt, and wait for the first event."""
        endpoint = endpoint_of(call)
        codec = codec_for(endpoint.interface.protocol_binding, endpoint.version)
        learned = msgspec.structs.replace(call, operation=endpoint.spoken(call.operation))
        other = learned.operation.other_verb if codec.has_verbs else None
        may_be_silent = call.operation.name == SUBSCRIBE_TO_TASK.name and not codec.has_snapshots
        while True:
            reader = EventReader[R](
                self._engine,
                self._request(learned, endpoint, codec),
                limits=self._limits,
                agent=endpoint.agent,
                read=codec.reader(call.operation, call.request_id),
                decode=lambda event: codec.decode(
                    call.operation,
                    call.request_id,
                    event,
                    now=self._env.wall(),
                    refusals=self._resilience.refusals,
                ),
                decode_error=lambda reply: read_error_event(reply, now=self._env.wall()),
                networks=self._networks,
            )
            try:
                if may_be_silent:
                    headers = await subscribed(reader, call, self)
                else:
                    headers = await reader.open()
            except A2AError as error:
                is_about_verb = isinstance(error, A2AHTTPError)
                if other is None or not is_about_verb or error.http_status not in _NO_SUCH_VERB:
                    name_task(error, call)
                    raise
                operation = msgspec.structs.replace(call.operation, verb=other)
                learned, other = msgspec.structs.replace(call, operation=operation), None
            else:
                endpoint.learn(learned.operation)
                connection = Connection(reader, is_last=codec.is_last)
                return Reply(value=connection, headers=headers, endpoint=endpoint)

    def _request(self, call: AnyCall, endpoint: Endpoint, codec: Codec) -> HttpRequest:
        interface = endpoint.interface
        params: Any = call.params
        if params.tenant or interface.tenant:
            params = addressed(call).params
        is_card = call.operation is GET_EXTENDED_AGENT_CARD
        if call.headers or call.query or "?" in interface.url:
            call.progress.call_group.secrets.note(call.headers, call.query, interface.url)
        encoded = codec.encode(call.operation, params, interface.url, call.request_id)
        return HttpRequest(
            method=encoded.method,
            url=with_query(encoded.url, call.query) if call.query else encoded.url,
            headers={
                **call.headers,
                **protocol_headers(
                    endpoint.version,
                    requested_extensions(call) if call.extensions else (),
                    call.headers,
                ),
                **encoded.headers,
            },
            body=encoded.body,
            timeouts=call.timeouts or self._resilience.timeouts,
            max_idle=MAX_IDLE[call.operation.safety],
            limits=self._card_limits if is_card else self._limits,
            reach=call.reach,
            progress=call.progress.request,
        )

    async def close(self) -> None:
        """Do nothing: the engine is closed by the client."""


_NO_SUCH_VERB = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
"""Statuses that say, without a protocol error, that the path does not support the method."""


def name_task(error: A2AError, call: AnyCall) -> None:
    """Add the id of the task of the request to an error that does not name it."""
    params = getattr(call.params, "message", call.params)
    note_task(error, None, getattr(params, "task_id", None) or getattr(params, "id", None))


def _checked(reply: HttpReply, limits: Limits) -> HttpReply:
    """Return a reply that may be decoded; for an error status, the status is sufficient."""
    try:
        check_json_size(reply.body, limits)
    except LimitExceededError:
        if reply.status < 300:
            raise
        return msgspec.structs.replace(reply, body=b"")
    return reply
