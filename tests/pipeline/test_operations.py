"""The tree of observations: whatever happens, each start has one end, and the sums agree."""

import asyncio
import contextlib
import gc
import logging
import random

import msgspec
import pytest
from tests.kit.operation_trees import check_tree, of

from holdfast import (
    A2AError,
    AuthenticationError,
    Coordinator,
    HedgePolicy,
    Resilience,
    SqliteJournal,
    TaskFailedError,
    connect,
    observe,
)
from holdfast._pipeline.layers import NEVER, ObservedLayer
from holdfast._pipeline.listeners import Observers
from holdfast._pipeline.observed_request import make_beside
from holdfast.extend import BaseLayer, Call, Interceptor, Reply
from holdfast.protocol import OPERATIONS
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    asks,
    completes,
    fails,
    rate_limited,
    streams,
    unavailable,
    works_forever,
)
from holdfast.types import GetTaskRequest

BEHAVIOURS = [
    lambda draw: completes("42", after=draw.choice([0, 1, 30])),
    lambda draw: streams(*"abcdef", every=draw.choice([0, 0.5, 20])),
    lambda draw: streams("a", "b", every=1, then=asks("which?")),
    lambda draw: fails("no", after=draw.choice([0, 5])),
    lambda draw: works_forever(),
    lambda draw: "a message",
]
FAULTS = [
    lambda draw: Refuse(),
    lambda draw: Reset(after_execution=draw.random() < 0.5),
    lambda draw: Cut(after_events=draw.randint(0, 4)),
    lambda draw: rate_limited(retry_after=draw.choice([1, 5])),
    lambda draw: unavailable(retry_after=1),
    lambda draw: Stall(),
]
METHODS = [
    "GetAgentCard",
    "SendMessage",
    "SendStreamingMessage",
    "SubscribeToTask",
    "GetTask",
    "ListTasks",
    "CancelTask",
]


class Program:
    """Calls a method of a client, and notes what its caller gets."""

    def __init__(self, client, draw, key):
        self.client = client
        self.draw = draw
        self.key = key
        self.timeout = draw.choice([5, 60, 300])

    async def ask(self):
        key = self.draw.choice([None, self.key])
        await self.client.ask("hi", key=key, cancel_on_abandon=self.draw.random() < 0.3)

    async def send_message(self):
        task = await self.client.send_message("hi", timeout=self.timeout)
        if self.draw.random() < 0.5 and getattr(task, "status", None) is not None:
            await self.client.wait(task.id, timeout=self.timeout)

    async def cancel_task(self):
        task = await self.client.send_message("hi", return_immediately=True, timeout=60)
        await self.client.cancel_task(getattr(task, "id", "task-0"), timeout=self.timeout)

    async def stream_message(self):
        leaves_after = self.draw.choice([0, 1, 3, 100])
        abandons = self.draw.random() < 0.3
        async with self.client.stream_message(
            "hi", timeout=self.timeout, cancel_on_abandon=abandons
        ) as events:
            count = 0
            async for _ in events:
                count += 1
                if count > leaves_after:
                    break

    async def dropped_stream(self):
        events = self.client.stream_message("hi", timeout=self.timeout)
        await events.__aenter__()
        await anext(events, None)

    async def conversation(self):
        conversation = self.client.conversation(on_input=lambda _: "this one")
        await conversation.ask("hi", timeout=self.timeout)
        await conversation.ask("and", timeout=self.timeout)

    async def run(self):
        shared = self.draw.random() < 0.5
        run = self.client.run(
            ["a", "b", "c"], run_id=self.key, shared=shared, concurrency=2, timeout=60
        )
        async with run:
            async for _ in run:
                if self.draw.random() < 0.2:
                    break

    async def resume_pending(self):
        async for _ in self.client.resume_pending(timeout=self.timeout):
            pass

    async def subscribe_to_task(self):
        async with self.client.subscribe_to_task("task-1", timeout=self.timeout) as events:
            async for _ in events:
                pass

    async def simple(self):
        await self.client.agent_card()
        with contextlib.suppress(A2AError):
            await self.client.list_tasks()
        await self.client.get_task("task-1", timeout=self.timeout)


CALLS = [name for name in vars(Program) if not name.startswith("_")]


@pytest.mark.parametrize("seed", range(150))
async def test_each_start_has_one_end_whatever_happens(seed, tmp_path):
    draw, seen, got = random.Random(seed), [], []
    agent = FakeAgent(
        lambda _: draw.choice(BEHAVIOURS)(draw),
        latency=draw.choice([0, 0.1]),
        streaming=draw.random() < 0.7,
        store_lag=draw.choice([0, 0, 2]),
    )
    for _ in range(draw.randint(0, 8)):
        agent.inject(draw.choice(FAULTS)(draw), on=draw.choice(METHODS), times=draw.choice([1, 3]))
    hedge = HedgePolicy() if draw.random() < 0.3 else None
    journal = SqliteJournal(tmp_path / "calls.db")
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        bindings=(draw.choice(["JSONRPC", "HTTP+JSON"]),),
        observers=[seen.append],
        journal=journal,
        resilience=Resilience(hedge=hedge),
        card_ttl=draw.choice([0, 300]),
        timeout=120,
    )

    async def use(name, number):
        try:
            await getattr(Program(client, draw, f"key-{number % 2}"), name)()
        except (A2AError, asyncio.CancelledError, StopAsyncIteration, ValueError) as error:
            got.append(error)

    calls = [
        asyncio.create_task(use(draw.choice(CALLS), number))
        for number in range(draw.randint(1, 4))
    ]
    for call in calls:
        if draw.random() < 0.4:
            at = draw.choice([0, 0.05, 0.3, 1, 7, 40])
            asyncio.get_running_loop().call_later(at, call.cancel)
    await asyncio.wait(calls, timeout=2000)
    gc.collect()
    await client.close()
    await journal.close()

    check_tree(seen)
    ended = of(seen, observe.OperationFinished)
    errors = [each.error for each in ended]
    assert all(error in errors for error in got if isinstance(error, A2AError))


async def test_a_stream_that_is_garbage_collected_has_an_end():
    agent, seen = FakeAgent(streams(*"abc", every=5)), []
    async with connect(agent.url, engine=FakeNetwork(agent), observers=[seen.append]) as client:
        events = client.stream_message("hi")
        await events.__aenter__()
        await anext(events)
        del events
        gc.collect()
        await asyncio.sleep(0)

        (ended,) = of(seen, observe.OperationFinished)
    assert (ended.outcome, ended.error, ended.events, ended.executed) == ("left", None, 1, True)
    check_tree(seen)


@pytest.mark.parametrize("is_answered", [True, False])
async def test_the_steps_that_a_journal_records_are_observed(is_answered, tmp_path):
    behaviour = completes("42", after=1) if is_answered else works_forever()
    agent, seen = FakeAgent(behaviour), []
    journal = SqliteJournal(tmp_path / "calls.db")
    async with connect(
        agent.url, engine=FakeNetwork(agent), journal=journal, observers=[seen.append]
    ) as client:
        with contextlib.suppress(A2AError):
            await client.ask("hi", timeout=10)
        steps = [each.step for each in of(seen, observe.JournalWritten)]
        if not is_answered:
            (call,) = await client.pending()
            with contextlib.suppress(A2AError):
                await call.resume(timeout=10)
    await journal.close()

    assert steps == ["begin", "state", "state", "outcome" if is_answered else "release"]
    resumed = [each.step for each in of(seen, observe.JournalWritten)][len(steps) :]
    assert resumed == ([] if is_answered else ["claim", "state", "release"])
    assert all(each.error is None for each in of(seen, observe.JournalWritten))
    check_tree(seen)


async def test_agents_of_a_coordinator_are_named_as_the_program_names_them():
    one, two = FakeAgent("1", url="http://one.test"), FakeAgent("2", url="http://two.test")
    seen = []
    agents = {"first": one.url, "second": two.url}
    async with Coordinator(
        agents, engine=FakeNetwork(one, two), observers=[seen.append]
    ) as coordinator:
        await coordinator.fan_out("hi")
        await coordinator.delegate("first", "hi")

    ended = of(seen, observe.OperationFinished)
    named = sorted((each.operation, each.agent) for each in ended)
    assert named == [("delegate", "first"), ("fan_out", "first"), ("fan_out", "second")]
    assert {each.agent for each in seen} == {"first", "second"}
    for name in agents:
        check_tree([each for each in seen if each.agent == name])


async def test_the_cancellation_of_an_abandoned_task_is_below_the_operation_that_left_it():
    agent, seen = FakeAgent(works_forever()), []
    async with (
        connect(agent.url, engine=FakeNetwork(agent), observers=[seen.append]) as client,
        client.stream_message("hi", cancel_on_abandon=True) as events,
    ):
        await anext(events)

    left, cancelled = of(seen, observe.OperationFinished)
    assert (left.operation, left.outcome) == ("stream_message", "left")
    assert (cancelled.operation, cancelled.parent_id) == ("cancel_task", left.operation_id)
    check_tree(seen)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_the_extended_card_is_fetched_in_an_operation(is_refused):
    agent, seen = FakeAgent(card=_with_extended_card), []
    if is_refused:
        agent.inject(Respond(status=403), on="GetExtendedAgentCard")
    async with connect(agent.url, engine=FakeNetwork(agent), observers=[seen.append]) as client:
        error = await _error_of(client.get_extended_agent_card())

    (ended,) = of(seen, observe.OperationFinished)
    assert (ended.operation, ended.error) == ("get_extended_agent_card", error)
    assert error is None or error.operation_id == ended.operation_id
    check_tree(seen)


class LookFirst(BaseLayer):
    """A layer that makes a call of its own, without the progress of the call that it carries."""

    async def unary(self, call, /):
        if call.operation.name == "SendMessage":
            task = GetTaskRequest(id="task-1")
            look = Call(
                operation=OPERATIONS["GetTask"],
                params=task,
                request_id="look",
                deadline=call.deadline,
            )
            with contextlib.suppress(A2AError):
                await self._inner.unary(look)
        return await self._inner.unary(call)


@pytest.mark.parametrize("is_observed", [False, True])
async def test_a_layer_may_make_a_call_outside_of_operations(is_observed):
    agent, seen = FakeAgent("42"), []
    agent.inject(unavailable(), on="GetTask", times=2)
    observers = [seen.append] if is_observed else []
    async with connect(
        agent.url, engine=FakeNetwork(agent), observers=observers, call_layers=[LookFirst]
    ) as client:
        await client.send_message("hi")

    looks = of(seen, observe.RetryScheduled, request_id="look")
    assert [each.number for each in looks] == ([2, 3] if is_observed else [])
    check_tree([each for each in seen if each.operation_id != "look"])


@pytest.mark.parametrize("is_shared", [False, True])
async def test_each_request_to_a_replica_counts_its_own_attempts(is_shared):
    one = FakeAgent("1", url="http://one.test", id_suffix="-1")
    store = one.store if is_shared else None
    two = FakeAgent("2", url="http://two.test", id_suffix="-2", store=store)
    one.inject(Refuse(), times=6)
    seen = []
    async with connect(
        [one.url, two.url], engine=FakeNetwork(one, two), observers=[seen.append]
    ) as client:
        for _ in range(3):
            await _error_of(client.ask("hi", timeout=60))
        await _error_of(client.get_task("task-of-another-client", timeout=60))

    assert of(seen, observe.RequestStarted, method="GetTask")  # which searches for the task
    check_tree(seen)


async def test_the_warning_of_an_unknown_outcome_has_the_attempts_without_observers(caplog):
    agent = FakeAgent(lists_tasks=False)
    agent.inject(Reset(after_execution=True), on="SendStreamingMessage")
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        error = await _error_of(client.ask("hi"))

    (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.operation_id == error.operation_id
    assert warning.attempts == 3  # for the card, the message and its search
    assert "(attempts: 3)" in warning.getMessage()


@pytest.mark.parametrize("where", ["result", "text", "after"])
async def test_the_error_of_a_failed_task_names_its_operation_at_once(where):
    agent, seen = FakeAgent(fails("no")), []
    async with connect(agent.url, engine=FakeNetwork(agent), observers=[seen.append]) as client:
        async with client.stream_message("hi") as events:
            if where == "after":
                assert [event async for event in events]
            elif where == "result":
                error = await _error_of(events.result())
            else:
                with pytest.raises(TaskFailedError) as raised:
                    assert [text async for text in events.text_deltas()]
                error = raised.value
            named = None if where == "after" else error.operation_id
        if where == "after":
            named = (await _error_of(events.result())).operation_id

    (ended,) = of(seen, observe.OperationFinished)
    assert named == ended.operation_id


@pytest.mark.parametrize("refused", [1, 2])
async def test_the_error_of_a_poll_has_its_own_attempt_after_those_of_the_message(refused):
    agent = FakeAgent(works_forever(), streaming=False)
    agent.inject(rate_limited(retry_after=1), on="SendMessage", times=refused)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        call = asyncio.create_task(_error_of(client.ask("hi")))
        await asyncio.sleep(20)
        agent.inject(Respond(status=401), on="GetTask")
        error = await call

    assert isinstance(error, AuthenticationError)
    methods = [attempt.method for attempt in error.attempts]
    assert methods == ["SendMessage"] * (refused + 1) + ["GetTask"]
    assert [attempt.number for attempt in error.attempts] == list(range(1, refused + 3))
    assert 20 <= error.attempts[-1].started < 25
    assert "AuthenticationError" in error.attempts[-1].error


@pytest.mark.parametrize(
    ("seconds", "executed"), [(5, False), (15, None), (25, True)], ids=["card", "sent", "accepted"]
)
async def test_a_cancelled_operation_says_whether_the_agent_has_the_message(seconds, executed):
    agent, seen = FakeAgent(works_forever(), latency=10, streaming=False), []
    async with connect(agent.url, engine=FakeNetwork(agent), observers=[seen.append]) as client:
        call = asyncio.create_task(client.ask("hi"))
        await asyncio.sleep(seconds)
        call.cancel()
        await asyncio.wait({call})

    (ended,) = of(seen, observe.OperationFinished)
    assert (ended.outcome, ended.executed) == ("cancelled", executed)


async def test_the_agent_has_executed_a_message_whose_answer_a_consumer_refuses():
    def refuse(*_):
        raise ValueError("refused")

    agent, seen = FakeAgent("42"), []
    async with connect(
        agent.url, engine=FakeNetwork(agent), observers=[seen.append], consumers=[refuse]
    ) as client:
        for send in (client.send_message, client.ask):
            with pytest.raises(ValueError, match="refused"):
                await send("hi")

    ended = of(seen, observe.OperationFinished)
    assert [(each.outcome, each.executed) for each in ended] == [("failed", True)] * 2


async def test_a_cancelled_call_does_not_deny_what_an_earlier_call_has_sent(tmp_path):
    agent, seen = FakeAgent(works_forever()), []
    journals = [SqliteJournal(tmp_path / "calls.db") for _ in range(2)]
    first, second = (
        connect(agent.url, engine=FakeNetwork(agent), journal=journal, observers=[seen.append])
        for journal in journals
    )
    async with first, second:
        calls = [asyncio.create_task(client.ask("hi", key="k")) for client in (first, second)]
        await asyncio.sleep(5)  # the second one waits for the first one
        (pending,) = await second.pending()
        calls.append(asyncio.create_task(pending.resume()))
        await asyncio.sleep(0)
        for call in reversed(calls):
            call.cancel()
            await asyncio.wait({call})
    for journal in journals:
        await journal.close()

    ended = of(seen, observe.OperationFinished, attempts=0)
    assert {each.operation for each in ended} == {"ask", "resume"}
    assert [(each.outcome, each.executed) for each in ended] == [("cancelled", None)] * 2


async def test_the_fields_of_records_are_of_plain_types(caplog):
    caplog.set_level(logging.DEBUG, "holdfast")
    agent = FakeAgent(streams(*"abc", every=1))
    agent.inject(Cut(after_events=2))
    agent.inject(unavailable(retry_after=1), times=2)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.ask("hi")

    plain = set(vars(logging.makeLogRecord({}))) | {"message"}
    fields = [item for each in caplog.records for item in vars(each).items()]
    types = {name: type(value) for name, value in fields if name not in plain}
    assert types["http_status"] is int
    assert set(types.values()) <= {str, int, float, bool}


def _with_extended_card(card):
    offered = msgspec.structs.replace(card.capabilities, extended_agent_card=True)
    return msgspec.structs.replace(card, capabilities=offered)


async def _error_of(call):
    """Return the error of a call; None if it succeeds."""
    try:
        await call
    except A2AError as error:
        return error
    return None


async def test_what_a_journal_records_is_reported_before_the_end_of_the_operation(tmp_path):
    agent, seen = FakeAgent(completes("42", after=10)), []
    journal = SqliteJournal(tmp_path / "calls.db")
    async with connect(
        agent.url, engine=FakeNetwork(agent), journal=journal, observers=[seen.append]
    ) as client:
        with contextlib.suppress(A2AError):
            await client.ask("hi", timeout=5)
        async for _ in client.resume_pending(timeout=50):
            pass
    await journal.close()
    for ended in of(seen, observe.OperationFinished):
        after = seen[seen.index(ended) + 1 :]
        assert of(after, observe.Observation, operation_id=ended.operation_id) == []


class SamePage(Interceptor):
    async def after(self, call, outcome):
        if call.operation.name == "ListTasks" and isinstance(outcome, Reply):
            page = msgspec.structs.replace(outcome.value, next_page_token="same")
            return msgspec.structs.replace(outcome, value=page)
        return outcome


async def test_the_error_of_endless_pages_names_its_operation():
    agent, seen = FakeAgent("1"), []
    async with connect(
        agent.url, engine=FakeNetwork(agent), interceptors=[SamePage()], observers=[seen.append]
    ) as client:
        await client.send_message("hi")
        with pytest.raises(A2AError) as caught:
            assert [task async for task in client.iter_tasks()]
    assert caught.value.operation_id is not None
    assert {each.operation for each in seen} == {"send_message", "iter_tasks"}
    check_tree(seen)


@pytest.mark.parametrize(("reads", "outcome"), [(1, "left"), (9, "succeeded")])
async def test_an_iteration_over_tasks_is_one_operation(reads, outcome):
    agent, seen = FakeAgent("1"), []
    async with connect(agent.url, engine=FakeNetwork(agent), observers=[seen.append]) as client:
        for _ in range(3):
            await client.send_message("hi")
        seen.clear()
        count = 0
        async for _ in client.iter_tasks(limit=1):
            count += 1
            if count == reads:
                break
        gc.collect()
        await asyncio.sleep(1)
    check_tree(seen)
    (ended,) = of(seen, observe.OperationFinished)
    assert (ended.operation, ended.outcome, ended.error) == ("iter_tasks", outcome, None)
    assert ended.requests == min(reads, 3)


async def test_a_reconnect_that_waits_for_retry_after_says_so():
    agent, seen = FakeAgent(streams(*"abcdef", every=1)), []
    agent.inject(Cut(after_events=2))
    agent.inject(rate_limited(retry_after=9), on="SubscribeToTask")
    async with connect(agent.url, engine=FakeNetwork(agent), observers=[seen.append]) as client:
        await client.ask("hi")
    waits = [(each.reason, round(each.seconds or 0)) for each in of(seen, observe.WaitStarted)]
    assert ("retry_after", 9) in waits
    assert all(each.seconds != 0 for each in of(seen, observe.WaitStarted))


async def test_the_attempts_of_a_shared_card_fetch_start_within_the_operation():
    agent, seen = FakeAgent(), []
    agent.inject(unavailable(), on="GetAgentCard", times=9)
    async with connect(agent.url, engine=FakeNetwork(agent), observers=[seen.append]) as client:
        first = asyncio.create_task(client.ask("hi"))
        await asyncio.sleep(0.3)
        await asyncio.wait({first, asyncio.create_task(client.ask("hi"))})
        await asyncio.sleep(1)
    for ended in of(seen, observe.OperationFinished):
        assert all(each.started <= ended.duration for each in ended.error.attempts)


async def test_an_operation_that_joins_a_card_fetch_has_the_attempts_made_while_it_waited():
    agent, second_failed = FakeAgent(), asyncio.Event()
    agent.inject(unavailable(), on="GetAgentCard", times=9)

    def note(observation):
        if isinstance(observation, observe.RetryScheduled) and observation.number == 3:
            second_failed.set()

    async with connect(agent.url, engine=FakeNetwork(agent), observers=[note]) as client:
        first = asyncio.create_task(client.ask("hi"))
        await asyncio.wait_for(second_failed.wait(), 60)
        await asyncio.sleep(0.01)
        with pytest.raises(A2AError) as joined:
            await client.ask("hi")
        with pytest.raises(A2AError) as led:
            await first
    assert [each.number for each in led.value.attempts] == [1, 2, 3, 4]
    assert [each.number for each in joined.value.attempts] == [1, 2]
    starts = {
        round(a.started - b.started, 1)
        for a, b in zip(led.value.attempts[2:], joined.value.attempts, strict=True)
    }
    assert len(starts) == 1
    assert joined.value.attempts[0].started >= 0


async def test_a_probe_for_a_request_outside_of_a_client_is_of_its_operation():
    seen = []

    class Inner:
        async def unary(self, call, /):
            if call.operation.name == "ListTasks":
                params = GetTaskRequest(id="task-1")
                await make_beside(call, OPERATIONS["GetTask"], params, self.unary)
            return Reply(value=None)

    layer = ObservedLayer(Inner(), Observers([seen.append], "a"))
    await layer.unary(
        Call(
            operation=OPERATIONS["ListTasks"],
            params=None,
            request_id="1",
            deadline=NEVER,
        )
    )
    check_tree(seen)
    assert [each.method for each in of(seen, observe.RequestStarted)] == ["ListTasks", "GetTask"]
