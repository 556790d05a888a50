"""Probes of one interface: requests for which no agent executes anything.

Rules: a probe reads, names a task that does not exist, or is not valid, and has a timeout of its
own. It is sent once, and once more if the connection broke: a single reset says nothing about an
interface. Credentials go to trusted origins only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from holdfast import protocol as op
from holdfast._aio.cancel_scope import CancelScope
from holdfast._doctor.facts import InterfaceFacts, ListingFacts, ReplyFacts
from holdfast._pipeline.versions import is_of_another_version
from holdfast.errors import A2AConnectionError, A2AError, A2ATimeoutError
from holdfast.protocol import OLDER_VERSION
from holdfast.types import GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast._client.bare_client import BareClient
    from holdfast.extend import AnyCall, Call, Endpoint, HttpEngine, NetworkReach, Reply, Stream
    from holdfast.protocol import Operation
    from holdfast.types import AgentCard

__all__ = ["REPLY_TIMEOUT_S", "InterfaceProbe", "ProbeReply", "TaskProbeResult"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

REPLY_TIMEOUT_S = 15.0
"""Seconds in which a whole reply must arrive."""

_BROKEN = frozenset({"disconnected", "truncated"})
"""Failures of connections that were established."""
_PAUSE_S = 0.5
"""Seconds before a request whose connection broke is sent once more."""
_PAGE_SIZE = 5
_HISTORY_LENGTH = 100
_FUTURE = "2999-01-01T00:00:00Z"
_UNKNOWN_NAME = "holdfast-doctor-asks-for-nothing"
_UNKNOWN_METHOD = b'{"jsonrpc":"2.0","id":"%s","method":"holdfast/NoSuchMethod","params":{}}'
_WRONG_PARAMS = b'{"jsonrpc":"2.0","id":"%s","method":"%s","params":{"id":{"not":"an id"}}}'
_NOT_JSON = b'{"jsonrpc": "2.0", "method": '


class TaskProbeResult(NamedTuple):
    """The result of asking for a task that does not exist.

    Attributes:
        reply: The reply.
        error: The error that every call fails with, if this one failed with it.
        is_understood: Whether the agent speaks the version; None if the reply does not tell.
    """

    reply: ReplyFacts
    error: A2AError | None = None
    is_understood: bool | None = None


class ProbeReply(NamedTuple, Generic[R]):
    """The result of a call.

    Attributes:
        reply: The reply.
        value: The operation's result; None if the reply is not one.
    """

    reply: ReplyFacts
    value: R | None


class InterfaceProbe:
    """Probes one interface.

    Args:
        client: Makes the requests.
        facts: The interface; the replies are recorded here.
        endpoint: The interface in the version to speak.
        card: The card that names the interface.
        reach: The networks in which the interface may be; None if the caller named it.

    Attributes:
        client: As given.
        facts: As given.
        endpoint: The interface in the version that it speaks, as far as that is known.
        error: The error that every call to it fails with; None if calls can be made.
    """

    def __init__(
        self,
        client: BareClient,
        facts: InterfaceFacts,
        endpoint: Endpoint,
        card: AgentCard,
        *,
        reach: NetworkReach | None,
    ) -> None:
        self.client = client
        self.facts = facts
        self.endpoint = endpoint
        self.error: A2AError | None = None
        self._card = card
        self._reach = reach

    # ── Calls ────────────────────────────────────────────────────────────────────────────────

    def make_call(
        self, operation: Operation[P, R], params: P, *, is_anonymous: bool = False
    ) -> Call[P, R]:
        """Create a call to the interface.

        Args:
            operation: The operation.
            params: Its parameters.
            is_anonymous: Whether to leave out credentials.
        """
        return self.client.make_call(
            operation,
            params,
            self.endpoint,
            timeout=REPLY_TIMEOUT_S,
            card=self._card,
            reach=self._reach,
            is_trusted=self.facts.is_trusted and not is_anonymous,
        )

    async def call(self, call: Call[P, R], *, timeout: float | None = None) -> ProbeReply[R]:
        """Make a call once, and return what came back.

        Args:
            call: The call.
            timeout: Seconds in which the reply must arrive; None for 15 s.
        """

        def request() -> Coroutine[Any, Any, Reply[R]]:
            return self.client.unary(call, waits_for_task=timeout is not None)

        try:
            reply = await _bounded(request, call, timeout or REPLY_TIMEOUT_S)
        except A2AError as error:
            return ProbeReply(self._facts_of(error), None)
        return ProbeReply(ReplyFacts.of_result(reply.headers), reply.value)

    async def open_stream(
        self, call: Call[P, R], engine: HttpEngine | None = None
    ) -> tuple[ReplyFacts, Stream[R] | None]:
        """Open a stream once, and return what came back; the caller sets the timeout.

        Args:
            call: The call.
            engine: The engine for this request; None for that of the client.
        """
        try:
            reply: Reply[Stream[R]] = await self.client.open_stream(call, engine)
        except A2AError as error:
            return self._facts_of(error), None
        return ReplyFacts.of_result(reply.headers), reply.value

    def _facts_of(self, error: A2AError) -> ReplyFacts:
        self.client.redact(error)
        return ReplyFacts.of_error(error)

    # ── The probes ───────────────────────────────────────────────────────────────────────────

    async def probe_task(
        self, endpoint: Endpoint | None = None, *, is_anonymous: bool = False
    ) -> TaskProbeResult:
        """Ask for a task that does not exist.

        Args:
            endpoint: The interface in another version; None for that of `endpoint`.
            is_anonymous: Whether to leave out credentials.
        """
        params = GetTaskRequest(id=self._unknown_id())
        call = self.make_call(op.GET_TASK, params, is_anonymous=is_anonymous)
        if endpoint is not None:
            call = msgspec.structs.replace(call, endpoint=endpoint)
        try:
            reply = await _bounded(lambda: self.client.unary(call), call)
        except A2AError as error:
            is_fatal = error.http_status in {None, 401, 403}
            return TaskProbeResult(
                self._facts_of(error), error if is_fatal else None, _is_understood(error)
            )
        return TaskProbeResult(ReplyFacts.of_result(reply.headers), is_understood=True)

    async def probe_errors(self) -> None:
        """Send requests that are not valid."""
        facts, is_rpc = self.facts, self.endpoint.interface.protocol_binding == "JSONRPC"
        request_id = self.client.env.new_id()
        rpc_id = request_id.encode()
        if is_rpc:
            name = op.GET_TASK.method_v03 if self._is_v03 else op.GET_TASK.name
            facts.method = await self._post(_UNKNOWN_METHOD % rpc_id, request_id)
            facts.params = await self._post(_WRONG_PARAMS % (rpc_id, name.encode()), request_id)
            facts.broken = await self._post(_NOT_JSON, request_id)
        elif not self._is_v03:
            listing = self.make_call(op.LIST_TASKS, ListTasksRequest(page_size=-1))
            facts.params = (await self.call(listing)).reply
        parts = urlsplit(self.endpoint.interface.url)
        unknown_url = urlunsplit((parts.scheme, parts.netloc, f"/{_UNKNOWN_NAME}", "", ""))
        facts.path = await self._get(unknown_url)

    async def probe_listing(self) -> None:
        """List a small page of tasks and, if there are any, pages that must be empty."""
        params = ListTasksRequest(page_size=_PAGE_SIZE, history_length=_HISTORY_LENGTH)
        result = await self.call(self.make_call(op.LIST_TASKS, params))
        tasks = () if result.value is None else result.value.tasks
        in_unknown_context = after_future = None
        if tasks:
            in_unknown_context = await self._count(
                ListTasksRequest(page_size=_PAGE_SIZE, context_id=self._unknown_id())
            )
            if not self._is_v03:
                after_future = await self._count(
                    ListTasksRequest(page_size=_PAGE_SIZE, status_timestamp_after=_FUTURE)
                )
        self.facts.listing = ListingFacts(
            reply=result.reply,
            tasks=len(tasks),
            with_history=sum(bool(task.history) for task in tasks),
            in_unknown_context=in_unknown_context,
            after_future=after_future,
        )

    async def probe_subscription(self) -> None:
        """Subscribe to a task that does not exist."""
        params = SubscribeToTaskRequest(id=self._unknown_id())
        call = self.make_call(op.SUBSCRIBE_TO_TASK, params)
        stream: Stream[Any] | None = None
        reply = ReplyFacts(failure=f"no event and no error for {REPLY_TIMEOUT_S:g} s")
        try:
            async with CancelScope.within(REPLY_TIMEOUT_S):
                reply, stream = await self.open_stream(call)
        finally:
            if stream is not None:
                await stream.close()
        self.facts.subscription = reply

    async def _count(self, params: ListTasksRequest) -> int | None:
        page = (await self.call(self.make_call(op.LIST_TASKS, params))).value
        return None if page is None else len(page.tasks)

    # ── Requests that no binding makes ───────────────────────────────────────────────────────

    async def _post(self, body: bytes, request_id: str) -> ReplyFacts:
        headers = {"content-type": "application/json", "accept": "application/json"}
        call, url = self._carrier(), self.endpoint.interface.url
        try:
            reply = await _bounded(
                lambda: self.client.send_raw(call, "POST", url, headers, body), call
            )
            self.client.raise_for_jsonrpc_error(request_id, reply)
        except A2AError as error:
            return self._facts_of(error)
        return ReplyFacts.of_result(reply.headers, reply.status)

    async def _get(self, url: str) -> ReplyFacts:
        """Get an unknown path, which needs no credentials."""
        call = self._carrier(is_anonymous=True)
        headers = {"accept": "application/json"}
        try:
            reply = await _bounded(lambda: self.client.send_raw(call, "GET", url, headers), call)
        except A2AError as error:
            return self._facts_of(error)
        facts = ReplyFacts.of_result(reply.headers, reply.status)
        return msgspec.structs.replace(facts, is_result=False)

    def _carrier(self, *, is_anonymous: bool = False) -> AnyCall:
        """Return a call whose credentials and bounds a raw request uses."""
        params = GetTaskRequest(id=_UNKNOWN_NAME)
        return self.make_call(op.GET_TASK, params, is_anonymous=is_anonymous)

    @property
    def _is_v03(self) -> bool:
        return self.endpoint.version == OLDER_VERSION

    def _unknown_id(self) -> str:
        return f"holdfast-doctor-{self.client.env.new_id()}"


async def _bounded(
    request: Callable[[], Coroutine[Any, Any, T]],
    call: AnyCall,
    seconds: float = REPLY_TIMEOUT_S,
) -> T:
    """Make a request within a time limit; a read once more if the connection broke."""
    async with CancelScope.within(seconds):
        if call.operation.safety != "read":
            return await request()
        try:
            return await request()
        except A2AConnectionError as error:
            if error.failure not in _BROKEN:
                raise
        await asyncio.sleep(_PAUSE_S)
        return await request()
    raise A2ATimeoutError(
        f"no complete reply arrived within {seconds:g} s",
        phase="idle",
        timeout=seconds,
        agent=call.agent,
    )


def _is_understood(error: A2AError) -> bool | None:
    """Whether an error shows that the agent speaks the version; None if it does not tell."""
    if error.http_status in {401, 403} or error.retry_after is not None:
        return None
    if is_of_another_version(error):
        return False
    return None if error.code is None else True
