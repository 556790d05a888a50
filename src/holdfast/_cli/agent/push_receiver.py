"""``holdfast task push-config receive``: a receiver of push notifications (a2a-cli 9.2).

Rules: it listens on this machine unless another address is given, for one task; the configuration
that it creates at the agent is deleted at the end, however the command ends; only deliveries with
the secrets of that configuration are shown, each once. Deliveries may get lost, so that the task
is fetched at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit

from aiohttp import web

from holdfast._aio.accepting import settle_accepted
from holdfast._cli.agent.outcomes import report_outcome
from holdfast._cli.agent.progress import WaitReport
from holdfast._cli.errors import CommandError, Failure
from holdfast._cli.output.base import Notice, Result, StreamEnded, StreamEvent, TaskBegan
from holdfast._model.hosts import is_loopback
from holdfast._server.host_check import HostCheck, host_rules
from holdfast._wire.limits import Limits
from holdfast._wire.notifications import read_notification
from holdfast.errors import A2AError
from holdfast.push import PushReceiver
from holdfast.types import Task, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from types import TracebackType

    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output
    from holdfast.types import Event, TaskState

    Message = MutableMapping[str, Any]
    ASGIApplication = Callable[
        [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
        Awaitable[None],
    ]

__all__ = ["Served", "receive"]

_MAX_QUEUED_DELIVERIES = 256
"""Deliveries that wait to be shown; further ones are answered once there is room."""
_POLL_AFTER_S = 60.0
"""Seconds without a delivery after which the task is fetched."""
_DELETE_TIMEOUT_S = 3.0
"""Seconds for deleting the configuration at the end."""


async def receive(
    session: Session, output: Output, *, task_id: str, host: str, port: int, url: str | None
) -> None:
    """Show the deliveries about a task, until the task is over or a person must act.

    Args:
        session: The agent.
        output: Where deliveries are shown.
        task_id: The task.
        host: The address to listen on.
        port: The port; 0 for any free one.
        url: The address that the agent uses; the listening address if None.

    Raises:
        CommandError: The address cannot be listened on.
        A2AError: The agent does not push, or the task cannot be waited for.
    """
    await session.prepare()
    async with contextlib.AsyncExitStack() as stack:
        try:
            served = await stack.enter_async_context(Served(host, port))
        except OSError as error:
            message = f"cannot listen on {host}:{port}: {error.strerror or error}"
            hint = "name another address with --listen HOST:PORT"
            failure = Failure(code="HOLDFAST_ERR_LISTEN", message=message, hint=hint)
            raise CommandError(failure) from None
        await _receive(session, output, served, task_id, url or served.url, listens_on=host)


async def _receive(
    session: Session, output: Output, served: Served, task_id: str, url: str, *, listens_on: str
) -> None:
    if urlsplit(url).scheme != "https" and not is_loopback(urlsplit(url).hostname or ""):
        output.emit(
            Notice.warning(
                f"{url} is not https: anyone on the network path can read and forge the "
                "notifications"
            )
        )
    async with PushReceiver(url) as receiver:
        config = receiver.config(task_id)
        output.hide(config.secrets)
        deliveries = _Deliveries(receiver, task_id)
        rules = host_rules(
            url,
            listens_on=listens_on,
            allowed_hosts=None,
            allowed_origins=None,
            hint="the agent must call the address that --url names",
        )
        served.application = HostCheck(deliveries, rules)
        config_id = config.id
        try:
            created = await session.client.create_task_push_notification_config(
                config, timeout=session.seconds_left(), headers=session.svc_params
            )
            config_id = created.id or config_id
            task = await session.client.get_task(
                task_id, timeout=session.seconds_left(), headers=session.svc_params
            )
            session.task = task
            receiver.expect(task, config)
            output.emit(
                Notice(
                    "Listening", f"the agent sends push notifications of task {task_id} to {url}"
                )
            )
            if not session.settings.stream:
                output.emit(TaskBegan(task))
            waiting = asyncio.ensure_future(
                receiver.wait(
                    task_id,
                    client=session.client,
                    until=session.is_at_rest,
                    timeout=session.seconds_left(),
                    poll_interval=_POLL_AFTER_S,
                )
            )
            subject = f"valid push notifications of task {task_id}; listening at {served.url}"
            task = await _show(session, output, deliveries, waiting, subject)
        finally:
            with contextlib.suppress(A2AError):  # it is useless by now
                await session.client.delete_task_push_notification_config(
                    task_id, config_id or "", timeout=_DELETE_TIMEOUT_S
                )
    if session.settings.stream:
        if deliveries.state is not task.state:
            output.emit(StreamEvent(task, task))  # the last line carries the state
        output.emit(StreamEnded())
    else:
        output.emit(Result(task))
    report_outcome(session, output, task)


async def _show(
    session: Session,
    output: Output,
    deliveries: _Deliveries,
    waiting: asyncio.Future[Task],
    subject: str,
) -> Task:
    """Show deliveries until the wait is over, and report while no delivery arrives."""
    report = WaitReport(output, shows_elapsed=True)
    report.begin(subject)
    try:
        while not waiting.done() or not deliveries.events.empty():
            coming = asyncio.ensure_future(deliveries.events.get())
            try:
                both: set[asyncio.Future[Any]] = {waiting, coming}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    break
                event, session.task = coming.result()
                report.begin(subject)
                deliveries.note(event)
                if session.settings.stream:
                    output.emit(StreamEvent(event, session.task))
            finally:
                coming.cancel()
        return await waiting
    finally:
        report.end()
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, A2AError):
            await waiting


class _Deliveries:
    """An ASGI application: the receiver, and its deliveries, in order, each once.

    Attributes:
        events: The deliveries, each with the task after it.
        state: The last state that was shown.
    """

    def __init__(self, receiver: PushReceiver, task_id: str) -> None:
        self._receiver = receiver
        self._task_id = task_id
        self._seen: dict[bytes, None] = {}
        self.events: asyncio.Queue[tuple[Event, Task | None]] = asyncio.Queue(
            _MAX_QUEUED_DELIVERIES
        )
        self.state: TaskState | None = None

    def note(self, event: Event) -> None:
        """Record the state in an event that is shown."""
        if isinstance(event, Task | TaskStatusUpdateEvent):
            self.state = event.status.state

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Have the receiver check a request, and keep the event if it is accepted."""
        body, statuses = bytearray(), list[int]()

        async def receive_request() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def send_answer(message: Message) -> None:
            statuses.extend([message["status"]] if "status" in message else [])
            await send(message)

        await self._receiver(scope, receive_request, send_answer)
        if statuses == [200]:
            await self._keep(bytes(body))

    async def _keep(self, body: bytes) -> None:
        digest = hashlib.sha256(body).digest()
        if digest in self._seen:
            return
        self._seen[digest] = None
        if len(self._seen) > _MAX_QUEUED_DELIVERIES:
            del self._seen[next(iter(self._seen))]
        event = read_notification(body, Limits()).event  # the receiver has parsed it before
        if event is not None:
            await self.events.put((event, self._receiver.get_task(self._task_id)))


_SHUTDOWN_TIMEOUT_S = 2.0
"""Seconds for requests to end when the context closes."""
_KEEPALIVE_TIMEOUT_S = 15.0


class Served:
    """A server, while the context is open.

    Args:
        host: The address to listen on.
        port: The port; 0 for any free one.

    Attributes:
        url: The listening address, once the context is open.
        application: The application; all requests get 503 until there is one.

    Raises:
        OSError: On entry: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._runner = web.ServerRunner(
            web.Server(self._answer, access_log=None, keepalive_timeout=_KEEPALIVE_TIMEOUT_S),
            shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
        )
        self.url = ""
        self.application: ASGIApplication | None = None

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            self._site = web.TCPSite(self._runner, self._host, self._port)
            await self._site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        host, port = cast("tuple[str, int]", self._runner.addresses[0][:2])
        self.url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await settle_accepted()
            await self._site.stop()
            await asyncio.sleep(0)  # aiohttp waits for those that do not wait for a request yet
        finally:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.application is None:
            return web.Response(status=503)
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": f"{request.version.major}.{request.version.minor}",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "query_string": request.query_string.encode(),
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
        }
        status, headers, body = 500, dict[str, str](), bytearray()

        async def receive() -> Message:
            try:
                piece = await request.content.readany()
            except (ConnectionError, web.RequestPayloadError):
                return {"type": "http.disconnect"}
            more = not request.content.at_eof()
            return {"type": "http.request", "body": piece, "more_body": more}

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                body.extend(message.get("body", b""))

        await self.application(scope, receive, send)
        headers.pop("content-length", None)  # aiohttp sets it
        return web.Response(status=status, headers=headers, body=bytes(body))
