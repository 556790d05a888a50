"""Making a client: what cannot be right is refused at once, in one line, without secrets."""

import asyncio
import inspect
import os
import subprocess
import sys

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import any_text, given, shown
from tests.kit.virtual_env import SystemEnv

import holdfast
from holdfast import (
    AgentCard,
    AiohttpEngine,
    Answer,
    Client,
    Resilience,
    TaskFailedError,
    ask,
    connect,
)
from holdfast._arguments import check_url
from holdfast._client.settings import check_connect_options
from holdfast._model.addresses import is_http_address
from holdfast.extend import Endpoints, Interceptor
from holdfast.observe import AttemptFinished, AttemptStarted, RequestFinished, RequestStarted
from holdfast.protocol import GET_TASK
from holdfast.testing import FakeAgent, FakeNetwork, Stall, fails, run
from holdfast.types import AgentExtension, AgentInterface, GetTaskRequest

URL = "http://agent.test"
SECRET = "s3cret-value"


class Untouched(FakeNetwork):
    """Must not be asked for anything."""

    async def request(self, request):
        raise AssertionError(f"{request.method} {request.url} was sent")


def refused(*args, **options):
    options.setdefault("engine", Untouched())
    with pytest.raises((ValueError, TypeError)) as caught:
        connect(*args, **options)
    message = str(caught.value)
    assert len(message) > 15
    assert message.isprintable()
    assert SECRET not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


# ── Addresses ────────────────────────────────────────────────────────────────────────────────

BAD_URLS = {
    "": "must begin with http",
    "agent.test": "must begin with http",
    "agent.test/path": "must begin with http",
    "localhost:8000": "must begin with http",
    "//agent.test": "must begin with http",
    "ftp://agent.test": "must begin with http",
    "file:///etc/card.json": "must begin with http",
    "http://": "must begin with http",
    "http:///path": "must begin with http",
    "http://:80": "must begin with http",
    "http://agent.test:port": "is not a URL",
    "http://agent.test:99999": "is not a URL",
    "http://agent.test:-1": "is not a URL",
    "http://[::1": "is not a URL",
    "http://agent test": "a space or a control character",
    " http://agent.test": "a space or a control character",
    "http://agent.test\n": "a space or a control character",
    "http://agent.test/\x00": "a space or a control character",
    "http://agent.test/\u2028": "a space or a control character",
    f"http://user:{SECRET}@agent.test": "pass them as auth=",
    f"http://{SECRET}@agent.test": "pass them as auth=",
    f"http://user:{SECRET}@agent.test:99999": "pass them as auth=",
    f"http://user:{SECRET} @agent.test": "pass them as auth=",
    f"user:{SECRET}@agent.test": "pass them as auth=",
    f"//user:{SECRET}@agent.test": "pass them as auth=",
    f"http:user:{SECRET}@agent.test": "pass them as auth=",
    f"http:\\\\user:{SECRET}@agent.test": "pass them as auth=",
    f"agent.test?key={SECRET}": "must begin with http",
    f"http://agent.test:0/?key={SECRET}": "has port 0",
    "http://agent.test\\rpc": "has a backslash",
    "http://agent.test/\\..\\rpc": "has a backslash",
    f"http://agent.test/?{'x' * 9000}": "more than 8000 characters",
    f"http://agent.test/{'x' * 100_000}": "more than 8000 characters",
    f"http://agent.test:x/?key={SECRET}": "is not a URL",
    f"http://agent test/#{SECRET}": "a space or a control character",
    f"http://agent.test/#{SECRET}": "has a fragment",
    "http://agent.test/card.json#": "remove it",
}


@pytest.mark.parametrize("place", ["agent", "url", "credential_origins"])
@pytest.mark.parametrize(("url", "says"), BAD_URLS.items())
def test_an_address_that_cannot_be_right_is_refused(place, url, says):
    if place == "agent":
        error = refused(url)
    else:
        error = refused(URL, **{place: [url] if place == "credential_origins" else url})

    assert type(error) is ValueError
    assert says in str(error)
    assert (place if place != "agent" else "agent URL") in str(error)


@given(
    url=any_text
    | st.from_regex(r"(HTTPS?|ftp|http)?:?/{0,3}[a-z.:@\\\[\]0-9 ]*/?[\w?#@\\]*", fullmatch=True)
)
def test_an_address_is_taken_by_the_rule_for_those_of_cards(url):
    try:
        taken = check_url(url, "url") == url
    except ValueError:
        taken = False

    assert taken == is_http_address(url)


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://agent.test:8443/a/b?key=1",
        "http://127.0.0.1:8000",
        "http://[::1]:8000/",
        "HTTP://AGENT.TEST",
        "http://agent.test/@somebody",
        "http://agent.test/?to=me@home.test",
        "http://bücher.test/",
    ],
)
def test_an_address_that_can_be_right_is_taken(url):
    assert isinstance(connect(url, url=url, engine=Untouched()), Client)


@pytest.mark.parametrize("agent", [None, 7, b"http://agent.test", {"http://agent.test"}, object()])
def test_an_agent_of_another_kind_is_refused(agent):
    error = refused(agent)

    assert type(error) is TypeError
    assert type(agent).__name__ in str(error)


# ── Numbers ──────────────────────────────────────────────────────────────────────────────────

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("timeout", [0, -1, -0.0, NAN, INF, -INF])
def test_a_timeout_is_a_positive_number(timeout):
    assert "timeout must be a positive number of seconds" in str(refused(URL, timeout=timeout))


@pytest.mark.parametrize("name", ["timeout", "card_ttl"])
def test_a_bool_is_no_number_of_seconds(name):
    error = refused(URL, **{name: True})

    assert type(error) is TypeError
    assert str(error) == f"{name} must be a number of seconds, not bool"


@pytest.mark.parametrize("card_ttl", [-1, NAN, -INF])
def test_a_cards_time_to_live_is_not_negative(card_ttl):
    assert "card_ttl must be zero or more seconds" in str(refused(URL, card_ttl=card_ttl))


@pytest.mark.parametrize("timeout", [0, -1, NAN, INF, "5", True])
@pytest.mark.parametrize(
    "call",
    [
        lambda client, t: client.agent_card(timeout=t),
        lambda client, t: client.get_extended_agent_card(timeout=t),
        lambda client, t: client.ask("hello", timeout=t),
        lambda client, t: client.send_message("hello", timeout=t),
        lambda client, t: client.get_task("t", timeout=t),
        lambda client, t: client.list_tasks(timeout=t),
        lambda client, t: client.wait("t", timeout=t),
        lambda client, t: client.cancel_task("t", timeout=t),
        lambda client, t: client.list_task_push_notification_configs("t", timeout=t),
    ],
)
async def test_a_timeout_of_a_call_is_checked_before_anything_is_sent(call, timeout):
    kind = TypeError if isinstance(timeout, str | bool) else ValueError

    with pytest.raises(kind, match="timeout must be a"):
        await call(connect(URL, engine=Untouched()), timeout)


# ── Options of a call ────────────────────────────────────────────────────────────────────────

PUSH = holdfast.types.TaskPushNotificationConfig(task_id="t", url="http://me.test")
OPERATIONS = {
    "get_extended_agent_card": lambda client, **o: client.get_extended_agent_card(**o),
    "ask": lambda client, **o: client.ask("hello", **o),
    "send_message": lambda client, **o: client.send_message("hello", **o),
    "get_task": lambda client, **o: client.get_task("t", **o),
    "list_tasks": lambda client, **o: client.list_tasks(**o),
    "iter_tasks": lambda client, **o: anext(client.iter_tasks(**o)),
    "wait": lambda client, **o: client.wait("t", **o),
    "cancel_task": lambda client, **o: client.cancel_task("t", **o),
    "create_task_push_notification_config": (
        lambda client, **o: client.create_task_push_notification_config(PUSH, **o)
    ),
    "get_task_push_notification_config": (
        lambda client, **o: client.get_task_push_notification_config("t", "c", **o)
    ),
    "list_task_push_notification_configs": (
        lambda client, **o: client.list_task_push_notification_configs("t", **o)
    ),
    "delete_task_push_notification_config": (
        lambda client, **o: client.delete_task_push_notification_config("t", "c", **o)
    ),
    "call": lambda client, **o: client.call(GET_TASK, GetTaskRequest(id="t"), **o),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_option_that_is_none_is_named_before_anything_is_sent(operation):
    client = connect(URL, engine=Untouched())

    with pytest.raises(
        TypeError, match=r"'tiemout' is not an option of a call; did you mean 'timeout'"
    ):
        await OPERATIONS[operation](client, tiemout=5)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda c: c.list_tasks(per_window=0),
            "'per_window' .*; there are context_id, status, limit",
        ),
        (lambda c: c.list_tasks(page_tokn=""), "did you mean 'page_token'"),
        (
            lambda c: c.ask("x", task=1),
            "'task' is not an option of a call; did you mean 'task_id'",
        ),
        (lambda c: c.get_task("t", history_len=1), "did you mean 'history_length'"),
        (lambda c: c.wait("t", poll_intervall=1), "did you mean 'poll_interval'"),
        (lambda c: c.conversation().ask("x", meta_data={}), "did you mean 'metadata'"),
    ],
)
async def test_an_argument_that_is_mistyped_is_found_among_those_of_the_operation(call, told):
    with pytest.raises(TypeError, match=told):
        await call(connect(URL, engine=Untouched()))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "options",
    [{"headers": 7}, {"extensions": 7}, {"context": 7}, {"timeout": -1}],
    ids=lambda options: next(iter(options)),
)
async def test_every_operation_checks_every_option_before_anything_is_sent(operation, options):
    client = connect(URL, engine=Untouched())
    (name,) = options

    with pytest.raises((ValueError, TypeError), match=name):
        await OPERATIONS[operation](client, **options)


# ── Headers and credentials ──────────────────────────────────────────────────────────────────

BAD_HEADERS = {
    "line break": {"x-key": f"{SECRET}\r\nx-other: 1"},
    "control": {"x-key": f"{SECRET}\x00"},
    "beyond latin": {"x-key": f"{SECRET}€"},
    "name": {"x key": SECRET},
    "empty name": {"": SECRET},
    "line break in the name": {"x\r\ny": SECRET},
    "host": {"Host": SECRET},
    "connection": {"Connection": SECRET},
    "framing": {"Transfer-Encoding": SECRET},
    "length": {"Content-Length": SECRET},
    "upgrade": {"Upgrade": SECRET},
    "value": {"x-key": 7},
    "none": {"x-key": None},
    "bytes": {"x-key": SECRET.encode()},
    "name of another kind": {7: SECRET},
}


@pytest.mark.parametrize("place", ["headers", "auth"])
@pytest.mark.parametrize("headers", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_headers_that_would_break_a_request_are_refused(place, headers):
    assert "header" in str(refused(URL, **{place: headers}))


@pytest.mark.parametrize("headers", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
async def test_headers_of_a_call_are_checked_before_anything_is_sent(headers):
    with pytest.raises((ValueError, TypeError), match="header") as caught:
        await connect(URL, engine=Untouched()).send_message("hello", headers=headers)

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("auth", [f"Bearer {SECRET}\r\n", f"Bearer {SECRET}\x00"])
def test_a_credential_that_would_break_a_request_is_refused(auth):
    assert "authorization" in str(refused(URL, auth=auth))


@pytest.mark.parametrize("extensions", [["urn:a,urn:b"], ["urn:a\r\n"], ["urn:é€"]])
async def test_extensions_that_would_break_a_request_are_refused(extensions):
    with pytest.raises(ValueError, match=r"a2a-extensions|comma"):
        await connect(URL, engine=Untouched()).send_message("hello", extensions=extensions)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda client: client.send_message("hello", extensions="urn:a"), "extensions"),
        (lambda client: client.get_task(7), "task_id"),
        (lambda client: client.wait(None), "task_id"),
        (lambda client: client.get_task_push_notification_config("t", 7), "config_id"),
    ],
)
async def test_arguments_of_another_kind_are_refused_before_anything_is_sent(call, named):
    with pytest.raises(TypeError, match=f"{named} must be "):
        await call(connect(URL, engine=Untouched()))


# ── Everything else ──────────────────────────────────────────────────────────────────────────

WRONG_KINDS = [
    {"auth": 7},
    {"auth": object()},
    {"timeout": "5"},
    {"timeout": None},
    {"card_ttl": "5"},
    {"card_ttl": None},
    {"resilience": "standard"},
    {"resilience": Resilience},
    {"resilience": 0},
    {"engine": "aiohttp"},
    {"engine": 0},
    {"engine": FakeNetwork},
    {"shared": {}},
    {"shared": 0},
    {"env": 7},
    {"env": SystemEnv},
    {"url": 7},
    {"tenant": 7},
    {"bindings": "JSONRPC"},
    {"bindings": 7},
    {"bindings": None},
    {"headers": "x: y"},
    {"headers": 0},
    {"headers": ["x"]},
    {"credential_origins": URL},
    {"credential_origins": 7},
    {"credential_origins": [7]},
    {"allowed_networks": [5]},
    {"interceptors": Interceptor()},
    {"interceptors": [Interceptor]},
    {"interceptors": [print]},
    {"consumers": print},
    {"consumers": [7]},
    {"observers": print},
    {"observers": [None]},
    {"call_layers": print},
    {"call_layers": [7]},
    {"attempt_layers": "none"},
    {"attempt_layers": [7]},
]


@pytest.mark.parametrize("options", WRONG_KINDS, ids=shown)
def test_an_option_of_another_kind_is_refused_and_named(options):
    error = refused(URL, **options)

    (name,) = options
    assert type(error) is TypeError
    assert name.rstrip("s") in str(error)


@pytest.mark.parametrize(
    "bindings", [["PIGEON"], ["jsonrpc"], ["JSONRPC", ""], [["JSONRPC"]], [7]]
)
def test_a_binding_that_is_not_spoken_is_refused(bindings):
    error = refused(URL, bindings=bindings)

    assert type(error) is ValueError
    assert repr(bindings[-1]) in str(error)
    assert "JSONRPC, HTTP+JSON" in str(error)


def test_options_may_be_any_iterable():
    async def main():
        told = []
        network = FakeNetwork(FakeAgent())
        client = connect(
            URL,
            engine=network,
            bindings=iter(["JSONRPC"]),
            credential_origins=(origin for origin in [URL]),
            interceptors=iter([Interceptor()]),
            consumers=iter([lambda *a: told.append(a)]),
            observers=iter([told.append]),
        )
        await client.ask("one")
        before = len(told)
        await client.ask("two")
        fetched = [type(seen) for seen in told if getattr(seen, "method", "") == "GetAgentCard"]
        assert fetched == [RequestStarted, AttemptStarted, AttemptFinished, RequestFinished]
        assert before == len(told) - before + len(fetched)

    run(main())


async def test_a_list_changed_later_changes_nothing():
    told = []
    consumers = []
    client = connect(URL, engine=FakeNetwork(FakeAgent()), consumers=consumers)
    consumers.append(lambda *a: told.append(a))

    await client.ask("hello")

    assert told == []


# ── Life of a client ─────────────────────────────────────────────────────────────────────────


class Closing(FakeNetwork):
    closed = 0

    async def close(self):
        self.closed += 1


def test_making_a_client_needs_no_event_loop_and_fetches_nothing():
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()

    assert isinstance(connect(URL, engine=Untouched()), Client)
    assert isinstance(connect(URL), Client)


async def test_a_client_can_be_closed_twice_and_closes_no_borrowed_engine():
    network = Closing(FakeAgent())
    client = connect(URL, engine=network)
    await client.ask("hello")

    await client.close()
    await client.close()

    assert network.closed == 0


async def test_an_engine_of_its_own_is_closed(monkeypatch):
    closed = []

    async def close(self):
        closed.append(self)

    monkeypatch.setattr(AiohttpEngine, "close", close)

    async with connect(URL):
        assert closed == []

    assert len(closed) == 1


CALLS = {
    "agent_card": lambda client: client.agent_card(),
    "discover": lambda client: client.discover(),
    "get_extended_agent_card": lambda client: client.get_extended_agent_card(),
    "ask": lambda client: client.ask("hello"),
    "send_message": lambda client: client.send_message("hello"),
    "get_task": lambda client: client.get_task("task-1"),
    "list_tasks": lambda client: client.list_tasks(),
    "wait": lambda client: client.wait("task-1"),
    "cancel_task": lambda client: client.cancel_task("task-1"),
    "iter_tasks": lambda client: anext(client.iter_tasks()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_a_closed_client_says_so(call):
    client = connect(URL, engine=Untouched())
    await client.close()

    with pytest.raises(RuntimeError, match="the client is closed"):
        await call(client)


@pytest.mark.parametrize("operation", ["agent_card", "discover"])
async def test_a_card_is_asked_for_no_longer_than_the_caller_waits(operation):
    agent = FakeAgent()
    agent.inject(Stall(), on="GetAgentCard")
    client = connect(URL, engine=FakeNetwork(agent))

    with pytest.raises(holdfast.DeadlineExceededError, match="timeout of 3 s"):
        await getattr(client, operation)(timeout=3)


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("", "the agent URL '' must begin with http:// or https:// and name a host"),
        ('{"name": "x"}', "the agent URL is JSON; a card is passed as an AgentCard"),
        ('\n{"name": 1}', "the agent URL is JSON; a card is passed as an AgentCard"),
    ],
)
def test_what_is_no_address_at_all_is_reported_without_a_guess(agent, says):
    with pytest.raises(ValueError, match=says) as caught:
        connect(agent)
    assert "did you mean" not in str(caught.value)


async def test_a_client_is_closed_at_the_end_of_its_context():
    with pytest.raises(LookupError):
        async with connect(URL, engine=FakeNetwork(FakeAgent())) as client:
            raise LookupError

    with pytest.raises(RuntimeError, match="the client is closed"):
        await client.ask("hello")


async def test_ask_is_connect_ask_and_close():
    agent = FakeAgent(token="t0ken")
    network = Closing(agent)

    answer = await holdfast.ask(URL, "hello", engine=network, auth="Bearer t0ken")

    assert isinstance(answer, Answer)
    assert answer.text == "hello"
    assert network.closed == 0


async def test_ask_raises_what_the_call_raises():
    agent = FakeAgent(lambda _turn: fails("no"))

    with pytest.raises(TaskFailedError):
        await holdfast.ask(URL, "hello", engine=FakeNetwork(agent))


async def test_ask_refuses_what_connect_refuses():
    with pytest.raises(ValueError, match="must begin with http"):
        await holdfast.ask("agent.test", "hello", engine=Untouched())


async def test_an_empty_registry_is_shared_all_the_same():
    shared = Endpoints()

    await connect(URL, engine=FakeNetwork(FakeAgent()), shared=shared).ask("hello")

    assert len(shared) == 2  # where the card is, and the interface


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda client: client.get_task(""), "task_id"),
        (lambda client: client.wait(""), "task_id"),
        (lambda client: client.cancel_task(""), "task_id"),
        (lambda client: client.get_task("t", history_length=-1), "history_length"),
        (lambda client: client.send_message("x", history_length=-1), "history_length"),
        (lambda client: client.list_tasks(limit=0), "limit"),
        (lambda client: client.list_tasks(limit=101), "limit"),
        (lambda client: client.get_task_push_notification_config("t", ""), "config_id"),
        (lambda client: client.delete_task_push_notification_config("", "c"), "task_id"),
        (lambda client: client.list_task_push_notification_configs(""), "task_id"),
        (
            lambda client: client.list_task_push_notification_configs("t", limit=-1),
            "limit",
        ),
        (
            lambda client: client.create_task_push_notification_config(
                holdfast.types.TaskPushNotificationConfig(url="https://me.test")
            ),
            "config.task_id",
        ),
        (
            lambda client: client.create_task_push_notification_config(
                holdfast.types.TaskPushNotificationConfig(task_id="t")
            ),
            "config.url",
        ),
    ],
)
async def test_arguments_that_cannot_be_right_are_refused_before_anything_is_sent(call, named):
    with pytest.raises(ValueError, match=named):
        await call(connect(URL, engine=Untouched()))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c, v: c.conversation(context_id=v), "context_id must be a string"),
        (lambda c, v: c.ask("x", task_id=v), "task_id must be a string"),
        (lambda c, v: c.send_message("x", context_id=v), "context_id must be a string"),
        (lambda c, v: c.list_tasks(v), "context_id must be a string"),
        (lambda c, v: c.list_tasks(page_token=v), "page_token must be str"),
        (
            lambda c, v: c.list_tasks(status_timestamp_after=v),
            "status_timestamp_after must be str",
        ),
        (lambda c, v: c.list_tasks(include_artifacts=v), "include_artifacts must be bool"),
        (lambda c, v: c.iter_tasks(context_id=v), "context_id must be a string"),
        (lambda c, v: c.iter_tasks(limit=v), "limit must be a whole number|limit must be from 1"),
        (
            lambda c, v: c.list_task_push_notification_configs("t", page_token=v),
            "page_token must be str",
        ),
        (lambda c, v: c.cancel_task("t", confirm=v), "confirm must be bool"),
        (
            lambda c, v: c.subscribe_to_task("t", force_subscription=v),
            "force_subscription must be bool",
        ),
        (lambda c, v: c.pending(message_id=v), "message_id must be a string"),
        (lambda c, v: c.call(v, GetTaskRequest(id="t")), "operation must be Operation"),
        (lambda c, v: c.call(GET_TASK, v), "params must be GetTaskRequest"),
        (lambda c, v: c.call(GET_TASK, GetTaskRequest(id=v)), r"params\.id must be str"),
        (lambda _, v: holdfast.RunItem(key=v, content="x"), "key must be a string"),
        (lambda _, v: holdfast.text_part(v), "text must be str"),
        (lambda _, v: holdfast.url_part(v), "url must be a string"),
        (lambda _, v: holdfast.data_part({}, media_type=v), "media_type must be str"),
        (lambda _, v: holdfast.compat.make_error(-1, v), "message must be str"),
        (lambda _, v: holdfast.compat.ClientConfig(engine=v), "engine must have the methods"),
        (
            lambda _, v: holdfast.signatures.CardVerifier(algorithms=[v]),
            "one of algorithms must be str",
        ),
        (lambda _, v: holdfast.push.JwtPolicy(issuer=v), "issuer must be a string"),
    ],
)
@pytest.mark.parametrize("value", [555, b"x"], ids=["number", "bytes"])
async def test_an_argument_of_another_type_is_refused_by_the_call_itself(call, says, value):
    async def made():
        given = call(connect(URL, engine=Untouched()), value)
        return await given if inspect.iscoroutine(given) else given

    with pytest.raises((TypeError, ValueError), match=says) as caught:
        await made()

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda client: client.conversation(context_id=""), "context_id"),
        (lambda client: client.iter_tasks(""), "context_id"),
        (lambda client: client.iter_tasks(status_timestamp_after=""), "status_timestamp_after"),
        (lambda _: holdfast.RunItem(key="", content="x"), "key"),
        (lambda _: holdfast.url_part(""), "url"),
        (lambda _: holdfast.SqliteJournal(""), "path"),
    ],
)
async def test_an_empty_name_is_refused_by_the_call_itself(call, named):
    with pytest.raises(ValueError, match=f"^{named} must not be empty"):
        call(connect(URL, engine=Untouched()))


async def test_a_page_token_that_is_empty_is_the_first_page():
    client = connect(URL, engine=FakeNetwork(FakeAgent()))

    assert (await client.list_tasks(page_token="")).tasks == ()


async def test_an_ordered_set_is_a_sequence_and_a_json_object_is_none():
    uris = dict.fromkeys(["urn:b", "urn:a", "urn:b"])
    agent = FakeAgent(extensions=[AgentExtension(uri=uri) for uri in uris])
    client = connect(agent.url, engine=FakeNetwork(agent), extensions=uris)

    await client.send_message("hello", accepted_output_modes=dict.fromkeys(["text/plain"]))

    [call] = agent.calls("SendMessage")
    assert call.headers["a2a-extensions"] == "urn:b,urn:a"
    with pytest.raises(TypeError, match="extensions must be a sequence, not dict"):
        connect(agent.url, extensions={"uri": "urn:a"})


@pytest.mark.parametrize("extensions", ["", 0])
async def test_extensions_that_are_no_sequence_are_refused_although_they_are_empty(extensions):
    with pytest.raises(TypeError, match="extensions must be a sequence"):
        await connect(URL, engine=Untouched()).ask("x", extensions=extensions)


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_card_in_hand_that_is_no_card_is_refused_by_its_field(as_dict):
    nameless = card_of("JSONRPC", name="")

    with pytest.raises(
        holdfast.errors.InvalidAgentCardError, match="lacks the field name"
    ) as caught:
        connect(nameless.to_dict() if as_dict else nameless, engine=Untouched())

    assert (caught.value.field, caught.value.executed) == ("name", False)


def card_of(binding, *, version="1.0", name="Mine"):
    interface = AgentInterface(url=URL, protocol_binding=binding, protocol_version=version)
    return AgentCard(name=name, supported_interfaces=(interface,))


@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize(
    ("card", "options", "says"),
    [
        (card_of("GRPC"), {}, "offers only GRPC; this client speaks JSONRPC, HTTP+JSON"),
        (card_of("JSONRPC", version="2.0"), {}, "speaks protocol 2.0"),
        (card_of("\x1b[31m\n"), {}, "offers only"),
        (card_of("JSONRPC"), {"supported_protocol_bindings": ["HTTP+JSON"]}, "speaks HTTP+JSON"),
        (card_of("JSONRPC"), {"url": "grpc://a.test"}, 'pass minimal_agent_card(url, ["GRPC"])'),
    ],
    ids=["binding", "version", "terminal", "filter", "by hand"],
)
def test_a_card_in_hand_without_an_interface_to_call_is_refused(card, options, says, as_dict):
    error = refused(card.to_dict() if as_dict else card, **options)

    assert type(error) is ValueError
    assert says in str(error)


def test_a_preference_that_a_card_in_hand_does_not_share_is_no_error():
    assert isinstance(connect(card_of("JSONRPC"), bindings=["HTTP+JSON"]), Client)


async def test_a_dict_that_is_changed_later_changes_nothing():
    agent = FakeAgent()
    document = card_of("JSONRPC").to_dict()
    client = connect(document, engine=FakeNetwork(agent))
    document.clear()

    assert (await client.agent_card()).name == "Mine"


@pytest.mark.parametrize(
    ("options", "kind", "what"),
    [
        ({"status": "TASK_STATE_WORKING"}, TypeError, "status must be TaskState"),
        ({"limit": "5"}, TypeError, "limit must be a whole number"),
        ({"limit": 0}, ValueError, "limit must be from 1 to 100"),
        ({"limit": True}, TypeError, "limit must be a whole number, not bool"),
        ({"history_length": "2"}, TypeError, "history_length must be a whole number"),
        ({"history_length": True}, TypeError, "history_length must be a whole number, not bool"),
        ({"timeout": True}, TypeError, "timeout must be a number of seconds, not bool"),
    ],
)
async def test_what_narrows_a_list_is_checked(options, kind, what):
    with pytest.raises(kind, match=what):
        await connect(URL, engine=Untouched()).list_tasks(**options)
    with pytest.raises(kind, match=what):
        await anext(connect(URL, engine=Untouched()).iter_tasks(**options))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"consumers": [7]}, "each of consumers must be callable; int is not"),
        ({"interceptors": [7]}, "each of interceptors must have before and after; int has not"),
        (
            {"interceptors": [holdfast.extend.Interceptor]},
            "each of interceptors must be an instance, not the class Interceptor",
        ),
        ({"engine": 7}, "engine must have the methods request, stream, close; int has not"),
        ({"engine": FakeNetwork}, "engine must be an instance, not the class FakeNetwork"),
        ({"allowed_networks": ["nope"]}, "'nope' in allowed_networks is not a network, such as"),
        (
            {"bindings": ["nope"]},
            "'nope' in bindings is not a binding; valid bindings: JSONRPC, HTTP",
        ),
    ],
)
def test_refused_value_is_reported_with_what_it_must_be(options, said):
    assert said in str(refused(URL, **options))


def test_an_address_without_a_scheme_is_suggested_one():
    assert "did you mean http://localhost:9999?" in str(refused("localhost:9999"))


@pytest.mark.parametrize(
    "path",
    ["./card.json", "../card.json", "card.json", "cards/weather.json", "/srv/card.json", "./card",
     "/srv/cards/weather", "./my card.json", ".\\card.json", "C:\\cards\\card.json"],
)  # fmt: skip
def test_a_path_in_a_string_is_suggested_to_be_a_path(path):
    said = str(refused(path))
    assert said.endswith(f"; a file is named by a Path: did you mean Path({path!r})?")
    assert "http://./" not in said
    assert "http:///" not in said


def test_a_path_below_the_home_directory_is_suggested_expanded():
    assert str(refused("~/card.json")).endswith("did you mean Path('~/card.json').expanduser()?")


def test_a_path_is_suggested_only_where_a_path_is_taken():
    assert "Path" not in str(refused(URL, url="./card.json"))


@pytest.mark.parametrize(
    ("scheme", "address"),
    [
        ("https", "agent.example.com"),
        ("https", "agent.example.com/card.json"),
        ("http", "localhost:9999/card.json"),
        ("http", "localhost/card.json"),
        ("http", "agent/weather"),
        ("http", "10.0.0.7:8000"),
        ("http", "[::1]:8000/card.json"),
    ],
)
def test_a_host_in_a_string_is_suggested_an_address(scheme, address):
    assert str(refused(address)).endswith(f"; did you mean {scheme}://{address}?")


@pytest.mark.parametrize(
    "address",
    ["", "http:agent.test", "https:/agent.test", "ftp://a.test", "a.test:0"],
)
def test_what_would_be_no_address_even_so_is_not_suggested(address):
    assert "did you mean" not in str(refused(address))


@pytest.mark.parametrize("said", ["hello", "Book a table."])
async def test_an_agent_and_a_message_that_are_swapped_are_distinguished(said):
    with pytest.raises(ValueError, match="the arguments are in the wrong order"):
        await ask(said, URL)


async def test_what_is_wrong_with_an_agent_is_told_whatever_the_message():
    with pytest.raises(ValueError, match="did you mean http://agent"):
        await ask("agent", "hello")
    with pytest.raises(ValueError, match="auth must not be empty"):
        await ask(URL, URL, auth=" ")


@pytest.mark.parametrize(
    ("name", "given", "advice"),
    [
        ("extensions", "urn:x", "not str; pass a list: ['urn:x']"),
        ("consumers", print, "not builtin_function_or_method; pass a list: [print]"),
        ("credential_origins", "https://a.test/?key=1", "not str; pass a list: […]"),
        ("observers", 7, "not int"),
    ],
)
def test_value_instead_of_a_list_is_reported_with_how_to_make_one(name, given, advice):
    assert str(refused(URL, **{name: given})) == f"{name} must be a sequence, {advice}"


def test_empty_credentials_are_a_mistake():
    assert "auth must not be empty" in str(refused(URL, auth=" "))


def test_a_pipe_in_the_place_of_a_card_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "card.json")
    code = (
        "import asyncio, pathlib, holdfast\n"
        f"client = holdfast.connect(pathlib.Path({str(tmp_path / 'card.json')!r}))\n"
        "asyncio.run(client.ask('x'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True
    )
    assert "it is not a file" in done.stderr


def test_options_left_out_are_those_of_the_signature_of_connect():
    left_out = check_connect_options()
    parameters = inspect.signature(connect).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    named = check_connect_options(**defaults)

    for field in set(left_out.__struct_fields__) - {"env", "registry"}:  # new ones each time
        assert getattr(left_out, field) == getattr(named, field), field


def test_checked_options_do_not_show_secrets():
    settings = check_connect_options(auth="Bearer s3cr3t-t0k3n", headers={"x-key": "s3cr3t-k3y"})

    assert settings.headers == {"x-key": "s3cr3t-k3y"}
    assert "s3cr3t" not in repr(settings)
