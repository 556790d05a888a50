"""Questions to an interface that no agent executes anything for.

Rules: a question reads, or names a task that there is not, or cannot be right; each is asked once;
each has a bound of its own. Credentials go to trusted origins only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from holdfast._aio.cancel_scope import CancelScope
from holdfast._aio.env import Env
from holdfast._doctor.facts import Answered, InterfaceFacts, ListingFacts
from holdfast._model import operations as op
from holdfast._net.engine import HttpEngine
from holdfast._pipeline.credentials import CredentialsLayer, with_credentials
from holdfast._pipeline.http_binding import HttpBinding
from holdfast._pipeline.transport import AuthProvider, Call, CallGroup, CallProgress, compose
from holdfast._pipeline.versions import is_of_another_version
from holdfast._policy.deadline import Deadline
from holdfast._policy.resilience import Resilience
from holdfast._wire.bindings import CODECS, OLDER_VERSION, PROTOCOL_VERSION, protocol_headers
from holdfast._wire.credentials import check_credentials, with_query
from holdfast._wire.http import HttpRequest
from holdfast._wire.limits import Limits
from holdfast._wire.redaction import Secrets
from holdfast.errors import A2AError, A2ATimeoutError
from holdfast.types import GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast._model.operations import Operation
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._pipeline.transport import AnyCall, Reply, Stream, Transport
    from holdfast._wire.http import HttpReply
    from holdfast._wire.network_scope import NetworkReach
    from holdfast.types import AgentCard

__all__ = ["ANSWER", "Caller", "ProbeReply", "ProbeResult", "Questions"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

ANSWER = 15.0
"""Seconds in which a whole answer must be there."""

_PATIENT = 86_400.0
_PAGE = 5
_HISTORY = 100
_FUTURE = "2999-01-01T00:00:00Z"
_NOWHERE = "holdfast-doctor-asks-for-nothing"
_NO_METHOD = b'{"jsonrpc":"2.0","id":"%s","method":"holdfast/NoSuchMethod","params":{}}'
_NO_PARAMS = b'{"jsonrpc":"2.0","id":"%s","method":"%s","params":{"id":{"not":"an id"}}}'
_NO_JSON = b'{"jsonrpc": "2.0", "method": '


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests of an examination have in common.

    Attributes:
        engine: What carries them.
        env: Wall time and ids.
        resilience: The limits of one attempt; nothing is tried again.
        limits: How large replies may be.
        auth: Where credentials come from.
        headers: The caller's own, for trusted origins.
        secrets: What must not be shown.
    """

    engine: HttpEngine
    env: Env
    resilience: Resilience
    limits: Limits
    auth: AuthProvider | None
    headers: Mapping[str, str]
    secrets: Secrets

    def transport(self, engine: HttpEngine | None = None, *, patient: bool = False) -> Transport:
        """What carries calls.

        Args:
            engine: In place of the own one.
            patient: Whether an answer may take as long as whoever waits for it likes.
        """
        resilience = self.resilience
        if patient:
            timeouts = msgspec.structs.replace(
                resilience.timeouts, first_byte=_PATIENT, idle=_PATIENT
            )
            resilience = msgspec.structs.replace(resilience, timeouts=timeouts)
        bottom = HttpBinding(engine or self.engine, self.env, resilience, self.limits)
        return compose((CredentialsLayer,), bottom)


class ProbeResult(NamedTuple):
    """How a question for a task was answered.

    Attributes:
        answered: What came back.
        error: What any call fails with, if this one failed so.
        understood: Whether the version is spoken; None if the answer does not tell.
    """

    answered: Answered
    error: A2AError | None = None
    understood: bool | None = None


class ProbeReply(NamedTuple, Generic[R]):
    """How a call went.

    Attributes:
        answered: What came back.
        value: The answer itself; None if it is none of the operation's.
    """

    answered: Answered
    value: R | None


class Questions:
    """Asks one interface.

    Args:
        caller: What all requests have in common.
        facts: The interface, and where to note what it answers.
        endpoint: The interface in the version to speak.
        card: The card that names it.
        reach: How far inside it may lie; None where the caller named it.

    Attributes:
        caller: As given.
        facts: As given.
        endpoint: The interface in the version that is spoken there, as far as that is known.
        error: What any call to it fails with; None if calls can be made.
    """

    def __init__(
        self,
        caller: Caller,
        facts: InterfaceFacts,
        endpoint: Endpoint,
        card: AgentCard,
        *,
        reach: NetworkReach | None,
    ) -> None:
        self.caller = caller
        self.facts = facts
        self.endpoint = endpoint
        self.error: A2AError | None = None
        self._card = card
        self._reach = reach
        self._transport = caller.transport()

    # ── Calls ────────────────────────────────────────────────────────────────────────────────

    def call(self, operation: Operation[P, R], params: P, *, bare: bool = False) -> Call[P, R]:
        """Makes a call.

        Args:
            operation: What to ask.
            params: Its parameters.
            bare: Whether to leave credentials out.
        """
        caller, now = self.caller, asyncio.get_running_loop().time()
        with_all = self.facts.is_trusted and not bare
        return Call(
            operation=operation,
            params=params,
            request_id=caller.env.new_id(),
            deadline=Deadline(name="call", timeout=ANSWER, at=now + ANSWER),
            headers=caller.headers if with_all else {},
            endpoint=self.endpoint,
            reach=self._reach,
            card=self._card,
            auth=caller.auth if with_all else None,
            progress=CallProgress(began=now, call_group=CallGroup(caller.secrets)),
        )

    async def ask(self, call: Call[P, R], *, within: float | None = None) -> ProbeReply[R]:
        """Makes a call once, and says what came back.

        Args:
            call: The call.
            within: Seconds in which the answer must be there; the usual ones if left out.
        """
        transport = self._transport if within is None else self.caller.transport(patient=True)
        try:
            reply: Reply[R] = await _bounded(transport.unary(call), call, within or ANSWER)
        except A2AError as error:
            return ProbeReply(self._of(error), None)
        return ProbeReply(Answered.result(reply.headers), reply.value)

    async def open(
        self, call: Call[P, R], engine: HttpEngine | None = None
    ) -> tuple[Answered, Stream[R] | None]:
        """Opens a stream once, and says how that went; whoever waits for it sets the bound.

        Args:
            call: The call.
            engine: What carries it, in place of the own one.
        """
        transport = self.caller.transport(engine, patient=True)
        try:
            reply: Reply[Stream[R]] = await transport.stream(call)
        except A2AError as error:
            return self._of(error), None
        return Answered.result(reply.headers), reply.value

    def _of(self, error: A2AError) -> Answered:
        self.caller.secrets.hide_in(error)
        return Answered.of(error)

    # ── The questions ────────────────────────────────────────────────────────────────────────

    async def about_task(
        self, endpoint: Endpoint | None = None, *, bare: bool = False
    ) -> ProbeResult:
        """Asks for a task that there is not.

        Args:
            endpoint: Where, in place of the interface as it is: the same in another version.
            bare: Whether to leave credentials out.
        """
        call = self.call(op.GET_TASK, GetTaskRequest(id=self._no_task()), bare=bare)
        if endpoint is not None:
            call = msgspec.structs.replace(call, endpoint=endpoint)
        try:
            reply: Reply[Any] = await _bounded(self._transport.unary(call), call)
        except A2AError as error:
            is_fatal = error.http_status in {None, 401, 403}
            return ProbeResult(self._of(error), error if is_fatal else None, _understood(error))
        return ProbeResult(Answered.result(reply.headers), understood=True)

    async def about_errors(self) -> None:
        """Asks what cannot be right."""
        facts, is_rpc = self.facts, self.endpoint.interface.protocol_binding == "JSONRPC"
        request_id = self.caller.env.new_id()
        number = request_id.encode()
        if is_rpc:
            name = op.GET_TASK.name if self._is_newer else op.GET_TASK.method_v03
            facts.method = await self._post(_NO_METHOD % number, request_id)
            facts.params = await self._post(_NO_PARAMS % (number, name.encode()), request_id)
            facts.broken = await self._post(_NO_JSON, request_id)
        elif self._is_newer:
            listing = self.call(op.LIST_TASKS, ListTasksRequest(page_size=-1))
            facts.params = (await self.ask(listing)).answered
        parts = urlsplit(self.endpoint.interface.url)
        nowhere = urlunsplit((parts.scheme, parts.netloc, f"/{_NOWHERE}", "", ""))
        facts.path = await self._get(nowhere)

    async def about_list(self) -> None:
        """Asks for a small page of tasks and, if there are some, for pages that must be empty."""
        params = ListTasksRequest(page_size=_PAGE, history_length=_HISTORY)
        heard = await self.ask(self.call(op.LIST_TASKS, params))
        found = () if heard.value is None else heard.value.tasks
        of_no_context = of_the_future = None
        if found:
            of_no_context = await self._count(
                ListTasksRequest(page_size=_PAGE, context_id=self._no_task())
            )
            if self._is_newer:
                of_the_future = await self._count(
                    ListTasksRequest(page_size=_PAGE, status_timestamp_after=_FUTURE)
                )
        self.facts.listing = ListingFacts(
            answered=heard.answered,
            tasks=len(found),
            with_history=sum(bool(task.history) for task in found),
            of_no_context=of_no_context,
            of_the_future=of_the_future,
        )

    async def about_subscription(self) -> None:
        """Subscribes to a task that there is not."""
        call = self.call(op.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=self._no_task()))
        stream: Stream[Any] | None = None
        answered = Answered(failure=f"no event and no error for {ANSWER:g} s")
        try:
            async with CancelScope.within(ANSWER):
                answered, stream = await self.open(call)
        finally:
            if stream is not None:
                await stream.close()
        self.facts.subscription = answered

    async def _count(self, params: ListTasksRequest) -> int | None:
        page = (await self.ask(self.call(op.LIST_TASKS, params))).value
        return None if page is None else len(page.tasks)

    # ── Bytes ────────────────────────────────────────────────────────────────────────────────

    async def _post(self, body: bytes, request_id: str) -> Answered:
        json = {"content-type": "application/json", "accept": "application/json"}
        codec, call = CODECS["JSONRPC", PROTOCOL_VERSION], self._for_nothing()
        try:
            if call.auth is not None:
                given = check_credentials(await call.auth.credentials(call))
                self.caller.secrets.note_values(given.values)
                call = with_credentials(call, given)
            reply = await self._sent(call, "POST", self.endpoint.interface.url, json, body)
            # What is no error is none of the answers that these questions can have.
            codec.decode(op.GET_TASK, request_id, reply, now=0.0, refusals=frozenset())
        except A2AError as error:
            return self._of(error)
        return Answered.result(reply.headers, reply.status)

    async def _get(self, url: str) -> Answered:
        """What is there without credentials, which no path needs that there is not."""
        try:
            accept = {"accept": "application/json"}
            reply = await self._sent(self._for_nothing(bare=True), "GET", url, accept)
        except A2AError as error:
            return self._of(error)
        answered = Answered.result(reply.headers, reply.status)
        return msgspec.structs.replace(answered, is_result=False)

    async def _sent(
        self,
        call: AnyCall,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> HttpReply:
        """Sends a request that no binding makes, with what a call would carry."""
        self.caller.secrets.note(call.headers, call.query, url)
        request = HttpRequest(
            method=method,
            url=with_query(url, call.query),
            headers={**call.headers, **protocol_headers(self.endpoint.version), **headers},
            body=body,
            timeouts=self.caller.resilience.timeouts,
            limits=self.caller.limits,
            reach=self._reach,
        )
        return await _bounded(self.caller.engine.request(request), call)

    def _for_nothing(self, *, bare: bool = False) -> AnyCall:
        return self.call(op.GET_TASK, GetTaskRequest(id=_NOWHERE), bare=bare)

    @property
    def _is_newer(self) -> bool:
        return self.endpoint.version != OLDER_VERSION

    def _no_task(self) -> str:
        return f"holdfast-doctor-{self.caller.env.new_id()}"


async def _bounded(asking: Coroutine[Any, Any, T], call: AnyCall, seconds: float = ANSWER) -> T:
    async with CancelScope.within(seconds):
        return await asking
    raise A2ATimeoutError(
        f"no whole answer came within {seconds:g} s",
        phase="idle",
        timeout=seconds,
        agent=call.agent,
    )


def _understood(error: A2AError) -> bool | None:
    """Whether an error shows that the version was understood; None if it does not tell."""
    if error.http_status in {401, 403} or error.retry_after is not None:
        return None
    if is_of_another_version(error):
        return False
    return None if error.code is None else True
