"""Waiting for a task: how often it is looked at, what ends it, and what does not."""

import asyncio
import json

import pytest
from tests.kit.answering_network import Answering, rpc

from holdfast import (
    A2AConnectionError,
    A2AHTTPError,
    DeadlineExceededError,
    RateLimitedError,
    Resilience,
    Task,
    TaskFailedError,
    TaskNotFoundError,
    TaskState,
    connect,
)
from holdfast._client.task_waiter import TaskWaiter, polled_every
from holdfast.errors import (
    InvalidAgentResponseError,
    PermissionDeniedError,
    TaskAuthRequiredError,
    TaskCanceledError,
    TaskRejectedError,
)
from holdfast.policies import Deadline
from holdfast.testing import (
    Delay,
    FakeAgent,
    FakeNetwork,
    Garbage,
    Refuse,
    Respond,
    asks,
    completes,
    fails,
    needs_auth,
    rate_limited,
    rejects,
    works_forever,
)
from holdfast.types import TaskStatus

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])


def connected(agent, binding="JSONRPC", **options):
    return connect(agent.url, engine=FakeNetwork(agent), bindings=(binding,), **options)


def now():
    return asyncio.get_running_loop().time()


def task_in(state):
    return Task(id="t-1", status=TaskStatus(state=state))


WORKING, COMPLETED = task_in(TaskState.WORKING), task_in(TaskState.COMPLETED)


def is_over(task):
    return task.state.is_terminal


def within(seconds):
    return Deadline(name="wait", timeout=seconds, at=now() + seconds)


async def poll(look, task, *, until, deadline, interval):
    waiter = TaskWaiter("t-1", task, deadline=deadline, get=look, delay=polled_every(interval))
    return await waiter.wait(until, is_due=task is None)


class Looks:
    """Answers each look with the next of what it is given, the last one for ever."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.times = []

    async def __call__(self):
        self.times.append(now())
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


# ── The machine ──────────────────────────────────────────────────────────────────────────────


async def test_a_task_that_is_as_wanted_is_not_looked_at():
    look = Looks(WORKING)

    assert await poll(look, COMPLETED, until=is_over, deadline=within(9), interval=2) is COMPLETED
    assert look.times == []


async def test_a_task_not_yet_seen_is_looked_at_at_once():
    look = Looks(COMPLETED)

    assert await poll(look, None, until=is_over, deadline=within(9), interval=2) is COMPLETED
    assert look.times == [0]


async def test_the_first_looks_are_quicker_and_then_come_at_the_interval():
    look = Looks(*[WORKING] * 9, COMPLETED)

    await poll(look, WORKING, until=is_over, deadline=within(600), interval=16)

    assert look.times == [1, 3, 7, 15, 31, 47, 63, 79, 95, 111]


class Deliveries:
    """News of the task at some moments, for a waiter to pause for."""

    def __init__(self, *moments):
        self.moments = list(moments)

    async def pause(self, seconds):
        if not self.moments or self.moments[0][0] > now() + seconds:
            await asyncio.sleep(seconds)
            return None
        at, task = self.moments.pop(0)
        await asyncio.sleep(max(0.0, at - now()))
        return task


def waiter(look, deliveries, seconds=9):
    return TaskWaiter(
        "t-1",
        None,
        deadline=within(seconds),
        get=look,
        delay=lambda _left: 4.0,
        pause=deliveries.pause,
    )


@pytest.mark.parametrize("look", [None, Looks(WORKING)])
async def test_news_of_the_task_ends_the_wait_without_a_question(look):
    deliveries = Deliveries((1, WORKING), (3, COMPLETED))

    assert await waiter(look, deliveries).wait(is_over) is COMPLETED
    assert now() == 3


async def test_the_agent_is_asked_where_there_is_no_news_and_again_after_each_news():
    look = Looks(WORKING)
    with pytest.raises(DeadlineExceededError):
        await waiter(look, Deliveries((1, WORKING)), seconds=11).wait(is_over)

    assert look.times == [5, 9]


async def test_news_do_not_shorten_the_time_that_the_agent_asked_for():
    busy = RateLimitedError("later", retry_after=20.0, transient=True)
    look = Looks(busy, COMPLETED)

    await waiter(look, Deliveries((6, WORKING), (7, WORKING)), seconds=60).wait(is_over)

    assert look.times == [4, 24]


async def test_without_an_agent_to_ask_the_deadline_ends_it_with_the_task_as_delivered():
    with pytest.raises(DeadlineExceededError, match="task t-1 was last seen WORKING") as caught:
        await waiter(None, Deliveries((1, WORKING), (8, WORKING))).wait(is_over)

    assert (now(), caught.value.task) == (9, WORKING)


@pytest.mark.rule("P32", "D04")
async def test_the_deadline_ends_it_exactly_with_the_task_as_last_seen():
    with pytest.raises(DeadlineExceededError, match="task t-1 was last seen WORKING") as caught:
        await poll(Looks(WORKING), None, until=is_over, deadline=within(9.7), interval=2)

    assert now() == 9.7
    assert (caught.value.task, caught.value.executed) == (WORKING, True)


async def test_a_failure_that_may_pass_is_outlasted():
    refused = A2AConnectionError("gone", failure="refused", transient=True, executed=False)
    look = Looks(refused, refused, WORKING, refused, COMPLETED)

    assert await poll(look, None, until=is_over, deadline=within(60), interval=2) is COMPLETED


async def test_a_hint_is_a_lower_bound_of_the_next_look():
    busy = A2AHTTPError("busy", transient=True, retry_after=30)
    look = Looks(busy, COMPLETED)

    await poll(look, None, until=is_over, deadline=within(60), interval=2)

    assert look.times == [0, 30]


async def test_at_the_deadline_what_failed_since_then_is_named():
    refused = A2AConnectionError("the connection was refused", failure="refused", transient=True)
    look = Looks(WORKING, refused)

    with pytest.raises(DeadlineExceededError, match="timeout of 9 s; last error: ") as caught:
        await poll(look, None, until=is_over, deadline=within(9), interval=2)

    assert str(caught.value).endswith("last error: the connection was refused")


async def test_at_the_deadline_a_failure_that_has_passed_is_not_named():
    refused = A2AConnectionError("the connection was refused", failure="refused", transient=True)

    with pytest.raises(DeadlineExceededError, match=r"timeout of 9 s\Z"):
        await poll(Looks(refused, WORKING), None, until=is_over, deadline=within(9), interval=2)


async def test_a_hint_beyond_the_deadline_does_not_prolong_it():
    busy = A2AHTTPError("busy", transient=True, retry_after=30)

    with pytest.raises(DeadlineExceededError, match="task t-1 was never seen") as caught:
        await poll(Looks(busy), None, until=is_over, deadline=within(10), interval=2)

    assert now() == 10
    assert caught.value.__cause__ is busy
    assert (caught.value.task, caught.value.executed) == (None, None)


@pytest.mark.parametrize("seen", [None, WORKING])
async def test_a_failure_that_will_not_pass_ends_it(seen):
    denied = PermissionDeniedError("no", executed=False)

    with pytest.raises(PermissionDeniedError) as caught:
        await poll(Looks(denied), seen, until=is_over, deadline=within(60), interval=2)

    assert caught.value is denied
    # A look that was refused does not make what is known to have run undone.
    assert denied.executed is (seen is not None)
    assert ("task t-1 was last seen WORKING" in str(denied)) == (seen is not None)


async def test_a_deadline_that_is_over_looks_no_more():
    look = Looks(COMPLETED)
    deadline = within(1)
    await asyncio.sleep(2)

    with pytest.raises(DeadlineExceededError):
        await poll(look, None, until=is_over, deadline=deadline, interval=2)

    assert look.times == []


# ── Through the client ───────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
@pytest.mark.parametrize(
    ("plan", "state", "at"),
    [
        (completes("done", after=3, works=1), TaskState.COMPLETED, 3),
        (fails("no", after=100), TaskState.FAILED, 100),
        (rejects("never"), TaskState.REJECTED, 0),
        (asks("which?", after=5), TaskState.INPUT_REQUIRED, 5),
        (needs_auth("sign in", cleared_after=20), TaskState.COMPLETED, 20),
    ],
    ids=["completes", "fails", "rejects", "asks", "needs authorization"],
)
async def test_wait_returns_a_task_that_is_over_or_asks(binding, streaming, plan, state, at):
    client = connected(FakeAgent(lambda _turn: plan, streaming=streaming), binding)
    task = await client.send_message("hello", return_immediately=True)

    assert (await client.wait(task.id)).state is state
    assert at <= now() <= (at if streaming else at + 2)


@both_bindings
@both_ways
@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        (fails("no", after=4), TaskFailedError),
        (rejects("no", after=4), TaskRejectedError),
    ],
)
async def test_ask_raises_for_a_task_that_ends_badly(binding, streaming, plan, kind):
    agent = FakeAgent(lambda _turn: plan, streaming=streaming)

    with pytest.raises(kind, match=r"task task-1 ended in \w+: no"):
        await connected(agent, binding).ask("hello")


@both_bindings
@both_ways
async def test_ask_raises_for_a_task_that_another_client_cancels(binding, streaming):
    agent = FakeAgent(lambda _turn: works_forever(), streaming=streaming)
    client = connected(agent, binding)
    asking = asyncio.create_task(client.ask("hello"))
    await asyncio.sleep(10)

    await client.cancel_task("task-1")

    with pytest.raises(TaskCanceledError) as caught:
        await asking
    assert caught.value.task.state is TaskState.CANCELED


@both_bindings
@both_ways
@pytest.mark.parametrize("how", ["ask", "wait"])
async def test_an_authorization_that_never_comes_is_named(binding, streaming, how):
    behaviour = needs_auth("sign in at https://sso.test")
    agent = FakeAgent(behaviour, streaming=streaming)
    client = connected(agent, binding)
    if how == "ask":
        call = client.ask("hello", timeout=30)
    else:
        task = await client.send_message("hello", return_immediately=True)
        call = client.wait(task.id, timeout=30)
    name = {"ask": "call", "wait": "wait"}[how]

    with pytest.raises(TaskAuthRequiredError, match=f"the {name} timeout of 30 s") as caught:
        await call

    assert now() == 30
    assert "sign in at https://sso.test" in str(caught.value)
    assert caught.value.task.state is TaskState.AUTH_REQUIRED
    assert type(caught.value.__cause__) is DeadlineExceededError


@both_bindings
async def test_an_agent_that_restarts_is_asked_again(binding):
    agent = FakeAgent(lambda _turn: completes("done", after=60), streaming=False)
    client = connected(agent, binding)
    agent.inject(Refuse(), on="GetTask", times=14)

    assert (await client.ask("hello")).text == "done"
    assert len(agent.calls("SendMessage")) == 1


@both_bindings
async def test_rate_limited_agent_is_not_called_before_retry_after(binding):
    agent = FakeAgent(lambda _turn: completes("done", after=3), streaming=False)
    client = connected(agent, binding, resilience=Resilience.off())
    agent.inject(rate_limited(retry_after=40), on="GetTask")

    assert (await client.ask("hello")).text == "done"
    assert agent.calls("GetTask")[0].at >= 40


def busy_after(agent, seconds):
    """Has an agent ask for more patience than a retry has, from then on."""

    def begin():
        for name in ("SubscribeToTask", "GetTask"):
            agent.inject(rate_limited(retry_after=100), on=name)

    if seconds:
        asyncio.get_running_loop().call_later(seconds, begin)
    else:
        begin()


@both_bindings
@both_ways
@pytest.mark.parametrize("after", [0, 10], ids=["from the beginning", "when it was seen"])
async def test_a_wait_continues_however_long_the_agent_asks_to_wait(binding, streaming, after):
    agent = FakeAgent(lambda _turn: completes("done", after=30), streaming=streaming)
    client = connected(agent, binding)
    task = await client.send_message("hello", return_immediately=True)
    busy_after(agent, after)

    assert (await client.wait(task.id)).text == "done"


@both_bindings
@pytest.mark.parametrize("after", [0, 10], ids=["from the beginning", "when it was seen"])
async def test_a_wait_ends_with_its_time_where_the_agent_asks_for_more(binding, after):
    agent = FakeAgent(lambda _turn: completes("done", after=30), streaming=False)
    client = connected(agent, binding)
    task = await client.send_message("hello", return_immediately=True)
    busy_after(agent, after)

    with pytest.raises(DeadlineExceededError) as caught:
        await client.wait(task.id, timeout=50)

    assert (now(), caught.value.deadline, caught.value.task is None) == (50, "wait", not after)
    assert isinstance(caught.value.__cause__, RateLimitedError)


@both_bindings
@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Respond(status=403), PermissionDeniedError), (Garbage(), InvalidAgentResponseError)],
)
async def test_an_ask_whose_looks_fail_says_that_the_message_ran(binding, fault, kind):
    agent = FakeAgent(lambda _turn: completes("done", after=9), streaming=False)
    agent.inject(fault, on="GetTask")

    with pytest.raises(kind, match="task task-1 was last seen SUBMITTED") as caught:
        await connected(agent, binding).ask("hello")

    assert caught.value.executed is True


@both_bindings
async def test_wait_for_an_unknown_task_fails_at_once(binding):
    with pytest.raises(TaskNotFoundError) as caught:
        await connected(FakeAgent(), binding).wait("task-9")

    assert caught.value.task_id == "task-9"
    assert now() == 0


@both_bindings
@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (Refuse(), r"; last error: the connection was refused \(agent"),
        (Delay(seconds=100), r" \(agent"),
    ],
    ids=["gone", "silent"],
)
async def test_an_agent_that_is_gone_is_named_when_the_time_is_up(binding, fault, named):
    agent = FakeAgent(works_forever(), streaming=False)
    client = connected(agent, binding)
    await client.agent_card()
    agent.inject(fault, on="GetTask", times=100)

    seen = "task task-1 was last seen WORKING at the end of the call timeout of 4 s"
    with pytest.raises(DeadlineExceededError, match=seen + named):
        await client.ask("hello", timeout=4)


async def test_what_says_when_a_wait_is_over_is_a_function():
    agent = FakeAgent()

    with pytest.raises(TypeError, match="until must be a function, not str"):
        await connected(agent).wait("task-1", until="x")

    assert agent.received == []


@both_bindings
@both_ways
async def test_wait_ends_where_the_caller_says(binding, streaming):
    agent = FakeAgent(lambda _turn: completes("done", after=90, works=30), streaming=streaming)
    client = connected(agent, binding)
    task = await client.send_message("hello", return_immediately=True)

    found = await client.wait(task.id, until=lambda task: task.state is TaskState.WORKING)

    assert found.state is TaskState.WORKING
    assert 30 <= now() <= 32


@pytest.mark.parametrize(
    ("plan", "streaming", "operations"),
    [
        (completes("done"), True, ["GetTask"]),
        (completes("done", after=20), True, ["GetTask", "SubscribeToTask"]),
        (completes("done", after=20), False, ["GetTask"]),
        (needs_auth("sign in", cleared_after=20), True, ["GetTask", "SubscribeToTask"]),
    ],
    ids=["over", "streams", "polls", "needs authorization"],
)
async def test_wait_fetches_the_task_then_follows_its_events(plan, streaming, operations):
    agent = FakeAgent(lambda _turn: plan, streaming=streaming)
    client = connected(agent)
    task = await client.send_message("hello", return_immediately=True)
    await asyncio.sleep(1)
    agent.received.clear()

    assert (await client.wait(task.id)).state is TaskState.COMPLETED
    made = [request.operation for request in agent.received]
    assert list(dict.fromkeys(made)) == operations


async def test_wait_polls_a_task_whose_stream_has_ended():
    agent = FakeAgent(lambda _turn: completes("done", after=20))
    client = connected(agent)
    task = await client.send_message("hello", return_immediately=True)

    with pytest.raises(DeadlineExceededError):
        await client.wait(task.id, until=lambda _task: False, timeout=40)
    made = [request.operation for request in agent.received]
    polls = made[made.index("SubscribeToTask") + 1 :]
    assert set(polls) == {"GetTask"}
    assert len(polls) >= 10
    assert len(agent.calls("SubscribeToTask")) == 1


async def test_the_interval_is_the_callers():
    agent = FakeAgent(lambda _turn: completes("done", after=1000), streaming=False)

    await connected(agent, timeout=2000).ask("hello", poll_interval=100)

    assert len(agent.calls("GetTask")) <= 4 + 10


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), True])
@pytest.mark.parametrize("how", ["ask", "wait", "cancel_task"])
async def test_an_interval_that_cannot_be_is_refused(how, interval):
    agent = FakeAgent()
    kind = TypeError if interval is True else ValueError

    with pytest.raises(kind, match="poll_interval must be a"):
        await getattr(connected(agent), how)("x", poll_interval=interval)

    assert agent.received == []


@pytest.mark.rule("D07")
@both_bindings
@both_ways
async def test_a_wait_that_is_cancelled_leaves_the_task_alone(binding, streaming):
    agent = FakeAgent(lambda _turn: works_forever(), streaming=streaming)
    client = connected(agent, binding)
    task = await client.send_message("hello", return_immediately=True)
    waiting = asyncio.create_task(client.wait(task.id))
    await asyncio.sleep(5)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert agent.open_streams == 0
    assert agent.calls("CancelTask") == []
    assert agent.tasks[task.id].state is TaskState.WORKING


# ── Artifacts that share an id ───────────────────────────────────────────────────────────────────


def alike(state):
    """A task with two artifacts of an agent that gives them no ids."""
    artifacts = [{"parts": [{"text": text}]} for text in ("one", "two")]
    return {"id": "t", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}


def answering_alike(*states):
    left = list(states)

    def answer(request):
        is_sent = json.loads(request.body)["method"] == "SendMessage"
        task = alike(left.pop(0))
        return rpc(request, result={"task": task} if is_sent else task)

    return connect("http://agent.test", engine=Answering(answer, FakeAgent(streaming=False)))


async def test_the_text_of_artifacts_that_share_an_id_ends():
    client = answering_alike("TASK_STATE_COMPLETED")

    async with client.stream_message("hi") as events:
        text = "".join([delta async for delta in events.text_deltas()])
        answer = await events.result()

    assert text == answer.text == "one\ntwo"


async def test_artifacts_that_share_an_id_are_all_delivered_while_the_task_works():
    working = "TASK_STATE_WORKING"
    client = answering_alike(working, working, working, "TASK_STATE_COMPLETED")

    async with client.stream_message("hi") as events:
        assert [events.task.text async for _ in events] == ["one\ntwo"] * 2
