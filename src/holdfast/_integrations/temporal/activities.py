"""The activity that asks an agent, and resumes the call of an earlier attempt after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from typing import TYPE_CHECKING

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast._aio.callbacks import cancel_and_wait
from holdfast._arguments import check_key
from holdfast._client.answer import raise_for_outcome
from holdfast._integrations.durable import step_key
from holdfast._integrations.temporal.attempt import Attempt
from holdfast._integrations.temporal.failures import application_error
from holdfast._integrations.temporal.requests import ASK, AskRequest, AskResult
from holdfast.client import Answer, to_message
from holdfast.errors import A2AError, OutcomeUnknownError
from holdfast.types import Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._integrations.temporal.clients import AgentClients, NamedClient
    from holdfast.types import Event

__all__ = ["AgentActivities"]

logger = logging.getLogger("holdfast")

_MESSAGE_IDS = uuid.UUID("6ad5b8a4-4c52-4f0e-9d5e-0a1f5a4e7c10")
"""Namespace of the ids of messages (RFC 9562, 5.5): attempts of one activity send the same id."""

_CANCEL_TASK_S = 10.0
"""Seconds that the agent has to report its task, and then again to cancel it."""

_END_S = 1.0
"""Seconds in which the call ends after its task was canceled."""


class AgentActivities:
    """The activities of a worker.

    Args:
        clients: The agents by name.
    """

    def __init__(self, clients: AgentClients) -> None:
        self._clients = clients

    @activity.defn(name=ASK)
    async def ask(self, request: AskRequest) -> AskResult:
        """Ask an agent; see `WorkflowAgent.ask`."""
        if activity.info().is_local:
            text = f"{ASK} needs heartbeats, which local activities do not have"
            raise ApplicationError(text, type="ValueError", non_retryable=True)
        agent = self._clients.get(request.agent)
        call = _AgentCall(request, agent)
        calling = asyncio.create_task(call.answer(), name="holdfast: asks")
        try:
            await asyncio.wait({calling})
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if request.cancel_task and details is not None and details.cancel_requested:
                await call.cancel_task()
                await asyncio.wait({calling}, timeout=_END_S)
            raise
        finally:
            await cancel_and_wait(calling)
        answer = calling.result()
        if answer.task is not None:
            task = msgspec.structs.replace(answer.task, history=())
            answer = msgspec.structs.replace(answer, task=task)
        return AskResult(answer=answer.to_dict(), fingerprint=request.fingerprint)


class _AgentCall:
    """The call of one attempt."""

    def __init__(self, request: AskRequest, agent: NamedClient) -> None:
        self._request = request
        self._agent = agent
        own_key = _activity_key()
        try:
            content = to_message(request.message, new_id=str(uuid.uuid5(_MESSAGE_IDS, own_key)))
            if request.key is not None:
                check_key(request.key)
        except (TypeError, ValueError) as error:
            text = f"the message or its key is not valid, and was not sent: {error}"
            raise ApplicationError(text, type=type(error).__name__, non_retryable=True) from error
        if request.key is not None and not agent.has_journal:
            text = f"key= needs a journal: pass HoldfastPlugin(…, journal=…) for {request.agent!r}"
            raise ApplicationError(text, type="ValueError", non_retryable=True)
        self._message = content
        self._key = own_key if request.key is None else request.key
        self._attempt = Attempt(content.message_id)
        self._is_sender = False  # whether this attempt sends the message

    async def answer(self) -> Answer:
        """Return the answer of the agent.

        Raises:
            ApplicationError: There is no answer.
        """
        attempt = self._attempt
        async with attempt.heartbeats():
            try:
                return await self._answer()
            except A2AError as error:
                if self._is_sender and error.executed is False:
                    await attempt.record_not_sent()
                raise application_error(
                    error,
                    message_id=self._message.message_id,
                    context_id=attempt.progress.context_id or self._message.context_id,
                    task_id=attempt.progress.task_id or self._message.task_id,
                    has_journal=self._agent.has_journal,
                ) from None  # Temporal truncates failures with a long chain of causes

    async def _answer(self) -> Answer:
        earlier, agent = self._attempt.earlier, self._agent
        if earlier is None:
            return await self._send()
        if agent.has_journal:
            if await agent.has_recorded(self._key):
                return await self._stream()
            if earlier.journal is not None and earlier.journal == await agent.journal_id():
                return await self._send()  # the worker crashed before it began the call
        if earlier.task_id is not None:
            task = await agent.client.wait(earlier.task_id)
            raise_for_outcome(task, agent=None)
            return Answer(task=task)
        text = (
            f"the outcome of message {self._message.message_id} is unknown: the worker of an "
            "earlier attempt crashed before it learned the task's id, and "
        )
        if agent.has_journal:
            text += "the journal of this worker has no record of the message; use one journal "
            text += "for all workers"
        else:
            text += "there is no journal: pass HoldfastPlugin(…, journal=…)"
        raise OutcomeUnknownError(
            text, message_id=self._message.message_id, context_id=self._message.context_id
        )

    async def _send(self) -> Answer:
        agent = self._agent
        await agent.client.agent_card()  # so that an unreachable agent fails before the record
        await self._attempt.record_sending(await agent.journal_id())
        self._is_sender = True
        return await self._stream()

    async def _stream(self) -> Answer:
        """Send the message, or resume the call that the journal has for the key."""
        agent, request = self._agent, self._request
        stream = agent.client.stream_message(
            self._message,
            metadata=request.metadata,
            accepted_output_modes=request.accepted_output_modes,
            key=self._key if agent.has_journal else None,
        )
        async with stream as events:
            async for event in events:
                self._note(event)
            return await events.result()

    def _note(self, event: Event) -> None:
        """Note the task of the message, which the next attempt can wait for.

        If the message is a reply to a task, the task is noted once it no longer waits for input:
        until then, its state does not prove that the agent received the reply.
        """
        state: str | None = None
        match event:
            case Task(id=task_id, context_id=context_id):
                state = str(event.state)
            case TaskStatusUpdateEvent(task_id=task_id, context_id=context_id):
                state = str(event.status.state)
            case TaskArtifactUpdateEvent(task_id=task_id, context_id=context_id):
                pass
            case _:
                return
        attempt = self._attempt
        is_reply = self._message.task_id is not None and attempt.progress.task_id is None
        if is_reply and state in {None, TaskState.INPUT_REQUIRED}:
            return
        attempt.note_task(task_id, context_id, state)

    async def cancel_task(self) -> None:
        """Cancel the agent's task, as soon as its id is known; failures are logged."""
        attempt = self._attempt
        if self._message.task_id is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CANCEL_TASK_S):
                    await attempt.has_task.wait()
        task_id = attempt.progress.task_id or self._message.task_id
        if task_id is None:
            if self._is_sender:
                text = "agent %s: message %s was cancelled, but its task is unknown, and continues"
                agent, message_id = self._request.agent, self._message.message_id
                extra = {"agent": agent, "message_id": message_id}
                logger.warning(text, agent, message_id, extra=extra)
            return
        try:
            await self._agent.client.cancel_task(task_id, timeout=_CANCEL_TASK_S)
        except A2AError as error:
            text = "agent %s: task %s could not be canceled: %s"
            fields = {
                "agent": self._request.agent,
                "task_id": task_id,
                "operation_id": error.operation_id,
                "request_id": error.request_id,
                "error_type": type(error).__name__,
            }
            known = {name: value for name, value in fields.items() if value is not None}
            logger.warning(text, self._request.agent, task_id, error, extra=known)


def _activity_key() -> str:
    """Return the key of the activity: the same in all attempts, and that of no other activity."""
    info = activity.info()
    run = info.workflow_run_id or info.activity_run_id or ""
    return step_key("temporal", info.workflow_id or "", run, info.activity_id)
