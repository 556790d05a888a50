"""Google ADK's `RemoteA2aAgent`, in a `Runner` and without a model, calls a real agent.

Between them is a door where messages meet what networks and proxies do. What ADK makes of it by
itself comes first, then what it makes of it with one line of Holdfast.
"""

import pytest
from tests.faulty_agent import CARD_PATH, Answer, Cut, Lost, NotSent
from tests.frameworks import call
from tests.real_agents import adk_client, sdk_process

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
async def test_alone_it_gives_up_when_it_is_refused_once(ask, known):
    called = await ask(through="alone", refused=True, known=known)

    [error] = called.outcome["errors"]
    assert error.endswith("All connection attempts failed")
    assert called.executions == 0


@pytest.mark.parametrize(
    ("fault", "said", "executions"),
    [
        (NotSent(), "A2A request failed: Network communication error: ", 0),
        (Lost(), "A2A request failed: Network communication error: ", 1),
        (Answer(429, LATER), "A2A request failed: HTTP Error 429: ", 0),
        (Answer(503, LATER), "A2A request failed: HTTP Error 503: ", 0),
    ],
    ids=["not sent", "lost", "429", "503"],
)
async def test_alone_it_gives_up_and_does_not_say_whether_anything_ran(
    ask, fault, said, executions
):
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
    assert called.outcome["text"] == UP_TO_THE_CUT
    assert called.asked == ["card", SEND]
    assert called.executions == 1
