"""A real agent of protocol 0.3, on the last official SDK that speaks it, for our tests to call.

It does what `sdk_agent.py` does that tests of 0.3 need, by the same words, and keeps its rules:
it never imports holdfast, runs in an environment of its own (`a2a-sdk[http-server]` 0.3), prints
one line, and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.apps.rest.rest_adapter import RESTAdapter
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.tasks import (
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    HTTPAuthSecurityScheme,
    Message,
    Part,
    Role,
    SecurityScheme,
    Task,
    TaskState,
    TaskStatus,
    TextPart,
)
from grpc_door import GrpcDoor
from serving import CARD_PATH, JSONRPC_PATH, REST_PATH, TEST_PATHS, Permits, Record, serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

if TYPE_CHECKING:
    from a2a.server.events import EventQueue
    from starlette.types import ASGIApp, Receive, Scope, Send

FILE_BYTES: Final = bytes(range(256))
"""What `file` sends: every byte value, so its base64 holds both `+` and `/`."""
FILE_MEDIA_TYPE: Final = "application/octet-stream"


def text_part(text: str) -> Part:
    """Return text as a part."""
    return Part(root=TextPart(text=text))


@dataclass(frozen=True)
class Turn:
    """One message being answered: the rest of its text, and where answers go."""

    argument: str
    message: Message
    task: Task | None
    permits: Permits
    queue: EventQueue
    updater: TaskUpdater

    async def submit(self) -> None:
        """Publish the task as submitted, unless it exists already."""
        if self.task is None:
            await self.queue.enqueue_event(
                Task(
                    id=self.updater.task_id,
                    context_id=self.updater.context_id,
                    status=TaskStatus(state=TaskState.submitted),
                    history=[self.message],
                )
            )

    async def begin(self) -> None:
        """Publish the task as submitted, then as working."""
        await self.submit()
        await self.updater.start_work()

    async def finish(self, *parts: Part) -> None:
        """Publish one artifact with these parts, then complete the task."""
        await self.updater.add_artifact(list(parts), name="result", last_chunk=True)
        await self.updater.complete()

    def say(self, text: str) -> Message:
        """Return a message of the agent on this task."""
        return self.updater.new_agent_message([text_part(text)])


async def echo(turn: Turn) -> None:
    """Complete with the text."""
    await turn.begin()
    await turn.finish(text_part(turn.argument))


async def message(turn: Turn) -> None:
    """Answer with a message, and no task."""
    await turn.queue.enqueue_event(
        Message(
            message_id=f"answer-to-{turn.message.message_id}",
            context_id=turn.updater.context_id,
            role=Role.agent,
            parts=[text_part(turn.argument)],
        )
    )


async def fail(turn: Turn) -> None:
    """Fail for the reason given, without artifacts."""
    await turn.begin()
    await turn.updater.failed(turn.say(turn.argument))


async def reject(turn: Turn) -> None:
    """Reject for the reason given, without starting."""
    await turn.submit()
    await turn.updater.reject(turn.say(turn.argument))


async def ask(turn: Turn) -> None:
    """Stop at input-required with the question, and say that nothing follows."""
    await turn.begin()
    await turn.updater.requires_input(turn.say(turn.argument), final=True)


async def auth(turn: Turn) -> None:
    """Stop at auth-required with the reason; the next message completes the task."""
    await turn.begin()
    await turn.updater.requires_auth(turn.say(turn.argument))


async def slow(turn: Turn) -> None:
    """Work for some seconds, then complete with the text."""
    seconds, _, text = turn.argument.partition(" ")
    delay = float(seconds)
    await turn.begin()
    await asyncio.sleep(delay)
    await turn.finish(text_part(text))


async def data(turn: Turn) -> None:
    """Complete with a data part that holds the JSON object given."""
    value = json.loads(turn.argument)
    await turn.begin()
    await turn.finish(Part(root=DataPart(data=value)))


async def file(turn: Turn) -> None:
    """Complete with `FILE_BYTES` under the name given."""
    await turn.begin()
    content = base64.b64encode(FILE_BYTES).decode()
    sent = FileWithBytes(bytes=content, name=turn.argument, mime_type=FILE_MEDIA_TYPE)
    await turn.finish(Part(root=FilePart(file=sent)))


async def back(turn: Turn) -> None:
    """Complete with the parts that came with the message, behind its first one."""
    await turn.begin()
    await turn.finish(*turn.message.parts[1:])


async def chunks(turn: Turn) -> None:
    """Complete with one artifact, sent in the number of text chunks given."""
    count = int(turn.argument)
    await turn.begin()
    for number in range(1, count + 1):
        await turn.updater.add_artifact(
            [text_part(f"chunk {number}\n")],
            artifact_id="chunked",
            name="result",
            append=number > 1,
            last_chunk=number == count,
        )
    await turn.updater.complete()


async def paced(turn: Turn) -> None:
    """Complete with one artifact, in chunks, each with a permit of the name given.

    Every fiftieth chunk is followed by a status message.
    """
    name, _, rest = turn.argument.partition(" ")
    of_all, _, text = rest.partition(" ")
    count, permits = int(of_all), turn.permits.of(name)
    await turn.begin()
    for number in range(1, count + 1):
        await permits.acquire()
        await turn.updater.add_artifact(
            [text_part(text or f"chunk {number}\n")],
            artifact_id="chunked",
            name="result",
            append=number > 1,
            last_chunk=number == count,
        )
        if number % 50 == 0:
            await turn.updater.update_status(TaskState.working, turn.say(f"{number} of {count}"))
    await turn.updater.complete()


async def crash(turn: Turn) -> None:
    """Raise while working. The execution is on record: the side effect has happened."""
    await turn.begin()
    reason = "crashed as asked"
    raise RuntimeError(reason)


async def history(turn: Turn) -> None:
    """Complete with the number of messages in the task's history, this one included."""
    seen = [] if turn.task is None else [*(turn.task.history or []), turn.task.status.message]
    await turn.begin()
    await turn.finish(text_part(str(sum(one is not None for one in seen) + 1)))


Command = Callable[[Turn], Awaitable[None]]

COMMANDS: Final[Mapping[str, Command]] = MappingProxyType(
    {
        "echo": echo,
        "message": message,
        "fail": fail,
        "reject": reject,
        "ask": ask,
        "auth": auth,
        "slow": slow,
        "data": data,
        "file": file,
        "back": back,
        "chunks": chunks,
        "paced": paced,
        "crash": crash,
        "history": history,
    }
)
"""What the first word means in a message that starts a task; the rest is its argument."""

REPLY_COMMANDS: Final[Mapping[str, Command]] = MappingProxyType({"history": history})


class ScriptedExecutor(AgentExecutor):
    """Runs the command that a message names, and records that it did."""

    def __init__(self, record: Record, permits: Permits) -> None:
        """Write every execution to `record`; wait for `permits` where a command says so."""
        self._record = record
        self._permits = permits

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer one message. An argument that makes no sense fails the task."""
        user_message, updater = context.message, _updater(context, event_queue)
        if user_message is None:
            reason = "the SDK calls an executor with a message"
            raise TypeError(reason)
        self._record.note_execution(user_message.message_id, updater.task_id)
        task = context.current_task
        commands = COMMANDS if task is None else REPLY_COMMANDS
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        turn = Turn(
            argument=rest if word in commands else text,
            message=user_message,
            task=task,
            permits=self._permits,
            queue=event_queue,
            updater=updater,
        )
        try:
            await commands.get(word, echo)(turn)
        except ValueError as error:
            await turn.submit()
            await updater.failed(turn.say(f"{word}: {error}"))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Report canceled. The SDK stops the running command right after."""
        await _updater(context, event_queue).cancel()


def _updater(context: RequestContext, event_queue: EventQueue) -> TaskUpdater:
    return TaskUpdater(event_queue, context.task_id or "", context.context_id or "")


class FrontDoor:
    """ASGI middleware that records each request and asks for the token, if any."""

    def __init__(self, app: ASGIApp, record: Record, token: str | None) -> None:
        """Stand in front of `app`; a `token` of None lets everybody in."""
        self._app = app
        self._record = record
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on, or answer 401."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        path = request.url.path
        if path not in TEST_PATHS:
            self._record.note_request(request)
        is_let_in = self._token is None or path in {*TEST_PATHS, CARD_PATH}
        if is_let_in or request.headers.get("authorization") == f"Bearer {self._token}":
            await self._app(scope, receive, send)
            return
        refusal = JSONResponse({"error": "unauthorized"}, status_code=401)
        await refusal(scope, receive, send)


def build_card(url: str, first: str, *, secured: bool, extended: bool) -> AgentCard:
    """Return the public card, or the extended one, which names one skill more."""
    rpc = AgentInterface(url=url + JSONRPC_PATH, transport="JSONRPC")
    rest = AgentInterface(url=url + REST_PATH, transport="HTTP+JSON")
    preferred = rest if first == "rest" else rpc
    bearer = SecurityScheme(root=HTTPAuthSecurityScheme(scheme="Bearer"))
    skills = ["script", "secret"] if extended else ["script"]
    more: dict[str, Any] = {}
    if secured:
        more = {"security_schemes": {"bearer": bearer}, "security": [{"bearer": []}]}
    return AgentCard(
        name="SDK 0.3 agent, extended" if extended else "SDK 0.3 agent",
        description="Does what the first word of a message says.",
        version="1.0.0",
        protocol_version="0.3.0",
        url=preferred.url,
        preferred_transport=preferred.transport,
        additional_interfaces=[rpc, rest],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supports_authenticated_extended_card=True,
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "application/json", FILE_MEDIA_TYPE],
        skills=[AgentSkill(id=n, name=n, description=n, tags=["test"]) for n in skills],
        **more,
    )


def build_app(url: str, first: str, token: str | None, *, grpc: bool = False) -> ASGIApp:
    """Wire cards, executor, stores and both bindings into one ASGI application.

    With `grpc`, the same agent is served over gRPC, too; its card names that last.
    """
    record, permits = Record(), Permits()
    secured = token is not None
    card = build_card(url, first, secured=secured, extended=False)
    extended = build_card(url, first, secured=secured, extended=True)
    handler = DefaultRequestHandler(
        agent_executor=ScriptedExecutor(record, permits),
        task_store=InMemoryTaskStore(),
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    rpc = A2AStarletteApplication(card, handler, extended_agent_card=extended)
    rest = RESTAdapter(card, handler, extended_agent_card=extended)
    rest_routes = [
        Route(path, endpoint, methods=[method])
        for (path, method), endpoint in rest.routes().items()
    ]
    door = GrpcDoor(record, token) if grpc else None
    if door is not None:
        over_grpc = AgentInterface(url=door.address, transport="GRPC")
        for one in (card, extended):
            one.additional_interfaces = [*(one.additional_interfaces or []), over_grpc]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        if door is not None:
            add_service(GrpcHandler(card, handler), door.server)
            await door.server.start()
        yield
        if door is not None:
            await door.stop()

    app = Starlette(
        lifespan=lifespan,
        routes=[
            *record.routes(),
            *permits.routes(),
            *rpc.routes(rpc_url=JSONRPC_PATH),
            Mount(REST_PATH, routes=rest_routes),
        ],
    )
    return FrontDoor(app, record, token)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="An A2A 0.3 agent on the official SDK.")
    parser.add_argument(
        "--first",
        choices=("jsonrpc", "rest"),
        default="jsonrpc",
        help="the binding that the card lists first",
    )
    parser.add_argument(
        "--token", help="ask for this bearer token on everything but the public card"
    )
    parser.add_argument("--grpc", action="store_true", help="serve it over gRPC, too")
    parser.add_argument(
        "--max-seconds", type=float, default=600.0, help="stop by itself after these"
    )
    return parser.parse_args()


def main() -> None:
    """Serve with this process's arguments and standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    options = parse_options()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(
            serve(
                lambda url: build_app(url, options.first, options.token, grpc=options.grpc),
                options.max_seconds,
            )
        )


if __name__ == "__main__":
    main()
