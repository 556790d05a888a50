"""Who listens to streams: interceptors, consumers, observers, layers, transports of a user's."""

import asyncio

import msgspec
import pytest

from holdfast import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    Message,
    Role,
    Task,
    TaskFailedError,
    connect,
    text_part,
)
from holdfast.errors import InvalidAgentResponseError
from holdfast.extend import BaseLayer, Interceptor, Reply, StreamWrapper, UnaryOnly
from holdfast.observe import OperationFinished, Reconnected, RequestFinished
from holdfast.testing import Cut, FakeAgent, FakeNetwork, Refuse, completes, fails, streams
from holdfast.types import StreamResponse, TaskArtifactUpdateEvent

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])

STREAMED = "SendStreamingMessage"


def connected(agent, binding="JSONRPC", *, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), bindings=(binding,), **options)


def operations(agent):
    return [each.operation for each in agent.received if each.operation != "GetAgentCard"]


def broken_once(**options):
    agent = FakeAgent(streams(*"abc", every=10), **options)
    agent.inject(Cut(after_events=3), on=STREAMED)
    return agent


# ── Interceptors ─────────────────────────────────────────────────────────────────────────────


class Notes(Interceptor):
    """Writes down what it sees."""

    def __init__(self):
        self.asked = []
        self.seen = []

    async def before(self, call):
        self.asked.append(call.operation.name)
        return call

    async def after(self, call, outcome):
        self.seen.append((call.operation.name, outcome))
        return outcome


@both_bindings
async def test_interceptors_are_asked_once_for_each_connection_and_see_each_event(binding):
    agent = broken_once()
    notes = Notes()

    async with connected(agent, binding, interceptors=[notes]).stream_message("hi") as events:
        seen = [event async for event in events]

    assert notes.asked == operations(agent)
    replies = [(name, each) for name, each in notes.seen if isinstance(each, Reply)]
    assert [each.value.event for name, each in replies if name == STREAMED] == seen[:3]
    failures = [each for name, each in notes.seen if isinstance(each, A2AError)]
    assert [failure.failure for failure in failures] == ["truncated"]
    subscribed = [each for name, each in notes.seen if name == "SubscribeToTask"]
    assert isinstance(subscribed[0].value.event, Task)
    assert all(each.endpoint.agent.startswith(agent.url) for _, each in replies)


@both_bindings
async def test_an_interceptor_may_change_events(binding):
    class Louder(Interceptor):
        async def after(self, call, outcome):
            value = outcome.value
            if isinstance(value, Task):
                artifacts = tuple(map(self.loud, value.artifacts))
                value = msgspec.structs.replace(value, artifacts=artifacts)
            elif isinstance(value, StreamResponse) and value.artifact_update is not None:
                artifact = self.loud(value.artifact_update.artifact)
                update = msgspec.structs.replace(value.artifact_update, artifact=artifact)
                value = msgspec.structs.replace(value, artifact_update=update)
            return msgspec.structs.replace(outcome, value=value)

        def loud(self, artifact):
            parts = (msgspec.structs.replace(p, text=p.text.upper()) for p in artifact.parts)
            return msgspec.structs.replace(artifact, parts=tuple(parts))

    agent = FakeAgent(streams("a", "b"))
    client = connected(agent, binding, interceptors=[Louder()])

    async with client.stream_message("hi") as events:
        assert [text async for text in events.text_deltas()] == ["A", "B"]
        assert (await events.result()).text == "AB"


@both_bindings
async def test_an_interceptor_may_answer_in_place_of_the_agent(binding):
    message = Message(message_id="m", role=Role.AGENT, parts=(text_part("from memory"),))

    class Memory(Interceptor):
        async def before(self, call):
            return Reply(value=StreamResponse(message=message))

    agent = FakeAgent()
    notes = Notes()
    client = connected(agent, binding, interceptors=[notes, Memory()])

    async with client.stream_message("hi") as events:
        answer = await events.result()

    assert answer.text == "from memory"
    assert (operations(agent), len(notes.seen)) == ([], 1)


@both_bindings
async def test_an_interceptor_may_make_an_error_of_an_event(binding):
    class Strict(Interceptor):
        async def after(self, call, outcome):
            value = getattr(outcome, "value", None)
            if getattr(value, "artifact_update", None) is not None:
                return InvalidAgentResponseError("not what I wanted")
            return outcome

    agent = FakeAgent(streams("a", "b"))
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network, interceptors=[Strict()])

    async with client.stream_message("hi") as events:
        answer = await events.result()  # the connection counts as broken, the task does not

    assert answer.text == "ab"
    assert network.in_flight == 0


# ── Consumers ────────────────────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
async def test_consumers_get_each_event_with_its_task_and_card_in_order(streaming, binding):
    agent = broken_once(streaming=streaming)
    heard = []

    async def first(event, task, card):
        await asyncio.sleep(0.1)
        heard.append((1, event, task, card.name))

    def second(event, task, card):
        heard.append((2, event, task, card.name))

    client = connected(agent, binding, consumers=[first, second])
    wanted = []
    async with client.stream_message("hi") as events:
        async for event in events:
            wanted += [(n, event, events.task, "Fake agent") for n in (1, 2)]

    assert heard == wanted
    assert heard[-1][2].text == "abc"


@both_bindings
async def test_what_a_consumer_raises_ends_the_stream(binding):
    def consumer(event, _task, _card):
        if type(event) is TaskArtifactUpdateEvent:
            raise LookupError("no room")

    agent = FakeAgent(streams("a", "b"))
    network = FakeNetwork(agent)
    client = connected(agent, binding, network=network, consumers=[consumer])

    async with client.stream_message("hi") as events:
        with pytest.raises(LookupError, match="no room"):
            await events.result()
        assert (network.in_flight, agent.open_streams) == (0, 0)


@both_bindings
async def test_a_consumer_that_takes_too_long_meets_the_streams_deadline(binding):
    async def consumer(_event, _task, _card):
        await asyncio.sleep(100)

    agent = FakeAgent(streams("a", "b"))
    client = connected(agent, binding, consumers=[consumer])

    with pytest.raises(DeadlineExceededError, match="a consumer did not finish") as caught:
        async with client.stream_message("hi", timeout=30) as events:
            await events.result()

    assert (caught.value.deadline, caught.value.executed) == ("stream", True)
    assert caught.value.task.id == "task-1"


# ── Observers ────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_observers_hear_of_each_connection_and_of_its_end_once(binding):
    agent = broken_once()
    seen = []
    client = connected(agent, binding, observers=[seen.append])

    async with client.stream_message("hi") as events:
        async for _ in events:
            pass

    finished = [each for each in seen if isinstance(each, RequestFinished)]
    failed = [(each.method, type(each.error)) for each in finished if each.error is not None]
    assert failed == [(STREAMED, A2AConnectionError)]
    named = sorted(each.method for each in finished if each.method != "GetAgentCard")
    assert named == sorted(operations(agent))
    assert len({each.request_id for each in finished}) == len(finished)
    assert [type(each) for each in seen].count(Reconnected) == 1
    opened = next(each for each in finished if each.method == STREAMED)
    assert (opened.attempts, opened.duration, opened.error.failure) == (1, 10, "truncated")
    (call,) = calls_in(seen)
    assert (call.operation, call.method, call.error) == ("stream_message", STREAMED, None)
    assert (call.request_id, call.outcome) == (opened.request_id, "succeeded")
    assert call.attempts == len(finished)
    assert call.duration > opened.duration


def calls_in(seen):
    return [each for each in seen if isinstance(each, OperationFinished)]


@both_bindings
@pytest.mark.parametrize("use", ["ask", "deltas", "events", "run", "wait", "conversation"])
async def test_a_call_that_failed_is_finished_once_with_the_error_that_its_caller_gets(
    use, binding
):
    agent = FakeAgent(fails("no room", after=5))
    seen, error = [], None
    client = connected(agent, binding, observers=[seen.append])

    try:
        match use:
            case "ask":
                await client.ask("hi")
            case "conversation":
                await client.conversation().ask("hi")
            case "run":
                (result,) = [each async for each in client.run(["hi"])]
                error = result.error
            case "wait":
                task = await client.send_message("hi", return_immediately=True)
                seen.clear()
                await client.wait(task.id)
            case _:
                async with client.stream_message("hi") as events:
                    async for _ in events.text_deltas() if use == "deltas" else events:
                        pass
    except TaskFailedError as failure:
        error = failure

    (call,) = calls_in(seen)
    assert call.error is error
    assert (error is None) == (use in {"events", "wait"})  # which give the task as it is
    requests = [each for each in seen if isinstance(each, RequestFinished)]
    assert call.attempts == sum(each.attempts for each in requests)
    made = [each for each in requests if each.method != "GetAgentCard"]
    assert call.request_id == made[0].request_id
    if error is not None:
        assert (call.request_id, call.operation_id) == (error.request_id, error.operation_id)
    assert call.method == ("GetTask" if use == "wait" else STREAMED)
    names = {"deltas": "stream_message", "events": "stream_message", "conversation": "ask"}
    assert call.operation == names.get(use, use)


async def test_a_stream_that_cannot_be_opened_is_a_call_that_is_finished_once():
    agent, seen = FakeAgent(), []
    agent.inject(Refuse(), on="GetAgentCard", times=9)
    client = connected(agent, observers=[seen.append])

    with pytest.raises(A2AConnectionError) as caught:
        await client.ask("hi", timeout=60)

    (call,) = calls_in(seen)
    assert (call.operation, call.method) == ("ask", "GetAgentCard")
    assert (call.outcome, call.error) == ("failed", caught.value)
    assert call.attempts == len(caught.value.attempts)
    assert call.endpoint.startswith("http://agent.test")
    assert call.attempts > 1


async def test_a_cancel_that_is_confirmed_by_polls_is_one_call():
    seen = []
    client = connected(FakeAgent(completes("done", after=60)), observers=[seen.append])
    task = await client.send_message("hi", return_immediately=True)
    seen.clear()

    await client.cancel_task(task.id)

    (call,) = calls_in(seen)
    assert (call.operation, call.method, call.error) == ("cancel_task", "CancelTask", None)


@both_bindings
@pytest.mark.parametrize("how", ["left", "cancelled", "cancelled, gone on with", "raised", "late"])
@pytest.mark.parametrize("kind", [RequestFinished, OperationFinished])
async def test_a_stream_that_is_left_is_finished_once(how, kind, binding):
    agent = FakeAgent(streams(*"abc", every=10))
    seen = []
    client = connected(agent, binding, observers=[seen.append])
    timeout = 5 if how == "late" else None

    async def use():
        async with client.stream_message("hi", timeout=timeout) as events:
            await anext(events)
            await anext(events)
            match how:
                case "raised":
                    raise KeyError
                case "left":
                    return
                case "cancelled, gone on with":
                    reading = asyncio.create_task(anext(events))
                    await asyncio.sleep(1)
                    reading.cancel()
                    await asyncio.wait([reading])
            await events.result()

    task = asyncio.create_task(use())
    if how == "cancelled":
        asyncio.get_running_loop().call_later(5, task.cancel)
    await asyncio.wait([task])

    errors = [each.error for each in seen if isinstance(each, kind) and each.method == STREAMED]
    wanted = {"cancelled": asyncio.CancelledError, "late": DeadlineExceededError}
    assert [type(error) for error in errors] == [wanted.get(how, type(None))]
    if not task.cancelled():
        task.exception()


# ── A user's own layers and transports ───────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("place", ["call_layers", "attempt_layers"])
async def test_a_layer_that_minds_unary_calls_lets_streams_pass(place, binding):
    class Counted(BaseLayer):
        calls = 0

        async def unary(self, call):
            Counted.calls += 1
            return await super().unary(call)

    agent = broken_once()
    client = connected(agent, binding, **{place: [Counted]})

    async with client.stream_message("hi") as events:
        assert (await events.result()).text == "abc"

    assert Counted.calls == len(agent.calls("GetTask"))


@both_bindings
@pytest.mark.parametrize("place", ["call_layers", "attempt_layers"])
async def test_a_layer_sees_streams_opened_and_may_wrap_them(place, binding):
    opened, told, closed = [], [], []

    class Wrapped(StreamWrapper):
        async def __anext__(self):
            event = await super().__anext__()
            told.append(event.event)
            return event

        async def close(self):
            closed.append(self)
            await super().close()

    class Layer(BaseLayer):
        async def stream(self, call):
            opened.append(call.operation.name)
            reply = await super().stream(call)
            return msgspec.structs.replace(reply, value=Wrapped(reply.value))

    agent = broken_once()
    client = connected(agent, binding, **{place: [Layer]})

    async with client.stream_message("hi") as events:
        seen = [event async for event in events]

    assert opened == [STREAMED, "SubscribeToTask"]
    assert told[:3] == seen[:3]
    assert len(set(closed)) == 2


class Direct:
    """A transport without streams that asks the agent, past all bytes."""

    def __init__(self, agent):
        self.agent = agent
        self.seen = []

    async def unary(self, call):
        self.seen.append(call.operation.name)
        now = asyncio.get_running_loop().time()
        result = self.agent._operations.execute(call.operation.name, call.params, now)
        return Reply(value=result.value(now), endpoint=call.endpoint)

    async def close(self):
        pass


class DirectAndClear(UnaryOnly, Direct):
    """The same, and says that it has no streams."""


@pytest.mark.parametrize("kind", [Direct, DirectAndClear])
async def test_a_produced_transport_that_cannot_stream_is_polled(kind):
    agent = FakeAgent(streams(*"abc", every=10), bindings=("TEST",))
    transport = kind(agent)
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        transport_producers={"TEST": lambda *_: transport},
    )

    async with client.stream_message("hi") as events:
        answer = await events.result()
    async with client.subscribe_to_task(answer.task_id) as events:
        assert [event.id async for event in events] == [answer.task_id]

    assert (answer.text, agent.tasks[answer.task_id]) == ("abc", answer.task)
    assert set(transport.seen) == {"SendMessage", "GetTask"}
