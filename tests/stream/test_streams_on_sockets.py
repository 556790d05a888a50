"""Streams over real sockets: what is let go of is free, and what was cut is picked up again."""

import asyncio
import gc

import pytest

from holdfast import (
    A2AConnectionError,
    A2ATimeoutError,
    AiohttpEngine,
    DeadlineExceededError,
    Limits,
    ReconnectPolicy,
    Resilience,
    RetryPolicy,
    TaskState,
    Timeouts,
    connect,
)
from holdfast.errors import LimitExceededError
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    LoopbackServer,
    Reset,
    Streaming,
    streams,
    works_forever,
)

pytestmark = pytest.mark.real_time

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])

LIMIT = 120
"""Seconds after which a wait hangs."""

BRIEF = 0.05


async def until(holds):
    """Waits until something holds, which is soon."""
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.002)


def connected(server, binding, **options):
    return connect(server.url, bindings=(binding,), **options)


def operations(agent):
    return [each.operation for each in agent.received if each.operation != "GetAgentCard"]


@pytest.mark.rule("S18")
@both_bindings
@pytest.mark.parametrize("how", ["break", "raise", "cancel", "close"])
async def test_s18_leaving_frees_the_socket_and_lets_the_task_be(how, binding, caplog, capfd):
    agent = FakeAgent(works_forever())

    async def leave(client):
        async with client.stream_message("hi") as events:
            async for event in events:
                if told_working(event):
                    match how:
                        case "raise":
                            raise KeyError
                        case "cancel":
                            asyncio.current_task().cancel()
                        case "close":
                            await events.close()
                        case _:
                            break

    async with LoopbackServer(agent) as server, connected(server, binding) as client:
        await asyncio.wait([leaving := asyncio.create_task(leave(client))])
        await until(lambda: agent.open_streams == 0)

        assert leaving.cancelled() == (how == "cancel")
        assert leaving.cancelled() or isinstance(leaving.exception(), KeyError | None)
        assert operations(agent) == ["SendStreamingMessage"]
        assert agent.tasks["task-1"].state is TaskState.WORKING
        assert (await client.get_task("task-1")).state is TaskState.WORKING
    gc.collect()
    assert [each for each in caplog.records if each.levelname != "DEBUG"] == []
    assert capfd.readouterr() == ("", "")


def told_working(event):
    return getattr(event, "status", None) is not None and event.status.state is TaskState.WORKING


@both_bindings
async def test_streams_that_were_left_take_no_place(binding):
    agent = FakeAgent(works_forever())
    engine = AiohttpEngine(max_streams=2)
    try:
        async with LoopbackServer(agent) as server:
            client = connected(server, binding, engine=engine)
            for _ in range(10):
                async with client.stream_message("hi") as events:
                    await anext(events)
            async with client.stream_message("hi"), client.stream_message("hi"):
                await until(lambda: agent.open_streams == 2)
            await until(lambda: agent.open_streams == 0)
    finally:
        await engine.close()


@pytest.mark.rule("S03")
@both_bindings
@pytest.mark.parametrize(
    "fault",
    [
        Cut(after_events=3, clean=True),
        Cut(after_events=3),
        Reset(after_events=3),
        Cut(after_events=3, after_bytes=40),
        Fail(after_events=3),
    ],
    ids=["clean", "cut", "reset", "inside", "error"],
)
async def test_s03_a_stream_that_is_cut_continues_over_another_connection(fault, binding):
    agent = FakeAgent(streams(*"abcdef", every=0.02), streaming=Streaming(piece=7, overlap=2))
    agent.inject(fault, on="SendStreamingMessage")
    agent.inject(Cut(after_events=2, after_bytes=11), on="SubscribeToTask")
    quick = Resilience(reconnect=ReconnectPolicy(backoff=0.01))

    async with (
        LoopbackServer(agent) as server,
        connected(server, binding, resilience=quick) as client,
        client.stream_message("hi") as events,
    ):
        texts = [text async for text in events.text_deltas()]
        await until(lambda: agent.open_streams == 0)

        assert "".join(texts) == "abcdef"
        assert events.task == agent.tasks["task-1"]
        assert len(agent.tasks) == 1


@both_bindings
async def test_a_stream_that_another_task_closes_ends_for_who_reads_it(binding):
    agent = FakeAgent(works_forever())

    async def read(events):
        return [event async for event in events]

    async with LoopbackServer(agent) as server, connected(server, binding) as client:
        async with client.stream_message("hi") as events:
            reading = asyncio.create_task(read(events))
            await until(lambda: events.task is not None and events.task.state.name == "WORKING")
            await events.close()
            async with asyncio.timeout(LIMIT):
                seen = await reading

        await until(lambda: agent.open_streams == 0)
        assert len(seen) == 2
        assert operations(agent) == ["SendStreamingMessage"]


@both_bindings
@pytest.mark.parametrize("max_reconnects", [0, 8])
async def test_a_stream_that_another_task_closes_was_not_cut(max_reconnects, binding):
    agent = FakeAgent(works_forever())
    policy = Resilience(reconnect=ReconnectPolicy(max_reconnects=max_reconnects))

    async def read(events):
        return [event async for event in events]

    async with (
        LoopbackServer(agent) as server,
        connected(server, binding, resilience=policy) as client,
        client.stream_message("hi") as events,
    ):
        reading = asyncio.create_task(read(events))
        await until(lambda: events.task is not None and events.task.state.name == "WORKING")
        await events.close()
        async with asyncio.timeout(LIMIT):
            seen = await reading

    assert len(seen) == 2
    assert (events.gap, events.last_error, events.reconnects) == (False, None, 0)


@both_bindings
@pytest.mark.parametrize("reading", [True, False])
async def test_closing_the_client_frees_its_streams(reading, binding):
    agent = FakeAgent(works_forever())

    async with LoopbackServer(agent) as server:
        client = connected(server, binding)
        async with client.stream_message("hi") as events:
            await anext(events)
            await anext(events)
            waiting = asyncio.create_task(events.result()) if reading else None
            await asyncio.sleep(0.01)
            await client.close()
            await until(lambda: agent.open_streams == 0)
            with pytest.raises(A2AConnectionError, match="closed") as caught:
                await (waiting or events.result())

    assert (caught.value.failure, caught.value.executed) == ("closed", True)
    assert operations(agent) == ["SendStreamingMessage"]


@both_bindings
async def test_an_event_larger_than_allowed_is_not_waited_for_again(binding):
    agent = FakeAgent(streams("a", "b" * 100_000, "c", every=0.01))

    async with LoopbackServer(agent) as server:
        async with connected(server, binding) as client:
            card = await client.agent_card()
        async with connect(card, bindings=(binding,), limits=Limits(event=10_000)) as client:
            with pytest.raises(LimitExceededError, match="task task-1 was last seen") as caught:
                async with client.stream_message("hi") as events:
                    await events.result()
        await until(lambda: agent.open_streams == 0)

    assert (caught.value.which, caught.value.executed) == ("event", True)
    assert operations(agent) == ["SendStreamingMessage"]


@both_bindings
@pytest.mark.filterwarnings("ignore:Unclosed response:ResourceWarning")  # as aiohttp's own
async def test_a_stream_that_is_forgotten_open_is_freed_with_its_client(binding):
    agent = FakeAgent(works_forever())

    async def forget(client):
        events = client.stream_message("hi")
        await events.__aenter__()
        await anext(events)

    async with LoopbackServer(agent) as server:
        async with connected(server, binding) as client:
            await forget(client)
            gc.collect()
            assert (await client.get_task("task-1")).state is TaskState.WORKING
        await until(lambda: agent.open_streams == 0)
        gc.collect()


# ── Places ───────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_deadline_that_ends_the_wait_for_a_place_says_so(binding):
    agent = FakeAgent(works_forever())
    async with (
        LoopbackServer(agent) as server,
        AiohttpEngine(max_streams=1) as engine,
        connected(server, binding, engine=engine) as client,
        client.stream_message("first"),
    ):
        with pytest.raises(DeadlineExceededError) as caught:
            async with client.stream_message("second", timeout=BRIEF):
                pass

    assert caught.value.executed is False
    assert caught.value.message.endswith(
        f"within the stream timeout of {BRIEF:g} s while waiting for a slot for streams "
        "(max_streams=1)"
    )


async def test_a_place_that_never_was_free_is_named():
    agent = FakeAgent(works_forever())
    once = Resilience(retry=RetryPolicy(max_retries=0), timeouts=Timeouts(pool=BRIEF))
    async with (
        LoopbackServer(agent) as server,
        AiohttpEngine(max_streams=1) as engine,
        connected(server, "JSONRPC", engine=engine, resilience=once) as client,
        client.stream_message("first"),
    ):
        with pytest.raises(A2ATimeoutError) as caught:
            async with client.stream_message("second"):
                pass

    assert (caught.value.phase, caught.value.executed) == ("pool", False)
    assert caught.value.message.startswith(
        f"no slot for streams (max_streams=1) was free for {BRIEF:g} s"
    )
