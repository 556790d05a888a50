"""The official client of protocol 0.3 calls a real agent of that protocol.

Between them is a door where messages meet what networks and proxies do. What the SDK makes of it
by itself comes first, then what it makes of it when Holdfast carries its requests.
"""

import pytest
from tests.kit.faulty_agent import Answer, Cut, LostMessage, NotSent
from tests.kit.frameworks import call
from tests.kit.real_agents import sdk03_client

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

SEND = "SendStreamingMessage"
LATER = ("Retry-After: 0",)

each_binding = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@pytest.fixture
def agent(sdk03_url):
    return sdk03_url


@pytest.fixture(scope="module")
def sdk(tmp_path_factory):
    with sdk03_client(tmp_path_factory.mktemp("client03") / "stderr") as (process, _):
        yield process


@pytest.fixture
def ask(sdk, agent):
    """Has the SDK say something to the agent."""

    def ask(text="echo Hi.", **how):
        return call(sdk, agent, text, **how)

    return ask


def types(called):
    """The error that the SDK raised, and those that it came from."""
    return [error["type"] for error in called.outcome["error"]]


# --- by itself -----------------------------------------------------------------------------------


@each_binding
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "no stream"])
async def test_all_is_well_where_nothing_happens(ask, binding, streaming):
    called = await ask(through="alone", binding=binding, streaming=streaming)

    assert called.outcome == {"text": "Hi."}
    assert called.asked == ["card", SEND if streaming else "SendMessage"]
    assert called.executions == 1


async def test_alone_it_fails_when_it_is_refused_once(ask):
    called = await ask(through="alone", refused=True)

    assert types(called)[:2] == ["A2AClientHTTPError", "ConnectError"]


@pytest.mark.parametrize(
    ("fault", "cause", "executions"),
    [
        (LostMessage(), "ReadError", 1),
        (Answer(429, LATER), "HTTPStatusError", 0),
        (Answer(503, LATER), "HTTPStatusError", 0),
    ],
    ids=["lost", "429", "503"],
)
async def test_alone_it_fails_and_does_not_say_whether_anything_ran(ask, fault, cause, executions):
    called = await ask(through="alone", streaming=False, faults=[fault])

    assert types(called)[:2] == ["A2AClientHTTPError", cause]
    assert called.asked == ["card", "SendMessage"]
    assert called.executions == executions


# --- carried by holdfast.integrations.httpx ------------------------------------------------------


@each_binding
async def test_carried_it_comes_again_when_it_is_refused(ask, binding):
    called = await ask(through="transport", refused=True, binding=binding)

    assert called.outcome == {"text": "Hi."}
    [error] = called.retries
    assert (error["type"], error["executed"]) == ("A2AConnectionError", False)
    assert called.executions == 1


@each_binding
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "no stream"])
@pytest.mark.parametrize("status", [429, 503])
async def test_carried_it_comes_again_when_it_was_asked_to(ask, status, binding, streaming):
    called = await ask(
        through="transport",
        faults=[Answer(status, LATER)],
        binding=binding,
        streaming=streaming,
    )

    assert called.outcome == {"text": "Hi."}
    assert [error["executed"] for error in called.retries] == [False]
    assert called.asked == ["card", *[SEND if streaming else "SendMessage"] * 2]
    assert called.executions == 1


@each_binding
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "no stream"])
@pytest.mark.parametrize(
    ("fault", "executions"), [(NotSent(), 0), (LostMessage(), 1)], ids=["not sent", "lost"]
)
async def test_carried_it_sends_nothing_twice_and_learns_that_it_may_have_run(
    ask, fault, executions, binding, streaming
):
    called = await ask(through="transport", faults=[fault], binding=binding, streaming=streaming)

    cause = next(error for error in called.outcome["error"] if "executed" in error)
    assert (cause["type"], cause["executed"]) == ("A2AConnectionError", None)
    assert cause["message"].endswith("not retried: the agent may have executed it)")
    assert called.asked == ["card", SEND if streaming else "SendMessage"]
    assert called.executions == executions


async def test_carried_it_does_not_send_again_what_was_not_refused(ask):
    called = await ask(through="transport", faults=[Answer(503)], streaming=False)

    assert types(called)[:2] == ["A2AClientHTTPError", "HTTPStatusError"]
    assert called.asked == ["card", "SendMessage"]


@pytest.mark.parametrize("fault", [NotSent(), Answer(503)], ids=["reset", "503"])
async def test_carried_it_fetches_the_card_again(ask, fault):
    called = await ask(through="transport", faults=[fault], at={"card"})

    assert called.outcome == {"text": "Hi."}
    assert called.asked == ["card", "card", SEND]


async def test_carried_it_is_left_with_what_is_cut(ask):
    called = await ask(through="transport", faults=[Cut("close", 2)])

    assert types(called)[:2] == ["A2AClientHTTPError", "RemoteProtocolError"]
    assert called.asked == ["card", SEND]
    assert called.executions == 1
