"""Streams of a real agent on the official SDK, through a proxy that breaks them.

The agent goes on when it is told to, so that a test knows what is still to come; all else is as
quick as the machine is. What the caller has at the end is held against the agent's own task.
"""

import asyncio
import contextlib
import json
import random
import uuid

import pytest
from tests.kit.effort import THOROUGH
from tests.kit.messages import fold_of, message_of
from tests.kit.proxy import Fault, Proxy
from tests.kit.raw_server import serve
from tests.kit.real_agents import LIMIT, sdk_process

from holdfast import Resilience, Task, TaskState, Timeouts, connect
from holdfast.extend import AiohttpEngine, HttpRequest
from holdfast.policies import ReconnectPolicy
from holdfast.types import TaskArtifactUpdateEvent, TaskStatusUpdateEvent

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

PATHS = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}

SLOW_STORE = "0.002"
"""Seconds: enough for a subscription to come in the middle of a write."""

both_bindings = pytest.mark.parametrize("binding", PATHS)
each_store = pytest.mark.parametrize("store", ["quick", "slow"])
each_cut = pytest.mark.parametrize("cut", ["reset", "close", "end"])


@pytest.fixture
def quick_url(sdk_url):
    return sdk_url


@pytest.fixture(scope="module")
def slow_url(tmp_path_factory):
    with sdk_process(
        tmp_path_factory.mktemp("sdk") / "stderr", "--store-delay", SLOW_STORE
    ) as url:
        yield url


@pytest.fixture
def store():
    """Which of the agents a test is for, where it is for one."""
    return "quick"


@pytest.fixture
def world(store, binding, request):
    """Gives a context with an agent, a proxy before it that does as told, and a client."""
    url = request.getfixturevalue(f"{store}_url")
    return lambda faults=(), **options: _world(url, binding, faults, **options)


class World:
    """An agent, and the proxy that its client reaches it by.

    Attributes:
        client: Goes through the proxy.
        direct: A client that does not.
        pace: The name of the permits that the agent waits for.
    """

    def __init__(self, url, engine):
        self._url = url
        self._engine = engine
        self.pace = str(uuid.uuid4())

    async def permit(self, count):
        """Lets the agent send so many chunks more."""
        await self._get(f"/permits?name={self.pace}&count={count}")

    async def executions(self, message_id):
        """The tasks that a message was executed as."""
        return (await self._get("/executions")).get(message_id, [])

    async def _get(self, path):
        reply = await self._engine.request(HttpRequest(method="GET", url=self._url + path))
        return json.loads(reply.body)

    async def until_over(self, task_id):
        """Waits until the agent is done with a task, and gives it."""
        return await self.direct.wait(task_id, poll_interval=0.02)


@contextlib.asynccontextmanager
async def _world(url, binding, faults, *, each=0, idle=120.0, on_break=None, limit=LIMIT):
    engine = AiohttpEngine(proxies=False)
    world = World(url, engine)

    async def more():
        if each:
            await world.permit(each)

    async def breaking():
        if on_break is not None:
            await on_break(world)

    world.proxy = Proxy(url, faults, on_stream=more, on_break=breaking)
    resilience = Resilience(
        reconnect=ReconnectPolicy(backoff=0.01, max_backoff=0.05), timeouts=Timeouts(idle=idle)
    )
    async with (
        asyncio.timeout(limit),
        serve(world.proxy) as server,
        connect(
            url,
            bindings=[binding],
            url=server.url.rstrip("/") + PATHS[binding],
            resilience=resilience,
        ) as world.client,
        connect(url, streaming=False) as world.direct,
    ):
        try:
            yield world
        finally:
            await engine.close()


def words(text):
    """A message with an id of its own."""
    return message_of(text)


async def watch(stream):
    """The events of a stream to its end, and the task that it gave."""
    async with stream as events:
        return [event async for event in events], events.task


def check(seen, task, truth):
    """What the caller has is the agent's task, and what it was told says the same."""
    assert task == truth
    fold = fold_of(seen)
    assert fold.task.artifacts == truth.artifacts
    assert fold.task.status == truth.status
    states = [e.status.state for e in seen if isinstance(e, Task | TaskStatusUpdateEvent)]
    assert [state.is_terminal for state in states].count(True) == 1
    assert states[-1] is seen[-1].status.state


def appended(seen):
    """The text that chunks and snapshots bring, joined as they come; nothing is replaced."""
    text = ""
    for event in seen:
        if isinstance(event, TaskArtifactUpdateEvent):
            assert event.append == bool(text)
            text += event.artifact.text
        elif isinstance(event, Task):
            assert event.artifacts == ()
    return text


def numbered(count):
    return "".join(f"chunk {number}\n" for number in range(1, count + 1))


# ── Cuts ─────────────────────────────────────────────────────────────────────────────────────


def many_cuts(dice, count):
    """Cuts of all kinds, between events and within, each after something new."""
    return [
        Fault(
            dice.choice(["reset", "close", "end"]),
            after=dice.randint(2, 6),
            more=dice.choice([0, 0, dice.randint(1, 150)]),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("binding", "store", "text"),
    [
        ("JSONRPC", "slow", "a"),
        ("HTTP+JSON", "quick", ""),
        *(
            [("JSONRPC", "quick", ""), ("JSONRPC", "slow", ""), ("HTTP+JSON", "slow", "")]
            if THOROUGH
            else []
        ),
    ],
)
async def test_500_chunks_that_are_cut_50_times_come_once_whole_and_in_order(
    world, binding, store, text
):
    dice = random.Random(f"{binding} {store} {text}")
    async with world(many_cuts(dice, 50), each=10, limit=LIMIT * 4) as here:
        message = words(f"paced {here.pace} 500 {text}".strip())
        seen, task = await watch(here.client.stream_message(message))
        truth = await here.direct.get_task(task.id)
        ran = await here.executions(message.message_id)

    assert len(here.proxy.happened) == 50
    check(seen, task, truth)
    assert truth.text == (text * 500 if text else numbered(500))
    assert appended(seen) == truth.text
    assert ran == [task.id]


@pytest.mark.rule("S03")
@both_bindings
@each_cut
async def test_s03_a_stream_that_ends_while_the_task_works_is_resumed(world, cut):
    async with world([Fault(cut, after=2)], each=5) as here:
        async with here.client.stream_message(f"paced {here.pace} 10") as events:
            seen = [event async for event in events]
        truth = await here.direct.get_task(events.task.id)

    check(seen, events.task, truth)
    assert appended(seen) == numbered(10)
    assert (events.reconnects, events.gap) == (1, True)
    assert (here.proxy.streams, len(here.proxy.happened)) == (2, 1)


@both_bindings
async def test_a_connection_that_goes_quiet_is_taken_for_cut(world):
    async with world([Fault("stall", after=3)], each=5, idle=0.3) as here:
        seen, task = await watch(here.client.stream_message(f"paced {here.pace} 10"))
        truth = await here.direct.get_task(task.id)

    check(seen, task, truth)
    assert appended(seen) == numbered(10)
    assert [fault.kind for fault in here.proxy.happened] == ["stall"]


@pytest.mark.rule("S04")
@both_bindings
@each_store
@each_cut
async def test_s04_task_that_ended_while_disconnected_is_emitted_whole(world, cut):
    context = str(uuid.uuid4())

    async def finish(here):
        await here.permit(20)
        async for task in here.direct.iter_tasks(context):
            await here.until_over(task.id)

    async with world([Fault(cut, after=4)], each=5, on_break=finish) as here:
        seen, task = await watch(
            here.client.stream_message(f"paced {here.pace} 20", context_id=context)
        )
        truth = await here.direct.get_task(task.id)

    check(seen, task, truth)
    assert appended(seen) == numbered(20)
    assert here.proxy.streams == 1


@pytest.mark.rule("S05")
@both_bindings
@pytest.mark.parametrize("cut", ["reset", "close", "end", "stall"])
async def test_s05_a_message_whose_stream_never_began_is_found_and_was_executed_once(world, cut):
    message = words("echo hello")
    async with world([Fault(cut, after=0)], idle=0.3 if cut == "stall" else 120.0) as here:
        answer = await here.client.ask(message)
        ran = await here.executions(message.message_id)

    assert (answer.text, ran) == ("hello", [answer.task_id])


@pytest.mark.rule("S05", "P31")
@both_bindings
@each_cut
async def test_s05_a_stream_that_began_is_never_sent_again(world, cut):
    message = words("echo hello")
    async with world([Fault(cut, after=1)]) as here:
        answer = await here.client.ask(message)
        ran = await here.executions(message.message_id)

    assert (answer.text, ran) == ("hello", [answer.task_id])


@pytest.mark.rule("S15")
@both_bindings
@each_store
@each_cut
async def test_s15_a_question_on_a_stream_is_answered_on_its_task(world, cut):
    async with world([Fault(cut, after=3), Fault(cut, after=1)]) as here:
        begun, asked = await watch(here.client.stream_message("ask which colour?"))
        reply = here.client.stream_message("blue", task_id=asked.id, context_id=asked.context_id)
        seen, task = await watch(reply)
        after = await here.client.ask("echo thanks", context_id=asked.context_id)
        truth = await here.direct.get_task(task.id)

    assert begun[-1].status.state is TaskState.INPUT_REQUIRED
    assert asked.status.message.text == "which colour?"
    assert (task, task.text) == (truth, "blue")
    assert seen[-1].status.state is TaskState.COMPLETED
    assert [message.text for message in truth.history] == [
        "ask which colour?",
        "which colour?",
        "blue",
    ]
    assert (after.task_id != asked.id, after.context_id) == (True, asked.context_id)
    assert len(here.proxy.happened) == 2


@both_bindings
@each_store
async def test_stream_continues_after_an_authorization_out_of_band(world):
    # The official server ends the stream at AUTH_REQUIRED, since its executor has returned.
    async with world() as here:
        async with here.client.stream_message("auth log in") as events:
            seen = []
            async for event in events:
                seen.append(event)
                if events.task.state is TaskState.AUTH_REQUIRED:
                    break
            await here.direct.send_message("done", task_id=events.task.id)
            seen += [event async for event in events]
        truth = await here.direct.get_task(events.task.id)

    check(seen, events.task, truth)
    assert (truth.state, truth.text) == (TaskState.COMPLETED, "done")
    assert here.proxy.streams <= 2


@both_bindings
@each_cut
async def test_where_nothing_but_snapshots_comes_through_the_task_is_polled(world, cut):
    seen, snapshots_only = [], [Fault(cut, after=1)] * 20
    async with world([Fault(cut, after=2), *snapshots_only]) as here:
        stream = here.client.stream_message(f"paced {here.pace} 20", poll_interval=0.01)
        async with stream as events:
            async for event in events:
                seen.append(event)
                await here.permit(1)
        truth = await here.direct.get_task(events.task.id)

    check(seen, events.task, truth)
    assert appended(seen) == numbered(20)
    assert here.proxy.streams < 10


# ── Who leaves, and who comes later ──────────────────────────────────────────────────────────


@pytest.mark.rule("S18")
@both_bindings
async def test_s18_who_leaves_a_stream_lets_go_of_it_and_leaves_the_task_alone(world):
    async with world() as here:
        await here.permit(5)
        async with here.client.stream_message(f"paced {here.pace} 10") as events:
            async for event in events:
                if isinstance(event, TaskArtifactUpdateEvent):
                    break
        await here.proxy.until_left(1)
        running = await here.direct.get_task(events.task.id)
        await here.permit(5)
        truth = await here.until_over(events.task.id)

    assert running.state is TaskState.WORKING
    assert (truth.state, truth.text) == (TaskState.COMPLETED, numbered(10))
    assert len(here.proxy.requests) == 1


@both_bindings
@each_store
async def test_all_who_come_to_a_running_task_see_the_same(world, binding, store):
    dice, watchers = random.Random(f"{binding} {store}"), 8
    async with world(many_cuts(dice, 24), each=3) as here:
        task = await here.direct.send_message(f"paced {here.pace} 60", return_immediately=True)
        watched = await asyncio.gather(
            *(watch(here.client.subscribe_to_task(task.id)) for _ in range(watchers))
        )
        truth = await here.direct.get_task(task.id)

    for seen, task in watched:
        check(seen, task, truth)
    assert truth.text == numbered(60)


@both_bindings
@each_store
async def test_watcher_of_a_question_sees_the_rest_of_the_task(world):
    # The official server ends the asker's stream at INPUT_REQUIRED, and no watcher's.
    async with world() as here:
        asked = await here.direct.ask("ask which colour?")
        async with here.client.subscribe_to_task(asked.task_id) as events:
            seen = [await anext(events)]
            await here.direct.send_message("blue", task_id=asked.task_id)
            seen += [event async for event in events]
        truth = await here.direct.get_task(asked.task_id)

    assert (seen[0].id, seen[0].state) == (asked.task_id, TaskState.INPUT_REQUIRED)
    check(seen, events.task, truth)
    assert (truth.state, truth.text) == (TaskState.COMPLETED, "blue")


@both_bindings
@each_store
async def test_stream_ends_when_another_client_cancels_the_task(world):
    async with world() as here:
        await here.permit(3)
        async with here.client.stream_message(f"paced {here.pace} 10") as events:
            seen = [await anext(events)]
            await here.direct.cancel_task(events.task.id, poll_interval=0.02)
            seen += [event async for event in events]
        truth = await here.direct.get_task(events.task.id)

    check(seen, events.task, truth)
    assert truth.state is TaskState.CANCELED


@both_bindings
@each_store
async def test_an_agent_that_crashes_on_a_stream_leaves_a_task_that_failed(world):
    message = words("crash")
    async with world() as here:
        seen, task = await watch(here.client.stream_message(message))
        truth = await here.direct.get_task(task.id)
        ran = await here.executions(message.message_id)

    check(seen, task, truth)
    assert (truth.state, ran) == (TaskState.FAILED, [task.id])


# ── What comes twice ─────────────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("number", [2, 5], ids=["status", "end"])
async def test_a_status_that_is_repeated_changes_nothing(world, number):
    async with world([Fault("twice", after=number)]) as here:
        await here.permit(2)
        seen, task = await watch(here.client.stream_message(f"paced {here.pace} 2"))
        truth = await here.direct.get_task(task.id)

    check(seen, task, truth)
    assert appended(seen) == numbered(2)
    assert len(here.proxy.happened) == 1


@both_bindings
@pytest.mark.parametrize("text", ["", "a"], ids=["numbered", "all-alike"])
@pytest.mark.parametrize("number", [1, 2, 4, 6, 7])
async def test_text_repeated_after_a_cut_is_emitted_once_or_retracted(world, number, text):
    async with world([Fault("reset", after=3), Fault("twice", after=number)]) as here:
        await here.permit(5)
        seen, rest = [], 5
        stream = here.client.stream_message(f"paced {here.pace} 10 {text}".strip())
        async with stream as events:
            async for event in events:
                seen.append(event)
                if events.reconnects:  # the client knows the task again: what follows is live
                    await here.permit(rest)
                    rest = 0
        truth = await here.direct.get_task(events.task.id)

    check(seen, events.task, truth)
    assert [fault.kind for fault in here.proxy.happened] == ["reset", "twice"]


@both_bindings
async def test_a_chunk_that_is_repeated_before_any_cut_is_not_in_the_task_at_the_end(world):
    # Two chunks that are alike may be meant: only the agent's task tells.
    async with world([Fault("twice", after=4)]) as here:
        await here.permit(3)
        seen, task = await watch(here.client.stream_message(f"paced {here.pace} 3"))
        truth = await here.direct.get_task(task.id)

    assert task == truth
    assert appended(seen) == "chunk 1\nchunk 2\nchunk 2\nchunk 3\n"
