"""Wrong uses: each is refused at once, with an error that says what to write instead."""

import io
import re
from pathlib import Path

import pytest

import holdfast
from holdfast import (
    AgentCard,
    Client,
    Coordinator,
    Message,
    Resilience,
    RetryPolicy,
    Role,
    Timeouts,
    TlsConfig,
    connect,
    text_part,
)
from holdfast.auth import ClientCallContext
from holdfast.compat import create_text_message_object
from holdfast.policies import BreakerPolicy, Limits
from holdfast.testing import FakeAgent, FakeNetwork

pytestmark = pytest.mark.filterwarnings("error")

URL = "http://agent.test"
AGENTS_MESSAGE = Message(role=Role.AGENT, parts=(text_part("hi"),))


def connected(**options):
    return connect(URL, engine=FakeNetwork(FakeAgent()), **options)


async def observe(observation): ...


def use_with(value):
    with value:
        pass


async def iterate(stream):
    async for _ in stream:
        pass


async def for_over_text():
    async with connected().stream_message("hello") as events:
        list(events.text_deltas())


async def await_stream():
    await connected().stream_message("hello")


async def await_it(iterable):
    await iterable


async def await_run():
    async with connected().run(["hello"]) as run:
        await run


async def for_over_run():
    async with connected().run(["hello"]) as run:
        list(run)


WRONG = {
    "with connect": (
        lambda: use_with(connected()),
        r"TypeError: use 'async with' for Client, not 'with'; holdfast\.sync is for blocking code",
    ),
    "with Coordinator": (
        lambda: use_with(Coordinator()),
        "TypeError: use 'async with' for Coordinator",
    ),
    "with a stream": (
        lambda: use_with(connected().stream_message("hello")),
        "TypeError: use 'async with' for a stream",
    ),
    "for over a stream": (
        lambda: list(connected().stream_message("hello")),
        "TypeError: use 'async for' for EventStream, not 'for'",
    ),
    "for over text": (for_over_text, "TypeError: use 'async for' for TextDeltas, not 'for'"),
    "for over a run": (
        for_over_run,
        "TypeError: use 'async for' for BulkRun, not 'for'",
    ),
    "ask(deadline=)": (
        lambda: connected().ask("hello", deadline=3),
        "TypeError: 'deadline' is not an option of .*; did you mean 'timeout'",
    ),
    "delegate(within=)": (
        lambda: Coordinator({"a": URL}).delegate("a", "hello", within=5),
        "TypeError: 'within' is not an option of a call; did you mean 'timeout'",
    ),
    "fan_out(deadline=)": (
        lambda: Coordinator({"a": URL}).fan_out("hello", deadline=5),
        "TypeError: 'deadline' is not an option of .*; did you mean 'within'",
    ),
    "await a run": (
        await_run,
        "TypeError: use 'async for' for BulkRun, not 'await'",
    ),
    "await resume_pending": (
        lambda: await_it(connected(journal="calls.db").resume_pending()),
        r"TypeError: use 'async for' for resume_pending\(\), not 'await'",
    ),
    "for over resume_pending": (
        lambda: list(connected(journal="calls.db").resume_pending()),
        r"TypeError: use 'async for' for resume_pending\(\), not 'for'",
    ),
    "await iter_tasks": (
        lambda: await_it(connected().iter_tasks()),
        r"TypeError: use 'async for' for iter_tasks\(\), not 'await'",
    ),
    "a part that is a dict": (
        lambda: connected().ask([{"text": "hello"}]),
        r"TypeError: a part must be a Part or text, not dict; pass Part\.from_dict\(…\)",
    ),
    "ask(open file)": (
        lambda: connected().ask(io.StringIO("hello")),
        r"TypeError: a message must be .*, not StringIO; to send a file, pass file_part\(path\)",
    ),
    "an open file among parts": (
        lambda: connected().ask(["What is it?", io.BytesIO(b"x")]),
        r"a part must be a Part or text, not BytesIO; to send a file, pass file_part\(path\)",
    ),
    "ask(Path)": (
        lambda: connected().ask(Path("moon.txt")),
        r"not (Posix|Windows)Path; to send a file, pass file_part\(path\)",
    ),
    "ask(bytes)": (lambda: connected().ask(b"hello"), r"not bytes; pass Part\(raw=…\), or file_p"),
    "ask([bytes])": (
        lambda: connected().ask(["hello", b"x"]),
        r"a part must be .*, not bytes; pass Part\(raw=…\), or file_part\(path\) for a file",
    ),
    "ask(files=)": (
        lambda: connected().ask("hello", files=["moon.txt"]),
        r"TypeError: 'files' is not an option of a call; pass \[text, file_part\(path\)\] as the",
    ),
    "a gRPC address without a scheme": (
        lambda: connect(URL, url="agent.test:50051", bindings=["GRPC"]),
        r"ValueError: the url 'agent.test:50051' has no scheme: pass grpcs://agent.test:50051 \(T",
    ),
    "await a stream": (
        await_stream,
        r"TypeError: a stream is not awaited: write 'async with agent\.stream_message",
    ),
    "iterate over a stream that was not entered": (
        lambda: iterate(connected().stream_message("hello")),
        "RuntimeError: enter the stream first: async with",
    ),
    "iterate over a subscription that was not entered": (
        lambda: iterate(connected().subscribe_to_task("1")),
        r"enter the stream first: async with .* or subscribe_to_task\(…\)",
    ),
    "AgentCard(url=)": (
        lambda: AgentCard(name="x", url=URL),
        "TypeError: AgentCard has no field 'url'; its fields are name, .*supported_interfaces",
    ),
    "ClientCallContext(timeout=)": (
        lambda: ClientCallContext(state={}, timeout=5),
        "TypeError: ClientCallContext has no field 'timeout'; its fields are state",
    ),
    "create_text_message_object(text)": (
        lambda: create_text_message_object("user", "hello"),
        r"TypeError: role must be Role, not str; pass Role\.USER$",
    ),
    "create_text_message_object(value)": (
        lambda: create_text_message_object("ROLE_AGENT", "hello"),
        r"TypeError: role must be Role, not str; pass Role\.AGENT$",
    ),
    "create_text_message_object(other)": (
        lambda: create_text_message_object("hello"),
        r"not str; pass one of .*Role\.USER",
    ),
    "Client(url)": (lambda: Client(URL, timeout=3), r"TypeError: .* made by holdfast\.connect"),
    "Client()": (Client, r"TypeError: .* made by holdfast\.connect"),
    "connect(retry=)": (
        lambda: connected(retry=RetryPolicy()),
        r"TypeError: 'retry' is not an option of connect; pass resilience=Resilience\(retry=…\)",
    ),
    "connect(retries=)": (
        lambda: connected(retries=3),
        r"'retries' is not .* resilience=Resilience\(retry=RetryPolicy\(max_retries=…\)\)",
    ),
    "connect(timeouts=)": (
        lambda: connected(timeouts=Timeouts()),
        r"pass resilience=Resilience\(timeouts=…\)",
    ),
    "connect(rate_limit=)": (lambda: connected(rate_limit=3), r"Retry-After by itself; .* rate="),
    "connect(token=)": (lambda: connected(token="x"), "pass auth='Bearer <token>'"),
    "connect(verify=)": (lambda: connected(verify=False), r"pass tls=TlsConfig\(…\)"),
    "connect(http_client=)": (lambda: connected(http_client=None), "pass engine="),
    "connect(time_out=)": (lambda: connected(time_out=3), "did you mean 'timeout'?"),
    "connect(colour=)": (
        lambda: connected(colour=3),
        "'colour' is not .* there are agent",
    ),
    "ask(retry=)": (lambda: holdfast.ask(URL, "hello", retry=3), "'retry' is not an option"),
    "RetryPolicy(retries=)": (
        lambda: RetryPolicy(retries=3),
        (
            "TypeError: RetryPolicy has no field 'retries'; did you mean 'max_retries'\\? "
            "its fields are max_retries, base_delay, "
        ),
    ),
    "RetryPolicy(max_attempts=)": (
        lambda: RetryPolicy(max_attempts=3),
        "no field 'max_attempts'; did you mean 'max_retries'",
    ),
    "RetryPolicy(3)": (lambda: RetryPolicy(3), "RetryPolicy takes its fields by name: max_ret"),
    "Resilience(retries=)": (lambda: Resilience(retries=3), "did you mean 'retry'"),
    "Timeouts(read=)": (
        lambda: Timeouts(read=3),
        "did you mean 'first_byte'\\? its fields are pool, connect, write, first_byte, idle$",
    ),
    "Limits(size=)": (lambda: Limits(size=3), "no field 'size'; its fields are body, headers"),
    "BreakerPolicy(failure=)": (lambda: BreakerPolicy(treshold=3), "no field 'treshold'; "),
    "TlsConfig(certs=)": (lambda: TlsConfig(certs="x"), "TlsConfig has no field 'certs'"),
    "ask(message_id=)": (
        lambda: connected().ask("hello", message_id="7"),
        r"TypeError: message_id is a member of the message: pass Message\(message_id=…, …\)",
    ),
    "connect(headers=A2A-Version)": (
        lambda: connected(headers={"A2A-Version": "0.3"}),
        "ValueError: the header a2a-version is set by the client; pass protocol_version= to conn",
    ),
    "ask(headers=User-Agent)": (
        lambda: connected().ask("hello", headers={"User-Agent": "me"}),
        "ValueError: the header user-agent is set by the client; remove it",
    ),
    "connect(headers=Content-Type)": (
        lambda: connected(headers={"content-type": "text/plain"}),
        "the header content-type is set by the client; the binding decides it: pass bindings=",
    ),
    "connect(auth=Accept)": (
        lambda: connected(auth={"Accept": "text/plain", "x-api-key": "s3cret"}),
        "the header accept is set by the client; remove it",
    ),
    "A2ACardResolver(headers=Accept-Encoding)": (
        lambda: holdfast.compat.A2ACardResolver(URL, headers={"accept-encoding": "br"}),
        "the header accept-encoding is set by the client; remove it",
    ),
    "an async observer": (
        lambda: connected(observers=[observe]),
        "TypeError: each of observers must be a plain function, but observe is a coroutine",
    ),
    "a name that is close to another": (
        lambda: __import__("holdfast", fromlist=["RateLimitError"]),
        "ImportError: cannot import name 'RateLimitError' .*did you mean 'RateLimitedError'",
    ),
    "a name of another module": (
        lambda: __import__("holdfast", fromlist=["ReconnectError"]),
        r"ImportError: cannot import name 'ReconnectError' .*; it is in holdfast\.errors",
    ),
    "conversation(input_time=)": (
        lambda: connected().conversation(input_time=3),
        "TypeError: 'input_time' is not an option of conversation; did you mean 'input_timeout'",
    ),
    "agent_card(time=), a coroutine": (
        lambda: connected().agent_card(time=3),
        "TypeError: 'time' is not an option of agent_card; did you mean 'timeout'",
    ),
    "AiohttpEngine(max_connection=)": (
        lambda: holdfast.AiohttpEngine(max_connection=3),
        "'max_connection' is not an option of AiohttpEngine; did you mean 'max_connections'",
    ),
    "list_tasks(page_size=)": (
        lambda: connected().list_tasks(page_size=3),
        "'page_size' is not an option of a call; did you mean 'limit'",
    ),
    "ClientConfig(httpx_client=)": (
        lambda: holdfast.compat.ClientConfig(httpx_client=3),
        "ClientConfig has no field 'httpx_client'; did you mean 'engine'",
    ),
    "ClientConfig(push_notification_config=)": (
        lambda: holdfast.compat.ClientConfig(push_notification_config=3),
        "no field 'push_notification_config'; did you mean 'push_notification_configs'",
    ),
    "create_from_url(signature_verifier=)": (
        lambda: holdfast.compat.ClientFactory().create_from_url(URL, signature_verifier=print),
        "'signature_verifier' is not an option of connect; did you mean 'card_verifier'",
    ),
    "TaskState(3)": (
        lambda: holdfast.TaskState(3),
        r"3 is not a valid TaskState: .*pass holdfast\.TaskState\(a2a\.types\.TaskState\.Name",
    ),
    "engine=FakeAgent": (
        lambda: connect(URL, engine=FakeAgent()),
        r"engine must be an HttpEngine, not FakeAgent; pass FakeNetwork\(agent\)",
    ),
    "a message of an agent": (
        lambda: connected().ask(AGENTS_MESSAGE),
        r"ValueError: the message has the role AGENT.*pass Role\.USER.*pass its parts",
    ),
    "a streamed message of an agent": (
        lambda: connected().stream_message(AGENTS_MESSAGE.to_dict()),
        "ValueError: the message has the role AGENT",
    ),
    "a message of an agent in a conversation": (
        lambda: connected().conversation().ask(AGENTS_MESSAGE),
        "ValueError: the message has the role AGENT",
    ),
    "a message of an agent for several": (
        lambda: Coordinator({"a": URL}).delegate("a", AGENTS_MESSAGE),
        "ValueError: the message has the role AGENT",
    ),
    "an attribute of another module": (
        lambda: holdfast.ReconnectError,
        r"AttributeError: .* no attribute 'ReconnectError'; it is in holdfast\.errors",
    ),
}


@pytest.mark.parametrize(("use", "error"), WRONG.values(), ids=WRONG)
async def test_a_wrong_use_is_refused_with_what_to_write_instead(use, error):
    try:
        await use()
    except (TypeError, ValueError, RuntimeError, ImportError, AttributeError) as raised:
        text = f"{type(raised).__name__}: {raised}"

    assert re.search(error, text), text
    assert "\n" not in text


async def test_awaiting_connect_returns_the_client():
    client = connected()

    assert await client is client
    assert (await client.ask("hello")).text == "hello"
    await client.close()


def test_names_that_do_not_exist_are_no_attributes():
    assert not hasattr(holdfast, "RateLimitError")
    assert not hasattr(holdfast, "__wrapped__")


async def test_the_text_of_a_question_is_not_an_answer():
    agent = FakeAgent(holdfast.testing.asks("when?"))
    async with connect(URL, engine=FakeNetwork(agent)) as client:
        answer = await client.ask("hello")

    assert (answer.text, answer.question, answer.needs_input) == ("", "when?", True)
    assert "question='when?'" in repr(answer)
