"""One turn of a task: the message that came, and all that can be done about it.

Rules: a turn is told in order, and ends once; what comes after its end is refused. Who leads a
task says so with the first word: a task is announced before anything of it is told, unless the
whole answer is one `reply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._client.content import Content, to_message
from holdfast._model.error_writing import own_words
from holdfast._server.outcomes import AuthRequired, Ending, InputRequired, Rejected, agent_message
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

    from holdfast._aio.env import Env
    from holdfast.errors import A2AError

__all__ = ["AgentTurn", "Requester"]


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a message, and how.

    Attributes:
        user: The name that the application's authentication gives; None for nobody known.
        tenant: That the request names; None for none.
        extensions: The URIs of the extensions that the client asked for.
        headers: Of the request, names in lower case, credentials among them; gRPC's metadata.
        accepts: The media types that the client wants as an answer; empty for any.
        metadata: Of the request.
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
    """What an agent is given: a message, what there was before, and how to answer.

    Attributes:
        message: The message.
        task: The task that it continues, as it stood before; None for a new one.
        task_id: Id of the task, a new one's too.
        context_id: The conversation that it belongs to.
        requester: Who sent it, and how.
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

    # ── What came ────────────────────────────────────────────────────────────────────────────

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.message.text

    @property
    def history(self) -> tuple[Message, ...]:
        """What was said on the task before this message, the last question included."""
        if self.task is None:
            return ()
        asked = self.task.status.message
        known = {message.message_id for message in self.task.history}
        earlier = [m for m in self.task.history if m.message_id != self.message.message_id]
        if asked is not None and asked.message_id not in known:
            earlier.append(asked)
        return tuple(earlier)

    @property
    def asked(self) -> str | None:
        """What the agent had asked, where this message answers; None where it asked nothing."""
        task = self.task
        if task is None or not task.state.is_interrupted or task.status.message is None:
            return None
        return task.status.message.text

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended."""
        return self._is_over

    @property
    def has_end(self) -> bool:
        """Whether the client knows how it stands, should nothing more be told."""
        return self._is_over or self._is_waiting

    @property
    def is_announced(self) -> bool:
        """Whether the client knows of the task."""
        return self._is_announced

    # ── What is told ─────────────────────────────────────────────────────────────────────────

    async def working(self, content: Content | None = None) -> None:
        """Tells that the agent is at work, and perhaps on what.

        Args:
            content: Text, parts or a message.
        """
        await self._status(TaskState.WORKING, content)

    async def write(self, *pieces: str | Part) -> None:
        """Adds to the answer: one artifact, which grows with each call.

        Args:
            pieces: Text and parts; empty texts are left out.
        """
        parts = to_parts(piece for piece in pieces if piece != "")
        if not parts:
            return
        is_first = self._answer_id is None
        answer_id = self._answer_id = self._answer_id or self._env.new_id()
        artifact = Artifact(artifact_id=answer_id, parts=parts)
        await self._add(artifact, append=not is_first)

    async def artifact(
        self,
        content: Artifact | str | Part | Iterable[str | Part],
        *,
        name: str | None = None,
        append: bool = False,
        last_chunk: bool = True,
    ) -> str:
        """Tells a result.

        Args:
            content: The artifact, or its parts. An artifact without an id gets a new one.
            name: Its name for people.
            append: Whether to add it to the artifact of this id.
            last_chunk: Whether it is complete.

        Returns:
            Its id.
        """
        made = content if isinstance(content, Artifact) else Artifact(parts=to_parts(content))
        made = msgspec.structs.replace(
            made,
            artifact_id=made.artifact_id or self._env.new_id(),
            name=made.name if name is None else name,
            parts=to_parts(made.parts),
        )
        await self._add(made, append=append, last_chunk=last_chunk)
        return made.artifact_id

    async def emit(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        """Tells an event as it is, but for the ids of the task and the conversation.

        A status in which nothing happens without another message ends the turn. AUTH_REQUIRED does
        not: an executor may wait here for an authorization that comes in another way, and go on.
        """
        await self._tell(event)

    # ── How it ends ──────────────────────────────────────────────────────────────────────────

    async def complete(self, content: Content | None = None) -> None:
        """Ends the task: COMPLETED.

        Args:
            content: What is said with it; results are artifacts.
        """
        await self._status(TaskState.COMPLETED, content)

    async def requires_input(self, prompt: Content) -> None:
        """Ends the turn: the task waits for another message; see `requires_input`."""
        await self.end(InputRequired(prompt))

    async def requires_auth(self, prompt: Content) -> None:
        """Ends the turn: the task waits for an authorization; see `requires_auth`."""
        await self.end(AuthRequired(prompt))

    async def reject(self, reason: Content) -> None:
        """Ends the task: the agent does not do it; see `reject`."""
        await self.end(Rejected(reason))

    async def fail(self, error: A2AError) -> None:
        """Ends the task: FAILED, in the words of the error and with its facts.

        The status message has them as ``metadata["error"]``, a JSON-RPC error object: read it by
        `A2AError.from_jsonrpc`.
        """
        message = Message(
            message_id=self._env.new_id(),
            parts=(Part(text=own_words(error)),),
            metadata={"error": error.to_jsonrpc()},
        )
        await self._status(TaskState.FAILED, message)

    async def cancel(self) -> None:
        """Ends the task: CANCELED."""
        await self._status(TaskState.CANCELED)

    async def end(self, ending: Ending) -> None:
        """Ends the turn in the state of an `Ending`."""
        await self._status(ending.state, ending.content, ends=True)

    async def reply(self, content: Content) -> None:
        """Ends the turn with a message and no task; only before anything else was told.

        Whoever loses it on the way can look it up nowhere; a task can be asked for again.
        """
        if self._is_announced:
            raise RuntimeError("the task was announced; end it by complete()")
        self._check()
        message = agent_message(content, new_id=self._env.new_id(), context_id=self.context_id)
        self._is_over = True
        await self._emit(message)

    async def announce(self) -> None:
        """Tells the client that there is a task, so that it can be asked for; see `working`."""
        if self._is_announced:
            return
        self._check()
        self._is_announced = True
        status = TaskStatus(state=TaskState.SUBMITTED, timestamp=self._now())
        message = msgspec.structs.replace(
            self.message, task_id=self.task_id, context_id=self.context_id
        )
        await self._emit(
            Task(id=self.task_id, context_id=self.context_id, status=status, history=(message,))
        )

    def close(self) -> None:
        """Refuses whatever comes now: the task was ended from outside."""
        self._is_over = True

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    async def _status(
        self, state: TaskState, content: Content | None = None, *, ends: bool = False
    ) -> None:
        message = None
        if content is not None:
            ids = {"task_id": self.task_id, "context_id": self.context_id}
            message = agent_message(content, new_id=self._env.new_id(), **ids)
        status = TaskStatus(state=state, message=message, timestamp=self._now())
        await self._tell(TaskStatusUpdateEvent(status=status), ends=ends)

    async def _add(self, artifact: Artifact, *, append: bool, last_chunk: bool = False) -> None:
        await self._tell(
            TaskArtifactUpdateEvent(artifact=artifact, append=append, last_chunk=last_chunk)
        )

    async def _tell(
        self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent, *, ends: bool = False
    ) -> None:
        self._check()
        await self.announce()
        if isinstance(event, TaskStatusUpdateEvent):
            state = event.status.state
            self._is_waiting = state.is_interrupted
            self._is_over = ends or state.is_settled
        event = msgspec.structs.replace(event, task_id=self.task_id, context_id=self.context_id)
        await self._emit(event)

    def _check(self) -> None:
        if self._is_over:
            raise RuntimeError(f"the turn of task {self.task_id} is over")

    def _now(self) -> str:
        time = datetime.fromtimestamp(self._env.wall(), UTC)
        return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_parts(content: object) -> tuple[Part, ...]:
    """The parts of a result.

    Raises:
        ValueError: There are none, or one is not right.
        TypeError: It is no content.
    """
    if isinstance(content, str):
        return (Part(text=content),)
    if isinstance(content, Iterable) and not isinstance(content, Part | Message | Mapping | bytes):
        content = list(cast("Iterable[object]", content))
        if not content:
            return ()
    return to_message(cast("Content", content), new_id="-").parts
