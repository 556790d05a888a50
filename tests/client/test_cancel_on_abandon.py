"""Abandoned calls: the agent's task is canceled, whenever the caller stops waiting for it."""

import asyncio
import gc
import logging
import re

import pytest

from holdfast import (
    A2AConnectionError,
    A2AError,
    Coordinator,
    DeadlineExceededError,
    OutcomeUnknownError,
    Resilience,
    SqliteJournal,
    TaskState,
    connect,
)
from holdfast.auth import Credentials
from holdfast.errors import ReconnectError, TaskAuthRequiredError
from holdfast.extend import BaseLayer
from holdfast.policies import ReconnectPolicy
from holdfast.testing import (
    Cut,
    Delay,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Stall,
    asks,
    bad_gateway,
    completes,
    needs_auth,
    rate_limited,
    streams,
    works_forever,
)

pytestmark = pytest.mark.filterwarnings("error")

SEND = "SendStreamingMessage"
HANGS = Stall(after_execution=True)  # the agent works, and never replies


class Connected:
    """A client of a fake agent; at the end nothing may be left open."""

    def __init__(self, agent, **options):
        self.agent = agent
        self.network = FakeNetwork(agent)
        self.client = connect(agent.url, engine=self.network, **options)

    async def __aenter__(self):
        await self.client.agent_card()
        return self.client

    async def __aexit__(self, *_):
        await self.client.close()
        assert (self.network.in_flight, self.agent.open_streams) == (0, 0)
        assert len(asyncio.all_tasks()) == 1  # no orphan


def now():
    return asyncio.get_running_loop().time()


def warnings_of(caplog):
    """Return the warnings about abandoned calls."""
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    return [text for record in records if "abandoned" in (text := record.getMessage())]


def states(agent):
    return [task.state for task in agent.tasks.values()]


async def cancelled_after(seconds, calling, *, times=1):
    """Cancel a call, and return how long it took to end."""
    call = asyncio.ensure_future(calling)
    await asyncio.sleep(seconds)
    began = now()
    for _ in range(times):
        call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    return now() - began


# ── The caller stops waiting ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["break", "raise", "close", "not read", "text", "read elsewhere"])
async def test_a_stream_left_early_cancels_the_task_in_the_background(how):
    agent = FakeAgent(streams("a", "b", every=10, then=works_forever()))
    async with Connected(agent) as client:
        try:
            async with client.stream_message("hello", cancel_on_abandon=True) as events:
                if how == "text":
                    await anext(events.text_deltas())
                elif how == "read elsewhere":
                    reading = asyncio.ensure_future(events.result())
                    await asyncio.sleep(5)
                elif how != "not read":
                    await anext(events)
                if how == "raise":
                    1 / 0  # noqa: B018
                if how == "close":
                    await events.close()
        except ZeroDivisionError:
            assert how == "raise"
        assert agent.calls("CancelTask") == []  # leaving does not wait
        left_at = now()
        if how == "read elsewhere":
            with pytest.raises(RuntimeError, match="closed"):
                await reading

    assert states(agent) == [TaskState.CANCELED]
    assert now() == pytest.approx(left_at, abs=0.1)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_cancelled_call_cancels_the_task(streaming, times):
    agent = FakeAgent(works_forever(), streaming=streaming)
    async with Connected(agent) as client:
        asking = client.ask("hello", cancel_on_abandon=True)
        assert await cancelled_after(5, asking, times=times) == 0

    assert states(agent) == [TaskState.CANCELED]
    assert len(agent.calls("CancelTask")) == 1


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "fault",
    [Delay(seconds=5), HANGS, Stall(phase="idle"), Cut()],
    ids=["late reply", "no reply", "no event", "cut"],
)
async def test_a_task_of_an_unknown_id_is_canceled(fault, times):
    agent = FakeAgent(works_forever())
    agent.inject(fault, on=SEND)
    async with Connected(agent) as client:
        asking = client.ask("hello", cancel_on_abandon=True)
        assert await cancelled_after(0.001, asking, times=times) == 0

    assert states(agent) == [TaskState.CANCELED]
    assert len(agent.calls(SEND)) == 1
    assert now() < 21


@pytest.mark.parametrize("fault", [None, HANGS, Stall(phase="idle")])
async def test_a_timeout_cancels_the_task(fault):
    agent = FakeAgent(works_forever())
    if fault is not None:
        agent.inject(fault, on=SEND)
    async with Connected(agent) as client:
        with pytest.raises((DeadlineExceededError, OutcomeUnknownError)):
            await client.ask("hello", timeout=5, cancel_on_abandon=True)
        assert now() == pytest.approx(5)

    assert states(agent) == [TaskState.CANCELED]
    assert now() < 16


async def test_a_timeout_of_a_task_that_waits_for_an_authorization_cancels_it():
    agent = FakeAgent(needs_auth("log in"))
    async with Connected(agent) as client:
        with pytest.raises(TaskAuthRequiredError):
            await client.ask("hello", timeout=5, cancel_on_abandon=True)

    assert states(agent) == [TaskState.CANCELED]


async def test_a_failing_consumer_cancels_the_task():
    async def consume(event, task, card):
        raise ZeroDivisionError

    agent = FakeAgent(works_forever())
    async with Connected(agent, consumers=[consume]) as client:
        with pytest.raises(ZeroDivisionError):
            await client.ask("hello", cancel_on_abandon=True)

    assert states(agent) == [TaskState.CANCELED]


async def test_an_abandoned_reply_cancels_the_task_that_it_continues():
    agent = FakeAgent(lambda turn: works_forever() if turn.task else asks("when?"))
    async with Connected(agent) as client:
        answer = await client.ask("hello")
        agent.inject(HANGS, on=SEND)
        asking = client.ask("Friday", task_id=answer.task.id, cancel_on_abandon=True)
        await cancelled_after(1, asking)
        left_at = now()

    assert states(agent) == [TaskState.CANCELED]
    assert now() == pytest.approx(left_at + 10, abs=0.1)  # its id is known: there is no search


async def test_an_abandoned_turn_lets_the_conversation_continue():
    agent = FakeAgent(
        lambda turn: completes("hi") if turn.message.text == "hi" else works_forever()
    )
    async with Connected(agent) as client:
        conversation = client.conversation()
        await cancelled_after(1, conversation.ask("hello", cancel_on_abandon=True))
        await asyncio.sleep(1)
        answer = await conversation.ask("hi", cancel_on_abandon=True)

    assert states(agent) == [TaskState.CANCELED, TaskState.COMPLETED]
    assert answer.context_id == next(iter(agent.tasks.values())).context_id


# ── The task is not canceled ─────────────────────────────────────────────────────────────────


async def test_without_the_option_the_agent_continues():
    agent = FakeAgent(works_forever())
    async with Connected(agent) as client:
        await cancelled_after(5, client.ask("hello"))
        async with client.stream_message("hello"):
            pass

    assert states(agent) == [TaskState.WORKING] * 2
    assert agent.calls("CancelTask") == []


@pytest.mark.parametrize("plan", [completes("done"), asks("when?"), "a message"])
async def test_a_call_with_an_answer_is_not_abandoned(plan):
    agent = FakeAgent(plan)
    async with Connected(agent) as client:
        answer = await client.ask("hello", cancel_on_abandon=True)
        async with client.stream_message("hello", cancel_on_abandon=True) as events:
            async for _ in events:
                pass

    assert answer is not None
    assert agent.calls("CancelTask") == []


async def test_an_error_that_ends_the_stream_cancels_nothing():
    agent = FakeAgent(works_forever())
    agent.inject(Cut(after_events=1), on=SEND)
    for operation in ("SubscribeToTask", "GetTask"):
        agent.inject(Refuse(), on=operation, times=1000)
    policy = Resilience(reconnect=ReconnectPolicy(max_reconnects=1))
    async with Connected(agent, resilience=policy) as client:
        with pytest.raises(ReconnectError):
            async with client.stream_message("hello", cancel_on_abandon=True) as events:
                await events.result()

    assert agent.calls("CancelTask") == []


@pytest.mark.parametrize("times", [1, 2])
async def test_a_message_that_was_not_sent_is_not_sent_after_the_cancellation(times):
    agent = FakeAgent(works_forever())
    agent.inject(rate_limited(retry_after=30), on=SEND)
    async with Connected(agent) as client:
        asking = client.ask("hello", cancel_on_abandon=True)
        assert await cancelled_after(5, asking, times=times) == 0

    assert (agent.calls(SEND), agent.calls("CancelTask")) == ([], [])
    assert now() == pytest.approx(5)


class LateFailures(BaseLayer):
    """A layer whose failures arrive after 2 s."""

    async def handle(self, call, call_next, /):
        try:
            return await call_next(call)
        except A2AError:
            await asyncio.sleep(2)
            raise


@pytest.mark.parametrize(
    ("reply", "on_unknown", "executions"),
    [
        (rate_limited(retry_after=1), "reconcile", 0),
        (bad_gateway(after_execution=True), "resend", 1),
    ],
    ids=["refused", "lost"],
)
async def test_an_abandoned_message_is_not_sent_again(reply, on_unknown, executions):
    agent = FakeAgent(works_forever(), records_messages=False)
    agent.inject(reply, on=SEND)
    options = {"on_unknown": on_unknown, "attempt_layers": [LateFailures]}
    async with Connected(agent, **options) as client:
        await cancelled_after(1, client.ask("hello", cancel_on_abandon=True))

    assert sum(map(len, agent.executions.values())) == executions


# ── The agent does not cancel it ─────────────────────────────────────────────────────────────


async def test_an_agent_that_never_answers_the_cancel_delays_close_by_10_s(caplog):
    agent = FakeAgent(works_forever())
    agent.inject(Stall(), on="CancelTask", times=100)
    async with Connected(agent) as client:
        await cancelled_after(5, client.ask("hello", cancel_on_abandon=True))
        assert now() == 5

    assert now() == pytest.approx(15)
    (warning,) = warnings_of(caplog)
    assert re.search(
        "task task-1 of an abandoned call was not canceled: CancelTask did not", warning
    )


async def test_a_task_that_cannot_be_found_is_not_canceled(caplog):
    agent = FakeAgent(works_forever(), lists_tasks=False)
    agent.inject(HANGS, on=SEND)
    async with Connected(agent) as client:
        await cancelled_after(5, client.ask("hello", cancel_on_abandon=True))

    assert states(agent) == [TaskState.WORKING]
    assert now() <= 25
    (warning,) = warnings_of(caplog)
    said = "the task of an abandoned call was not canceled: message .* was sent"
    assert re.search(said, warning)


async def test_a_task_that_ends_meanwhile_is_no_failure(caplog):
    agent = FakeAgent(completes("done", after=5))
    agent.inject(Delay(seconds=2, after_execution=False), on="CancelTask")
    async with Connected(agent) as client:
        await cancelled_after(4, client.ask("hello", cancel_on_abandon=True))

    assert states(agent) == [TaskState.COMPLETED]
    assert warnings_of(caplog) == []


async def test_a_cancelled_close_ends_the_requests_in_the_background():
    agent = FakeAgent(works_forever())
    agent.inject(Stall(), on="CancelTask", times=100)
    client = connect(agent.url, engine=FakeNetwork(agent))
    await cancelled_after(5, client.ask("hello", cancel_on_abandon=True))
    await cancelled_after(1, client.close())

    assert len(asyncio.all_tasks()) == 1
    assert now() == pytest.approx(6)
    with pytest.raises(RuntimeError, match="closed"):
        await client.ask("hello")


async def test_closing_the_client_under_a_call_cancels_nothing():
    agent = FakeAgent(works_forever())
    async with Connected(agent) as client:
        asking = asyncio.ensure_future(client.ask("hello", cancel_on_abandon=True))
        await asyncio.sleep(1)

    with pytest.raises(A2AConnectionError):
        await asking
    assert states(agent) == [TaskState.WORKING]


# ── With a journal, and in a coordinator ─────────────────────────────────────────────────────


@pytest.mark.parametrize("is_canceled", [True, False])
async def test_a_canceled_task_ends_the_call_in_the_journal(tmp_path, is_canceled):
    agent = FakeAgent(works_forever(), cancel_takes=0 if is_canceled else None, latency=1)
    async with Connected(agent, journal=tmp_path / "calls.db") as client:
        await cancelled_after(5, client.ask("hello", cancel_on_abandon=True))
        (pending,) = await client.pending()
        assert pending.is_held  # until the agent has answered
        await asyncio.sleep(5)
        assert [call.is_held for call in await client.pending()] == [False] * (not is_canceled)


async def test_a_delegated_call_cancels_its_task_and_leaves_its_slot_at_once():
    agent = FakeAgent(works_forever())
    agent.inject(HANGS, on=SEND)
    async with Coordinator({"a": agent.url}, engine=FakeNetwork(agent), concurrency=1) as agents:
        await agents.client("a").agent_card()
        await cancelled_after(1, agents.delegate("a", "hello", cancel_on_abandon=True))
        result = await agents.delegate("a", "hello", timeout=5, cancel_on_abandon=True)
        assert isinstance(result.error, DeadlineExceededError)

    assert states(agent) == [TaskState.CANCELED] * 2


@pytest.mark.parametrize("steps", range(5))
async def test_a_call_cancelled_while_the_client_closes_leaves_no_task(steps):
    agent, problems = FakeAgent(works_forever()), []
    agent.inject(HANGS, on=SEND)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context["message"]))
    async with Connected(agent) as client:
        asking = asyncio.ensure_future(client.ask("hello", cancel_on_abandon=True))
        await asyncio.sleep(1)
        closing = asyncio.ensure_future(client.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        names = [task.get_name() for task in asyncio.all_tasks()]
        await closing
    assert asking.cancelled()
    del asking
    gc.collect()

    assert problems == []
    assert "holdfast: begins" not in names


async def test_an_abandoned_message_whose_context_is_refused_is_not_sent_again():
    agent = FakeAgent(works_forever(), contexts="refused", latency=1)
    async with Connected(agent, context_ids="client") as client:
        await cancelled_after(0.5, client.ask("hello", cancel_on_abandon=True))
        await asyncio.sleep(25)

    assert len(agent.calls(SEND)) == 1
    assert states(agent) == []


async def test_a_layer_that_fails_the_cancel_request_is_reported_as_a_warning(caplog):
    class Failing(BaseLayer):
        async def handle(self, call, call_next, /):
            if call.operation.name == "CancelTask":
                raise ZeroDivisionError
            return await call_next(call)

    agent, problems = FakeAgent(works_forever()), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context["message"]))
    async with Connected(agent, call_layers=[Failing]) as client:
        await cancelled_after(1, client.ask("hello", cancel_on_abandon=True))
    gc.collect()

    assert problems == []
    assert len(warnings_of(caplog)) == 1


class Renewing:
    """Credentials that a refusal renews."""

    token = "old"

    async def credentials(self, call, /):
        return Credentials(headers={"authorization": f"Bearer {self.token}"})

    async def on_unauthorized(self, call, error, /):
        self.token = "new"
        return True


async def test_an_abandoned_message_is_not_sent_again_with_new_credentials():
    agent = FakeAgent(works_forever(), token="new", latency=1)
    async with Connected(agent, auth=Renewing()) as client:
        asking = client.ask("hello", cancel_on_abandon=True)
        await cancelled_after(0.5, asking)
        await asyncio.sleep(25)

    assert states(agent) == []


@pytest.mark.parametrize("plan", ["a message", completes("done")], ids=["message", "task"])
async def test_an_answer_after_the_abandonment_ends_the_call_in_the_journal(tmp_path, plan):
    agent = FakeAgent(plan)
    agent.inject(Delay(seconds=5), on=SEND)
    async with Connected(agent, journal=tmp_path / "calls.db") as client:
        await cancelled_after(1, client.ask("hello", cancel_on_abandon=True))
        await asyncio.sleep(25)
        assert await client.pending() == []


@pytest.mark.parametrize("fault", [None, HANGS, Stall(phase="idle")], ids=str)
@pytest.mark.parametrize("is_late", [True, False])
async def test_a_canceled_task_of_a_lost_or_late_reply_ends_the_call_in_the_journal(
    tmp_path, fault, is_late
):
    agent = FakeAgent(works_forever())
    if fault is not None:
        agent.inject(fault, on=SEND)
    async with Connected(agent, journal=tmp_path / "calls.db") as client:
        if is_late:
            with pytest.raises((DeadlineExceededError, OutcomeUnknownError)):
                await client.ask("hello", timeout=5, cancel_on_abandon=True)
        else:
            await cancelled_after(1, client.ask("hello", cancel_on_abandon=True))
        await asyncio.sleep(25)
        assert states(agent) == [TaskState.CANCELED]
        assert await client.pending() == []


async def test_a_canceled_reply_ends_its_call_in_the_journal(tmp_path):
    agent = FakeAgent(lambda turn: works_forever() if turn.task else asks("when?"))
    async with Connected(agent, journal=tmp_path / "calls.db") as client:
        answer = await client.ask("hello")
        agent.inject(HANGS, on=SEND)
        asking = client.ask("Friday", task_id=answer.task.id, cancel_on_abandon=True)
        await cancelled_after(1, asking)
        await asyncio.sleep(25)
        assert states(agent) == [TaskState.CANCELED]
        assert await client.pending() == []


async def test_an_abandoned_call_is_held_until_its_task_is_canceled(tmp_path):
    agent = FakeAgent(works_forever(), latency=2)
    agent.inject(HANGS, on=SEND)
    async with Connected(agent, journal=tmp_path / "calls.db") as client:
        await cancelled_after(5, client.ask("hello", cancel_on_abandon=True))
        await asyncio.sleep(12)  # the search is in flight
        assert agent.calls("CancelTask") == []
        assert [call.is_held for call in await client.pending()] == [True]


class Overtaken(SqliteJournal):
    """A journal in which another process has taken over each call when its lease is renewed."""

    async def renew(self, leases, /):
        return set()


async def test_a_call_that_another_process_took_over_is_not_canceled(tmp_path):
    agent = FakeAgent(works_forever())
    journal = Overtaken(tmp_path / "calls.db", lease=30.0)
    async with Connected(agent, journal=journal) as client:
        async with client.stream_message("hello", cancel_on_abandon=True) as events:
            await anext(events)
            await asyncio.sleep(20)  # busy; another process takes the call over meanwhile
        await asyncio.sleep(25)
    await journal.close()

    assert states(agent) == [TaskState.WORKING]
    assert agent.calls("CancelTask") == []


async def test_a_reply_that_the_agent_refuses_does_not_cancel_the_task_of_another_caller():
    agent = FakeAgent(works_forever(), latency=1)
    async with Connected(agent) as client, client.stream_message("hello") as events:
        task = await anext(events)
        wrong = {"task_id": task.id, "context_id": "another"}
        with pytest.raises(A2AError, match="does not match"):
            await client.ask("more", **wrong)
        await cancelled_after(1.5, client.ask("more", cancel_on_abandon=True, **wrong))
        await asyncio.sleep(10)

    assert agent.calls("CancelTask") == []
    assert states(agent) == [TaskState.WORKING]


async def test_a_client_that_waits_for_abandoned_calls_takes_no_more_calls():
    agent = FakeAgent(works_forever())
    agent.inject(Stall(), on="CancelTask", times=100)
    async with Connected(agent) as client:
        await cancelled_after(5, client.ask("hello", cancel_on_abandon=True))
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(1)
        with pytest.raises(RuntimeError, match="closed"):
            await client.ask("again", timeout=3)
        with pytest.raises(RuntimeError, match="closed"):
            await client.list_tasks()
        await closing

    assert len(agent.calls(SEND)) == 1


@pytest.mark.parametrize("how", ["within", "closed"])
async def test_a_fan_out_that_cancels_its_tasks_leaves_no_call_pending(tmp_path, how):
    fast = FakeAgent("a message", url="http://fast.test")
    slow = FakeAgent(works_forever(), url="http://slow.test")
    slow.inject(Delay(seconds=8), on=SEND)
    agents = {"fast": fast.url, "slow": slow.url}
    options = {"engine": FakeNetwork(fast, slow), "journal": tmp_path / "calls.db"}
    async with Coordinator(agents, **options) as coordinator:
        asked = coordinator.fan_out("hello", within=5, cancel_on_abandon=True)
        if how == "within":
            await asked
        else:
            async with asked:
                async for _ in asked:
                    break
        assert [call.is_held for call in await coordinator.client("slow").pending()] == [True]
        await asyncio.sleep(25)
        assert states(slow) == [TaskState.CANCELED]
        assert await coordinator.client("slow").pending() == []
