"""Streams as a caller has them, whatever the agent and what lies between do, in virtual time."""

import asyncio
import contextlib
import re

import pytest
from tests.kit.virtual_env import FixedDraws, SystemEnv

from holdfast import (
    A2AConnectionError,
    A2AHTTPError,
    Artifact,
    DeadlineExceededError,
    Limits,
    Message,
    Part,
    ReconnectPolicy,
    Resilience,
    RetryPolicy,
    Task,
    TaskFailedError,
    TaskNotFoundError,
    TaskState,
    TaskTerminalError,
    connect,
)
from holdfast.auth import Credentials
from holdfast.errors import InvalidAgentResponseError, LimitExceededError, ReconnectError
from holdfast.extend import BaseLayer, Interceptor, Reply, StreamWrapper
from holdfast.observe import AttemptStarted, Reconnected
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Plan,
    Refuse,
    Respond,
    Stall,
    Step,
    Streaming,
    asks,
    completes,
    crashes,
    fails,
    rejects,
    replies,
    streams,
    unavailable,
    works_forever,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


def connected(agent, binding="JSONRPC", *, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), bindings=(binding,), **options)


def now():
    return asyncio.get_running_loop().time()


def operations(agent):
    """What the agent was asked, but for its card."""
    return [each.operation for each in agent.received if each.operation != "GetAgentCard"]


def told(event):
    """An event in short."""
    if isinstance(event, Message):
        return f"message {event.text}"
    if isinstance(event, Task):
        return f"task {event.state.name} {event.text}".rstrip()
    if hasattr(event, "status"):
        return f"status {event.status.state.name}"
    return f"{'append' if event.append else 'artifact'} {event.artifact.text}"


async def all_of(stream):
    """Every event of a stream, in short."""
    async with stream as events:
        return [told(event) async for event in events]


# ── Without streams ──────────────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize(
    ("behaviour", "events"),
    [
        (replies("hello"), ["message hello"]),
        ("hello", ["task COMPLETED hello"]),
        (asks("which one?"), ["task INPUT_REQUIRED"]),
    ],
    ids=["message", "completed", "asks"],
)
async def test_what_a_polled_agent_answers_at_once_is_not_asked_for_again(
    behaviour, events, binding
):
    agent = FakeAgent(behaviour, streaming=False)
    client = connected(agent, binding)

    assert await all_of(client.stream_message("hi")) == events

    assert operations(agent) == ["SendMessage"]
    assert now() == 0


# ── Going on after a cancellation ────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
async def test_who_looks_up_now_and_then_gets_everything_all_the_same(streaming, binding):
    agent = FakeAgent(streams("a", "b", "c", every=3), streaming=streaming)
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Refuse(), on="SubscribeToTask", times=3)
    client = connected(agent, binding)
    seen = []

    async with client.stream_message("hi") as events:
        while now() < 60:
            try:
                async with asyncio.timeout(0.05):  # less than any wait of the client
                    seen.append(await anext(events))
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break

        assert events.task.text == "abc"
    assert told(seen[-1]) == "status COMPLETED"
    assert now() < 30


@both_bindings
@pytest.mark.parametrize("who", ["interceptor", "consumer"])
async def test_an_event_is_not_lost_where_its_listeners_are_cancelled(who, binding):
    heard = {"before": [], "slow": [], "after": []}

    async def slow(event):
        await asyncio.sleep(0.5)
        heard["slow"].append(event)

    class Slow(Interceptor):
        async def after(self, call, outcome):
            if call.operation.streaming:
                await slow(outcome.value.event)
            return outcome

    options = {
        "interceptor": {"interceptors": [Slow()]},
        "consumer": {
            "consumers": [
                lambda event, _task, _card: heard["before"].append(event),
                lambda event, _task, _card: slow(event),
                lambda event, _task, _card: heard["after"].append(event),
            ]
        },
    }
    agent = FakeAgent(streams("a", "b", "c", every=2))
    client = connected(agent, binding, **options[who])
    seen = []

    async with client.stream_message("hi") as events:
        while True:
            reading = asyncio.create_task(anext(events))
            await asyncio.sleep(0.25)
            reading.cancel()
            await asyncio.wait([reading])
            try:
                seen.append(await anext(events))
            except StopAsyncIteration:
                break

    wanted = ["task SUBMITTED", "status WORKING", "artifact a", "append b", "append c"]
    assert [told(event) for event in seen] == [*wanted, "status COMPLETED"]
    assert heard["slow"] == seen
    if who == "consumer":
        assert heard["before"] == heard["after"] == seen


# ── How a stream fails ───────────────────────────────────────────────────────────────────────


def cut_after(agent, events, **how):
    """Lets the stream of a message end after some events."""
    agent.inject(Cut(after_events=events, **how), on="SendStreamingMessage")


@both_bindings
async def test_an_agent_that_asks_to_wait_too_long_ends_the_stream_at_once(binding):
    agent = FakeAgent(streams("a", "b", "c", every=1))
    cut_after(agent, 3)
    agent.inject(unavailable(retry_after=3600), on="SubscribeToTask")

    with pytest.raises(A2AHTTPError, match="task task-1 was last seen WORKING") as caught:
        await all_of(connected(agent, binding).stream_message("hi"))

    error = caught.value
    assert (error.http_status, error.retry_after) == (503, 3600)
    assert error.executed is True  # the message, whatever became of the subscription
    reason = "the agent asked to wait 3600 s, and max_retry_after is 60 s"
    assert error.retry_stopped_reason == reason
    assert now() < 2


@both_bindings
async def test_an_agent_that_asks_to_wait_beyond_the_deadline_ends_the_stream_at_once(binding):
    agent = FakeAgent(streams("a", "b", "c", every=1))
    cut_after(agent, 3)
    agent.inject(unavailable(retry_after=30), on="SubscribeToTask")

    expected = (
        r"task-1 was last seen WORKING 1[\d.]+ s before the end of the stream timeout of 20 s"
    )
    with pytest.raises(DeadlineExceededError, match=expected) as caught:
        await all_of(connected(agent, binding).stream_message("hi", timeout=20))

    error = caught.value
    assert (error.http_status, error.retry_after, error.executed) == (503, 30, True)
    assert (error.deadline, error.task.id) == ("stream", "task-1")
    assert re.fullmatch(
        r"the agent asked to wait 30 s, and 1[\d.]+ s are left", error.retry_stopped_reason
    )
    assert isinstance(error.__cause__, A2AHTTPError)
    assert now() < 2


@both_bindings
@pytest.mark.parametrize("dice", [0.0, 0.4, 0.8, 1.0])
async def test_whatever_the_dice_a_deadline_that_ends_a_wait_is_what_the_caller_learns(
    binding, dice
):
    class Loaded(SystemEnv):
        def random(self):
            return dice

    agent = FakeAgent(streams(*"abc", every=1000))
    cut_after(agent, 1)
    agent.inject(unavailable(retry_after=7), on="SubscribeToTask", times=99)

    with pytest.raises(DeadlineExceededError, match="stream timeout of 90 s") as caught:
        await all_of(connected(agent, binding, env=Loaded()).stream_message("hi", timeout=90))

    assert caught.value.task.id == "task-1"
    assert 83 < now() <= 90


@both_bindings
async def test_what_the_agent_says_where_its_stream_breaks_is_not_lost(binding):
    seen = []
    agent = FakeAgent(crashes("no such file", after=1))
    client = connected(agent, binding, observers=[seen.append])

    async with client.stream_message("hi") as events:
        with pytest.raises(TaskFailedError, match=r"ended in FAILED: .*no such file") as caught:
            await events.result()

    assert "no such file" in caught.value.__cause__.message
    assert events.last_error is caught.value.__cause__


@both_bindings
async def test_earlier_status_message_is_not_the_reason_of_a_failure(binding):
    agent = FakeAgent(streams("a", "b", "c", every=10, then=fails(after=10)))
    agent.inject(Fail(after_events=3, code=-32050, message="out of paper"))

    async with connected(agent, binding).stream_message("hi") as events:
        with pytest.raises(TaskFailedError, match=r"ended in FAILED \(agent") as caught:
            await events.result()

    assert caught.value.__cause__ is None
    assert "out of paper" in events.last_error.message


@both_bindings
async def test_what_could_not_be_read_of_a_stream_is_not_why_its_task_failed(binding):
    class Nonsense(StreamWrapper):
        async def __anext__(self):
            event = await super().__anext__()
            if event.artifact_update is None:
                return event
            raise InvalidAgentResponseError("the reply is not JSON")

    class Layer(BaseLayer):
        async def stream(self, call, /):
            return Reply(value=Nonsense((await self._inner.stream(call)).value))

    agent = FakeAgent(streams("a", then=fails()))
    client = connected(agent, binding, call_layers=[Layer])

    async with client.stream_message("hi") as events:
        with pytest.raises(TaskFailedError, match=r"ended in FAILED \(agent"):
            await events.result()

    assert "not JSON" in events.last_error.message


@both_bindings
async def test_error_of_a_broken_stream_reaches_observers(binding):
    seen = []
    agent = FakeAgent(streams("a", "b", "c", every=1))
    agent.inject(Fail(after_events=3, code=-32050, message="out of paper"))
    client = connected(agent, binding, observers=[seen.append])

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert answer.text == "abc"
    (reconnected,) = [each for each in seen if isinstance(each, Reconnected)]
    assert reconnected.error is events.last_error
    assert "out of paper" in reconnected.error.message


@both_bindings
async def test_what_was_never_sent_is_not_said_to_be_executed(binding):
    agent = FakeAgent()
    client = connected(agent, binding)
    await client.agent_card()
    agent.inject(Refuse(), times=100)

    with pytest.raises(ReconnectError, match="refused") as caught:
        await all_of(client.subscribe_to_task("task-1"))

    assert (caught.value.executed, caught.value.task) == (False, None)
    assert operations(agent) == []


@both_bindings
async def test_an_agent_that_is_gone_ends_the_stream_with_what_is_known(binding):
    agent = FakeAgent(streams("a", "b", "c", every=1))
    cut_after(agent, 3)
    client = connected(agent, binding)

    async with client.stream_message("hi") as events:
        async for event in events:
            if told(event) == "artifact a":
                agent.inject(Refuse(), times=10_000)
                break
        with pytest.raises(ReconnectError) as caught:
            await events.result()

    error = caught.value
    assert (error.task.id, error.task.text, error.task.state) == ("task-1", "a", TaskState.WORKING)
    assert error.executed is True
    assert error.attempts[-1].error is not None
    assert error.agent in str(error)
    assert "not retried" not in str(error)  # the stream went through many requests
    assert 300 <= now() <= 310


@pytest.mark.rule("P25")
@both_bindings
@pytest.mark.parametrize("limits", [Limits(event=1500), Limits(body=1500), Limits(parts=2)])
async def test_a_stream_beyond_a_limit_ends_at_once_and_names_its_task(limits, binding):
    agent = FakeAgent(streams("a", "b", "c" * 2000, "d", every=1))
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network)  # the card is larger than the limit
    card = await client.agent_card()
    client = connect(card, engine=network, bindings=(binding,), limits=limits)

    with pytest.raises(LimitExceededError, match="task task-1 ") as caught:
        await all_of(client.stream_message("hi"))

    assert getattr(limits, caught.value.which) == caught.value.bound
    assert caught.value.executed is True
    assert operations(agent) == ["SendStreamingMessage"]
    assert (network.in_flight, agent.open_streams) == (0, 0)


@both_bindings
async def test_deadline_of_the_caller_is_not_taken_for_that_of_the_stream(binding):
    class Elsewhere:
        async def credentials(self, call):
            if call.operation.name != "SendStreamingMessage" and call.card is not None:
                raise DeadlineExceededError("no token in time", deadline="call", timeout=5)
            return Credentials()

        async def on_unauthorized(self, _call, _error):
            return False

    agent = FakeAgent(streams("a", "b", every=1))
    cut_after(agent, 3)

    with pytest.raises(DeadlineExceededError, match="no token in time; task task-1") as caught:
        await all_of(connected(agent, binding, auth=Elsewhere()).stream_message("hi", timeout=60))

    assert (caught.value.deadline, caught.value.timeout) == ("call", 5)
    assert now() < 2


@both_bindings
async def test_a_task_that_could_not_be_asked_for_in_time_was_never_seen(binding):
    agent = FakeAgent()
    client = connected(agent, binding, env=FixedDraws(0.9))
    await client.agent_card()
    agent.inject(Refuse(), times=100)

    with pytest.raises(DeadlineExceededError, match="task task-1 was never seen at the") as caught:
        await all_of(client.subscribe_to_task("task-1", timeout=20))

    assert (caught.value.deadline, caught.value.timeout) == ("stream", 20)
    assert caught.value.executed is not True
    assert "refused" in str(caught.value.__cause__)
    assert now() == 20


# ── Leaving ──────────────────────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("after", [0.5, 1.25, 3.5], ids=["reading", "reconnecting", "subscribing"])
async def test_a_stream_that_is_closed_by_another_task_ends_and_comes_not_back(after, binding):
    agent = FakeAgent(
        streams(*"abcdefghij", every=1), streaming=Streaming(snapshot=False), latency=0.125
    )
    cut_after(agent, 3, clean=True)
    agent.inject(Refuse(), on="SubscribeToTask")
    agent.inject(Delay(seconds=4), on="SubscribeToTask")
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network)
    await client.agent_card()

    async def read(events):
        return [told(event) async for event in events]

    async with client.stream_message("hi") as events:
        reading = asyncio.create_task(read(events))
        await asyncio.sleep(after)
    asked = len(agent.received)

    seen = await reading

    assert seen[:2] == ["task SUBMITTED", "status WORKING"]
    assert "status COMPLETED" not in seen
    assert len(agent.received) <= asked + 1  # what was under way
    assert (network.in_flight, agent.open_streams) == (0, 0)


@both_bindings
@pytest.mark.parametrize("where", ["waiting", "subscribing", "looking", "polling"])
async def test_closing_a_stream_wakes_who_reads_it_wherever_that_is(where, binding):
    agent = FakeAgent(streams(*"abc", every=1000), streaming=where != "polling")
    cut_after(agent, 1)
    match where:
        case "waiting":
            agent.inject(unavailable(retry_after=50), on="SubscribeToTask")
        case "subscribing":
            agent.inject(Delay(seconds=100), on="SubscribeToTask")
        case _:
            agent.inject(Delay(seconds=100), on="GetTask")
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network)
    events = client.stream_message("hi")
    await events.__aenter__()
    reading = asyncio.create_task(all_the_rest(events))
    await asyncio.sleep(10)
    assert not reading.done()

    await events.close()
    seen = await reading

    assert len(seen) <= 2  # and it ended
    assert (network.in_flight, agent.open_streams, now()) == (0, 0, 10)


async def all_the_rest(events):
    return [told(event) async for event in events]


@both_bindings
async def test_a_stream_that_does_not_close_is_abandoned(binding):
    class Stuck(StreamWrapper):
        async def close(self):
            await super().close()
            await asyncio.sleep(1000)

    class Layer(BaseLayer):
        async def stream(self, call, /):
            return Reply(value=Stuck((await self._inner.stream(call)).value))

    client = connected(FakeAgent(streams("a", every=1)), binding, call_layers=[Layer])

    with pytest.raises(TimeoutError, match="did not close within 5 s"):
        async with client.stream_message("hi") as events:
            await anext(events)

    assert now() == 5


def slow_to_close(seconds):
    """A layer whose streams take their time to close."""

    class Slow(StreamWrapper):
        async def close(self):
            await super().close()
            await asyncio.sleep(seconds)

    class Layer(BaseLayer):
        async def stream(self, call, /):
            return Reply(value=Slow((await self._inner.stream(call)).value))

    return Layer


@both_bindings
async def test_a_connection_that_does_not_close_is_replaced_all_the_same(binding):
    agent = FakeAgent(streams("a", "b", "c", every=10))
    cut_after(agent, 3)
    client = connected(agent, binding, call_layers=[slow_to_close(1000)])

    events = client.stream_message("hi")
    await events.__aenter__()

    assert (await events.result()).text == "abc"


@both_bindings
async def test_a_failure_is_reported_though_the_connection_does_not_close(binding):
    agent = FakeAgent(streams("a", "b", "c", every=10))
    cut_after(agent, 3)
    client = connected(
        agent, binding, call_layers=[slow_to_close(1000)], resilience=patience(max_reconnects=0)
    )
    events = client.stream_message("hi")
    await events.__aenter__()

    with pytest.raises(ReconnectError, match="was cut"):
        await events.result()


@both_bindings
async def test_what_a_consumer_raises_is_reported_though_the_connection_does_not_close(binding):
    def raising(_event, _task, _card):
        raise ValueError("not that one")

    agent = FakeAgent(streams("a", "b", "c", every=10))
    client = connected(agent, binding, call_layers=[slow_to_close(1000)], consumers=[raising])

    with pytest.raises(ValueError, match="not that one"):
        await all_of(client.stream_message("hi"))


@both_bindings
async def test_failure_is_raised_in_a_caller_that_was_cancelled_meanwhile(binding):
    agent = FakeAgent(works_forever())
    client = connected(agent, binding, call_layers=[slow_to_close(4)])

    async with client.stream_message("hi", timeout=5) as events:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await all_the_rest(events)
        assert now() == 7
        with pytest.raises(DeadlineExceededError, match="the stream timeout of 5 s"):
            await anext(events)


@both_bindings
async def test_an_open_stream_ends_with_its_client(binding):
    agent = FakeAgent(streams("a", "b", "c", every=1))
    network = FakeNetwork(agent)  # lent: it stays usable
    client = connected(agent, binding, network=network)

    async with client.stream_message("hi") as events:
        await anext(events)
        await client.close()
        with pytest.raises(A2AConnectionError, match="closed while task task-1 was") as caught:
            await events.result()

    assert (caught.value.failure, caught.value.executed) == ("closed", True)
    assert "task-1" in str(caught.value)
    assert operations(agent) == ["SendStreamingMessage"]
    assert (network.in_flight, agent.open_streams, now()) == (0, 0, 0)


@both_bindings
async def test_closing_the_client_ends_who_waits_for_an_event(binding):
    agent = FakeAgent(streams("a", "b", "c", every=60))
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network)

    async with client.stream_message("hi") as events:
        asyncio.get_running_loop().call_later(10, lambda: closing.append(close()))
        closing = []

        def close():
            return asyncio.create_task(client.close())

        with pytest.raises(A2AConnectionError, match="closed") as caught:
            await events.result()
        await closing[0]

    assert (caught.value.failure, caught.value.executed) == ("closed", True)
    assert (network.in_flight, agent.open_streams, now()) == (0, 0, 10)


@both_bindings
async def test_a_stream_that_was_left_has_no_answer(binding):
    agent = FakeAgent(streams("a", "b", every=1))
    client = connected(agent, binding)

    async with client.stream_message("hi") as events:
        await anext(events)

    with pytest.raises(RuntimeError, match="closed before it had an answer"):
        await events.result()


@both_bindings
@pytest.mark.parametrize("how", ["closed", "failed"])
async def test_what_was_broken_off_is_not_taken_for_all_there_is(how, binding):
    agent = FakeAgent(streams("a", "b", every=1))
    cut_after(agent, 3)
    client = connected(agent, binding, resilience=Resilience.off())

    async with client.stream_message("hi") as events:
        iterations = [events, events.text_deltas(), events.text_changes()]
        await anext(events)
        if how == "failed":
            with pytest.raises(ReconnectError):
                await all_the_rest(events)

    for each in (*iterations, events.text_deltas(), events.text_changes()):
        with pytest.raises(RuntimeError, match="was closed before its end"):
            assert [thing async for thing in each] == "never"


@both_bindings
@pytest.mark.parametrize("said", ["task", "message"])
async def test_a_stream_that_was_read_to_its_end_can_be_iterated_over_when_it_is_closed(
    said, binding
):
    agent = FakeAgent(streams("a", "b") if said == "task" else replies("ab"))
    async with connected(agent, binding).stream_message("hi") as events:
        answer = await events.result()

    assert answer.text == "ab"
    assert await all_the_rest(events) == []
    assert "".join([text async for text in events.text_deltas()]) == ""


@both_bindings
async def test_an_iteration_ends_when_another_task_closes_its_stream(binding):
    agent = FakeAgent(streams(*"abc", every=10))

    async with connected(agent, binding).stream_message("hi") as events:
        async for _ in events:
            await asyncio.create_task(events.close())  # while it is busy elsewhere
    assert agent.open_streams == 0


# ── Reconnecting ─────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_only_a_connection_that_comes_about_counts_as_a_reconnect(binding):
    seen = []
    agent = FakeAgent(streams("a", "b", "c", every=10))
    cut_after(agent, 3)
    agent.inject(Refuse(), on="SubscribeToTask", times=2)
    agent.inject(Cut(after_events=2, after_bytes=20), on="SubscribeToTask")
    client = connected(agent, binding, observers=[seen.append])

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert (answer.text, events.reconnects, events.gap) == ("abc", 2, True)
    found = [each for each in seen if isinstance(each, Reconnected)]
    assert [each.number for each in found] == [1, 2]
    assert {each.task_id for each in found} == {"task-1"}
    assert {each.method for each in found} == {"SubscribeToTask"}
    assert found[0].endpoint == events_agent(binding)


def events_agent(binding):
    return "http://agent.test/rpc" if binding == "JSONRPC" else "http://agent.test/rest"


@both_bindings
@pytest.mark.parametrize("lag", [0, 0.5, 2])
async def test_a_question_comes_with_all_that_was_said_before_it(lag, binding):
    asking = asks("which one?", after=0.6)
    agent = FakeAgent(streams("a", "b", "c", every=0.1, then=asking), store_lag=lag)
    cut_after(agent, 3)  # and what follows is missed
    client = connected(agent, binding, env=FixedDraws(0.9))

    answer = await client.ask("hi")

    assert (answer.text, answer.question) == ("abc", "which one?")


@both_bindings
async def test_events_missed_while_disconnected_are_emitted_though_store_and_stream_lack_them(
    binding,
):
    says = Step(state=TaskState.INPUT_REQUIRED, after=0.001, says="Which one?")
    plan = Plan((Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING, after=4.9), says))
    streaming = Streaming(stays_open=True, keep_alive=15)
    agent = FakeAgent(lambda _: plan, streaming=streaming, store_lag=60)
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    agent.inject(Refuse(), on="SubscribeToTask", times=3)

    answer = await connected(agent, binding).ask("A pizza", timeout=1000)

    assert (answer.question, now() < 200) == ("Which one?", True)


@both_bindings
async def test_the_task_of_a_quiet_connection_is_asked_for_ever_less_often(binding):
    agent = FakeAgent(completes("done", after=3000, works=1), streaming=Streaming(keep_alive=15))
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")

    answer = await connected(agent, binding).ask("hi", timeout=5000)

    assert (answer.text, 3 <= len(agent.calls("GetTask")) <= 20) == ("done", True)


@both_bindings
async def test_a_look_at_the_task_that_takes_long_holds_no_event_up(binding):
    agent = FakeAgent(streams("a", "b", "c", every=10), streaming=Streaming(keep_alive=5))
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    agent.inject(Delay(seconds=0), on="GetTask")  # which is of the reconnect
    agent.inject(Delay(seconds=100), on="GetTask", times=99)

    async with connected(agent, binding).stream_message("hi") as events:
        came = [now() async for _ in events.text_deltas()]

    assert len(came) == 3
    assert came[-1] < 40


# ── The text of a task that does not complete ────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["text_deltas", "text_changes"])
async def test_text_with_a_raise_on_failure_that_is_not_a_bool_is_refused(way):
    async with connected(FakeAgent(streams("a")), "JSONRPC").stream_message("hi") as events:
        with pytest.raises(TypeError, match="raise_on_failure must be bool, not str"):
            getattr(events, way)(raise_on_failure="no")


@both_bindings
@pytest.mark.parametrize("way", ["text_deltas", "text_changes"])
@pytest.mark.parametrize("ending", [fails, rejects])
async def test_text_of_a_task_that_failed_ends_with_its_error(ending, way, binding):
    agent = FakeAgent(streams("a", "b", then=ending("no paper")))
    agent.inject(unavailable(retry_after=0.1), on="SendStreamingMessage", times=2)
    seen = []

    async with connected(agent, binding).stream_message("hi") as events:
        text = getattr(events, way)()
        with pytest.raises(TaskTerminalError, match="no paper") as caught:
            seen.extend([piece async for piece in text])
        assert [piece async for piece in text] == []  # it is raised once
        assert events.task is caught.value.task
        quiet = getattr(events, way)(raise_on_failure=False)
        assert [piece async for piece in quiet] == []
        with pytest.raises(TaskTerminalError) as again:
            await events.result()

    error = again.value
    assert [attempt.error is None for attempt in error.attempts] == [False, False, True]
    assert error.request_id is not None
    assert caught.value.request_id == error.request_id


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_failed_task_names_its_call_and_each_try_of_it(streaming):
    sends = "SendStreamingMessage" if streaming else "SendMessage"
    agent, seen = FakeAgent(fails("no", after=1), streaming=streaming), []
    agent.inject(Refuse(), on=sends, times=2)

    with pytest.raises(TaskFailedError) as caught:
        await connected(agent, observers=[seen.append]).ask("hi")

    assert len(caught.value.attempts) == 3
    (first, *_) = (each for each in seen if isinstance(each, AttemptStarted))
    assert caught.value.request_id in {
        each.request_id for each in seen if each.method == sends
    } | {first.request_id}


async def test_text_of_a_task_that_waits_for_input_ends_without_an_error():
    agent = FakeAgent(streams("a", "b", then=asks("which?")))

    async with connected(agent).stream_message("hi") as events:
        text = "".join([piece async for piece in events.text_deltas()])
        answer = await events.result()

    assert (text, answer.needs_input, answer.question) == ("ab", True, "which?")
    assert events.task.state is TaskState.INPUT_REQUIRED


# ── The time of a stream ─────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P32", "D04")
@both_bindings
@pytest.mark.parametrize("on", ["message", "task"])
@pytest.mark.parametrize("where", ["reading", "backoff", "look", "subscribing"])
async def test_a_deadline_strikes_wherever_a_stream_waits(where, on, binding):
    agent = FakeAgent(streams(*"abc", every=1000))
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network)
    opened_by = "SendStreamingMessage" if on == "message" else "SubscribeToTask"
    if where != "reading":
        agent.inject(Cut(after_events=1), on=opened_by)
    match where:
        case "backoff":
            agent.inject(unavailable(retry_after=7), on="SubscribeToTask", times=99)
        case "look":
            agent.inject(Delay(seconds=1000), on="GetTask", times=9)
        case "subscribing":
            agent.inject(Delay(seconds=1000), on="SubscribeToTask", times=9)
        case _:
            pass
    stream = client.stream_message("hi", timeout=90)
    if on == "task":
        sent = await client.send_message("hi", return_immediately=True)
        stream = client.subscribe_to_task(sent.id, timeout=90)
    await client.agent_card()

    with pytest.raises(DeadlineExceededError, match=r"stream timeout of 90 s") as caught:
        await all_of(stream)

    error = caught.value
    assert (error.deadline, error.timeout) == ("stream", 90)
    assert now() == 90 or (where == "backoff" and 83 < now() < 90)  # at once, where it is too long
    assert "task-1" in str(error)
    if error.task is not None:
        assert (error.task.id, error.executed) == ("task-1", True)
    assert (error.task is None) == (on == "task" and where == "look")
    assert (network.in_flight, agent.open_streams) == (0, 0)


@pytest.mark.rule("P32")
@both_bindings
@pytest.mark.parametrize(
    ("how", "ends"),
    [("polled", (500, 501)), ("clean", (500, 560)), ("silent", (1400, 1700))],
)
async def test_an_agent_that_works_for_ever_without_a_word_is_abandoned(how, ends, binding):
    agent = FakeAgent(works_forever(), streaming=how != "polled")
    network = FakeNetwork(agent)
    if how == "clean":  # as behind a proxy that cuts what is quiet
        agent.inject(Cut(after_events=2, clean=True), on="SendStreamingMessage")
        agent.inject(Cut(after_events=1, clean=True), on="SubscribeToTask", times=100)
    quiet = Resilience(reconnect=ReconnectPolicy(max_quiet=500))
    client = connected(agent, binding, network=network, resilience=quiet)

    expected = (
        r"task-1 was last seen WORKING at the end of the quiet timeout of 500 s "
        r"\(ReconnectPolicy\.max_quiet\)"
    )
    with pytest.raises(DeadlineExceededError, match=expected) as caught:
        await all_of(client.stream_message("hi", poll_interval=1))

    error = caught.value
    assert (error.deadline, error.timeout) == ("quiet", 500)
    assert (error.task.id, error.task.state, error.executed) == ("task-1", TaskState.WORKING, True)
    assert error.agent is not None
    assert ends[0] <= now() < ends[1]
    assert (network.in_flight, agent.open_streams) == (0, 0)


@both_bindings
async def test_an_agent_that_says_it_is_alive_is_never_abandoned(binding):
    agent = FakeAgent(works_forever(), streaming=Streaming(keep_alive=60))
    client = connected(agent, binding)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(24 * 3600):
            await all_of(client.stream_message("hi"))

    assert agent.open_streams == 0


@both_bindings
async def test_a_task_is_asked_for_where_a_subscription_stays_silent(binding):
    """As agents do that begin a subscription without the task."""
    steps = (Step(state=TaskState.SUBMITTED), Step(state=TaskState.INPUT_REQUIRED, says="Which?"))
    agent = FakeAgent(lambda _: Plan(steps), streaming=Streaming(stays_open=True, snapshot=False))
    agent.inject(Cut(after_events=1), on="SendStreamingMessage")

    async with connected(agent, binding).stream_message("A pizza") as events:
        assert (await events.result()).question == "Which?"

    assert now() < 200


async def test_a_subscription_refused_because_the_task_is_over_is_no_failure(caplog):
    agent = FakeAgent(streams("a", "b", every=1))
    cut_after(agent, 3)
    agent.inject(Fail(code=-32004), on="SubscribeToTask")

    async with connected(agent).stream_message("hi") as events:
        assert (await events.result()).text == "ab"

    (warning,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert warning.endswith(
        "status messages of task task-1 may be missing after a cut, the answer is not"
    )


# ── How patiently ────────────────────────────────────────────────────────────────────────────


def patience(**policy):
    once = RetryPolicy(max_retries=0)
    return Resilience(reconnect=ReconnectPolicy(**policy), retry=once, breaker=None)


@both_bindings
@pytest.mark.parametrize("count", [1, 8])
async def test_a_stream_polls_after_the_reconnects_that_the_policy_allows(count, binding):
    seen = []
    agent = FakeAgent(streams(*"abc", every=1))
    cut_after(agent, 3)
    client = connected(
        agent,
        binding,
        observers=[seen.append],
        resilience=patience(max_reconnects=count, backoff=2, max_backoff=5),
    )
    await client.agent_card()
    agent.inject(Refuse(), on="SubscribeToTask", times=1000)
    agent.inject(Refuse(), on="GetTask", times=1000)

    with pytest.raises(ReconnectError):
        await all_of(client.stream_message("hi"))

    tries = [each for each in seen if isinstance(each, AttemptStarted)]
    subscribed = [each for each in tries if each.method == "SubscribeToTask"]
    looked = [each for each in tries if each.method == "GetTask"]
    assert (len(subscribed), len(looked) > 8) == (count, True)


@both_bindings
@pytest.mark.parametrize("how", ["refused", "hangs", "polled", "watched"])
async def test_an_outage_ends_a_stream_after_the_time_of_the_policy(how, binding, caplog):
    agent = FakeAgent(streams(*"abc", every=5), streaming=how != "polled")
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network)  # with its circuit breaker
    task = await client.send_message("hi", return_immediately=True)
    fault = Stall(phase="first_byte") if how == "hangs" else Refuse()
    agent.inject(fault, on="SubscribeToTask", times=1000)
    agent.inject(fault, on="GetTask", times=1000)
    began = now()
    watched = how == "watched"
    stream = client.subscribe_to_task(task.id) if watched else client.stream_message("hi")

    expected = (
        r"every request for task task-\d( \(last seen WORKING\))? failed for 300 s "
        r"\(ReconnectPolicy.max_outage\); resume later with subscribe_to_task\('task-\d'\); "
        r"last error: "
    )
    with pytest.raises(ReconnectError, match=expected) as caught:
        await all_of(stream)

    error = caught.value
    assert (error.task_id, error.transient) == (error.task.id if error.task else task.id, False)
    assert error.executed is not watched
    assert ("ended too early" in str(error)) is False
    assert 300 <= now() - began < 310  # from the cut
    assert error.retry_stopped_reason is None
    warned = [each for each in caplog.messages if "trying again for up to" in each]
    assert len(warned) == (how != "hangs")  # whose first request lasts as long
    assert (network.in_flight, agent.open_streams) == (0, 0)


@both_bindings
@pytest.mark.parametrize("timeout", [None, 25], ids=["outage", "deadline"])
@pytest.mark.parametrize("fault", [Refuse(), unavailable(retry_after=30)], ids=["down", "busy"])
async def test_a_program_that_resends_while_transient_executes_the_message_once(
    fault, timeout, binding
):
    agent = FakeAgent(streams(*"abc", every=5))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(fault, on="SubscribeToTask", times=1000)
    agent.inject(fault, on="GetTask", times=1000)
    resilience = Resilience(reconnect=ReconnectPolicy(max_outage=20))
    client = connected(agent, binding, resilience=resilience)

    error = None
    while error is None or error.transient:
        with pytest.raises((ReconnectError, DeadlineExceededError)) as caught:
            await all_of(client.stream_message("hi", timeout=timeout))
        error = caught.value

    assert operations(agent).count("SendStreamingMessage") == 1
    assert (error.executed, error.task_id, error.task.state.name) == (True, "task-1", "WORKING")


@both_bindings
async def test_a_stream_whose_task_is_lost_says_why_agents_lose_tasks(binding):
    agent = FakeAgent(streams(*"abc", every=5))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    for operation in ("SubscribeToTask", "GetTask"):
        agent.inject(Fail(code=-32001), on=operation, times=9)

    expected = (
        "task task-1 was last seen WORKING; an agent that keeps its tasks in memory loses them "
        "when it restarts"
    )
    with pytest.raises(TaskNotFoundError, match=expected) as caught:
        await all_of(connected(agent, binding).stream_message("hi"))

    error = caught.value
    assert (error.executed, error.transient, error.task_id) == (True, False, "task-1")
    assert error.task.state.name == "WORKING"


@both_bindings
async def test_a_restart_of_four_minutes_is_survived(binding):
    agent = FakeAgent(streams(*"abc", every=5))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Refuse(), on="SubscribeToTask", times=8)
    agent.inject(Refuse(), on="GetTask", times=16)
    client = connected(agent, binding, env=FixedDraws(1.0), resilience=patience())

    async with client.stream_message("hi") as events:
        assert (await events.result()).text == "abc"

    assert 240 < now() < 300


@both_bindings
async def test_a_task_whose_subscriptions_send_nothing_is_no_outage(binding):
    """As at servers that send no headers before the first event."""
    agent = FakeAgent(streams(*"ab", every=700))
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    client = connected(agent, binding)
    agent.inject(Stall(phase="first_byte"), on="SubscribeToTask", times=1000)

    async with client.stream_message("hi") as events:
        assert (await events.result()).text == "ab"


@both_bindings
async def test_a_policy_of_no_reconnects_fails_at_the_first_cut(binding):
    agent = FakeAgent(streams(*"abc", every=1))
    cut_after(agent, 3)

    off = "was cut, and reconnecting is switched off; .* the reply ended too early"
    with pytest.raises(ReconnectError, match=off) as caught:
        await all_of(
            connected(agent, binding, resilience=patience(max_reconnects=0)).stream_message("hi")
        )

    assert (caught.value.task.text, caught.value.executed, now()) == ("a", True, 1)
    assert operations(agent) == ["SendStreamingMessage"]


@both_bindings
async def test_a_policy_of_no_reconnects_polls_an_agent_that_does_not_stream(binding):
    agent = FakeAgent(streams(*"abc", every=1), streaming=False)
    client = connected(agent, binding, resilience=patience(max_reconnects=0))

    async with client.stream_message("hi") as events:
        assert (await events.result()).text == "abc"


@both_bindings
async def test_waits_between_reconnects_grow_up_to_their_bound(binding):
    seen = []
    loop = asyncio.get_running_loop()
    agent = FakeAgent(works_forever())
    cut_after(agent, 2)
    agent.inject(Refuse(), on="SubscribeToTask", times=8)
    client = connected(
        agent,
        binding,
        env=FixedDraws(1.0),
        observers=[lambda each: seen.append((loop.time(), each))],
        resilience=patience(backoff=1, max_backoff=20),
    )

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(300):
            await all_of(client.stream_message("hi"))

    tries = [
        at
        for at, each in seen
        if isinstance(each, AttemptStarted) and each.method == "SubscribeToTask"
    ]
    assert tries == [1, 3, 7, 15, 31, 51, 71, 91]


@both_bindings
async def test_a_hint_of_the_agent_is_the_least_that_is_waited(binding):
    seen = []
    agent = FakeAgent(streams(*"abc", every=10))
    cut_after(agent, 3)
    agent.inject(unavailable(retry_after=15), on="SubscribeToTask")
    loop = asyncio.get_running_loop()
    client = connected(agent, binding, observers=[lambda each: seen.append((loop.time(), each))])

    async with client.stream_message("hi") as events:
        assert (await events.result()).text == "abc"

    refused, again = [
        at
        for at, each in seen
        if isinstance(each, AttemptStarted) and each.method == "SubscribeToTask"
    ]
    assert 15 <= again - refused <= 16  # a little later, so that not all come at once


@both_bindings
async def test_what_is_new_sets_the_count_to_zero(binding):
    agent = FakeAgent(streams(*"abcdefgh", every=5))
    cut_after(agent, 3)
    for _ in range(7):
        agent.inject(Refuse(), on="SubscribeToTask")
        agent.inject(Cut(after_events=2), on="SubscribeToTask")
    client = connected(agent, binding, resilience=patience(max_reconnects=2))

    async with client.stream_message("hi") as events:
        assert (await events.result()).text == "abcdefgh"

    assert events.reconnects > 4


# ── Without subscriptions ────────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize(
    "fault",
    [
        Respond(status=404),
        Respond(status=405),
        Respond(status=501),
        Respond(status=404, body=b'{"error": {"code": -32601, "message": "no such method"}}'),
        Fail(code=-32004),
        Respond(status=200, headers={"content-type": "text/event-stream"}),
    ],
    ids=["404", "405", "501", "-32601", "-32004", "empty streams"],
)
async def test_where_nothing_can_be_subscribed_to_the_task_is_polled(fault, binding):
    agent = FakeAgent(streams(*"abcdef", every=60))
    cut_after(agent, 3)
    agent.inject(fault, on="SubscribeToTask", times=100)
    client = connected(agent, binding)

    async with client.stream_message("hi") as events:
        texts, polled = [], []
        async for text in events.text_deltas():
            texts.append(text)
            polled.append(events.is_polled)

    assert "".join(texts) == "abcdef"
    assert (polled[0], polled[-1]) == (False, True)
    assert events.gap
    assert events.task == agent.tasks["task-1"]
    assert 10 < len(agent.calls("GetTask")) < 250
    assert 370 < now() < 430


@both_bindings
@pytest.mark.parametrize("how", ["undeclared", "unwanted"])
async def test_where_streams_are_not_offered_or_not_wanted_the_task_is_polled(how, binding):
    streaming = Streaming(declared=how == "unwanted")
    agent = FakeAgent(streams(*"abc", every=60), streaming=streaming)
    client = connected(agent, binding, streaming=how != "unwanted")

    async with client.stream_message("hi") as events:
        seen = [told(event) async for event in events]
        assert events.is_polled
    async with client.subscribe_to_task("task-1") as events:
        assert [told(event) async for event in events] == ["task COMPLETED abc"]
        assert events.is_polled

    assert seen == ["task WORKING", "artifact a", "append b", "append c", "status COMPLETED"]
    assert set(operations(agent)) == {"SendMessage", "GetTask"}


# ── Using it wrongly ─────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_stream_is_entered_once_before_it_is_read_by_one_task(binding):
    agent = FakeAgent(streams(*"abc", every=1))
    client = connected(agent, binding)
    stream = client.stream_message("hi")

    with pytest.raises(
        RuntimeError, match=r"enter the stream first: async with .* \(holdfast\.sync: with\)"
    ):
        await anext(stream)
    with pytest.raises(RuntimeError, match="enter the stream first"):
        await stream.result()
    await stream.close()  # nothing to let go of
    async with client.stream_message("hi") as stream:
        with pytest.raises(RuntimeError, match="already used"):
            await stream.__aenter__()
        first = asyncio.create_task(all_that_comes(stream))
        await asyncio.sleep(0.5)
        with pytest.raises(RuntimeError, match="already being read"):
            await anext(stream)
        seen = await first

    assert seen[-1] == "status COMPLETED"
    assert len(agent.tasks) == 1


async def all_that_comes(events):
    return [told(event) async for event in events]


async def test_text_missed_by_one_wait_arrives_with_the_next():
    agent = FakeAgent(streams("one ", "two ", "three", every=10))
    async with connected(agent) as client, client.stream_message("hello") as events:
        deltas, heard = events.text_deltas(), []
        while "".join(heard) != "one two three":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(4):
                    heard.append(await anext(deltas))
        assert heard == ["one ", "two ", "three"]
        assert [text async for text in deltas] == []


async def test_loop_over_text_continues_with_the_next_piece_after_a_break():
    agent = FakeAgent(completes("first", "second", "third"))
    async with connected(agent) as client:
        task_id = (await client.ask("hello")).task_id
        async with client.subscribe_to_task(task_id) as events:
            heard = []
            for _ in range(5):
                async for text in events.text_deltas():
                    heard.append(text)
                    break
            assert heard == ["first", "\n", "second", "\n", "third"]


@pytest.mark.parametrize("after", [900, 3000])
async def test_a_quiet_task_that_is_polled_is_watched_to_the_deadline(after):
    agent = FakeAgent(completes("done", after=after, works=0), streaming=False)
    async with connected(agent) as client, client.stream_message("hello", timeout=7200) as events:
        assert (await events.result()).text == "done"


async def test_a_stream_that_is_closed_is_not_entered():
    agent = FakeAgent()
    async with connected(agent) as client:
        events = client.stream_message("order a pizza")
        await events.close()
        with pytest.raises(RuntimeError, match="already used"):
            await events.__aenter__()
    assert agent.executions == {}


# ── Limits that were raised ──────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_limit_that_was_raised_holds_after_a_reconnect_too(binding):
    many = tuple(Artifact(artifact_id=f"{n}", parts=(Part(text="x"),)) for n in range(10_001))
    working = Step(state=TaskState.WORKING, artifacts=many)
    agent = FakeAgent(Plan((working, Step(state=TaskState.COMPLETED, after=10))))
    client = connected(agent, binding, limits=Limits(artifacts=20_000))
    sent = await client.send_message("hi", return_immediately=True)

    async with client.subscribe_to_task(sent.id) as events:
        answer = await events.result()

    assert answer.task.artifacts == many


async def test_a_stream_whose_first_connection_brought_events_allows_two_empty_subscriptions():
    agent = FakeAgent(streams(*"abcdefghijkl", every=1))
    agent.inject(Cut(after_events=4), on="SendStreamingMessage")
    agent.inject(Cut(after_events=1), on="SubscribeToTask", times=2)

    client = connect(agent.url, engine=FakeNetwork(agent))
    async with client, client.stream_message("hi") as events:
        text = (await events.result()).text
        assert (text, events.reconnects, events.is_polled) == ("abcdefghijkl", 3, False)


async def test_a_stream_is_polled_after_three_subscriptions_without_an_event():
    agent = FakeAgent(streams(*"abcdefghijkl", every=5))
    agent.inject(Cut(after_events=4), on="SendStreamingMessage")
    agent.inject(Cut(after_events=1), on="SubscribeToTask", times=3)

    client = connect(agent.url, engine=FakeNetwork(agent))
    async with client, client.stream_message("hi") as events:
        text = (await events.result()).text
        assert (text, events.reconnects, events.is_polled) == ("abcdefghijkl", 3, True)


async def test_subscriptions_that_bring_one_event_each_are_never_replaced_by_polling():
    agent = FakeAgent(streams(*"abcdefghijkl", every=1), streaming=Streaming(snapshot=False))
    agent.inject(Cut(after_events=4), on="SendStreamingMessage")
    agent.inject(Cut(after_events=1), on="SubscribeToTask", times=5)

    client = connect(agent.url, engine=FakeNetwork(agent))
    async with client, client.stream_message("hi") as events:
        text = (await events.result()).text
        assert (text, events.reconnects, events.is_polled) == ("abcdefghijkl", 6, False)
