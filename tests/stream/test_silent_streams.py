"""Streams that are alive and tell nothing: the task is asked for, however many comments come."""

import asyncio

import msgspec
import pytest
from tests.kit.cli_harness import holdfast as cli

from holdfast import TaskNotFoundError, TaskState, connect
from holdfast.errors import InvalidAgentResponseError, TaskCanceledError
from holdfast.extend import BaseLayer, StreamWrapper
from holdfast.testing import (
    FakeAgent,
    FakeNetwork,
    Plan,
    Respond,
    Stall,
    Step,
    Streaming,
    asks,
    completes,
    fails,
    works_forever,
)
from holdfast.types import StreamResponse

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_versions = pytest.mark.parametrize("version", ["1.0", "0.3"])


def connected(agent, binding, **options):
    return connect(agent.url, engine=FakeNetwork(agent), bindings=(binding,), **options)


def now():
    return asyncio.get_running_loop().time()


class Dead(StreamWrapper):
    """A stream of an agent that forgets it: after two events, no other comes, and no end."""

    def __init__(self, inner):
        super().__init__(inner)
        self.left = 2

    async def __anext__(self):
        if self.left:
            self.left -= 1
            return await super().__anext__()
        return await asyncio.Event().wait()

    def next_nowait(self):
        return None


class DeadStreams(BaseLayer):
    async def stream(self, call, /):
        reply = await super().stream(call)
        return msgspec.structs.replace(reply, value=Dead(reply.value))


class Unknown(StreamWrapper):
    """A stream that has an event of an unknown kind each 5 s, and after two others no others."""

    def __init__(self, inner, left):
        super().__init__(inner)
        self.left = left
        self.reading = None

    async def __anext__(self):
        if not self.left:
            await asyncio.sleep(5)
            return StreamResponse()
        self.reading = self.reading or asyncio.ensure_future(super().__anext__())
        done, _ = await asyncio.wait({self.reading}, timeout=5)
        if not done:
            return StreamResponse()
        self.left, reading, self.reading = self.left - 1, self.reading, None
        return reading.result()

    def next_nowait(self):
        return None

    async def close(self):
        if self.reading is not None:
            self.reading.cancel()
        await super().close()


def unknown_events(left):
    class UnknownEvents(BaseLayer):
        async def stream(self, call, /):
            reply = await super().stream(call)
            return msgspec.structs.replace(reply, value=Unknown(reply.value, left))

    return UnknownEvents


async def test_events_of_unknown_kinds_hold_no_dead_stream_open():
    agent = FakeAgent(completes("done", after=40), streaming=Streaming(keep_alive=5))
    client = connected(agent, "JSONRPC", call_layers=[unknown_events(left=2)])

    assert (await client.ask("hi", timeout=900)).text == "done"

    assert (now() <= 130, agent.open_streams) == (True, 0)


@both_bindings
@both_versions
@pytest.mark.parametrize("cancel_takes", [0, 5])
async def test_a_task_that_was_cancelled_is_looked_at_though_its_stream_is_silent(
    cancel_takes, version, binding
):
    agent = FakeAgent(
        works_forever(),
        versions=(version,),
        streaming=Streaming(keep_alive=5),
        cancel_takes=cancel_takes,
    )
    client = connected(agent, binding, call_layers=[DeadStreams])

    async with client.stream_message("hi") as events:
        await anext(aiter(events))
        reading = asyncio.create_task(events.result())
        await asyncio.sleep(10)
        assert (await client.cancel_task("task-1")).state is TaskState.CANCELED
        with pytest.raises(TaskCanceledError):
            await reading

    assert now() <= 12 + 2 * cancel_takes
    assert agent.open_streams == 0


@both_bindings
@both_versions
@pytest.mark.parametrize("end", [completes("done", after=40), asks("Which one?", after=40)])
async def test_comments_hold_no_dead_stream_open(end, version, binding):
    steps = (Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING), *end.steps[1:])
    agent = FakeAgent(Plan(steps), versions=(version,), streaming=Streaming(keep_alive=5))
    client = connected(agent, binding, call_layers=[DeadStreams])

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert (answer.task.status, now() <= 260) == (agent.tasks["task-1"].status, True)
    assert agent.open_streams == 0


@both_bindings
async def test_a_live_stream_that_is_quiet_is_asked_after_ever_less_often(binding):
    agent = FakeAgent(completes("done", after=3600, works=1), streaming=Streaming(keep_alive=15))

    async with connected(agent, binding).stream_message("hi") as events:
        assert (await events.result()).text == "done"

    looks = [one.at for one in agent.calls("GetTask")]
    assert now() == 3600
    assert looks[:5] == [31, 91, 211, 451, 751]
    assert len(looks) <= 16


@both_bindings
async def test_a_look_that_hangs_holds_up_no_event(binding):
    def update(after, state=TaskState.WORKING):
        return Step(state=state, says=f"after {after} s more", after=after)

    end = update(1, TaskState.COMPLETED)
    agent = FakeAgent(Plan((Step(state=TaskState.WORKING), update(32), update(1), end)))
    agent.inject(Stall(), on="GetTask", times=99)

    async with connected(agent, binding).stream_message("hi") as events:
        at = [now() async for _ in events]

    assert at == [0, 32, 33, 34]


# ── Agents that fail to give a subscription ──────────────────────────────────────────────────


BROKEN = Respond(status=500, body=b'{"detail": "no such task"}')


@both_bindings
@both_versions
async def test_a_task_that_there_is_not_is_known_soon_though_the_subscription_fails(
    version, binding
):
    agent = FakeAgent("done", versions=(version,))
    agent.inject(BROKEN, on="SubscribeToTask", times=99)
    client = connected(agent, binding)

    with pytest.raises(TaskNotFoundError):
        async with client.subscribe_to_task("task-9") as events:
            await events.result()

    assert now() < 1


@both_bindings
async def test_a_subscription_that_fails_is_tried_again_where_there_is_a_task(binding):
    agent = FakeAgent(completes("done", after=100))
    client = connected(agent, binding)
    await client.send_message("hi", return_immediately=True)
    agent.inject(BROKEN, on="SubscribeToTask", times=2)

    async with client.subscribe_to_task("task-1") as events:
        assert (await events.result()).text == "done"

    assert len(agent.calls("SubscribeToTask")) >= 1


# ── Agents that fail in the middle ───────────────────────────────────────────────────────────


class Misnaming(StreamWrapper):
    """Tells of a failure under an id that was made for it."""

    async def __anext__(self):
        event = await super().__anext__()
        update = event.status_update
        if update is None or update.status.state is not TaskState.FAILED:
            return event
        update = msgspec.structs.replace(update, task_id="error-1")
        return msgspec.structs.replace(event, status_update=update)

    def next_nowait(self):
        return None


class MisnamedFailures(BaseLayer):
    async def stream(self, call, /):
        reply = await super().stream(call)
        return msgspec.structs.replace(reply, value=Misnaming(reply.value))


@both_bindings
@both_versions
async def test_why_a_task_failed_is_in_the_error_where_it_comes_under_another_id(version, binding):
    agent = FakeAgent(fails("the database is gone"), versions=(version,))
    client = connected(agent, binding, call_layers=[MisnamedFailures])

    with pytest.raises(InvalidAgentResponseError, match=r"error-1.*the database is gone"):
        await client.ask("hi")


# ── Agents whose tasks a subscription changes ────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("is_forced", [False, True])
async def test_a_task_of_protocol_0_3_is_polled_unless_a_subscription_is_forced(
    is_forced, binding, caplog
):
    agent = FakeAgent(completes("done", after=20), versions=("0.3",))
    await connected(agent, binding).send_message("hi", return_immediately=True)
    client = connected(agent, binding)

    stream = client.subscribe_to_task("task-1", force_subscription=is_forced)
    async with stream as events:
        assert (await events.result()).text == "done"
        assert events.is_polled is not is_forced

    warned = [one for one in caplog.records if "is polled" in one.getMessage()]
    assert (len(agent.calls("SubscribeToTask")), len(warned)) == (is_forced, not is_forced)


def test_the_command_line_says_why_it_does_not_subscribe():
    agent = FakeAgent(completes("done", after=20), versions=("0.3",))
    options = ("--a2a-version", "0.3")
    cli("send", "hi", "--no-wait", *options, agent=agent)

    done = cli("task", "subscribe", "--stream", *options, "task-1", agent=agent)

    assert (done.exit, len(agent.calls("SubscribeToTask"))) == (0, 0)
    assert "polled instead of subscribed to" in done.err
    assert "was cut" not in done.err
