"""A scripted agent that speaks the protocol's real bytes, JSON-RPC and HTTP+JSON.

`FakeAgent` is the agent itself: it takes an HTTP request and says what it answers, and when. It
does no I/O: `holdfast.testing.network` carries requests to it in process, in virtual time;
`holdfast.testing.server` puts it behind a real socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.model import operations as op
from holdfast.model.card import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from holdfast.model.requests import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Empty,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SendMessageResponse,
    TaskPushNotificationConfig,
)
from holdfast.model.types import Message, Task, TaskState
from holdfast.testing.faults import Fault
from holdfast.testing.lives import Life
from holdfast.testing.plans import Behaviour, Plan, Step, Turn, completes, echo
from holdfast.testing.serverwire import CARD, Refusal, Wire, read_request
from holdfast.wire.http import HttpReply, HttpRequest

__all__ = ["Answering", "FakeAgent", "Received"]


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A request that reached the agent.

    Attributes:
        operation: Name of the operation, or ``"GetAgentCard"``; empty if it is neither.
        method: HTTP method.
        url: The whole address.
        headers: Names in lower case.
        body: As it came.
        at: When, on the event loop's clock.
    """

    operation: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    at: float


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a request.

    Attributes:
        reply: Makes the reply, as things stand when it is called.
        at: When to reply, on the event loop's clock; None for never.
        fault: What goes wrong with it.
    """

    reply: Callable[[], HttpReply]
    at: float | None
    fault: Fault | None = None


class FakeAgent:
    """An agent for tests and demonstrations.

    Args:
        behaviour: What it does with a message; it echoes if left out.
        url: Its origin in process; behind a socket the real address counts.
        bindings: The bindings that its card offers, in order.
        card: A card to show in place of its own: an `AgentCard`, or anything that is JSON.
        token: A bearer token that every operation needs; None for none.
        cancel_takes: Seconds from a request to cancel until the task is CANCELED; None for never.
        records_messages: Whether the user's messages appear in a task's history.
        latency: Seconds before each reply.

    Attributes:
        received: Every request that reached it, in order.
        executions: The ids of the tasks, or of the reply messages, that each message id made.
    """

    def __init__(
        self,
        behaviour: Behaviour = echo,
        *,
        url: str = "http://agent.test",
        bindings: tuple[str, ...] = ("JSONRPC", "HTTP+JSON"),
        card: AgentCard | Any | None = None,
        token: str | None = None,
        cancel_takes: float | None = 0.0,
        records_messages: bool = True,
        latency: float = 0.0,
    ) -> None:
        self.url = url
        self.card = card
        self.received: list[Received] = []
        self.executions: dict[str, list[str]] = {}
        self._behaviour = behaviour
        self._bindings = bindings
        self._token = token
        self._cancel_takes = cancel_takes
        self._records_messages = records_messages
        self._latency = latency
        self._lives: dict[str, Life] = {}
        self._configs: dict[tuple[str, str], TaskPushNotificationConfig] = {}
        self._faults: deque[tuple[str | None, Fault]] = deque()
        self._made = 0
        self._operations: dict[str, Callable[[Any, float], _Result]] = {
            op.SEND_MESSAGE.name: self._send,
            op.GET_TASK.name: self._get,
            op.LIST_TASKS.name: self._list,
            op.CANCEL_TASK.name: self._cancel,
            op.CREATE_PUSH_CONFIG.name: self._create_config,
            op.GET_PUSH_CONFIG.name: self._get_config,
            op.LIST_PUSH_CONFIGS.name: self._list_configs,
            op.DELETE_PUSH_CONFIG.name: self._delete_config,
            op.GET_EXTENDED_AGENT_CARD.name: self._extended_card,
        }

    # ── For the test ─────────────────────────────────────────────────────────────────────────

    def inject(self, fault: Fault, *, on: str | None = None, times: int = 1) -> None:
        """Lets something go wrong with requests to come, in the order of the calls.

        Args:
            fault: What goes wrong.
            on: Name of the operation that it waits for (``"GetAgentCard"`` for the card); None
                for whichever comes first, the card not counted.
            times: With how many requests.
        """
        self._faults.extend([(on, fault)] * times)

    @property
    def tasks(self) -> dict[str, Task]:
        """Every task as it stands, by id."""
        now = asyncio.get_running_loop().time()
        return {task_id: life.task(now) for task_id, life in self._lives.items()}

    def calls(self, operation: str) -> list[Received]:
        """The requests for one operation, by its name."""
        return [received for received in self.received if received.operation == operation]

    # ── For what carries requests ────────────────────────────────────────────────────────────

    def next_fault(self, request: HttpRequest) -> Fault | None:
        """Takes the fault that is meant for a request, if there is one."""
        name = read_request(request).operation
        for index, (on, fault) in enumerate(self._faults):
            if on == name or (on is None and name != CARD):
                del self._faults[index]
                return fault
        return None

    def receive(self, request: HttpRequest, now: float) -> Answering:
        """Takes a request in.

        Args:
            request: The request, its URL absolute.
            now: The event loop's time in seconds.
        """
        wire = read_request(request)
        self.received.append(
            Received(
                operation=wire.operation,
                method=request.method,
                url=request.url,
                headers=dict(request.headers),
                body=request.body,
                at=now,
            )
        )
        try:
            result = self._result(wire, request, now)
        except Refusal as refusal:
            reply = wire.refuse(refusal)
            return Answering(reply=lambda: reply, at=now + self._latency)
        at = None if result.at is None else max(result.at, now + self._latency)
        return Answering(reply=lambda: wire.answer(result.value()), at=at)

    def _result(self, wire: Wire, request: HttpRequest, now: float) -> _Result:
        if wire.operation == CARD:
            return _Result(value=lambda: self._public_card(request), at=now)
        if self._token is not None:
            given = request.headers.get("authorization")
            if given != f"Bearer {self._token}":
                raise Refusal(-32000, "this agent wants a bearer token", http_status=401)
        return self._operations.get(wire.operation, _unknown)(wire.params(), now)

    # ── Operations ───────────────────────────────────────────────────────────────────────────

    def _send(self, request: SendMessageRequest, now: float) -> _Result:
        message = request.message
        if not message.parts:
            raise Refusal(-32602, "a message needs parts")
        life = self._lives.get(message.task_id or "")
        if message.task_id and life is None:
            raise Refusal(
                -32001, f"task {message.task_id} not found", metadata={"taskId": message.task_id}
            )
        present = None if life is None else life.task(now)
        if present is not None and present.state.is_terminal:
            raise Refusal(-32004, f"task {present.id} is over")
        outcome = self._behaviour(Turn(message=message, task=present))
        made = self.executions.setdefault(message.message_id, [])
        if isinstance(outcome, Message):
            reply = msgspec.structs.replace(
                outcome,
                message_id=outcome.message_id or self._new_id("message"),
                context_id=message.context_id or self._new_id("context"),
            )
            made.append(reply.message_id)
            return _Result(value=lambda: SendMessageResponse(message=reply), at=now)
        plan = completes(outcome) if isinstance(outcome, str) else outcome
        if life is None:
            life = Life(self._new_id("task"), message.context_id or self._new_id("context"))
            self._lives[life.task_id] = life
        made.append(life.task_id)
        life.begin(plan, message if self._records_messages else None, now)
        configuration = request.configuration
        length = None if configuration is None else configuration.history_length
        at = now if configuration and configuration.return_immediately else life.settles_at(now)

        def value() -> SendMessageResponse:
            task = life.task(asyncio.get_running_loop().time())
            return SendMessageResponse(task=_with_history(task, length))

        return _Result(value=value, at=at)

    def _get(self, request: GetTaskRequest, now: float) -> _Result:
        task = self._life(request.id).task(now)
        return _at_once(_with_history(task, request.history_length), now)

    def _list(self, request: ListTasksRequest, now: float) -> _Result:
        found = [
            task
            for task in (life.task(now) for life in reversed(self._lives.values()))
            if request.context_id in {None, task.context_id}
            and request.status in {None, task.state}
            and (task.status.timestamp or "") >= (request.status_timestamp_after or "")
        ]
        found.sort(key=lambda task: task.status.timestamp or "", reverse=True)
        size = request.page_size or 50
        start = int(request.page_token or 0)
        page = [
            _with_history(
                task if request.include_artifacts else msgspec.structs.replace(task, artifacts=()),
                request.history_length,
            )
            for task in found[start : start + size]
        ]
        end = start + size
        response = ListTasksResponse(
            tasks=tuple(page),
            next_page_token=str(end) if end < len(found) else "",
            page_size=size,
            total_size=len(found),
        )
        return _at_once(response, now)

    def _cancel(self, request: CancelTaskRequest, now: float) -> _Result:
        life = self._life(request.id)
        task = life.task(now)
        if task.state.is_terminal:
            raise Refusal(
                -32002,
                f"task {task.id} cannot be canceled",
                metadata={"taskId": task.id, "state": task.state},
            )
        if self._cancel_takes is not None:
            canceled = Step(state=TaskState.CANCELED, after=self._cancel_takes)
            life.begin(Plan((canceled,)), None, now)
        return _at_once(life.task(now), now)

    def _create_config(self, config: TaskPushNotificationConfig, now: float) -> _Result:
        life = self._life(config.task_id or "")
        config_id = config.id or self._new_id("config")
        stored = msgspec.structs.replace(config, id=config_id)
        self._configs[life.task_id, config_id] = stored
        return _at_once(stored, now)

    def _get_config(self, request: GetTaskPushNotificationConfigRequest, now: float) -> _Result:
        config = self._configs.get((request.task_id, request.id))
        if config is None:
            raise Refusal(-32001, f"configuration {request.id} not found")
        return _at_once(config, now)

    def _list_configs(
        self, request: ListTaskPushNotificationConfigsRequest, now: float
    ) -> _Result:
        self._life(request.task_id)
        found = tuple(c for (task_id, _), c in self._configs.items() if task_id == request.task_id)
        return _at_once(ListTaskPushNotificationConfigsResponse(configs=found), now)

    def _delete_config(
        self, request: DeleteTaskPushNotificationConfigRequest, now: float
    ) -> _Result:
        if self._configs.pop((request.task_id, request.id), None) is None:
            raise Refusal(-32001, f"configuration {request.id} not found")
        return _at_once(Empty(), now)

    def _extended_card(self, _request: Any, now: float) -> _Result:
        card = self._own_card(self.url)
        return _at_once(msgspec.structs.replace(card, name=f"{card.name}, extended"), now)

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _public_card(self, request: HttpRequest) -> Any:
        base = request.url.partition("/.well-known/")[0]
        return self._own_card(base) if self.card is None else self.card

    def _own_card(self, base: str) -> AgentCard:
        paths = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}
        return AgentCard(
            name="Fake agent",
            description="Does as it is told.",
            version="1.0",
            supported_interfaces=tuple(
                AgentInterface(
                    url=f"{base}{paths[binding]}",
                    protocol_binding=binding,
                    protocol_version="1.0",
                )
                for binding in self._bindings
            ),
            capabilities=AgentCapabilities(
                streaming=False, push_notifications=True, extended_agent_card=True
            ),
            default_input_modes=("text/plain",),
            default_output_modes=("text/plain",),
            skills=(
                AgentSkill(
                    id="echo", name="Echo", description="Says what it hears.", tags=("test",)
                ),
            ),
        )

    def _life(self, task_id: str) -> Life:
        life = self._lives.get(task_id)
        if life is None:
            raise Refusal(-32001, f"task {task_id} not found", metadata={"taskId": task_id})
        return life

    def _new_id(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation answers, and when; `at` is None for never."""

    value: Callable[[], Any]
    at: float | None


def _at_once(value: Any, now: float) -> _Result:
    return _Result(value=lambda: value, at=now)


def _unknown(_params: Any, _now: float) -> _Result:
    raise Refusal(-32601, "method not found")


def _with_history(task: Task, length: int | None) -> Task:
    if length is None:
        return task
    return msgspec.structs.replace(task, history=task.history[-length:] if length else ())
