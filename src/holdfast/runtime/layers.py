"""The layers of a call, each one thing; `assembly.py` writes down their order.

Rules: a layer never swallows a cancellation, waits only within the call's deadline, and leaves
nothing running. What it decides is decided by a pure function of `holdfast.policy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

import msgspec

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    Attempt,
    AuthenticationError,
    DeadlineExceededError,
    Facts,
    OutcomeUnknownError,
)
from holdfast.model.operations import SEND_MESSAGE, SEND_STREAMING_MESSAGE
from holdfast.policy.retry import GiveUp, Retry, RetryPolicy, decide, lost_the_reply
from holdfast.runtime.listeners import (
    AttemptFailed,
    AttemptStarted,
    CallFinished,
    Interceptor,
    Observer,
    RetryScheduled,
)
from holdfast.runtime.transport import (
    AnyCall,
    Call,
    CallProgress,
    PassThrough,
    Reply,
    Transport,
)
from holdfast.runtime.waiting import until
from holdfast.wire.http import check_headers
from holdfast.wire.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from holdfast.model.requests import SendMessageRequest
    from holdfast.policy.budget import BudgetPolicy
    from holdfast.runtime.env import Env

__all__ = [
    "AuthProvider",
    "CredentialsLayer",
    "DeadlineLayer",
    "InterceptorLayer",
    "ObservedLayer",
    "OutcomeLayer",
    "RetryLayer",
    "deadline_exceeded",
]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_LAST_WORD = 1.0
"""Seconds that an interceptor has for a call whose own time is over, and a call that is closed."""


class ObservedLayer(PassThrough):
    """Tells observers when a call is over, and names the call in its error."""

    def __init__(self, inner: Transport, observe: Observer) -> None:
        super().__init__(inner)
        self._observe = observe

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        error: BaseException | None = None
        try:
            reply = await self._inner.unary(call)
        except A2AError as failure:
            error = failure
            failure.request_id = call.request_id
            raise
        except BaseException as failure:
            error = failure
            raise
        else:
            return reply
        finally:
            now = asyncio.get_running_loop().time()
            tries = call.progress.attempts
            self._observe(
                CallFinished(
                    request_id=call.request_id,
                    operation=call.operation.name,
                    agent=tries[-1].agent if tries else None,
                    attempts=len(tries),
                    duration=now - call.progress.began,
                    error=error,
                )
            )


class InterceptorLayer(PassThrough):
    """Runs the caller's interceptors around a call."""

    def __init__(self, inner: Transport, interceptors: Sequence[Interceptor]) -> None:
        super().__init__(inner)
        self._interceptors = tuple(interceptors)

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        asked: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            outcome = await self._ask_and_call(call, asked)
        except A2AError as error:
            outcome = error
        for interceptor in reversed(asked):
            try:
                outcome = await _with_last_word(call, interceptor.after(call, outcome))
            except A2AError as error:
                if isinstance(outcome, Reply):
                    error.executed = True
                outcome = error
        if isinstance(outcome, A2AError):
            raise outcome
        return outcome

    async def _ask_and_call(self, call: Call[P, R], asked: list[Interceptor]) -> Reply[R]:
        for interceptor in self._interceptors:
            asked.append(interceptor)
            answer = await _by_deadline(call, interceptor.before(call))
            if isinstance(answer, Reply):
                return answer
            call = answer
        return await self._inner.unary(call)


class OutcomeLayer(PassThrough):
    """Turns a lost reply to a message into what it means: nobody knows whether it was executed."""

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        if call.operation not in _SENDS:
            return await self._inner.unary(call)
        try:
            return await self._inner.unary(call)
        except A2AError as error:
            if not lost_the_reply(error):
                raise
            raise _outcome_unknown(call, error) from error


class DeadlineLayer(PassThrough):
    """Ends the whole call at its deadline, or when the client is closed."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._scopes: dict[asyncio.Timeout, asyncio.AbstractEventLoop] = {}
        self._closed = False
        self._drained: asyncio.Event | None = None

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        scope = asyncio.timeout_at(call.deadline.at)
        try:
            async with scope:
                self._scopes[scope] = asyncio.get_running_loop()
                try:
                    return await self._inner.unary(call)
                finally:
                    del self._scopes[scope]
                    if self._drained is not None and not self._scopes:
                        self._drained.set()
        except TimeoutError as error:
            # Our own timeouts are TimeoutErrors too, and pass through here on their way up.
            if not scope.expired() or isinstance(error, A2AError):
                raise
        raise _closed(call) if self._closed else deadline_exceeded(call)

    async def close(self) -> None:
        """Ends the calls under way, and frees what is below."""
        loop = asyncio.get_running_loop()
        self._closed = True
        for scope, its_loop in self._scopes.items():
            if its_loop is loop and not scope.expired():
                scope.reschedule(loop.time())
        if self._scopes:
            self._drained = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORD):
                    await self._drained.wait()
        await self._inner.close()


class RetryLayer(PassThrough):
    """Tries again where `holdfast.policy.retry` says so and the endpoint's budget allows it."""

    def __init__(
        self,
        inner: Transport,
        policy: RetryPolicy,
        budget: BudgetPolicy | None,
        env: Env,
        observe: Observer,
    ) -> None:
        super().__init__(inner)
        self._policy = policy
        self._budget = budget
        self._env = env
        self._observe = observe

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        loop = asyncio.get_running_loop()
        progress = call.progress
        while True:
            started = loop.time()
            progress.sent = False
            self._observe(AttemptStarted(**_named(call), number=call.attempt))
            try:
                reply = await self._inner.unary(call)
            except A2AError as error:
                delay = await self._after_failure(call, error, started, loop.time())
                await asyncio.sleep(delay)
                call = msgspec.structs.replace(call, attempt=call.attempt + 1)
            except asyncio.CancelledError:
                self._record(
                    call,
                    started,
                    loop.time(),
                    error="given up while it was under way",
                    executed=None if progress.sent else False,
                )
                raise
            else:
                self._record(call, started, loop.time(), executed=True)
                if call.endpoint is not None:
                    call.endpoint.succeeded()
                return msgspec.structs.replace(reply, attempts=tuple(progress.attempts))

    async def _after_failure(
        self, call: AnyCall, error: A2AError, started: float, now: float
    ) -> float:
        """Returns the wait before the next try, or raises the error with its attempts."""
        error.request_id = call.request_id
        error.agent = error.agent or call.agent
        _combine(call.progress, error)
        self._observe(
            AttemptFailed(**_named(call), number=call.attempt, duration=now - started, error=error)
        )
        within_budget = (
            not error.transient
            or call.endpoint is None
            or call.endpoint.may_retry(self._budget, now=now)
        )
        decision: Retry | GiveUp = decide(
            self._policy,
            error,
            safety=call.operation.safety,
            attempt=call.attempt,
            time_left=call.deadline.left(now),
            draw=self._env.random(),
        )
        if isinstance(decision, Retry) and not within_budget:
            decision = GiveUp("the retry budget of this agent is spent")
        if isinstance(decision, GiveUp) and error.transient:
            error.gave_up = decision.reason
        wait = decision.delay if isinstance(decision, Retry) else None
        self._record(
            call,
            started,
            now,
            error=f"{type(error).__name__}: {error}",
            executed=error.executed,
            wait=wait,
        )
        error.attempts = tuple(call.progress.attempts)
        if wait is None:
            raise error
        self._observe(
            RetryScheduled(**_named(call), number=call.attempt + 1, wait=wait, error=error)
        )
        if self._policy.on_retry is not None:
            told = self._policy.on_retry(call.attempt, error, wait)
            if inspect.isawaitable(told):
                await told
        return wait

    def _record(
        self,
        call: AnyCall,
        started: float,
        now: float,
        *,
        executed: bool | None,
        error: str | None = None,
        wait: float | None = None,
    ) -> None:
        call.progress.attempts.append(
            Attempt(
                number=call.attempt,
                agent=call.agent or "",
                started=started - call.progress.began,
                duration=now - started,
                error=error,
                executed=executed,
                wait=wait,
            )
        )


class AuthProvider(Protocol):
    """Where credentials come from; asked anew for each attempt."""

    async def headers(self, call: AnyCall, /) -> dict[str, str]:
        """The headers that carry the credentials."""
        ...

    async def on_unauthorized(self, error: AuthenticationError, /) -> bool:
        """Told of a 401; True asks to try once more with new credentials."""
        ...


class CredentialsLayer(PassThrough):
    """Adds the credentials to each attempt, and replays one after a 401 where that is safe."""

    def __init__(self, inner: Transport, provider: AuthProvider) -> None:
        super().__init__(inner)
        self._provider = provider
        self._last: tuple[dict[str, str], dict[str, str]] = ({}, {})

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        try:
            return await self._attempt(call)
        except AuthenticationError as error:
            safe = call.operation.safety != "conditional" or error.executed is False
            _combine(call.progress, error)
            if not safe or not await _before_sending(self._provider.on_unauthorized(error)):
                raise
        call.progress.sent = False
        return await self._attempt(call)

    async def _attempt(self, call: Call[P, R]) -> Reply[R]:
        credentials = await self._credentials(call)
        authorized = msgspec.structs.replace(call, headers={**call.headers, **credentials})
        try:
            return await self._inner.unary(authorized)
        except A2AError as error:
            redact(error, credentials.values())
            raise

    async def _credentials(self, call: AnyCall) -> dict[str, str]:
        headers = await _before_sending(self._provider.headers(call))
        last = self._last  # read once: another thread may use this client too
        if headers != last[0]:  # most providers give the same ones for a while
            last = self._last = (dict(headers), check_headers(headers))
        return last[1]


async def _before_sending(provider: Awaitable[T]) -> T:
    """A provider that calls somebody itself may fail in any way: nothing of ours was sent."""
    try:
        return await provider
    except A2AError as error:
        error.executed = False
        raise


_SENDS = frozenset({SEND_MESSAGE, SEND_STREAMING_MESSAGE})


def deadline_exceeded(call: AnyCall) -> DeadlineExceededError:
    """The error of a call whose time is over."""
    deadline = call.deadline
    return DeadlineExceededError(
        f"{call.operation.name} did not finish within the {deadline.name} timeout of "
        f"{deadline.timeout:g} s",
        deadline=deadline.name,
        timeout=deadline.timeout,
        **_ended(call),
    )


def _closed(call: AnyCall) -> A2AConnectionError:
    message = f"the client was closed while {call.operation.name} was under way"
    return A2AConnectionError(message, failure="closed", **_ended(call))


def _ended(call: AnyCall) -> Facts:
    """What is known of a call that is ended from outside."""
    progress = call.progress
    attempts = progress.attempts
    if not attempts and progress.card is not None:
        attempts = progress.card.attempts  # it did not get further than the card
    return Facts(
        executed=None if progress.sent or progress.maybe_executed else False,
        attempts=attempts,
        agent=attempts[-1].agent if attempts else call.agent,
        request_id=call.request_id,
    )


def _combine(progress: CallProgress, error: A2AError) -> None:
    """Makes an error tell of all tries, and the progress of no try that certainly did not run."""
    if error.executed is not False:
        progress.maybe_executed = True
    else:
        progress.sent = False
        if progress.maybe_executed:
            error.executed = None


def _outcome_unknown(call: AnyCall, error: A2AError) -> OutcomeUnknownError:
    params: SendMessageRequest = call.params
    message = params.message
    facts = error.facts()
    facts["executed"] = None
    facts["transient"] = False
    facts["gave_up"] = None  # the message says it
    return OutcomeUnknownError(
        f"nobody knows whether the agent ran message {message.message_id}: it was sent, but its "
        f"reply was lost: {error.message}. It was not sent again. Look for it among the agent's "
        "tasks, or send it again if running it twice does no harm",
        message_id=message.message_id,
        context_id=message.context_id,
        **facts,
    )


async def _by_deadline(call: AnyCall, awaitable: Awaitable[T]) -> T:
    return await until(call.deadline.at, awaitable, lambda: deadline_exceeded(call))


async def _with_last_word(call: AnyCall, hook: Awaitable[T]) -> T:
    """Waits for a caller's hook within the call's deadline, or for a last word after it."""
    now = asyncio.get_running_loop().time()
    at = max(call.deadline.at, now + _LAST_WORD)
    return await until(at, hook, lambda: deadline_exceeded(call))


class _Named(TypedDict):
    request_id: str
    operation: str
    agent: str | None


def _named(call: AnyCall) -> _Named:
    return {
        "request_id": call.request_id,
        "operation": call.operation.name,
        "agent": call.agent,
    }
