"""One turn of a task: the received message, and the operations that answer it.

Rules: the events of a turn are emitted in order, and it ends once; an event after its end is
refused. A task is announced before any other event of it is emitted, unless the whole answer is
one `reply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._arguments import explains_unknown_options
from holdfast._server.outcomes import (
    AuthRequired,
    InputRequired,
    Rejected,
    TurnOutcome,
    agent_message,
)
from holdfast.client import Content, to_message
from holdfast.types import (
    Artifact,
    Event,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.errors import A2AError
    from holdfast.extend import Env

__all__ = ["AgentTurn", "Requester"]


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a message, and the request that carried it.

    Attributes:
        user: The caller's name from authentication; None if the caller is not authenticated.
        tenant: The tenant that the request names; None for none.
        extensions: The URIs of the extensions that the client requested.
        headers: The headers of the request, or its gRPC metadata; names in lower case. They
            include credentials.
        accepts: The media types that the client accepts as output; empty for any.
        metadata: The metadata of the request.
    """

    user: str | None = None
    tenant: str | None = None
    extensions: frozenset[str] = frozenset()
    headers: Mapping[str, str] = {}
    accepts: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Requester(user={self.user!r}, tenant={self.tenant!r})"  # headers hold secrets


class AgentTurn:
    """A message for the agent, its history, and the operations that answer it.

    Attributes:
        message: The message.
        task: The task that the message continues, as it was before; None for a new task.
        task_id: Id of the task, also of a new one.
        context_id: Id of the conversation.
        requester: The sender, and the request that carried the message.
    """

    def __init__(
        self,
        message: Message,
        *,
        task: Task | None,
        task_id: str,
        context_id: str,
        requester: Requester,
        emit: Callable[[Event], Awaitable[None]],
        env: Env,
    ) -> None:
        self.message = message
        self.task = task
        self.task_id = task_id
        self.context_id = context_id
        self.requester = requester
        self._emit = emit
        self._env = env
        self._is_announced = task is not None
        self._is_over = False
        self._is_waiting = False
        self._answer_id: str | None = None

    def __repr__(self) -> str:
        return f"<AgentTurn of task {self.task_id}>"

    # ── The message and its history ──────────────────────────────────────────────────────────

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.message.text

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of the task before this one, including the agent's last question."""
        if self.task is None:
            return ()
        question = self.task.status.message
        message_ids = {message.message_id for message in self.task.history}
        earlier = [m for m in self.task.history if m.message_id != self.message.message_id]
        if question is not None and question.message_id not in message_ids:
            earlier.append(question)
        return tuple(earlier)

    @property
    def asked(self) -> str | None:
        """The text of the question that this message answers; None if the agent asked none."""
        task = self.task
        if task is None or not task.state.is_interrupted or task.status.message is None:
            return None
        return task.status.message.text

    @property
    def is_over(self) -> bool:
        """True if the turn has ended."""
        return self._is_over

    @property
    def has_end(self) -> bool:
        """True if the client has the final state of the turn even if no event follows."""
        return self._is_over or self._is_waiting

    # ── Status updates and artifacts ─────────────────────────────────────────────────────────

    @explains_unknown_options()
    async def working(self, content: Content | None = None) -> None:
        """Emit the state WORKING.

        Args:
            content: The status message: text, parts or a message; None for none.
        """
        await self._emit_status(TaskState.WORKING, content)

    async def write(self, *pieces: str | Part) -> None:
        """Append to the answer, which is one artifact that grows with each call.

        Args:
            pieces: Text and parts; empty texts are left out.
        """
        parts = _to_parts(piece for piece in pieces if piece != "")
        if not parts:
            return
        is_first = self._answer_id is None
        answer_id = self._answer_id = self._answer_id or self._env.new_id()
        artifact = Artifact(artifact_id=answer_id, parts=parts)
        await self._emit_artifact(artifact, append=not is_first)

    @explains_unknown_options()
    async def artifact(
        self,
        content: Artifact | str | Part | Iterable[str | Part],
        *,
        name: str | None = None,
        append: bool = False,
        last_chunk: bool = True,
    ) -> str:
        """Emit an artifact: a result of the task.

        Args:
            content: The artifact, or its parts. An artifact without an id gets a new one.
            name: Name for display; None for the artifact's own name.
            append: Whether to append the parts to the artifact with this id; False by default.
            last_chunk: Whether the artifact is complete; True by default.

        Returns:
            The artifact's id.
        """
        artifact = content if isinstance(content, Artifact) else Artifact(parts=_to_parts(content))
        artifact = msgspec.structs.replace(
            artifact,
            artifact_id=artifact.artifact_id or self._env.new_id(),
            name=artifact.name if name is None else name,
            parts=_to_parts(artifact.parts),
        )
        await self._emit_artifact(artifact, append=append, last_chunk=last_chunk)
        return artifact.artifact_id

    async def emit(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        """Emit an event unchanged, except for the ids of the task and the conversation.

        INPUT_REQUIRED and the terminal states end the turn. AUTH_REQUIRED does not: an executor
        may wait for an authorization that arrives out of band, and continue.

        Args:
            event: The event.
        """
        await self._emit_event(event)

    # ── The end of the turn ──────────────────────────────────────────────────────────────────

    @explains_unknown_options()
    async def complete(self, content: Content | None = None) -> None:
        """End the task as COMPLETED.

        Args:
            content: The status message; None for none. Results are artifacts.
        """
        await self._emit_status(TaskState.COMPLETED, content)

    async def requires_input(self, prompt: Content) -> None:
        """End the turn; the task waits for another message (INPUT_REQUIRED).

        Args:
            prompt: The question: text, parts or a message.
        """
        await self.end(InputRequired(prompt))

    async def requires_auth(self, prompt: Content) -> None:
        """End the turn; the task waits for an authorization (AUTH_REQUIRED, A2A 7.6).

        Args:
            prompt: Instructions for the authorization: text, parts or a message; never a secret.
        """
        await self.end(AuthRequired(prompt))

    async def reject(self, reason: Content) -> None:
        """End the task as REJECTED.

        Args:
            reason: Reason for the refusal: text, parts or a message.
        """
        await self.end(Rejected(reason))

    async def fail(self, error: A2AError) -> None:
        """End the task as FAILED, with the error's text and facts.

        The status message carries the facts as ``metadata["error"]``, a JSON-RPC error object;
        `A2AError.from_jsonrpc` reads it.

        Args:
            error: The error.
        """
        document = error.to_jsonrpc()
        message = Message(
            message_id=self._env.new_id(),
            parts=(Part(text=document["message"]),),
            metadata={"error": document},
        )
        await self._emit_status(TaskState.FAILED, message)

    async def cancel(self) -> None:
        """End the task as CANCELED."""
        await self._emit_status(TaskState.CANCELED)

    async def end(self, ending: TurnOutcome) -> None:
        """End the turn in the state of a `TurnOutcome`.

        Args:
            ending: The outcome.
        """
        await self._emit_status(ending.state, ending.content, ends_turn=True)

    async def reply(self, content: Content) -> None:
        """End the turn with a message instead of a task; only before any other event.

        A client that loses the reply cannot fetch it again; it can fetch a task.

        Args:
            content: The message: text, parts or a message.

        Raises:
            RuntimeError: The task was announced, or the turn is over.
        """
        if self._is_announced:
            raise RuntimeError("the task was announced; finish it with complete()")
        self._check_not_over()
        message = agent_message(content, new_id=self._env.new_id(), context_id=self.context_id)
        self._is_over = True
        await self._emit(message)

    async def announce(self) -> None:
        """Emit the task as SUBMITTED, so that the client learns its id; every other event does.

        Raises:
            RuntimeError: The turn is over.
        """
        if self._is_announced:
            return
        self._check_not_over()
        self._is_announced = True
        status = TaskStatus(state=TaskState.SUBMITTED, timestamp=self._now())
        message = msgspec.structs.replace(
            self.message, task_id=self.task_id, context_id=self.context_id
        )
        await self._emit(
            Task(id=self.task_id, context_id=self.context_id, status=status, history=(message,))
        )

    def close(self) -> None:
        """Refuse further events: the task was ended from outside."""
        self._is_over = True

    # ── Internal ─────────────────────────────────────────────────────────────────────────────

    async def _emit_status(
        self, state: TaskState, content: Content | None = None, *, ends_turn: bool = False
    ) -> None:
        message = None
        if content is not None:
            ids = {"task_id": self.task_id, "context_id": self.context_id}
            message = agent_message(content, new_id=self._env.new_id(), **ids)
        status = TaskStatus(state=state, message=message, timestamp=self._now())
        await self._emit_event(TaskStatusUpdateEvent(status=status), ends_turn=ends_turn)

    async def _emit_artifact(
        self, artifact: Artifact, *, append: bool, last_chunk: bool = False
    ) -> None:
        await self._emit_event(
            TaskArtifactUpdateEvent(artifact=artifact, append=append, last_chunk=last_chunk)
        )

    async def _emit_event(
        self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent, *, ends_turn: bool = False
    ) -> None:
        self._check_not_over()
        await self.announce()
        if isinstance(event, TaskStatusUpdateEvent):
            state = event.status.state
            self._is_waiting = state.is_interrupted
            self._is_over = ends_turn or state.is_settled
        event = msgspec.structs.replace(event, task_id=self.task_id, context_id=self.context_id)
        await self._emit(event)

    def _check_not_over(self) -> None:
        if self._is_over:
            raise RuntimeError(f"the turn of task {self.task_id} has ended")

    def _now(self) -> str:
        time = datetime.fromtimestamp(self._env.wall(), UTC)
        return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _to_parts(content: object) -> tuple[Part, ...]:
    """Return the parts of a result.

    Raises:
        ValueError: A part is not valid.
        TypeError: It is not content.
    """
    if isinstance(content, str):
        return (Part(text=content),)
    if isinstance(content, Iterable) and not isinstance(content, Part | Message | Mapping | bytes):
        content = list(cast("Iterable[object]", content))
        if not content:
            return ()
    return to_message(cast("Content", content), new_id="-").parts
