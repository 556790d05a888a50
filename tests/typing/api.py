"""The public names as a caller's program uses them, for type checkers: never run."""

# What must be refused is marked as ignored; an ignored line that is right is an error as well.
# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack, assert_type

import aiohttp

import holdfast
from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AgentCard,
    AgentCardResolutionError,
    AiohttpEngine,
    Answer,
    Artifact,
    AuthenticationError,
    BudgetPolicy,
    CircuitOpenError,
    Client,
    ClientTools,
    Conversation,
    Coordinator,
    DeadlineExceededError,
    EventStream,
    HedgePolicy,
    Interruption,
    Limits,
    Message,
    NotEnoughResultsError,
    OutcomeUnknownError,
    Part,
    RateLimitedError,
    ReconcilePolicy,
    ReconnectPolicy,
    Resilience,
    RetryPolicy,
    Role,
    RunItem,
    SchemeCredentials,
    SqliteJournal,
    Task,
    TaskFailedError,
    TaskInputRequiredError,
    TaskInterruptedError,
    TaskNotFoundError,
    TaskState,
    TaskTerminalError,
    Timeouts,
    ask,
    connect,
    data_part,
    file_part,
    text_part,
    url_part,
)
from holdfast import protocol as op
from holdfast.auth import AuthProvider, ClientCallContext, Credentials, StaticAuth
from holdfast.client import (
    AgentResult,
    CallOptions,
    ConnectOptions,
    Content,
    FanOut,
    InterruptionHook,
    PendingCall,
    RunResult,
    TextChange,
    TextDelta,
    TextReset,
    ToolError,
)
from holdfast.compat import (
    A2ACardResolver,
    ArticleErrorCode,
    AuthInterceptor,
    ClientConfig,
    ClientFactory,
    ClientTaskManager,
    CredentialService,
    InMemoryContextCredentialStore,
    Producer,
    create_text_message_object,
    make_error,
    minimal_agent_card,
)
from holdfast.errors import (
    AgentError,
    Attempt,
    CallEndedError,
    CallOutcome,
    CancelUnconfirmedError,
    CardSignatureError,
    ClientToolsNotSupportedError,
    ContentTypeNotSupportedError,
    CredentialOriginError,
    ExtendedAgentCardNotConfiguredError,
    ExtensionNotSupportedError,
    ExtensionSupportRequiredError,
    InternalError,
    InvalidAgentCardError,
    InvalidAgentResponseError,
    InvalidParamsError,
    InvalidRequestError,
    JournalError,
    JournalFailure,
    KeyConflictError,
    LimitExceededError,
    MethodNotFoundError,
    NetworkPolicyError,
    ParseError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    QueueFullError,
    ReconnectError,
    TaskAuthRequiredError,
    TaskCanceledError,
    TaskNotCancelableError,
    TaskRejectedError,
    UnsupportedOperationError,
    VersionNotSupportedError,
    wrap_downstream,
)
from holdfast.extend import (
    BaseLayer,
    Call,
    CallRecord,
    Endpoints,
    Env,
    HttpEngine,
    HttpReply,
    HttpRequest,
    HttpStream,
    Interceptor,
    Journal,
    Layer,
    RecordUpdate,
    Reply,
    StreamWrapper,
    Transport,
    TransportProducer,
    UnaryOnly,
)
from holdfast.observe import (
    AgentHealth,
    AttemptFinished,
    AttemptStarted,
    Circuit,
    ClientStats,
    EndpointStats,
    Observation,
    OperationFinished,
    Reconnected,
    RequestFinished,
    RetryScheduled,
)
from holdfast.policies import BreakerFailure
from holdfast.push import JwtPolicy, PushReceiver
from holdfast.types import (
    AgentCapabilities,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    AuthenticationInfo,
    GetTaskRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatus,
    TaskStatusUpdateEvent,
)

P = TypeVar("P")
R = TypeVar("R")

assert_type(holdfast.__version__, str)


# ── What callers write for the protocols ─────────────────────────────────────────────────────


class Tokens:
    """Credentials of the caller's own."""

    async def credentials(self, call: Call[Any, Any], /) -> Credentials:
        assert_type(call.request_id, str)
        assert_type(call.attempt, int)
        assert_type(call.agent, str | None)
        assert_type(call.card, AgentCard | None)
        assert_type(call.context, ClientCallContext | None)
        return Credentials(
            headers={"authorization": "Bearer token"}, query={"key": "k"}, cookies={"sid": "s"}
        )

    async def on_unauthorized(self, call: Call[Any, Any], error: AuthenticationError, /) -> bool:
        return error.http_status == 401 and call.attempt == 1


class Vault:
    """Credentials by the names of security schemes, of the caller's own."""

    async def get_credentials(self, scheme: str, context: ClientCallContext | None) -> str | None:
        return None if context is None else f"{context.state['user']}-{scheme}"


class Stream:
    """A reply that is still coming."""

    status = 200
    headers: Mapping[str, str] = {}

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b""

    async def read(self) -> bytes:
        return b""


class StreamContext:
    """A context around it."""

    async def __aenter__(self) -> HttpStream:
        return Stream()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class Engine:
    """What carries requests, of the caller's own."""

    async def request(self, request: HttpRequest) -> HttpReply:
        assert_type(request.timeouts, Timeouts)
        request.progress.sent = True
        return HttpReply(status=200, headers={}, body=request.body)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        assert_type(request.url, str)
        return StreamContext()

    async def close(self) -> None:
        return None


class Fixed:
    """Wall time, dice and ids for tests."""

    def wall(self) -> float:
        return 0.0

    def random(self) -> float:
        return 0.5

    def new_id(self) -> str:
        return "id"


class Counting(BaseLayer):
    """A layer of the caller's own."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.calls = 0

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        self.calls += 1
        reply = await self._inner.unary(call)
        assert_type(reply, Reply[R])
        return reply

    async def stream(self, call: Call[P, R], /) -> Reply[holdfast.extend.Stream[R]]:
        reply = await self._inner.stream(call)
        assert_type(reply, Reply[holdfast.extend.Stream[R]])
        return Reply(value=Noisy(reply.value), headers=reply.headers)


class Noisy(StreamWrapper[R]):
    """What a layer puts around a stream."""

    async def __anext__(self) -> R:
        event = await self._inner.__anext__()
        if isinstance(event, StreamResponse):
            assert_type(event.status_update, TaskStatusUpdateEvent | None)
        return event


class OwnBinding(UnaryOnly):
    """A binding of the caller's own."""

    def __init__(self, card: AgentCard, url: str, config: ClientConfig) -> None:
        self.about = (card.name, url, config.polling)

    async def unary(self, call: Call[P, R]) -> Reply[R]:
        assert_type(call.query, Mapping[str, str])
        raise A2AConnectionError("nobody there", failure="refused", executed=False)

    async def close(self) -> None:
        return None


class Tracing(Interceptor):
    """An interceptor that does both."""

    async def before(self, call: Call[Any, Any]) -> Call[Any, Any] | Reply[Any]:
        if call.operation.safety == "read":
            return Reply(value=Task(id="from memory"))
        return call

    async def after(
        self, call: Call[Any, Any], outcome: Reply[Any] | A2AError
    ) -> Reply[Any] | A2AError:
        return outcome


def consume(
    event: Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent,
    task: Task | None,
    card: AgentCard,
) -> None:
    assert_type(event, Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent)
    assert_type(task, Task | None)
    assert_type(card.name, str)


async def consume_nothing(*_what: object) -> None:
    return None


async def consume_later(event: object, task: Task | None, card: AgentCard) -> None:
    await consume_nothing(event, task, card)


def observe(observation: Observation) -> None:
    assert_type(observation.operation_id, str)
    assert_type(observation.request_id, str | None)
    assert_type(observation.agent, str)
    match observation:
        case AttemptStarted():
            assert_type(observation.number, int)
        case AttemptFinished():
            assert_type(observation.error, BaseException | None)
        case RetryScheduled():
            assert_type(observation.wait, float)
        case Reconnected():
            assert_type(observation.task_id, str | None)
            assert_type(observation.number, int)
        case RequestFinished() | OperationFinished():
            assert_type(observation.error, BaseException | None)
        case _:
            pass


def told(number: int, error: A2AError, wait: float) -> None:
    del number, error, wait


async def told_later(number: int, error: A2AError, wait: float) -> None:
    await consume_nothing(number, error, wait)


def produce(card: AgentCard, interface: AgentInterface) -> Transport:
    return OwnBinding(card, interface.url, ClientConfig())


PROVIDER: AuthProvider = Tokens()
PRODUCER: TransportProducer = produce
MAKER: Producer = OwnBinding
CONFIGURATION = SendMessageConfiguration(
    accepted_output_modes=("text/plain",), history_length=1, return_immediately=True
)
SERVICES: list[CredentialService] = [
    Vault(),
    SchemeCredentials({"bearerAuth": "token"}),
    InMemoryContextCredentialStore(),
]
INTERCEPTOR: AuthProvider = AuthInterceptor(SERVICES[0])
STATIC: AuthProvider = StaticAuth({"x-api-key": "key"})
ENGINE: HttpEngine = Engine()
OWN_ENGINE: HttpEngine = AiohttpEngine(max_connections=10, max_streams=10, ssl=True, proxies=False)
ENV: Env = Fixed()
LAYER: Layer = Counting

RESILIENCE = Resilience(
    timeouts=Timeouts(pool=1, connect=1.5, write=2, first_byte=3, idle=4),
    retry=RetryPolicy(
        max_retries=1,
        base_delay=0.5,
        backoff_factor=3,
        max_delay=9,
        jitter=False,
        max_retry_after=5,
        retry_predicate=lambda error: error.http_status != 503,
        on_retry=told_later,
    ),
    budget=BudgetPolicy(tokens=5, success_gives=0.5, seconds_per_token=60),
    hedge=HedgePolicy(quantile=0.9, max_extra=0.1, min_samples=10, min_delay=0.05),
    reconnect=ReconnectPolicy(max_reconnects=3, backoff=0.1, max_backoff=2),
    refusals=frozenset({429}),
)
assert_type(RESILIENCE, Resilience)
assert_type(Resilience.standard(), Resilience)
assert_type(Resilience.off(), Resilience)
assert_type(RetryPolicy(on_retry=told).max_retries, int)
UNBOUNDED = Resilience(budget=None)

LIMITS = Limits(
    body=1,
    headers=2,
    card=3,
    json_depth=4,
    json_values=5,
    inflation_ratio=6,
    parts=7,
    artifacts=8,
    history=9,
    event=10,
)
assert_type(LIMITS.body, int)


# ── An older dialect of errors ───────────────────────────────────────────────────────────────

assert_type(make_error(ArticleErrorCode.RATE_LIMITED, "later", {"retryAfter": 5}), dict[str, Any])

# ── Chains of agents ─────────────────────────────────────────────────────────────────────────


async def answer_for(client: Client, name: str) -> dict[str, Any]:
    try:
        return {"result": (await client.ask("go on")).text}
    except A2AError as error:
        wrapped = wrap_downstream(error, current=name, agent="next", nested=True)
        assert_type(wrapped, A2AError)
        assert_type(wrapped.hops, tuple[str, ...])
        assert_type(wrapped.loop, str | None)
        assert_type(wrapped.traceparent, str | None)
        assert_type(wrapped.to_rest(request_id="r-1"), dict[str, Any])
        assert_type(A2AError.from_jsonrpc(wrapped.to_jsonrpc()), A2AError)
        wrap_downstream(error)  # type: ignore[call-arg]
        return {"error": wrapped.to_jsonrpc(nested=True, request_id="r-1")}


assert_type(ArticleErrorCode(-32004), ArticleErrorCode)


# ── Making a client ──────────────────────────────────────────────────────────────────────────

CARD = AgentCard(
    name="Mine",
    supported_interfaces=(
        AgentInterface(url="https://a.test", protocol_binding="JSONRPC", protocol_version="1.0"),
    ),
    provider=AgentProvider(url="https://a.test", organization="A"),
    capabilities=AgentCapabilities(streaming=True, extensions=(AgentExtension(uri="urn:x"),)),
    skills=(AgentSkill(id="s", name="S", description="", tags=("t",)),),
)

assert_type(connect("https://a.test"), Client)
assert_type(connect(Path("card.json"), auth="Bearer token"), Client)
assert_type(connect(CARD, auth={"x-api-key": "key"}), Client)
assert_type(connect({"name": "Mine", "supportedInterfaces": []}, auth=Tokens()), Client)
assert_type(connect("https://a.test", auth=SERVICES[0]), Client)
assert_type(connect("https://a.test", auth=Vault()), Client)
assert_type(connect("https://a.test", interceptors=[AuthInterceptor(Vault())]), Client)
assert_type(
    connect(
        "https://a.test",
        auth=STATIC,
        timeout=60,
        card_ttl=0,
        resilience=RESILIENCE,
        limits=LIMITS,
        engine=ENGINE,
        shared=Endpoints(),
        env=ENV,
        url="https://b.test",
        tenant="mine",
        bindings=["JSONRPC", "HTTP+JSON"],
        supported_protocol_bindings=("JSONRPC",),
        protocol_version="0.3",
        allow_legacy=False,
        transport_producers={"OWN": PRODUCER},
        configuration=CONFIGURATION,
        streaming=False,
        headers={"x-trace": "1"},
        credential_origins={"https://b.test"},
        interceptors=[Tracing(), Interceptor()],
        consumers=[consume, consume_later],
        observers=[observe],
        call_layers=[Counting, LAYER],
        attempt_layers=(Counting,),
    ),
    Client,
)


CONFIG = ClientConfig(
    streaming=False,
    polling=True,
    engine=ENGINE,
    supported_protocol_bindings=["JSONRPC", "OWN"],
    use_client_preference=True,
    accepted_output_modes=["text/plain"],
    push_notification_configs=[TaskPushNotificationConfig(url="https://me.test")],
)
FACTORY = ClientFactory(CONFIG, [consume])
FACTORY.register("OWN", MAKER)
assert_type(FACTORY.create(CARD, [consume_later], [Tracing()]), Client)
assert_type(ClientFactory().create("https://a.test", timeout=60), Client)
assert_type(FACTORY.create(CARD, consumers=[consume], interceptors=None), Client)
assert_type(FACTORY.create(CARD, transport_producers={"OWN": PRODUCER}), Client)
FACTORY.create(CARD, tiemout=60)  # type: ignore[call-arg]
FACTORY.create(CARD, timeout="60")  # type: ignore[arg-type]
assert_type(ClientFactory().create({"name": "Mine", "supportedInterfaces": []}), Client)
assert_type(minimal_agent_card("https://a.test", ["JSONRPC"]), AgentCard)
assert_type(create_text_message_object(Role.USER, "hello"), Message)


async def hang_in(client: Client) -> None:
    await client.add_event_consumer(consume)
    await client.add_request_middleware(AuthInterceptor(Vault()))


async def resolve() -> None:
    async with A2ACardResolver(
        "https://a.test", "/card.json", auth="Bearer token", engine=ENGINE
    ) as resolver:
        assert_type(await resolver.get_agent_card(), AgentCard)
        assert_type(
            await resolver.get_agent_card("/other.json", headers={"x": "y"}, timeout=1), AgentCard
        )


async def lend(session: aiohttp.ClientSession) -> None:
    assert_type(connect("https://a.test", engine=session), Client)
    assert_type(connect("https://a.test", engine=AiohttpEngine(session=session)), Client)


async def share() -> None:
    async with AiohttpEngine() as engine, connect("https://a.test", engine=engine) as client:
        assert_type(engine, AiohttpEngine)
        assert_type(client, Client)


# ── What can be sent ─────────────────────────────────────────────────────────────────────────

MESSAGE = Message(
    message_id="m",
    role=Role.USER,
    parts=(
        text_part("hello", media_type="text/plain"),
        data_part({"n": 1}),
        file_part("notes.txt", filename="n.txt"),
        file_part(Path("notes.txt"), media_type="text/plain"),
        url_part("https://a.test/b.pdf"),
        Part(raw=b"", filename="empty"),
    ),
    metadata={"a": 1},
)
CONTENTS: list[Content] = [
    "hello",
    text_part("hello"),
    MESSAGE,
    {"parts": [{"text": "hello"}]},
    ["hello", data_part(None)],
    (text_part("hello"),),
]


# ── Calls ────────────────────────────────────────────────────────────────────────────────────


def add(a: int, b: int = 1) -> int:
    if a > b:
        raise ToolError("too large")
    return a + b


async def use_tools(client: Client) -> None:
    answer = await client.ask("hello", tools=[add, sorted], extensions=["urn:x"])
    assert_type(answer.extensions, tuple[str, ...])
    assert_type(client.stream_message("hello").extensions, tuple[str, ...])
    assert_type(await client.ask("hello", tools=ClientTools([add], max_turns=2)), Answer)
    async with client.stream_message("hello", tools=[add]) as events:
        assert_type(await events.result(), Answer)
    assert_type(client.conversation(tools=ClientTools([add])), Conversation)
    assert_type(await ask("https://agent.test", "hello", tools=[add], timeout=5), Answer)
    assert_type(ClientTools([add], raises=True).max_turns, int)
    assert_type(ClientTools([add], max_tool_calls=9).max_tool_calls, int)
    reply = await client.call(op.GET_TASK, GetTaskRequest(id="t"))
    assert_type(reply.extensions, tuple[str, ...])


async def use(client: Client) -> None:
    async with client as entered:
        assert_type(entered, Client)

    assert_type(await ask("https://a.test", "hello", auth="Bearer token"), Answer)
    for content in CONTENTS:
        assert_type(await client.ask(content), Answer)

    answer = await client.ask(
        "hello",
        task_id="t",
        context_id="c",
        metadata={"a": 1},
        accepted_output_modes=["text/plain"],
        push_notification_config=TaskPushNotificationConfig(url="https://me.test"),
        poll_interval=1,
        timeout=5,
        headers={"x": "y"},
        extensions=["urn:x"],
        context=ClientCallContext(state={"sessionId": "s"}),
    )

    assert_type(answer.text, str)
    assert_type(answer.task, Task | None)
    assert_type(answer.message, Message | None)
    assert_type(answer.needs_input, bool)
    assert_type(answer.question, str)
    assert_type(answer.task_id, str | None)
    assert_type(answer.context_id, str | None)

    sent = await client.send_message("hello", return_immediately=True, history_length=1)
    assert_type(sent, Task | Message)

    task = await client.get_task("t", history_length=0)
    assert_type(task, Task)
    assert_type(task.state, TaskState)
    assert_type(task.status, TaskStatus)
    assert_type(task.status.time, datetime | None)
    assert_type(task.artifacts, tuple[Artifact, ...])
    assert_type(task.text, str)
    assert_type(task.to_dict(), dict[str, Any])
    assert_type(task.to_json(indent=2), str)
    assert_type(Task.from_dict({"id": "t"}), Task)

    page = await client.list_tasks(
        "c",
        status=TaskState.WORKING,
        limit=10,
        page_token="",
        history_length=1,
        status_timestamp_after=datetime.now(UTC),
        include_artifacts=True,
    )
    assert_type(page, ListTasksResponse)
    assert_type(page.tasks, tuple[Task, ...])
    async for listed in client.iter_tasks(status_timestamp_after="2026-01-01T00:00:00Z"):
        assert_type(listed, Task)

    assert_type(await client.wait("t", timeout=5, poll_interval=1), Task)
    assert_type(await client.wait("t", until=lambda task: task.state.is_interrupted), Task)
    assert_type(await client.cancel_task("t", confirm=False, metadata={"a": 1}), Task)

    assert_type(await client.agent_card(timeout=1), AgentCard)
    assert_type(await client.discover(), AgentCard)
    assert_type(await client.get_extended_agent_card(), AgentCard)

    config = TaskPushNotificationConfig(
        task_id="t",
        url="https://me.test",
        token="secret",
        authentication=AuthenticationInfo(scheme="Bearer", credentials="secret"),
    )
    assert_type(
        await client.create_task_push_notification_config(config), TaskPushNotificationConfig
    )
    assert_type(
        await client.get_task_push_notification_config("t", "c"), TaskPushNotificationConfig
    )
    configs = await client.list_task_push_notification_configs("t", limit=1)
    assert_type(configs, ListTaskPushNotificationConfigsResponse)
    assert_type(configs.configs, tuple[TaskPushNotificationConfig, ...])
    await client.delete_task_push_notification_config("t", "c")

    reply = await client.call(op.GET_TASK, GetTaskRequest(id="t"))
    assert_type(reply, Reply[Task])
    assert_type(reply.value, Task)
    assert_type(reply.attempts, tuple[Attempt, ...])
    assert_type(reply.text, str)
    request = SendMessageRequest(message=MESSAGE)
    raw = await client.call(op.SEND_MESSAGE, request, timeout=1, on_unknown="raise")
    assert_type(raw, Reply[SendMessageResponse])
    await client.close()


def reply(interruption: Interruption) -> str | None:
    assert_type(interruption.message, Message | None)
    if interruption.task.state is TaskState.AUTH_REQUIRED:
        raise interruption.to_error("somebody else decides")
    return interruption.text or None


async def reply_later(interruption: Interruption) -> list[Part]:
    message = interruption.message
    return [] if message is None else list(message.parts)


async def converse(client: Client) -> None:
    hook: InterruptionHook = reply
    chat = client.conversation(on_input=hook, on_auth=reply_later, input_timeout=60, timeout=600)
    assert_type(chat, Conversation)
    assert_type(await chat.ask("hello", timeout=5, metadata={"a": 1}), Answer)
    assert_type(await chat.wait(), Answer)
    assert_type(chat.context_id, str | None)
    assert_type(chat.task, Task | None)
    assert_type(chat.is_open, bool)
    async with chat.stream_message(["hello", "again"]) as events:
        assert_type(events, EventStream)
    client.conversation(context_id="c", task=chat.task, max_turns=3, poll_interval=0.5)
    client.conversation(on_input="yes")  # type: ignore[arg-type]


async def coordinate(client: Client) -> None:
    agents = {"a": "https://a.test", "b": client, "c": AgentCard(), "d": ["https://d.test"]}
    async with Coordinator(agents, concurrency=10, timeout=60) as coordinator:
        assert_type(coordinator, Coordinator)
        assert_type(coordinator.agents, tuple[str, ...])
        assert_type(coordinator.client("b"), Client)
        coordinator.add("e", ["https://e.test", Path("card.json")])
        await coordinator.remove("e")
        result = await coordinator.delegate("a", ["hello"], timeout=5)
        assert_type(result, AgentResult)
        assert_type(result.answer, Answer | None)
        assert_type(result.error, A2AError | None)
        assert_type(result.attempts, int)
        assert_type(result.unwrap(), Answer)
        assert_type(await coordinator.fan_out("hello", agents=["a"]), tuple[AgentResult, ...])
        pairs = zip(["a", "b"], ["hello", "again"], strict=True)
        async with coordinator.fan_out(pairs, within=5, cancel_on_abandon=True) as fan_out:
            assert_type(fan_out, FanOut)
            assert_type(fan_out.in_flight, int)
            async for one in fan_out:
                assert_type(one, AgentResult)
        for content in CONTENTS:
            coordinator.fan_out(content)
            coordinator.fan_out([("a", content)])
        for health in coordinator.health().values():
            assert_type(health, AgentHealth)
            assert_type(health.open_until, float | None)
    Coordinator(["https://a.test"])
    Coordinator([client])  # type: ignore[list-item]


def look(client: Client) -> None:
    assert_type(client.stats(), ClientStats)
    assert_type(client.stats().to_dict(), dict[str, Any])
    for endpoint in client.stats().endpoints:
        assert_type(endpoint, EndpointStats)
    circuit = client.circuit
    assert_type(circuit, Circuit)
    assert_type(circuit.last_failure, BreakerFailure | None)
    circuit.open()
    circuit.close()
    circuit.reset()


async def stream(client: Client) -> None:
    async with client.stream_message(
        "hello",
        task_id="t",
        context_id="c",
        metadata={"a": 1},
        accepted_output_modes=["text/plain"],
        push_notification_config=TaskPushNotificationConfig(url="https://me.test"),
        poll_interval=1,
        timeout=None,
    ) as events:
        assert_type(events, EventStream)
        async for event in events:
            assert_type(event, Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent)
            if isinstance(event, TaskArtifactUpdateEvent):
                assert_type(event.artifact, Artifact)
                assert_type(event.append, bool)
        assert_type(events.task, Task | None)
        assert_type(events.reconnects, int)
        assert_type(events.gap, bool)
        assert_type(await events.result(), Answer)

    assert_type(events.message, Message | None)
    assert_type(events.last_error, A2AError | None)
    assert_type(events.is_over, bool)

    async with client.subscribe_to_task("t", poll_interval=1, headers={"x": "y"}) as events:
        async for text in events.text_deltas():
            assert_type(text, str)

    async with client.subscribe_to_task("t") as events:
        async for change in events.text_changes():
            show(change)
        await events.close()


def show(change: TextChange) -> None:
    match change:
        case TextDelta():
            assert_type(change.text, str)
            assert_type(change.artifact_id, str | None)
        case TextReset():
            assert_type(change.artifact_id, str)


async def ask_with(message: str, **options: Unpack[CallOptions]) -> Answer:
    async with connect("https://a.test") as client:
        return await client.ask(message, **options)


async def connect_with(message: str, **options: Unpack[ConnectOptions]) -> Answer:
    assert_type(connect("https://a.test", **options), Client)
    return await ask("https://a.test", message, **options)


async def misspell(client: Client) -> None:
    await ask("https://a.test", "hello", tiemout=5)  # type: ignore[call-arg]
    await ask("https://a.test", "hello", timeout="5")  # type: ignore[arg-type]
    await client.agent_card(tiemout=5)  # type: ignore[call-arg]
    await client.get_extended_agent_card(tiemout=5)  # type: ignore[call-arg]
    await client.ask("hello", tiemout=5)  # type: ignore[call-arg]
    await client.send_message("hello", tiemout=5)  # type: ignore[call-arg]
    await client.send_message("hello", timeout="5")  # type: ignore[arg-type]
    await client.send_message("hello", headers=["x"])  # type: ignore[arg-type]
    await client.send_message("hello", context={})  # type: ignore[arg-type]
    await client.get_task("t", tiemout=5)  # type: ignore[call-arg]
    await client.list_tasks(tiemout=5)  # type: ignore[call-arg]
    client.iter_tasks(tiemout=5)  # type: ignore[call-arg]
    client.stream_message("hello", tiemout=5)  # type: ignore[call-arg]
    client.subscribe_to_task("t", tiemout=5)  # type: ignore[call-arg]
    await client.wait("t", tiemout=5)  # type: ignore[call-arg]
    await client.cancel_task("t", tiemout=5)  # type: ignore[call-arg]
    config = TaskPushNotificationConfig(url="https://me.test")
    await client.create_task_push_notification_config(config, tiemout=5)  # type: ignore[call-arg]
    await client.get_task_push_notification_config("t", "c", tiemout=5)  # type: ignore[call-arg]
    await client.list_task_push_notification_configs("t", tiemout=5)  # type: ignore[call-arg]
    await client.delete_task_push_notification_config("t", "c", tiemout=5)  # type: ignore[call-arg]
    await client.call(op.GET_TASK, GetTaskRequest(id="t"), tiemout=5)  # type: ignore[call-arg]


# ── Failures ─────────────────────────────────────────────────────────────────────────────────


async def handle(client: Client) -> None:
    try:
        await client.ask("hello")
    except OutcomeUnknownError as error:
        assert_type(error.message_id, str)
        assert_type(error.context_id, str | None)
        assert_type(error.searched, tuple[str, ...])
        assert_type(error.search_error, A2AError | None)
    except (TaskFailedError, TaskRejectedError, TaskCanceledError) as error:
        assert_type(error.task, Task)
        assert_type(error.task_id, str)
    except (TaskAuthRequiredError, TaskInputRequiredError) as error:
        assert_type(error.task, Task)
    except DeadlineExceededError as error:
        assert_type(error.deadline, str)
        assert_type(error.task, Task | None)
    except CredentialOriginError as error:
        assert_type(error.origin, str)
    except InvalidAgentCardError as error:
        assert_type(error.field, str | None)
    except TaskNotFoundError as error:
        assert_type(error.task_id, str | None)
    except TaskNotCancelableError as error:
        assert_type(error.state, TaskState | None)
    except A2AError as error:
        assert_type(error.task, Task | None)
        assert_type(error.task_id, str | None)
        assert_type(error.message, str)
        assert_type(error.code, int | None)
        assert_type(error.http_status, int | None)
        assert_type(error.executed, bool | None)
        assert_type(error.transient, bool)
        assert_type(error.retry_after, float | None)
        assert_type(error.attempts, tuple[Attempt, ...])
        assert_type(error.agent, str | None)
        assert_type(error.request_id, str | None)
        assert_type(error.excerpt, str | None)


async def handle_credentials(client: Client) -> None:
    try:
        await client.ask("hello")
    except AuthenticationError as error:
        assert_type(error.schemes, tuple[str, ...])
        assert_type(error.missing, tuple[str, ...])


EVERY_ERROR: tuple[type[A2AError], ...] = (
    A2AConnectionError,
    A2AHTTPError,
    A2ATimeoutError,
    AgentCardResolutionError,
    AgentError,
    AuthenticationError,
    CancelUnconfirmedError,
    CardSignatureError,
    CircuitOpenError,
    ClientToolsNotSupportedError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    ExtensionNotSupportedError,
    ExtensionSupportRequiredError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    InvalidRequestError,
    JournalError,
    LimitExceededError,
    MethodNotFoundError,
    NetworkPolicyError,
    NotEnoughResultsError,
    ParseError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    QueueFullError,
    RateLimitedError,
    ReconnectError,
    TaskInterruptedError,
    TaskTerminalError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
CONNECTION_ERROR: type[ConnectionError] = A2AConnectionError
TIMEOUT_ERRORS: tuple[type[TimeoutError], ...] = (A2ATimeoutError, DeadlineExceededError)
ON_RETRY: Callable[[int, A2AError, float], Awaitable[None] | None] = told


async def manages(status: TaskStatusUpdateEvent, message: Message) -> None:
    manager = ClientTaskManager(limits=Limits(history=10))
    assert_type(await manager.process(status), TaskStatusUpdateEvent)
    assert_type(await manager.save_task_event(status), Task)
    assert_type(manager.get_task(), Task | None)
    assert_type(manager.update_with_message(message, manager.get_task_or_raise()), Task)


async def is_streamed(client: Client) -> None:
    jwt = JwtPolicy(algorithms=("ES256",), audience="https://me.test", max_age=60)
    async with PushReceiver("https://me.test/push", keys={"keys": []}, jwt=jwt) as signed:
        assert_type(signed.get_task("t-1"), Task | None)
    receiver = PushReceiver("https://me.test/push", max_tasks=10, max_bytes=10_000_000)
    config = receiver.config()
    assert_type(config, TaskPushNotificationConfig)
    task = await client.send_message("go", push_notification_config=config)
    if isinstance(task, Task):
        assert_type(receiver.expect(task, config), Task | None)
        assert_type(await receiver.wait(task.id, client=client, timeout=60), Task)
    receiver.config("t-1", authentication=AuthenticationInfo(scheme="Basic", credentials="x"))
    receiver.forget("t-1")


ASGI_APPLICATION: Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
] = PushReceiver("https://me.test/push")


async def survives() -> None:
    policy = ReconcilePolicy(timeout=10, backoff=0.1, max_backoff=1, max_pages=3)
    client = connect(
        "http://agent.test",
        journal="sqlite:///calls.db",
        on_unknown="resend_if_absent",
        context_ids="client",
        resilience=Resilience(reconcile=policy),
    )
    assert_type(await client.ask("hi", on_unknown="raise"), Answer)
    assert_type(await client.pending(message_id="m"), list[PendingCall])
    for call in await client.pending():
        assert_type(call, PendingCall)
        assert_type(call.state, TaskState | None)
        assert_type(call.message, Message | None)
        assert_type(call.is_held, bool)
        assert_type(call.held_until, datetime | None)
        assert_type(await call.resume(timeout=60, poll_interval=1), Answer)
        assert_type(call.stream(), EventStream)
        await call.dismiss()
    async with client.run(["a", RunItem(key="b", content="c")], run_id="r", rate=50) as run:
        async for result in run:
            assert_type(result, RunResult)
            assert_type(result.answer, Answer | None)
            assert_type(result.error, Exception | None)
        run.stop()
        assert_type(run.in_flight, int)


async def examines() -> None:
    diagnosis = await holdfast.doctor.diagnose(
        Path("card.json"), send="hi", twice=True, auth="Bearer t", timeout=60, bindings=["JSONRPC"]
    )
    assert_type(diagnosis, holdfast.doctor.Diagnosis)
    assert_type(diagnosis.is_healthy, bool)
    assert_type(diagnosis.is_complete, bool)
    assert_type(diagnosis.stopped, str)
    assert_type(diagnosis.error, A2AError | None)
    assert_type(diagnosis.to_dict(), dict[str, Any])
    for finding in diagnosis.of("card"):
        assert_type(finding, holdfast.doctor.Finding)
        if finding.level == "problem":
            assert_type(finding.do, str)


JOURNAL: Journal = SqliteJournal("calls.db", store_messages=True, lease=30, retention=86400)


class JournalOfMyOwn:
    stores_messages = False
    lease = 30.0

    async def begin(self, record: CallRecord, /) -> CallRecord:
        assert_type(record.outcome, CallOutcome | None)
        return record

    async def update(self, message_id: str, generation: int, update: RecordUpdate, /) -> bool:
        assert_type(update.detail, str | None)
        return True

    async def renew(self, held: Sequence[tuple[str, int]], /) -> set[str]:
        return {message_id for message_id, _ in held}

    async def claim(self, message_id: str, /) -> CallRecord:
        return CallRecord(message_id=message_id, agent="http://agent.test")

    async def find(self, message_id: str, /) -> CallRecord | None:
        return None

    async def unfinished(self, agent: str | None = None, /) -> list[CallRecord]:
        return []

    async def find_label(self, label: str, /) -> CallRecord | None:
        return None

    async def close(self) -> None: ...


def of_a_run(ended: CallEndedError, changed: KeyConflictError) -> None:
    assert_type(ended.outcome, CallOutcome)
    assert_type(ended.detail, str | None)
    assert_type(changed.key, str)
    assert_type(changed.message_id, str | None)


def of_a_journal(error: JournalError) -> None:
    assert_type(error.reason, JournalFailure)
    assert_type(error.message_id, str | None)
    assert_type(error.held_until, datetime | None)


MY_OWN: Journal = JournalOfMyOwn()
connect("http://agent.test", journal=MY_OWN)
connect("http://agent.test", journal=Path("calls.db"))
