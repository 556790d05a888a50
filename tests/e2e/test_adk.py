"""Google ADK's `RemoteA2aAgent`, in a `Runner` and without a model, calls a real agent.

Between them is a door where messages meet what networks and proxies do. What ADK makes of it by
itself comes first, then what it makes of it with one line of Holdfast.
"""

import uuid

import pytest
from tests.kit.faulty_agent import CARD_PATH, Answer, Cut, LostMessage, NotSent
from tests.kit.frameworks import call, permit
from tests.kit.real_agents import adk_client, sdk_process

pytestmark = [pytest.mark.adk, pytest.mark.sdk, pytest.mark.real_time]

SEND = "SendStreamingMessage"

COUNT = 5
TEXT = f"chunks {COUNT}"
FULL = "".join(f"chunk {number}\n" for number in range(1, COUNT + 1))
UP_TO_THE_CUT = "chunk 1\nchunk 2\n"
BEFORE_THE_CUT = 4
"""Events: the task, that it works, and two chunks."""

LATER = ("Retry-After: 0",)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    with sdk_process(tmp_path_factory.mktemp("sdk") / "stderr") as url:
        yield url


@pytest.fixture(scope="module")
def adk(tmp_path_factory):
    with adk_client(tmp_path_factory.mktemp("adk") / "stderr") as (process, _):
        yield process


@pytest.fixture
def ask(adk, agent):
    """Has ADK say something to the agent."""

    def ask(text=TEXT, **how):
        return call(adk, agent, text, card_path=CARD_PATH, **how)

    return ask


def in_order(called):
    """ADK told the whole text once, in order, and no error."""
    outcome = called.outcome
    return outcome["errors"] == [] and outcome["text"] == FULL


# --- by itself -----------------------------------------------------------------------------------


async def test_all_is_well_where_nothing_happens(ask):
    called = await ask(through="alone")

    assert in_order(called)
    assert called.asked == ["card", SEND]
    assert called.executions == 1


@pytest.mark.parametrize("known", [True, False], ids=["sending", "fetching the card"])
async def test_alone_it_fails_when_it_is_refused_once(ask, known):
    called = await ask(through="alone", refused=True, known=known)

    [error] = called.outcome["errors"]
    assert error.endswith("All connection attempts failed")
    assert called.executions == 0


@pytest.mark.parametrize(
    ("fault", "said", "executions"),
    [
        (NotSent(), "A2A request failed: Network communication error: ", 0),
        (LostMessage(), "A2A request failed: Network communication error: ", 1),
        (Answer(429, LATER), "A2A request failed: HTTP Error 429: ", 0),
        (Answer(503, LATER), "A2A request failed: HTTP Error 503: ", 0),
    ],
    ids=["not sent", "lost", "429", "503"],
)
async def test_alone_it_fails_and_does_not_say_whether_anything_ran(ask, fault, said, executions):
    called = await ask(through="alone", faults=[fault])

    [error] = called.outcome["errors"]
    assert error.startswith(said)
    assert called.outcome["text"] == ""
    assert called.asked == ["card", SEND]
    assert called.executions == executions


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("reset", "A2A request failed: Network communication error: "),
        ("close", "A2A request failed: Network communication error: peer closed connection"),
        ("end", "A2A response stream ended before task "),
    ],
)
async def test_alone_it_keeps_the_beginning_of_what_is_cut_and_asks_no_more(ask, how, said):
    called = await ask(through="alone", faults=[Cut(how, BEFORE_THE_CUT)])

    [error] = called.outcome["errors"]
    assert error.startswith(said)
    # A reset may destroy what the client has not read yet.
    assert UP_TO_THE_CUT.startswith(called.outcome["text"])
    assert how == "reset" or called.outcome["text"] == UP_TO_THE_CUT
    assert called.asked == ["card", SEND]
    assert called.executions == 1


# --- carried by holdfast.integrations.httpx ------------------------------------------------------


async def test_carried_all_is_well_and_the_client_stays_open(ask):
    called = await ask(through="transport")

    assert in_order(called)
    assert called.executions == 1
    assert called.outcome["lent_is_closed"] is False


@pytest.mark.parametrize("known", [True, False], ids=["sending", "fetching the card"])
async def test_carried_it_comes_again_when_it_is_refused(ask, known):
    called = await ask(through="transport", refused=True, known=known)

    assert in_order(called)
    [error] = called.retries
    assert (error["type"], error["executed"]) == ("A2AConnectionError", False)
    assert called.executions == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_carried_it_comes_again_when_it_was_asked_to(ask, status):
    called = await ask(through="transport", faults=[Answer(status, LATER)])

    assert in_order(called)
    assert [error["executed"] for error in called.retries] == [False]
    assert called.asked == ["card", SEND, SEND]
    assert called.executions == 1


@pytest.mark.parametrize(
    ("fault", "executions"), [(NotSent(), 0), (LostMessage(), 1)], ids=["not sent", "lost"]
)
async def test_carried_it_sends_nothing_twice_and_says_that_it_may_have_run(
    ask, fault, executions
):
    called = await ask(through="transport", faults=[fault])

    [error] = called.outcome["errors"]
    assert error.startswith("A2A request failed: Network communication error: the connection")
    assert error.endswith("not retried: the agent may have executed it)")
    assert called.asked == ["card", SEND]
    assert called.executions == executions


async def test_carried_it_does_not_send_again_what_was_not_refused(ask):
    called = await ask(through="transport", faults=[Answer(503)])

    [error] = called.outcome["errors"]
    assert error.startswith("A2A request failed: HTTP Error 503: ")
    assert called.asked == ["card", SEND]


@pytest.mark.parametrize("fault", [NotSent(), Answer(503)], ids=["reset", "503"])
async def test_carried_it_fetches_the_card_again(ask, fault):
    called = await ask(through="transport", faults=[fault], at={"card"})

    assert in_order(called)
    assert called.asked == ["card", "card", SEND]


async def test_carried_it_is_left_with_what_is_cut(ask):
    called = await ask(through="transport", faults=[Cut("close", BEFORE_THE_CUT)])

    [error] = called.outcome["errors"]
    assert "the reply ended too early" in error
    assert called.outcome["text"] == UP_TO_THE_CUT
    assert called.executions == 1


# --- called by holdfast.integrations.a2a_sdk -----------------------------------------------------


async def test_called_all_is_well(ask):
    called = await ask(through="factory")

    assert in_order(called)
    assert called.outcome["events"] == [
        *([f"chunk {number}\n", True] for number in range(1, COUNT)),
        [f"chunk {COUNT}\n", False],
    ]
    assert called.executions == 1


@pytest.mark.parametrize(
    ("through", "known"),
    [("factory", True), ("both", False)],
    ids=["sending", "fetching the card"],
)
async def test_called_it_comes_again_when_it_is_refused(ask, through, known):
    called = await ask(through=through, refused=True, known=known)

    assert in_order(called)
    [error] = called.retries
    assert (error["type"], error["executed"]) == ("A2AConnectionError", False)
    assert called.executions == 1


async def test_the_factory_does_not_fetch_the_card(ask):
    called = await ask(through="factory", refused=True)

    [error] = called.outcome["errors"]
    assert error.startswith("Failed to initialize remote A2A agent")
    assert called.retries == []


both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@both_bindings
@pytest.mark.parametrize("status", [429, 503])
async def test_called_it_comes_again_when_it_was_asked_to(ask, status, binding):
    called = await ask(through="factory", faults=[Answer(status, LATER)], bindings=[binding])

    assert in_order(called)
    assert [error["executed"] for error in called.retries] == [False]
    assert called.asked[:3] == ["card", SEND, SEND]
    assert called.executions == 1


@both_bindings
async def test_called_it_finds_what_it_sent_when_the_reply_is_lost(ask, binding):
    called = await ask(through="factory", faults=[LostMessage()], bindings=[binding])

    assert in_order(called)
    assert called.asked[:3] == ["card", SEND, "ListTasks"]
    assert called.asked.count(SEND) == 1
    assert called.executions == 1


@pytest.mark.parametrize("fault", [NotSent(), Answer(503)], ids=["reset", "503"])
async def test_called_it_does_not_send_again_what_it_does_not_find(ask, fault):
    called = await ask(through="factory", faults=[fault], look=0.05)

    [error] = called.outcome["errors"]
    assert error.startswith("A2A request failed: ")
    assert "is unknown: the message was sent, but its reply was lost" in error
    assert called.asked.count(SEND) == 1
    assert called.executions == 0


async def test_called_it_sends_an_unfound_message_again_if_configured(ask):
    called = await ask(
        through="factory", faults=[NotSent()], look=1.0, on_unknown="resend_if_absent"
    )

    assert in_order(called)
    assert called.asked.count(SEND) == 2
    assert called.executions == 1


@both_bindings
@pytest.mark.parametrize("how", ["reset", "close", "end"])
async def test_called_it_gets_the_rest_of_a_task_that_is_over(ask, how, binding):
    called = await ask(through="factory", faults=[Cut(how, BEFORE_THE_CUT)], bindings=[binding])

    assert in_order(called)
    assert [partial for _, partial in called.outcome["events"]][-1] is False
    assert called.asked.count(SEND) == 1
    assert called.executions == 1


@pytest.mark.parametrize("how", ["reset", "close", "end"])
async def test_called_it_listens_on_when_it_is_cut_off(ask, agent, how):
    pace = str(uuid.uuid4())
    permits = iter([BEFORE_THE_CUT - 1, COUNT - BEFORE_THE_CUT + 1])

    async def more():
        await permit(agent, pace, next(permits, 0))

    called = await ask(
        f"paced {pace} {COUNT}",
        through="factory",
        on_stream=more,
        faults=[Cut(how, BEFORE_THE_CUT, over=False)],
    )

    assert in_order(called)
    assert "SubscribeToTask" in called.asked
    assert called.asked.count(SEND) == 1
    assert called.executions == 1
