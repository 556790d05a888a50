"""ASGI middleware that turns every failure of an agent's application into a protocol error.

Rules: a proper response passes unchanged and at once; clients see the text of an `A2AError` and
of no other exception; every failure is logged with the request id that the client sees.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from holdfast._arguments import check_kind, check_methods, explains_unknown_options
from holdfast._asgi import header_map
from holdfast._model.error_values import one_line
from holdfast._server.answers import answer, error_of_failure, error_of_status, event, is_proper
from holdfast._server.requests import TappedRequest
from holdfast.errors import A2AError
from holdfast.extend import SystemEnv, media_type
from holdfast.protocol import EVENT_STREAM

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from holdfast._asgi import ASGIApplication, ASGIReceive, ASGIScope, ASGISend
    from holdfast.extend import Env

    Message = MutableMapping[str, Any]

__all__ = ["ProtocolErrors"]

logger = logging.getLogger("holdfast.server")

_MAX_ERROR_BYTES = 1024 * 1024
"""Bytes of an error response that are parsed; no error of the protocol is larger."""

_SEND_TIMEOUT_S = 60.0
"""Seconds that a client has to read a piece of the response, before it counts as gone."""

_BODY_HEADERS = ("content-", "etag", "last-modified", "transfer-encoding", "accept-ranges")
"""Prefixes of headers that describe the body they came with."""

_STATUSES_BEFORE_BODY = frozenset({401, 403, 421})
"""Statuses of requests that are refused before their body is read; it may be large."""

_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")


class ProtocolErrors:
    """ASGI middleware: the errors of an agent's application become JSON-RPC or HTTP+JSON errors.

    If the application raises an exception, sends no response, or sends a status from 400 on whose
    body is not a protocol error (as frameworks do, with HTML or text), a JSON-RPC request gets a
    JSON-RPC error with the request's id, and any other request a ``google.rpc.Status`` (A2A 9.5,
    11.6). A status that the application sent is kept. An exception is HTTP 200 for a JSON-RPC
    request, as official servers answer errors, and 500 for others. A stream in flight ends with
    the error as its last event, if it stands between two events; any other response in flight is
    cut off by the server, as the exception is raised. A client that reads nothing of its response
    for 60 s counts as disconnected.

    An `A2AError` keeps its text and its facts; the error of another agent, as Holdfast's calls
    raise it, is wrapped by `wrap_downstream`. Any other exception becomes "internal error" without
    detail; it is logged under ``holdfast.server``, with its traceback and the request id: that of
    the request's ``X-Request-ID``, or a new one. The response has the id in the same header; an
    error also has it as ``google.rpc.RequestInfo``.

    At most the first 256 KiB of a request's body are kept while the application reads it.

    Args:
        app: The agent's application (ASGI 3). All its paths are treated alike.
        agent: The name of the agent, for the log and for the hops of a chain.
        nested: Whether JSON-RPC errors are written in the older dialect, as by
            `A2AError.to_jsonrpc`; False by default.
        env: Source of wall time and ids; None for the system's.

    Raises:
        TypeError: The application is not callable, or another argument has the wrong type.
        ValueError: The name is empty.
    """

    @explains_unknown_options()
    def __init__(
        self, app: ASGIApplication, *, agent: str, nested: bool = False, env: Env | None = None
    ) -> None:
        if not callable(cast("object", app)):
            message = f"app must be an ASGI application, not {type(app).__name__}"
            raise TypeError(message)
        check_kind("agent", agent, str)
        check_kind("nested", nested, bool)
        if not agent:
            message = "agent must not be empty"
            raise ValueError(message)
        self._app = app
        self._agent = agent
        self._nested = nested
        self._env: Env = SystemEnv() if env is None else env
        check_methods("env", self._env, "wall", "random", "new_id")

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serve one request; events other than HTTP requests pass unchanged (ASGI 3).

        Args:
            scope: The scope of the request.
            receive: The server's function to receive events.
            send: The server's function to send events.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = TappedRequest(scope, receive)
        response = _Response(request, send, self._agent, nested=self._nested, env=self._env)
        try:
            await self._app(scope, request.receive, response.send)
        except Exception as failure:  # noqa: BLE001  it is logged; the client gets no detail
            await response.fail(failure)
        else:
            await response.finish()


class _Response:
    """The response of an application, held back until it is known whether it may pass."""

    def __init__(
        self, request: TappedRequest, send: ASGISend, agent: str, *, nested: bool, env: Env
    ) -> None:
        self._request = request
        self._send = send
        self._agent = agent
        self._nested = nested
        self._env = env
        self._id = request.id or env.new_id()
        self._start: Message | None = None  # while it is held back
        self._held = bytearray()
        self._is_whole = False
        self._passes = False
        self._is_over = False
        self._is_plain_stream = False
        self._tail = b"\n\n"

    # ── Messages of the application ──────────────────────────────────────────────────────────

    async def send(self, message: Message) -> None:
        """Take a message of the application."""
        if self._passes:
            await self._pass_on(message)
        elif self._is_over or self._is_whole:
            return  # an error was or will be sent instead
        elif message["type"] == "http.response.start":
            self._start = message
            headers = header_map(message.get("headers", ()))
            is_stream = media_type(headers) == EVENT_STREAM
            self._is_plain_stream = is_stream and "content-encoding" not in headers
            if message["status"] < 400 and is_stream:
                await self._release()  # the client sees that the stream is open
        elif self._start is None or self._start["status"] < 400:
            await self._release()
            await self._pass_on(message)
        else:
            await self._hold(self._start, message)

    async def _hold(self, start: Message, message: Message) -> None:
        """Keep the body of an error, until it is known whether it may pass."""
        is_body = message["type"] == "http.response.body"
        self._held += message.get("body", b"") if is_body else b""
        self._is_whole = not (is_body and message.get("more_body", False))
        if len(self._held) > _MAX_ERROR_BYTES:
            del self._held[:]  # too large for a protocol error: it will be replaced
        if self._is_whole:
            await self._release_or_replace(start)

    async def _release_or_replace(self, start: Message, *, is_final: bool = False) -> None:
        """Send a held response if it is a protocol error, and a protocol error instead if not."""
        status, headers = start["status"], header_map(start.get("headers", ()))
        body = bytes(self._held)
        if status == HTTPStatus.REQUEST_TIMEOUT:  # the application has waited for the body already
            self._request.is_slow = True
        is_rpc, _ = await self._request.rpc_id(from_received=status in _STATUSES_BEFORE_BODY)
        if is_proper(headers, body, is_rpc=is_rpc):
            await self._release()
            return
        if status == 500 and not is_final:
            return  # frameworks send this first, and raise the exception afterwards
        error = error_of_status(status, headers, body, now=self._env.wall())
        text = f"{error.message} (a protocol error replaces the application's response)"
        self._log(logging.WARNING, text)
        await self._answer(error, start, status=status)

    async def _release(self) -> None:
        """Send the held part of the response, and let the rest pass."""
        start, self._start, self._passes = self._start, None, True
        if start is None:
            return
        raw = list(start.get("headers", ()))
        if not any(name.lower() == b"x-request-id" for name, _ in raw):
            raw.append((b"x-request-id", self._id.encode("ascii")))
        await self._pass_on({**start, "headers": raw})
        if self._held or self._is_whole:
            more = {"more_body": not self._is_whole}
            await self._pass_on({"type": "http.response.body", "body": bytes(self._held), **more})

    async def _pass_on(self, message: Message) -> None:
        try:
            await self._send_bounded(message)
        except OSError:
            self._request.is_gone = True
            raise
        if message["type"] == "http.response.body":
            self._tail = (self._tail + message.get("body", b"")[-4:])[-4:]
            self._is_over = not message.get("more_body", False)

    # ── The end of the application ───────────────────────────────────────────────────────────

    async def finish(self) -> None:
        """Complete the response after the application has returned."""
        if self._is_over or self._passes or self._request.is_gone:
            return
        if self._start is not None and (self._is_whole or self._start["status"] >= 400):
            self._is_whole = True
            await self._release_or_replace(self._start, is_final=True)
        elif self._start is not None:
            self._is_whole = True
            await self._release()
        else:
            failure = RuntimeError("the application returned without an answer")
            self._log(logging.ERROR, str(failure))
            await self._answer(error_of_failure(failure, self._agent))

    async def fail(self, failure: Exception) -> None:
        """Answer with an error after the application has raised an exception.

        Raises:
            Exception: The same exception, if the server has to cut off a response in flight.
        """
        if self._request.is_gone and not self._is_over:
            self._log(logging.INFO, f"the client left: {type(failure).__name__}: {failure}")
            return
        error = error_of_failure(failure, self._agent)
        level = logging.WARNING if isinstance(failure, A2AError) else logging.ERROR
        self._log(level, f"{type(failure).__name__}: {failure}", failure)
        if self._is_over:
            return
        if not self._passes:
            await self._answer(error, self._start)
        elif self._can_append_event():
            is_rpc, rpc_id = await self._request.rpc_id()
            last_event = event(
                error, is_rpc=is_rpc, rpc_id=rpc_id, request_id=self._id, nested=self._nested
            )
            await self._send_last({"type": "http.response.body", "body": last_event})
        else:
            raise failure

    def _can_append_event(self) -> bool:
        return self._is_plain_stream and self._tail.endswith(_EVENT_ENDS)

    async def _answer(
        self, error: A2AError, replaced: Message | None = None, *, status: int | None = None
    ) -> None:
        """Answer with an error, and with the headers of the response that it replaces."""
        self._is_over = True
        is_rpc, rpc_id = await self._request.rpc_id(from_received=status in _STATUSES_BEFORE_BODY)
        if self._request.is_gone:
            return
        usual_status, headers, body = answer(
            error, is_rpc=is_rpc, rpc_id=rpc_id, request_id=self._id, nested=self._nested
        )
        raw = [
            (name, value)
            for name, value in (() if replaced is None else replaced.get("headers", ()))
            if name.decode("latin-1").lower() not in headers
            and not name.decode("latin-1").lower().startswith(_BODY_HEADERS)
        ]
        headers["content-length"] = str(len(body))
        raw += [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        await self._send_last(
            {"type": "http.response.start", "status": status or usual_status, "headers": raw},
            {
                "type": "http.response.body",
                "body": b"" if self._request.method == "HEAD" else body,
            },
        )

    async def _send_last(self, *messages: Message) -> None:
        """Send the last messages of the response; if the client has left, they are lost."""
        self._is_over = True
        try:
            for message in messages:
                await self._send_bounded(message)
        except OSError:
            self._log(logging.INFO, "the client left before it was answered")

    async def _send_bounded(self, message: Message) -> None:
        """Send a message.

        Raises:
            OSError: The client has left (ASGI 2.4), or does not read.
        """
        async with asyncio.timeout(_SEND_TIMEOUT_S):  # a TimeoutError is an OSError
            await self._send(message)

    def _log(self, level: int, text: str, failure: Exception | None = None) -> None:
        traceparent = self._request.headers.get("traceparent")
        logger.log(
            level,
            "request %s to %s (%s %s) failed: %s",
            self._id,
            self._agent,
            one_line(self._request.method, 20),
            one_line(self._request.path, 200),
            one_line(text, 1000),
            exc_info=failure,
            extra={"request_id": self._id, "agent": self._agent, "traceparent": traceparent},
        )
