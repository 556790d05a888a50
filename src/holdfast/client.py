"""The client: the protocol's operations as methods, and waiting for what they begin.

The path of every call is one list, in `assembly.py`; this file has no second one.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from holdfast.answer import Answer, raise_for_outcome
from holdfast.auth import check_headers
from holdfast.content import Content, to_message
from holdfast.errors import (
    A2AError,
    CancelUnconfirmedError,
    DeadlineExceededError,
    InvalidAgentResponseError,
    TaskAuthRequiredError,
    TaskNotCancelableError,
    TaskNotFoundError,
)
from holdfast.model import operations as op
from holdfast.model.card import AgentCard, check_card
from holdfast.model.requests import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from holdfast.model.types import Message, Task, TaskState
from holdfast.policy.deadline import Deadline
from holdfast.runtime.discovery import GET_AGENT_CARD, AgentCardResolver, CardLocation
from holdfast.runtime.polling import poll
from holdfast.runtime.transport import Call, CallProgress, Reply, Transport

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast.model.operations import Operation
    from holdfast.runtime.engine import HttpEngine
    from holdfast.runtime.env import Env
    from holdfast.runtime.listeners import Consumer, Event

__all__ = ["Client", "check_timeout"]

P = TypeVar("P")
R = TypeVar("R")

_CANCEL_TIMEOUT = 60.0


class Client:
    """Calls one agent. Made by `holdfast.connect`; use it as an async context manager.

    Every operation takes ``timeout`` (seconds for the whole call with its retries; the client's
    own if left out), ``headers`` (sent with this call, to trusted origins only) and
    ``extensions`` (URIs for ``A2A-Extensions``), and raises an `A2AError`: an error that the
    protocol names, one of the transport, or `DeadlineExceededError`.
    """

    def __init__(
        self,
        transport: Transport,
        cards: Transport,
        resolver: AgentCardResolver,
        env: Env,
        *,
        owned: HttpEngine | None,
        timeout: float,
        headers: Mapping[str, str],
        consumers: Sequence[Consumer],
    ) -> None:
        self._transport = transport
        self._cards = cards
        self._resolver = resolver
        self._env = env
        self._owned = owned
        self._timeout = timeout
        self._headers = headers
        self._consumers = tuple(consumers)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections, unless the engine was lent. Can be called twice."""
        self._closed = True
        await self._transport.close()
        if self._owned is not None:
            await self._owned.close()

    # ── The card ─────────────────────────────────────────────────────────────────────────────

    async def agent_card(self, *, timeout: float | None = None) -> AgentCard:
        """The agent's card, from memory while it is fresh.

        Raises:
            AgentCardResolutionError: There is no card.
            InvalidAgentCardError: It is not usable.
        """
        call = self._new_call(
            GET_AGENT_CARD, CardLocation(()), self._deadline("call", timeout), _Extra()
        )
        return (await self._cards.unary(call)).value

    async def discover(self) -> AgentCard:
        """The same as `agent_card`."""
        return await self.agent_card()

    async def get_extended_agent_card(
        self,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> AgentCard:
        """Fetches the card for authenticated clients (A2A 3.1.11), which replaces the public one.

        Raises:
            UnsupportedOperationError: The agent offers none.
            ExtendedAgentCardNotConfiguredError: The agent declares one but has none.
            InvalidAgentCardError: It is not usable.
        """
        reply = await self.call(
            op.GET_EXTENDED_AGENT_CARD,
            GetExtendedAgentCardRequest(),
            timeout=timeout,
            headers=headers,
            extensions=extensions,
        )
        check_card(reply.value)
        self._resolver.replace(reply.value)
        return reply.value

    # ── Messages ─────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        poll_interval: float = 2.0,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> Answer:
        """Sends a message and waits for the answer, however long the agent works on it.

        The message is sent so that the task's id is known at once; then the task is polled until
        it is over or waits for input. A task that waits for an authorization is watched on.

        Args:
            message: Text, parts, a `Message` or its JSON object.
            task_id: The task to continue.
            context_id: The conversation to go on with.
            metadata: A JSON object to send along.
            poll_interval: Seconds between two looks at the task; the first looks are quicker.
            timeout: Seconds for all of it.
            headers: Sent with each request, to trusted origins only.
            extensions: URIs for ``A2A-Extensions``.

        Raises:
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            OutcomeUnknownError: The message was sent, its reply was lost; it was not sent again.
            DeadlineExceededError: The time is over; `task` is the task as last seen.
            TaskAuthRequiredError: The time is over while the task waits for an authorization.
            ValueError: The message has no content.
        """
        _check_poll_interval(poll_interval)
        deadline = self._deadline("call", timeout)
        extra = _Extra(headers=headers, extensions=_uris(extensions))
        result = await self._send(
            message,
            task_id=task_id,
            context_id=context_id,
            metadata=metadata,
            configuration=SendMessageConfiguration(return_immediately=True),
            deadline=deadline,
            extra=extra,
        )
        if isinstance(result, Message):
            return Answer(message=result)
        task = await self._watch(
            result.id, result, deadline, poll_interval, extra, until=_is_settled
        )
        raise_for_outcome(task)
        return Answer(task=task)

    async def send_message(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        return_immediately: bool = False,
        history_length: int | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> Task | Message:
        """Sends a message: the raw operation (A2A 3.1.1), which waits as the agent does.

        Without `return_immediately`, the agent answers when the task is over or interrupted, on
        one request that everything between may cut; `ask` does not depend on that.

        Args:
            message: Text, parts, a `Message` or its JSON object.
            task_id: The task to continue.
            context_id: The conversation to go on with.
            metadata: A JSON object to send along.
            return_immediately: Whether to answer as soon as the task exists.
            history_length: How many messages of the task's history to return at most.
            timeout: Seconds for the whole call.
            headers: Sent with this call, to trusted origins only.
            extensions: URIs for ``A2A-Extensions``.

        Returns:
            The task, in whatever state it is, or the agent's message.

        Raises:
            OutcomeUnknownError: The message was sent, its reply was lost; it was not sent again.
            ValueError: The message has no content.
        """
        return await self._send(
            message,
            task_id=task_id,
            context_id=context_id,
            metadata=metadata,
            configuration=SendMessageConfiguration(
                return_immediately=return_immediately,
                history_length=_not_negative("history_length", history_length),
            ),
            deadline=self._deadline("call", timeout),
            extra=_Extra(headers=headers, extensions=_uris(extensions)),
        )

    # ── Tasks ────────────────────────────────────────────────────────────────────────────────

    async def get_task(
        self,
        task_id: str,
        *,
        history_length: int | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> Task:
        """Fetches a task as it stands (A2A 3.1.3).

        Args:
            task_id: The task.
            history_length: How many messages of its history to return at most; None leaves it to
                the agent. Some agents shorten what they keep to what was asked for.
            timeout: Seconds for the whole call.
            headers: Sent with this call, to trusted origins only.
            extensions: URIs for ``A2A-Extensions``.

        Raises:
            TaskNotFoundError: The agent does not know it.
        """
        reply = await self.call(
            op.GET_TASK,
            GetTaskRequest(
                id=_named("task_id", task_id),
                history_length=_not_negative("history_length", history_length),
            ),
            timeout=timeout,
            headers=headers,
            extensions=extensions,
        )
        return reply.value

    async def list_tasks(
        self,
        context_id: str | None = None,
        *,
        status: TaskState | None = None,
        limit: int = 50,
        page_token: str | None = None,
        history_length: int | None = None,
        status_timestamp_after: datetime | str | None = None,
        include_artifacts: bool = False,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> ListTasksResponse:
        """Lists one page of tasks, the most recently updated first (A2A 3.1.4).

        Args:
            context_id: Only tasks of this conversation.
            status: Only tasks in this state.
            limit: Tasks on a page, 1 to 100.
            page_token: ``next_page_token`` of the page before.
            history_length: How many messages of each history to return at most.
            status_timestamp_after: Only tasks whose status is not older than this; a time
                without zone is read as UTC.
            include_artifacts: Whether to return artifacts.
            timeout: Seconds for the whole call.
            headers: Sent with this call, to trusted origins only.
            extensions: URIs for ``A2A-Extensions``.
        """
        if not 1 <= limit <= 100:
            text = "limit must be from 1 to 100"
            raise ValueError(text)
        reply = await self.call(
            op.LIST_TASKS,
            ListTasksRequest(
                context_id=context_id,
                status=status,
                page_size=limit,
                page_token=page_token or None,
                history_length=_not_negative("history_length", history_length),
                status_timestamp_after=_timestamp(status_timestamp_after),
                include_artifacts=include_artifacts or None,
            ),
            timeout=timeout,
            headers=headers,
            extensions=extensions,
        )
        return reply.value

    async def iter_tasks(
        self,
        context_id: str | None = None,
        *,
        status: TaskState | None = None,
        limit: int = 50,
        history_length: int | None = None,
        status_timestamp_after: datetime | str | None = None,
        include_artifacts: bool = False,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> AsyncIterator[Task]:
        """Iterates over all tasks, page by page; for the arguments see `list_tasks`.

        ``timeout`` is for each page. A task that is updated meanwhile may be skipped.

        Raises:
            InvalidAgentResponseError: The agent gives the same page again and again.
        """
        token, seen = "", set[str]()
        while True:
            page = await self.list_tasks(
                context_id,
                status=status,
                limit=limit,
                page_token=token,
                history_length=history_length,
                status_timestamp_after=status_timestamp_after,
                include_artifacts=include_artifacts,
                timeout=timeout,
                headers=headers,
                extensions=extensions,
            )
            for task in page.tasks:
                yield task
            token = page.next_page_token
            if not token:
                return
            if token in seen:
                text = "the agent's list of tasks has no end: a page token came twice"
                raise InvalidAgentResponseError(text)
            seen.add(token)

    async def wait(
        self,
        task_id: str,
        *,
        until: Callable[[Task], bool] | None = None,
        timeout: float | None = None,
        poll_interval: float = 2.0,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> Task:
        """Waits until a task is over or needs input, and returns it in whatever state that is.

        Failures that may pass do not end the wait. A task that waits for an authorization is
        watched on: it may be given out of band (A2A 7.6).

        Args:
            task_id: The task.
            until: Says of the task whether the wait is over, in place of the rule above.
            timeout: Seconds to wait at most; the client's timeout if left out.
            poll_interval: Seconds between two looks; the first looks are quicker.
            headers: Sent with each request, to trusted origins only.
            extensions: URIs for ``A2A-Extensions``.

        Raises:
            DeadlineExceededError: The time is over; `task` is the task as last seen.
            TaskAuthRequiredError: The time is over while the task waits for an authorization.
            TaskNotFoundError: The agent does not know it.
        """
        _check_poll_interval(poll_interval)
        return await self._watch(
            _named("task_id", task_id),
            None,
            self._deadline("wait", timeout),
            poll_interval,
            _Extra(headers=headers, extensions=_uris(extensions)),
            until=until or _is_settled,
        )

    async def cancel_task(
        self,
        task_id: str,
        *,
        confirm: bool = True,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        poll_interval: float = 2.0,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> Task:
        """Asks the agent to cancel a task (A2A 3.1.5), and waits until the task is over.

        Agents may take the request and work on, or have completed the task meanwhile: look at
        the state that is returned.

        Args:
            task_id: The task.
            confirm: Whether to wait until it is over; else the agent's reply is returned as is.
            metadata: A JSON object to send along.
            timeout: Seconds for all of it; 60 if left out, or the client's own if that is less.
            poll_interval: Seconds between two looks; the first looks are quicker.
            headers: Sent with each request, to trusted origins only.
            extensions: URIs for ``A2A-Extensions``.

        Raises:
            TaskNotCancelableError: The task is over already, or cannot be canceled.
            TaskNotFoundError: The agent does not know it.
            CancelUnconfirmedError: The task did not end in time; `task` is how it was last seen.
        """
        _check_poll_interval(poll_interval)
        deadline = self._deadline(
            "cancel", min(_CANCEL_TIMEOUT, self._timeout) if timeout is None else timeout
        )
        extra = _Extra(headers=headers, extensions=_uris(extensions))
        request = CancelTaskRequest(
            id=_named("task_id", task_id), metadata=None if metadata is None else dict(metadata)
        )
        try:
            task = (await self._run(op.CANCEL_TASK, request, deadline, extra)).value
        except (TaskNotCancelableError, TaskNotFoundError) as error:
            task = await self._canceled_before(task_id, error, deadline, extra)
        if not confirm or task.state.is_terminal:
            return task
        try:
            return await self._poll(
                task_id, task, deadline, poll_interval, extra, until=_is_terminal
            )
        except DeadlineExceededError as error:
            raise CancelUnconfirmedError(
                f"task {task_id} is still {_state_of(error.task)} {deadline.timeout:g} s after "
                "the agent took the request to cancel it",
                task=error.task or task,
                executed=True,
                agent=error.agent,
                request_id=error.request_id,
            ) from error

    # ── Push notifications ───────────────────────────────────────────────────────────────────

    async def create_task_push_notification_config(
        self,
        config: TaskPushNotificationConfig,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> TaskPushNotificationConfig:
        """Tells the agent where to send news of ``config.task_id`` (A2A 3.1.7).

        Raises:
            PushNotificationNotSupportedError: The agent sends none.
            TaskNotFoundError: The agent does not know the task.
            ValueError: The task's id or the address is missing.
        """
        _named("config.task_id", config.task_id or "")
        _named("config.url", config.url)
        reply = await self.call(
            op.CREATE_PUSH_CONFIG, config, timeout=timeout, headers=headers, extensions=extensions
        )
        return reply.value

    async def get_task_push_notification_config(
        self,
        task_id: str,
        config_id: str,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> TaskPushNotificationConfig:
        """Fetches one configuration of a task (A2A 3.1.8)."""
        request = GetTaskPushNotificationConfigRequest(
            task_id=_named("task_id", task_id), id=_named("config_id", config_id)
        )
        reply = await self.call(
            op.GET_PUSH_CONFIG, request, timeout=timeout, headers=headers, extensions=extensions
        )
        return reply.value

    async def list_task_push_notification_configs(
        self,
        task_id: str,
        *,
        page_size: int | None = None,
        page_token: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> ListTaskPushNotificationConfigsResponse:
        """Lists one page of the configurations of a task (A2A 3.1.9)."""
        request = ListTaskPushNotificationConfigsRequest(
            task_id=_named("task_id", task_id), page_size=page_size, page_token=page_token
        )
        reply = await self.call(
            op.LIST_PUSH_CONFIGS, request, timeout=timeout, headers=headers, extensions=extensions
        )
        return reply.value

    async def delete_task_push_notification_config(
        self,
        task_id: str,
        config_id: str,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> None:
        """Deletes one configuration of a task (A2A 3.1.10); deleting it again is no error.

        Raises:
            TaskNotFoundError: The agent does not know the task or the configuration.
        """
        request = DeleteTaskPushNotificationConfigRequest(
            task_id=_named("task_id", task_id), id=_named("config_id", config_id)
        )
        try:
            await self.call(
                op.DELETE_PUSH_CONFIG,
                request,
                timeout=timeout,
                headers=headers,
                extensions=extensions,
            )
        except TaskNotFoundError as error:
            if not _ran_before(error):
                raise

    # ── Any operation ────────────────────────────────────────────────────────────────────────

    async def call(
        self,
        operation: Operation[P, R],
        params: P,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
    ) -> Reply[R]:
        """Makes a call of any unary operation, and gives the whole reply.

        Args:
            operation: A row of `holdfast.model.operations`.
            params: Its parameters.
            timeout: Seconds for the whole call.
            headers: Sent with this call, to trusted origins only.
            extensions: URIs for ``A2A-Extensions``.
        """
        extra = _Extra(headers=headers, extensions=_uris(extensions))
        return await self._run(operation, params, self._deadline("call", timeout), extra)

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    async def _run(
        self, operation: Operation[P, R], params: P, deadline: Deadline, extra: _Extra
    ) -> Reply[R]:
        return await self._transport.unary(self._new_call(operation, params, deadline, extra))

    def _new_call(
        self, operation: Operation[P, R], params: P, deadline: Deadline, extra: _Extra
    ) -> Call[P, R]:
        if self._closed:
            text = "the client is closed"
            raise RuntimeError(text)
        headers = self._headers
        if extra.headers:
            headers = {**headers, **check_headers(extra.headers)}
        return Call(
            operation=operation,
            params=params,
            request_id=self._env.new_id(),
            deadline=deadline,
            headers=headers,
            extensions=_checked_extensions(extra.extensions),
            progress=CallProgress(began=asyncio.get_running_loop().time()),
        )

    def _deadline(self, name: str, timeout: float | None) -> Deadline:
        seconds = self._timeout if timeout is None else check_timeout(timeout)
        now = asyncio.get_running_loop().time()
        return Deadline(name=name, timeout=seconds, at=now + seconds)

    async def _send(
        self,
        content: Content,
        *,
        task_id: str | None,
        context_id: str | None,
        metadata: Mapping[str, Any] | None,
        configuration: SendMessageConfiguration,
        deadline: Deadline,
        extra: _Extra,
    ) -> Task | Message:
        message = to_message(
            content, new_id=self._env.new_id(), task_id=task_id, context_id=context_id
        )
        request = SendMessageRequest(
            message=message,
            configuration=None if configuration == SendMessageConfiguration() else configuration,
            metadata=None if metadata is None else dict(metadata),
        )
        response = (await self._run(op.SEND_MESSAGE, request, deadline, extra)).value
        if response.task is not None:
            await self._tell(response.task, response.task, deadline)
            return response.task
        if response.message is None:
            text = "the reply holds neither task nor message"  # the codec lets none through
            raise InvalidAgentResponseError(text)
        await self._tell(response.message, None, deadline)
        return response.message

    async def _watch(
        self,
        task_id: str,
        task: Task | None,
        deadline: Deadline,
        interval: float,
        extra: _Extra,
        *,
        until: Callable[[Task], bool],
    ) -> Task:
        """Waits until a task is as wanted."""
        try:
            return await self._poll(task_id, task, deadline, interval, extra, until=until)
        except DeadlineExceededError as error:
            if error.task is None or error.task.state is not TaskState.AUTH_REQUIRED:
                raise
            raise TaskAuthRequiredError(
                f"task {task_id} still waits for an authorization at the end of the "
                f"{deadline.name} timeout of {deadline.timeout:g} s{_said(error.task)}",
                task=error.task,
                executed=True,
                agent=error.agent,
                request_id=error.request_id,
            ) from error

    async def _poll(
        self,
        task_id: str,
        task: Task | None,
        deadline: Deadline,
        interval: float,
        extra: _Extra,
        *,
        until: Callable[[Task], bool],
    ) -> Task:
        last = task

        async def look() -> Task:
            nonlocal last
            found = (
                await self._run(op.GET_TASK, GetTaskRequest(id=task_id), deadline, extra)
            ).value
            if found != last:
                await self._tell(found, found, deadline)
            last = found
            return found

        return await poll(look, task, until=until, deadline=deadline, interval=interval)

    async def _canceled_before(
        self,
        task_id: str,
        error: TaskNotCancelableError | TaskNotFoundError,
        deadline: Deadline,
        extra: _Extra,
    ) -> Task:
        """A cancel that was tried again may have succeeded the first time."""
        if not _ran_before(error):
            raise error
        try:
            task = (
                await self._run(op.GET_TASK, GetTaskRequest(id=task_id), deadline, extra)
            ).value
        except TaskNotFoundError:
            raise error from None
        if task.state is not TaskState.CANCELED:
            raise error
        return task

    async def _tell(self, event: Event, task: Task | None, deadline: Deadline) -> None:
        """Gives an event to the consumers, in order, with the card as last seen.

        A card that is too old by now is not fetched anew: what has arrived must not get lost
        because the card cannot be had.
        """
        if not self._consumers:
            return
        scope = asyncio.timeout_at(deadline.at)
        try:
            async with scope:
                card = self._resolver.last or await self.agent_card()
                for consumer in self._consumers:
                    told = consumer(event, task, card)
                    if inspect.isawaitable(told):
                        await told
        except TimeoutError as error:
            if not scope.expired() or isinstance(error, A2AError):
                raise
            raise DeadlineExceededError(
                f"a consumer did not finish within the {deadline.name} timeout of "
                f"{deadline.timeout:g} s",
                deadline=deadline.name,
                timeout=deadline.timeout,
                task=task,
                executed=True,
            ) from None


class _Extra(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller adds to one call."""

    headers: Mapping[str, str] | None = None
    extensions: tuple[str, ...] = ()


def check_timeout(seconds: float) -> float:
    """Checks a timeout that a caller gives.

    Raises:
        ValueError: It is not a positive, finite number of seconds.
        TypeError: It is no number.
    """
    if not isinstance(cast("object", seconds), int | float):
        text = f"a timeout is a number of seconds, not {type(seconds).__name__}"
        raise TypeError(text)
    if not 0 < seconds < math.inf:
        text = f"a timeout is a positive number of seconds, not {seconds}"
        raise ValueError(text)
    return seconds


def _check_poll_interval(seconds: float) -> None:
    if not 0 < seconds < math.inf:
        text = f"poll_interval is a positive number of seconds, not {seconds}"
        raise ValueError(text)


def _uris(extensions: Iterable[str]) -> tuple[str, ...]:
    """One string would be taken apart into its characters."""
    if isinstance(extensions, str):
        text = "extensions is a sequence of URIs, not one string"
        raise TypeError(text)
    return tuple(extensions)


def _checked_extensions(extensions: tuple[str, ...]) -> tuple[str, ...]:
    for uri in extensions:
        if "," in uri:
            text = f"the extension {uri!r} has a comma; the protocol separates URIs by commas"
            raise ValueError(text)
    if extensions:
        check_headers({"a2a-extensions": ",".join(extensions)})
    return extensions


def _named(name: str, value: str) -> str:
    """An empty id would turn one task into the list of all of them."""
    if not isinstance(cast("object", value), str):
        text = f"{name} is a string, not {type(value).__name__}"
        raise TypeError(text)
    if not value:
        text = f"{name} must not be empty"
        raise ValueError(text)
    return value


def _not_negative(name: str, value: int | None) -> int | None:
    if value is not None and value < 0:
        text = f"{name} must not be negative"
        raise ValueError(text)
    return value


def _timestamp(value: datetime | str | None) -> str | None:
    """RFC 3339 in UTC with milliseconds (A2A 5.6.1)."""
    if not isinstance(value, datetime):
        return value
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ran_before(error: A2AError) -> bool:
    """Whether an earlier try of the same call may have done it."""
    return len(error.attempts) > 1


def _is_terminal(task: Task) -> bool:
    return task.state.is_terminal


def _is_settled(task: Task) -> bool:
    return task.state.is_terminal or task.state is TaskState.INPUT_REQUIRED


def _state_of(task: Task | None) -> str:
    return "in an unknown state" if task is None else task.state.name


def _said(task: Task) -> str:
    message = task.status.message
    return f": {message.text}" if message is not None and message.text else ""
