"""A real A2A agent on the official SDK, for our tests to call over loopback.

This module owns one agent process: its card, its scripted executor, and the two HTTP
bindings that the SDK serves (JSON-RPC and HTTP+JSON).

Rules:
- It never imports holdfast. Both ends of the wire must not share a mistake.
- It runs in an environment of its own, where `a2a-sdk[http-server]` is installed.
- Standard output carries exactly one line, its addresses as JSON, once it is ready.
- It ends with exit code 0 when standard input ends, or when its time is up, so that
  nothing outlives the test run that started it.
- The user's text is the script: its first word picks a command, see `COMMANDS`.
- Every execution is recorded before the command runs, so a crash is counted too.
- What the SDK answers is left as it is; only the 401 and the three test routes are ours.
- Below `/needs/<schemes>` is the same agent behind a card that requires these schemes:
  `a+b` both of them, `a,b` one of them.
"""

# ruff: noqa: E402 - the SDK finds out while it is imported which stores there are

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

# The SDK imports its database stores where it can, which is a third of the time of a start. This
# agent keeps its tasks in memory; one with a database has imported them before this module.
sys.modules.setdefault("sqlalchemy", None)

import httpx
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import (
    add_A2AServiceServicer_to_server as add_older_service,
)
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    Message,
    OAuth2SecurityScheme,
    OpenIdConnectSecurityScheme,
    Part,
    Role,
    SecurityRequirement,
    SecurityScheme,
    StringList,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_door import GrpcDoor
from serving import (
    CARD_PATH,
    JSONRPC_PATH,
    REST_PATH,
    TEST_PATHS,
    Permits,
    Record,
    serve,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.events import EventQueue
    from starlette.types import ASGIApp, Receive, Scope, Send

PUBLIC_PATHS: Final = TEST_PATHS | {CARD_PATH}

PROTOCOL_VERSION: Final = "1.0"
SECURITY_SCHEME: Final = "bearer"

FILE_BYTES: Final = bytes(range(256))
"""What `file` sends: every byte value, so its base64 holds both `+` and `/`."""
FILE_MEDIA_TYPE: Final = "application/octet-stream"

NEEDS_PATH: Final = "/needs/"
NEEDS: Final = (
    "bearer",
    "basic",
    "header",
    "query",
    "cookie",
    "oauth",
    "oidc",
    "header+query",
    "basic,cookie",
)
"""What the cards below `NEEDS_PATH` require."""


def _http(scheme: str) -> SecurityScheme:
    return SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme=scheme))


def _key(location: str, name: str) -> SecurityScheme:
    return SecurityScheme(
        api_key_security_scheme=APIKeySecurityScheme(location=location, name=name)
    )


SCHEMES: Final[Mapping[str, SecurityScheme]] = MappingProxyType(
    {
        "bearer": _http("Bearer"),
        "basic": _http("Basic"),
        "header": _key("header", "X-API-Key"),
        "query": _key("query", "api key"),
        "cookie": _key("cookie", "sid"),
        "oauth": SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme()),
        "oidc": SecurityScheme(
            open_id_connect_security_scheme=OpenIdConnectSecurityScheme(
                open_id_connect_url="https://id.test/.well-known/openid-configuration"
            )
        ),
    }
)

Check = Callable[[Request], bool]


def _bearer(token: str) -> Check:
    return lambda request: request.headers.get("authorization") == f"Bearer {token}"


def _is_basic(request: Request) -> bool:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    return scheme == "Basic" and base64.b64decode(encoded) == "user:päss:word".encode()


CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "bearer": _bearer("bearer-token"),
        "basic": _is_basic,
        "header": lambda request: request.headers.get("x-api-key") == "header key",
        "query": lambda request: request.query_params.getlist("api key") == ["query&key=+ü"],
        "cookie": lambda request: request.cookies == {"sid": "cookie-key"},
        "oauth": _bearer("oauth-token"),
        "oidc": _bearer("oidc-token"),
    }
)
"""Whether a request carries the credential of a scheme."""


class SlowTaskStore(InMemoryTaskStore):
    """A store in which reading and writing take a while, as they do in a database."""

    def __init__(self, delay: float) -> None:
        """Take so many seconds, half of them before and half of them after."""
        super().__init__()
        self._half = delay / 2

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Save slowly what the task is now, whatever becomes of it meanwhile."""
        saved = Task()
        saved.CopyFrom(task)
        await asyncio.sleep(self._half)
        await super().save(saved, context)
        await asyncio.sleep(self._half)

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Get slowly what was there in the middle of it."""
        await asyncio.sleep(self._half)
        task = await super().get(task_id, context)
        await asyncio.sleep(self._half)
        return task


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
        if request.url.path not in TEST_PATHS:
            self._record.note_request(request)
        if self._admits(request):
            await self._app(_without_needs(scope), receive, send)
            return
        refusal = JSONResponse(
            {"error": "unauthorized"},
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)

    def _admits(self, request: Request) -> bool:
        path = request.url.path
        if path.startswith(NEEDS_PATH) and not path.endswith(CARD_PATH):
            needed = path.removeprefix(NEEDS_PATH).partition("/")[0]
            return any(
                all(CHECKS[scheme](request) for scheme in together)
                for together in _alternatives(needed)
            )
        if self._token is None or path in PUBLIC_PATHS:
            return True
        return request.headers.get("authorization") == f"Bearer {self._token}"


def _alternatives(needed: str) -> list[list[str]]:
    """Read what a path below `NEEDS_PATH` names."""
    return [together.split("+") for together in needed.split(",")]


def _without_needs(scope: Scope) -> Scope:
    """Lead a call that was let in to where the agent is."""
    path: str = scope["path"]
    if not path.startswith(NEEDS_PATH) or path.endswith(CARD_PATH):
        return scope
    plain = "/" + path.removeprefix(NEEDS_PATH).partition("/")[2]
    return {**scope, "path": plain, "raw_path": plain.encode()}


@dataclass(frozen=True)
class Turn:
    """One message being answered: the rest of its text, and where answers go.

    `existing` says that the message continues a task, `messages` how many messages the
    task's history holds with this one.
    """

    argument: str
    message: Message
    existing: bool
    messages: int
    permits: Permits
    queue: EventQueue
    updater: TaskUpdater

    async def submit(self) -> None:
        """Publish the task as submitted, unless it exists already."""
        if self.existing:
            return
        now = Timestamp()
        now.GetCurrentTime()
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED, timestamp=now)
        await self.queue.enqueue_event(
            Task(
                id=self.updater.task_id,
                context_id=self.updater.context_id,
                status=status,
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
        return self.updater.new_agent_message([Part(text=text)])


async def echo(turn: Turn) -> None:
    """Complete with the text."""
    await turn.begin()
    await turn.finish(Part(text=turn.argument))


async def message(turn: Turn) -> None:
    """Answer with a message, and no task."""
    await turn.queue.enqueue_event(
        Message(
            message_id=f"answer-to-{turn.message.message_id}",
            context_id=turn.updater.context_id,
            role=Role.ROLE_AGENT,
            parts=[Part(text=turn.argument)],
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
    """Stop at INPUT_REQUIRED with the question; the next message is the reply."""
    await turn.begin()
    await turn.updater.requires_input(turn.say(turn.argument))


async def auth(turn: Turn) -> None:
    """Stop at AUTH_REQUIRED with the reason; the next message completes the task."""
    await turn.begin()
    await turn.updater.requires_auth(turn.say(turn.argument))


async def slow(turn: Turn) -> None:
    """Work for some seconds, then complete with the text."""
    seconds, _, text = turn.argument.partition(" ")
    delay = float(seconds)
    await turn.begin()
    await asyncio.sleep(delay)
    await turn.finish(Part(text=text))


async def data(turn: Turn) -> None:
    """Complete with a data part that holds the JSON given."""
    value = Parse(turn.argument, Value())
    await turn.begin()
    await turn.finish(Part(data=value))


async def file(turn: Turn) -> None:
    """Complete with `FILE_BYTES` under the name given."""
    await turn.begin()
    await turn.finish(Part(raw=FILE_BYTES, filename=turn.argument, media_type=FILE_MEDIA_TYPE))


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
            [Part(text=f"chunk {number}\n")],
            artifact_id="chunked",
            name="result",
            append=number > 1,
            last_chunk=number == count,
        )
    await turn.updater.complete()


async def paced(turn: Turn) -> None:
    """Do as `chunks`, each with a permit of the name given, and each the text given, if any.

    Every fiftieth chunk is followed by a status message.
    """
    name, _, rest = turn.argument.partition(" ")
    of_all, _, text = rest.partition(" ")
    count, permits = int(of_all), turn.permits.of(name)
    await turn.begin()
    for number in range(1, count + 1):
        await permits.acquire()
        await turn.updater.add_artifact(
            [Part(text=text or f"chunk {number}\n")],
            artifact_id="chunked",
            name="result",
            append=number > 1,
            last_chunk=number == count,
        )
        if number % 50 == 0:
            working = TaskState.TASK_STATE_WORKING
            await turn.updater.update_status(working, turn.say(f"{number} of {count}"))
    await turn.updater.complete()


async def timed(turn: Turn) -> None:
    """Do as `chunks`, each so many seconds after what came before; the rest is a note."""
    seconds, of_all, *_ = turn.argument.split(" ", 2)
    pause, count = float(seconds), int(of_all)
    await turn.begin()
    for number in range(1, count + 1):
        await asyncio.sleep(pause)
        await turn.updater.add_artifact(
            [Part(text=f"chunk {number}\n")],
            artifact_id="chunked",
            name="result",
            append=number > 1,
            last_chunk=number == count,
        )
    await turn.updater.complete()


async def story(turn: Turn) -> None:
    """Complete after status messages, and artifacts that grow, merge and are replaced."""
    working, updater = TaskState.TASK_STATE_WORKING, turn.updater
    await turn.begin()
    await updater.update_status(working, turn.say("one"), metadata={"step": 1, "of": {"n": 2}})
    await updater.add_artifact(
        [Part(text="Hello, ")], "greeting", "first", metadata={"n": 1, "kept": True}
    )
    await updater.add_artifact(
        [Part(text="world"), Part(text="!")],
        "greeting",
        "second",
        metadata={"n": 2},
        append=True,
        last_chunk=True,
        extensions=["urn:example:late"],
    )
    await updater.add_artifact([Part(text="draft")], "report")
    await updater.update_status(working, turn.say("two"), metadata={"step": 2})
    await updater.add_artifact([Part(text="final")], "report", "report")
    await updater.complete(turn.say("done"))


async def crash(turn: Turn) -> None:
    """Raise while working. The execution is on record: the side effect has happened."""
    await turn.begin()
    reason = "crashed as asked"
    raise RuntimeError(reason)


async def history(turn: Turn) -> None:
    """Complete with the number of messages in the task's history, this one included."""
    await turn.begin()
    await turn.finish(Part(text=str(turn.messages)))


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
        "timed": timed,
        "story": story,
        "crash": crash,
        "history": history,
    }
)
"""What the first word means in a message that starts a task; the rest is its argument.

Any other text is echoed as a whole.
"""

REPLY_COMMANDS: Final[Mapping[str, Command]] = MappingProxyType({"history": history})
"""The same in a message on an existing task; any other text is a reply, and echoed."""


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
            existing=task is not None,
            messages=_messages_of(task) + 1,
            permits=self._permits,
            queue=event_queue,
            updater=updater,
        )
        try:
            await commands.get(word, echo)(turn)
        except (ValueError, ParseError) as error:
            await turn.submit()
            await updater.failed(turn.say(f"{word}: {error}"))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Report CANCELED. The SDK stops the running command right after."""
        await _updater(context, event_queue).cancel()


def _updater(context: RequestContext, event_queue: EventQueue) -> TaskUpdater:
    return TaskUpdater(event_queue, context.task_id or "", context.context_id or "")


def _messages_of(task: Task | None) -> int:
    """Count a task's messages; that of its status joins the history when it goes on."""
    if task is None:
        return 0
    return len(task.history) + int(task.status.HasField("message"))


def build_card(interfaces: list[AgentInterface], *, secured: bool, extended: bool) -> AgentCard:
    """Return the public card, or the extended one, which names one skill more."""
    card = AgentCard(
        name="SDK agent, extended" if extended else "SDK agent",
        description="Does what the first word of a message says.",
        version="1.0.0",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "application/json", FILE_MEDIA_TYPE],
        skills=[_skill("script", "Runs one scripted command.")],
    )
    if extended:
        card.skills.append(_skill("secret", "Shown on the extended card only."))
    if secured:
        card.security_schemes[SECURITY_SCHEME].CopyFrom(
            SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer"))
        )
        card.security_requirements.append(
            SecurityRequirement(schemes={SECURITY_SCHEME: StringList()})
        )
    return card


def build_needy_card(url: str, needed: str) -> AgentCard:
    """Return the public card of the agent that requires these schemes."""
    interfaces = build_interfaces(f"{url}{NEEDS_PATH}{needed}", "jsonrpc")
    card = build_card(interfaces, secured=False, extended=False)
    for name, scheme in SCHEMES.items():
        card.security_schemes[name].CopyFrom(scheme)
    for together in _alternatives(needed):
        schemes = {scheme: StringList() for scheme in together}
        card.security_requirements.append(SecurityRequirement(schemes=schemes))
    return card


def _skill(name: str, description: str) -> AgentSkill:
    return AgentSkill(id=name, name=name, description=description, tags=["test"])


def build_interfaces(url: str, first: str) -> list[AgentInterface]:
    """Return both bindings in order of preference, `first` being jsonrpc or rest."""
    jsonrpc = AgentInterface(
        url=url + JSONRPC_PATH,
        protocol_binding="JSONRPC",
        protocol_version=PROTOCOL_VERSION,
    )
    rest = AgentInterface(
        url=url + REST_PATH,
        protocol_binding="HTTP+JSON",
        protocol_version=PROTOCOL_VERSION,
    )
    return [rest, jsonrpc] if first == "rest" else [jsonrpc, rest]


def build_app(
    url: str, first: str, token: str | None, store_delay: float, *, grpc: bool = False
) -> ASGIApp:
    """Wire cards, executor, stores and both bindings into one ASGI application.

    With `grpc`, the same agent is served over gRPC, too, in both versions; its card names that
    last, at an address without a scheme.
    """
    interfaces = build_interfaces(url, first)
    secured = token is not None
    record, permits = Record(), Permits()
    door = GrpcDoor(record, token) if grpc else None
    if door is not None:
        interfaces.append(
            AgentInterface(
                url=door.address, protocol_binding="GRPC", protocol_version=PROTOCOL_VERSION
            )
        )
    card = build_card(interfaces, secured=secured, extended=False)
    push_configs = InMemoryPushNotificationConfigStore()
    push_client = httpx.AsyncClient(trust_env=False, verify=False)  # it only pushes over HTTP
    handler = DefaultRequestHandler(
        agent_executor=ScriptedExecutor(record, permits),
        task_store=SlowTaskStore(store_delay) if store_delay else InMemoryTaskStore(),
        agent_card=card,
        push_config_store=push_configs,
        push_sender=BasePushNotificationSender(push_client, push_configs),
        extended_agent_card=build_card(interfaces, secured=secured, extended=True),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with push_client:
            if door is not None:
                add_service(GrpcHandler(handler), door.server)
                add_older_service(CompatGrpcHandler(handler), door.server)
                await door.server.start()
            yield
            if door is not None:
                await door.stop()
            await handler.aclose()

    # The SDK's `path_prefix` would put the tenant before the prefix; a mount does not.
    app = Starlette(
        routes=[
            *record.routes(),
            *permits.routes(),
            *create_agent_card_routes(card),
            *(
                route
                for needed in NEEDS
                for route in create_agent_card_routes(
                    build_needy_card(url, needed), card_url=f"{NEEDS_PATH}{needed}{CARD_PATH}"
                )
            ),
            *create_jsonrpc_routes(handler, JSONRPC_PATH),
            Mount(REST_PATH, routes=create_rest_routes(handler)),
        ],
        lifespan=lifespan,
    )
    return FrontDoor(app, record, token)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="An A2A agent on the official SDK.")
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
        "--store-delay",
        type=float,
        default=0.0,
        help="seconds that reading a task takes, and saving one",
    )
    parser.add_argument(
        "--max-seconds", type=float, default=600.0, help="stop by itself after these"
    )
    return parser.parse_args()


def main() -> None:
    """Serve with this process's arguments and standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        options = parse_options()

        def build(url: str) -> ASGIApp:
            return build_app(
                url, options.first, options.token, options.store_delay, grpc=options.grpc
            )

        asyncio.run(serve(build, options.max_seconds))


if __name__ == "__main__":
    main()
