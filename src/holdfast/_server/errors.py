"""Around an agent's application: whatever goes wrong in it, its clients get a proper error.

Rules: what is a proper answer passes untouched, and at once; nothing but an `A2AError` says
anything of itself to clients; every failure is logged with the id that the client gets to see.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from holdfast._aio.env import SystemEnv
from holdfast._arguments import check_able
from holdfast._model.error_values import one_line
from holdfast._model.settings import check_kind
from holdfast._server.answers import answer, error_of_failure, error_of_status, event, is_proper
from holdfast._server.requests import TappedRequest, by_name
from holdfast._wire.http import media_type
from holdfast._wire.sse import EVENT_STREAM
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from holdfast._aio.env import Env
    from holdfast._push.asgi import ASGIReceive, ASGIScope, ASGISend

    Application = Callable[[ASGIScope, ASGIReceive, ASGISend], Awaitable[None]]
    Message = MutableMapping[str, Any]

__all__ = ["ProtocolErrors"]

logger = logging.getLogger("holdfast.server")

_KEPT = 1024 * 1024
"""Bytes of an error's body that are looked at; no error of the protocol is larger."""

_SENDING = 60.0
"""Seconds that a client has to take a piece of the answer, before it is given up."""

_OF_THE_BODY = ("content-", "etag", "last-modified", "transfer-encoding", "accept-ranges")
"""Headers that go with the body that they came with."""

_BY_THE_HEAD = frozenset({401, 403, 421})
"""Statuses of requests that are refused before their body is read, as it may be large."""

_BOUNDARIES = (b"\n\n", b"\r\r", b"\r\n\r\n")
"""What ends an event of a stream."""


class ProtocolErrors:
    """An ASGI application around an agent's: its errors are JSON-RPC's, or HTTP+JSON's.

    To a JSON-RPC request it answers with a JSON-RPC error under the request's id, to any other one
    with a `google.rpc.Status` (A2A 9.5, 11.6): where the application raises an exception, answers
    nothing, or answers with a status from 400 on and something else than such an error, as
    frameworks do with HTML or text. The status stays as it is then. An exception is HTTP 200 to a
    JSON-RPC request, as official servers answer errors, and 500 to others. A stream under way
    ends with the error as its last event, where it stands between two events; any other response
    under way is cut off by the server, as the exception is raised. A client that takes nothing of
    its answer for 60 s has left.

    An `A2AError` says what it says, and keeps its facts; one that is about another agent, as
    Holdfast's calls raise it, is passed on by `wrap_downstream`. Any other exception is an
    "internal error" and no more; it is logged under ``holdfast.server``, with its traceback and
    the request's id: that of the request's ``X-Request-ID``, or a new one. The response has it in
    the same header, an error also as `google.rpc.RequestInfo`.

    Of a request's body at most the first 256 KB are kept while the application reads it.

    Args:
        app: The agent's application (ASGI 3). Its own paths beside the agent's are treated alike.
        agent: The name of the agent, for the log and for the hops of a chain.
        nested: Whether JSON-RPC errors are written in the older dialect (see
            `A2AError.to_jsonrpc`).
        env: Where wall time and ids come from; None for the system's.

    Raises:
        TypeError: The application is none, or the name is no string.
        ValueError: It is empty.
    """

    def __init__(
        self, app: Application, *, agent: str, nested: bool = False, env: Env | None = None
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
        check_able("env", self._env, "wall", "random", "new_id")

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serves one request; what is no HTTP request passes (ASGI 3)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = TappedRequest(scope, receive)
        response = _Response(request, send, self._agent, nested=self._nested, env=self._env)
        try:
            await self._app(scope, request.receive, response.send)
        except Exception as failure:  # noqa: BLE001  anything may go wrong, and none of it is told
            await response.failed(failure)
        else:
            await response.finished()


class _Response:
    """What an application answers, until it is known whether that may pass."""

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
        self._is_passing = False
        self._is_over = False
        self._is_plain_stream = False
        self._tail = b"\n\n"

    # ── What the application sends ───────────────────────────────────────────────────────────

    async def send(self, message: Message) -> None:
        """Takes a message of the application's."""
        if self._is_passing:
            await self._pass(message)
        elif self._is_over or self._is_whole:
            return  # it was answered in its place, or will be
        elif message["type"] == "http.response.start":
            self._start = message
            headers = by_name(message.get("headers", ()))
            is_stream = media_type(headers) == EVENT_STREAM
            self._is_plain_stream = is_stream and "content-encoding" not in headers
            if message["status"] < 400 and is_stream:
                await self._let_pass()  # who waits for events sees that they will come
        elif self._start is None or self._start["status"] < 400:
            await self._let_pass()
            await self._pass(message)
        else:
            await self._hold(self._start, message)

    async def _hold(self, start: Message, message: Message) -> None:
        """Keeps the body of an error, until it is known whether it may pass."""
        is_body = message["type"] == "http.response.body"
        self._held += message.get("body", b"") if is_body else b""
        self._is_whole = not (is_body and message.get("more_body", False))
        if len(self._held) > _KEPT:
            del self._held[:]  # a page, of which nothing will be told
        if self._is_whole:
            await self._judge(start)

    async def _judge(self, start: Message, *, is_final: bool = False) -> None:
        """Lets a held answer pass, or answers in its place."""
        status, headers = start["status"], by_name(start.get("headers", ()))
        body = bytes(self._held)
        if status == HTTPStatus.REQUEST_TIMEOUT:  # it was waited for
            self._request.is_slow = True
        is_rpc, _ = await self._request.rpc_id(glance=status in _BY_THE_HEAD)
        if is_proper(headers, body, is_rpc=is_rpc):
            await self._let_pass()
            return
        if status == 500 and not is_final:
            return  # frameworks answer first, and raise what happened then
        error = error_of_status(status, headers, body, now=self._env.wall())
        self._log(logging.WARNING, f"the application answered without an error: {error.message}")
        await self._answer(error, start, status=status)

    async def _let_pass(self) -> None:
        """Sends what was held back, and lets the rest pass."""
        start, self._start, self._is_passing = self._start, None, True
        if start is None:
            return
        raw = list(start.get("headers", ()))
        if not any(name.lower() == b"x-request-id" for name, _ in raw):
            raw.append((b"x-request-id", self._id.encode("ascii")))
        await self._pass({**start, "headers": raw})
        if self._held or self._is_whole:
            more = {"more_body": not self._is_whole}
            await self._pass({"type": "http.response.body", "body": bytes(self._held), **more})

    async def _pass(self, message: Message) -> None:
        try:
            await self._sent(message)
        except OSError:
            self._request.is_gone = True
            raise
        if message["type"] == "http.response.body":
            self._tail = (self._tail + message.get("body", b"")[-4:])[-4:]
            self._is_over = not message.get("more_body", False)

    # ── How it ends ──────────────────────────────────────────────────────────────────────────

    async def finished(self) -> None:
        """The application has returned."""
        if self._is_over or self._is_passing or self._request.is_gone:
            return
        if self._start is not None and (self._is_whole or self._start["status"] >= 400):
            self._is_whole = True
            await self._judge(self._start, is_final=True)
        elif self._start is not None:
            self._is_whole = True
            await self._let_pass()
        else:
            failure = RuntimeError("the application returned without an answer")
            self._log(logging.ERROR, str(failure))
            await self._answer(error_of_failure(failure, self._agent))

    async def failed(self, failure: Exception) -> None:
        """The application has raised an exception.

        Raises:
            Exception: The same, where the server has to cut off what is under way.
        """
        if self._request.is_gone and not self._is_over:
            self._log(logging.INFO, f"the client left: {type(failure).__name__}: {failure}")
            return
        error = error_of_failure(failure, self._agent)
        level = logging.WARNING if isinstance(failure, A2AError) else logging.ERROR
        self._log(level, f"{type(failure).__name__}: {failure}", failure)
        if self._is_over:
            return
        if not self._is_passing:
            await self._answer(error, self._start)
        elif self._can_tell():
            is_rpc, rpc_id = await self._request.rpc_id()
            last = event(
                error, is_rpc=is_rpc, rpc_id=rpc_id, request_id=self._id, nested=self._nested
            )
            await self._last({"type": "http.response.body", "body": last})
        else:
            raise failure

    def _can_tell(self) -> bool:
        """Whether another event can be put behind what was sent."""
        return self._is_plain_stream and self._tail.endswith(_BOUNDARIES)

    async def _answer(
        self, error: A2AError, instead_of: Message | None = None, *, status: int | None = None
    ) -> None:
        """Answers with an error, with the headers of what it stands for."""
        self._is_over = True
        is_rpc, rpc_id = await self._request.rpc_id(glance=status in _BY_THE_HEAD)
        if self._request.is_gone:
            return
        usual, headers, body = answer(
            error, is_rpc=is_rpc, rpc_id=rpc_id, request_id=self._id, nested=self._nested
        )
        kept = () if instead_of is None else instead_of.get("headers", ())
        raw = [
            (name, value)
            for name, value in kept
            if name.decode("latin-1").lower() not in headers
            and not name.decode("latin-1").lower().startswith(_OF_THE_BODY)
        ]
        headers["content-length"] = str(len(body))
        raw += [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        await self._last(
            {"type": "http.response.start", "status": status or usual, "headers": raw},
            {
                "type": "http.response.body",
                "body": b"" if self._request.method == "HEAD" else body,
            },
        )

    async def _last(self, *messages: Message) -> None:
        """Sends the last there is; what is sent to a client that has left is lost."""
        self._is_over = True
        try:
            for message in messages:
                await self._sent(message)
        except OSError:
            self._log(logging.INFO, "the client left before it was answered")

    async def _sent(self, message: Message) -> None:
        """Sends a message.

        Raises:
            OSError: The client has left (ASGI 2.4), or does not read what it was sent.
        """
        async with asyncio.timeout(_SENDING):  # a TimeoutError is an OSError
            await self._send(message)

    def _log(self, level: int, what: str, failure: Exception | None = None) -> None:
        traceparent = self._request.headers.get("traceparent")
        logger.log(
            level,
            "request %s to %s (%s %s) failed: %s",
            self._id,
            self._agent,
            one_line(self._request.method, 20),
            one_line(self._request.path, 200),
            one_line(what, 1000),
            exc_info=failure,
            extra={"request_id": self._id, "agent": self._agent, "traceparent": traceparent},
        )
