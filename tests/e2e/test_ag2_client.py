"""AG2's client, an `Agent` whose model is an `A2AConfig`, calls a real agent.

Between them is a door where messages meet what networks and proxies do. What AG2 makes of it by
itself comes first, then what it makes of it with one line of Holdfast.
"""

import uuid

import pytest
from tests.kit.faulty_agent import Answer, Cut, LostMessage, NotSent
from tests.kit.frameworks import call, permit
from tests.kit.real_agents import ag2_client

pytestmark = [pytest.mark.ag2, pytest.mark.sdk, pytest.mark.real_time]

SEND = "SendStreamingMessage"
CARDS = ["card", "GetExtendedAgentCard"]

COUNT = 5
TEXT = f"chunks {COUNT}"
CHUNKS = [f"chunk {number}\n" for number in range(1, COUNT + 1)]
BEFORE_THE_CUT = 4
"""Events: the task, that it works, and two chunks."""

LATER = ("Retry-After: 0",)


@pytest.fixture
def agent(sdk_url):
    return sdk_url


@pytest.fixture(scope="module")
def ag2(tmp_path_factory):
    with ag2_client(tmp_path_factory.mktemp("ag2") / "stderr") as (process, _):
        yield process


@pytest.fixture
def ask(ag2, agent):
    """Has AG2 say something to the agent."""

    def ask(text=TEXT, **how):
        return call(ag2, agent, text, **how)

    return ask


def in_order(called):
    """AG2 told the whole text once, in order, and no error."""
    return called.outcome == {"text": "".join(CHUNKS), "chunks": CHUNKS}


def names(called):
    """The error that AG2 raised, and those that it came from."""
    return [error["type"] for error in called.outcome["error"]]


# --- by itself -----------------------------------------------------------------------------------


async def test_all_is_well_where_nothing_happens(ask):
    called = await ask(through="alone")

    assert in_order(called)
    assert called.asked == [*CARDS, SEND]
    assert called.executions == 1


async def test_alone_it_fails_when_the_card_is_refused_once(ask):
    called = await ask(through="alone", refused=True)

    assert names(called)[:2] == ["AgentCardResolutionError", "ConnectError"]


async def test_alone_it_fails_when_a_message_is_refused_once(ask):
    called = await ask(through="alone", refused=True, known=True)

    assert names(called)[:3] == ["A2AReconnectError", "A2AClientError", "ConnectError"]
    assert called.executions == 0


@pytest.mark.parametrize(
    ("fault", "cause", "executions"),
    [
        (NotSent(), "ReadError", 0),
        (LostMessage(), "ReadError", 1),
        (Answer(429, LATER), "HTTPStatusError", 0),
        (Answer(503, LATER), "HTTPStatusError", 0),
    ],
    ids=["not sent", "lost", "429", "503"],
)
async def test_alone_it_fails_and_does_not_say_whether_anything_ran(ask, fault, cause, executions):
    called = await ask(through="alone", faults=[fault])

    assert names(called)[:3] == ["A2AReconnectError", "A2AClientError", cause]
    assert called.asked == [*CARDS, SEND]
    assert called.executions == executions


async def test_alone_it_does_not_find_a_task_again_that_is_over(ask):
    called = await ask(through="alone", faults=[Cut("close", BEFORE_THE_CUT)])

    assert names(called) == ["UnsupportedOperationError"]
    assert called.outcome["chunks"] == CHUNKS[:2]
    assert called.asked == [*CARDS, SEND, "SubscribeToTask"]
    assert called.executions == 1


async def test_alone_it_takes_what_is_cut_in_good_order_for_all(ask):
    called = await ask(through="alone", faults=[Cut("end", BEFORE_THE_CUT)])

    assert called.outcome == {"text": "".join(CHUNKS[:2]), "chunks": CHUNKS[:2]}
    assert called.asked == [*CARDS, SEND]
    assert called.executions == 1


async def test_alone_it_loses_what_was_said_while_it_was_away(ask, agent):
    pace = str(uuid.uuid4())
    permits = iter([3, COUNT - 3])

    async def more():
        await permit(agent, pace, next(permits))

    called = await ask(
        f"paced {pace} {COUNT}",
        through="alone",
        on_stream=more,
        faults=[Cut("close", BEFORE_THE_CUT, over=False)],
    )

    heard = [*CHUNKS[:2], *CHUNKS[3:]]
    assert called.outcome == {"text": "".join(heard), "chunks": heard}
    assert called.asked == [*CARDS, SEND, "SubscribeToTask"]
    assert called.executions == 1


async def test_alone_it_fails_when_one_request_fails(ask):
    called = await ask(
        "echo Hi.", through="alone", streaming=False, faults=[NotSent()], at={"GetTask"}
    )

    assert names(called)[0] == "A2AClientError"
    assert called.asked == [*CARDS, "SendMessage", "GetTask"]
    assert called.executions == 1


# --- carried by holdfast.integrations.httpx ------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["sending", "fetching the card"])
async def test_carried_it_comes_again_when_it_is_refused(ask, known):
    called = await ask(through="transport", refused=True, known=known)

    assert in_order(called)
    [error] = called.retries
    assert (error["type"], error["executed"]) == ("A2AConnectionError", False)
    assert called.executions == 1


both_bindings = pytest.mark.parametrize("prefer", ["jsonrpc", "rest"])


@both_bindings
@pytest.mark.parametrize("status", [429, 503])
async def test_carried_it_comes_again_when_it_was_asked_to(ask, status, prefer):
    called = await ask(through="transport", faults=[Answer(status, LATER)], prefer=prefer)

    assert in_order(called)
    assert [error["executed"] for error in called.retries] == [False]
    assert called.asked == [*CARDS, SEND, SEND]
    assert called.executions == 1


@both_bindings
@pytest.mark.parametrize(
    ("fault", "executions"), [(NotSent(), 0), (LostMessage(), 1)], ids=["not sent", "lost"]
)
async def test_carried_it_sends_nothing_twice_and_learns_that_it_may_have_run(
    ask, fault, executions, prefer
):
    called = await ask(through="transport", faults=[fault], prefer=prefer)

    assert names(called)[:4] == [
        "A2AReconnectError",
        "A2AClientError",
        "RemoteProtocolError",
        "A2AConnectionError",
    ]
    cause = called.outcome["error"][3]
    assert cause["executed"] is None
    assert cause["message"].endswith("not retried: the agent may have executed it)")
    assert called.asked == [*CARDS, SEND]
    assert called.executions == executions


async def test_carried_it_does_not_send_again_what_was_not_refused(ask):
    called = await ask(through="transport", faults=[Answer(503)])

    assert names(called)[2] == "HTTPStatusError"
    assert called.asked == [*CARDS, SEND]


@both_bindings
@pytest.mark.parametrize("fault", [NotSent(), Answer(503)], ids=["reset", "503"])
@pytest.mark.parametrize("operation", ["card", "GetExtendedAgentCard", "GetTask"])
async def test_carried_it_asks_again_what_is_only_a_question(ask, operation, fault, prefer):
    called = await ask(
        "echo Hi.",
        through="transport",
        streaming=False,
        prefer=prefer,
        faults=[fault],
        at={operation},
    )

    assert called.outcome["text"] == "Hi."
    assert len(called.retries) == 1
    again = called.asked.index(operation)
    assert called.asked[again : again + 2] == [operation, operation]
    assert called.executions == 1


both_ends = pytest.mark.parametrize("how", ["close", "end"])


@both_bindings
@both_ends
async def test_carried_it_is_left_with_what_is_cut_and_takes_it_for_no_end(ask, how, prefer):
    called = await ask(through="transport", faults=[Cut(how, BEFORE_THE_CUT)], prefer=prefer)

    assert names(called)[0] == "UnsupportedOperationError"
    assert called.outcome["chunks"] == CHUNKS[:2]
    assert called.asked == [*CARDS, SEND, "SubscribeToTask"]
    assert called.executions == 1


@both_bindings
@both_ends
async def test_carried_it_comes_back_to_a_task_that_continues(ask, agent, how, prefer):
    pace = str(uuid.uuid4())
    permits = iter([3, COUNT - 3])

    async def more():
        await permit(agent, pace, next(permits))

    called = await ask(
        f"paced {pace} {COUNT}",
        through="transport",
        prefer=prefer,
        on_stream=more,
        faults=[Cut(how, BEFORE_THE_CUT, over=False)],
    )

    heard = [*CHUNKS[:2], *CHUNKS[3:]]  # AG2 does not look at what it missed
    assert called.outcome == {"text": "".join(heard), "chunks": heard}
    assert called.asked == [*CARDS, SEND, "SubscribeToTask"]
    assert called.executions == 1
