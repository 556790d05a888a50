"""The layers of a call: deadline, retries, budget, interceptors, observers, consumers, secrets."""

import asyncio
import functools
import json
import logging
import math
import pickle
import traceback
import warnings

import msgspec
import pytest
from tests.kit.virtual_env import Dice, now

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AuthenticationError,
    BudgetPolicy,
    CircuitOpenError,
    DeadlineExceededError,
    Message,
    OutcomeUnknownError,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
    Timeouts,
    connect,
    text_part,
)
from holdfast import protocol as op
from holdfast.auth import Credentials
from holdfast.errors import InternalError, PermissionDeniedError
from holdfast.extend import BaseLayer, Endpoints, Interceptor, Reply
from holdfast.observe import (
    AttemptFinished,
    AttemptStarted,
    OperationFinished,
    OperationStarted,
    RequestFinished,
    RequestStarted,
    RetryScheduled,
    WaitFinished,
    WaitStarted,
)
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    completes,
    rate_limited,
    unavailable,
    works_forever,
)
from holdfast.types import (
    GetTaskRequest,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatus,
    TaskStatusUpdateEvent,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
CANARY = "canary-5f2b9c1d7e8a4f60"


class Recorded(FakeNetwork):
    """Keeps every request and when it came, those that no agent sees included."""

    def __init__(self, *agents):
        super().__init__(*agents)
        self.requests = []
        self.times = []

    def stream(self, request):  # which every request goes through
        self.requests.append(request)
        self.times.append(now())
        return super().stream(request)

    def calls(self):
        return [request for request in self.requests if "/.well-known/" not in request.url]


def connected(agent, binding="JSONRPC", *, network=None, **options):
    options.setdefault("on_unknown", "raise")  # what is known then; see test_lost_replies
    options.setdefault("env", Dice())
    return connect(agent.url, engine=network or FakeNetwork(agent), bindings=(binding,), **options)


async def with_a_task(agent, binding="JSONRPC", **options):
    client = connected(agent, binding, **options)
    await client.send_message("first", return_immediately=True)
    return client


# ── Deadline ─────────────────────────────────────────────────────────────────────────────────

STALLED = {
    "GetTask": ("call", lambda client, t: client.get_task("task-1", timeout=t)),
    "ListTasks": ("call", lambda client, t: client.list_tasks(timeout=t)),
    "CancelTask": ("cancel", lambda client, t: client.cancel_task("task-1", timeout=t)),
    "DeleteTaskPushNotificationConfig": (
        "call",
        lambda client, t: client.delete_task_push_notification_config("task-1", "p", timeout=t),
    ),
    "GetExtendedAgentCard": ("call", lambda client, t: client.get_extended_agent_card(timeout=t)),
}


@pytest.mark.rule("P32", "D04")
@both_bindings
@pytest.mark.parametrize("operation", STALLED)
@pytest.mark.parametrize("timeout", [7, 0.1 + 0.2, 1 / 3, 250.5])
async def test_a_call_ends_at_its_deadline_exactly(binding, operation, timeout):
    agent = FakeAgent(lambda _turn: works_forever())
    client = await with_a_task(agent, binding)
    agent.inject(Stall(), on=operation, times=10)
    began = now()
    name, call = STALLED[operation]

    with pytest.raises(DeadlineExceededError, match=f"the {name} timeout of") as caught:
        await call(client, timeout)

    assert now() == began + timeout
    assert (caught.value.deadline, caught.value.timeout) == (name, timeout)
    assert caught.value.executed is None
    assert caught.value.attempts[-1].error is not None
    assert caught.value.request_id.startswith("id-")


@pytest.mark.rule("D04")
async def test_the_card_counts_against_the_deadline_and_nothing_was_executed():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetAgentCard", times=10)

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(agent, timeout=3).send_message("hello")

    assert (now(), caught.value.executed) == (3, False)


async def test_a_deadline_that_strikes_while_the_card_is_awaited_says_so_to_all_who_wait():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetAgentCard", times=10)
    client = connected(agent)
    calls = (client.send_message("hello", timeout=3), client.get_task("t", timeout=2))

    sent, read = await asyncio.gather(*calls, return_exceptions=True)

    awaited = "the agent's card had not arrived, and nothing else was sent"
    assert sent.message == f"SendMessage did not finish within the call timeout of 3 s; {awaited}"
    assert read.message == f"GetTask did not finish within the call timeout of 2 s; {awaited}"
    assert (sent.agent, sent.executed) == ("http://agent.test:80", False)


async def test_a_deadline_during_a_retry_names_the_error_before_it():
    agent = FakeAgent()
    agent.inject(unavailable(), on="GetTask")
    agent.inject(Stall(), on="GetTask")

    with pytest.raises(
        DeadlineExceededError, match="last error: A2AHTTPError: HTTP 503"
    ) as caught:
        await connected(agent).get_task("t", timeout=5)

    assert caught.value.attempts[0].error in caught.value.message


@both_bindings
async def test_a_deadline_that_strikes_after_the_card_has_come_does_not_blame_it(binding):
    agent = FakeAgent()
    agent.inject(Stall(), on="GetTask")

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(agent, binding).get_task("t", timeout=3)

    assert "card" not in caught.value.message


async def test_the_clients_timeout_is_the_calls_where_it_names_none():
    agent = FakeAgent(lambda _turn: works_forever())

    with pytest.raises(DeadlineExceededError, match="the call timeout of 11 s"):
        await connected(agent, timeout=11).ask("hello")

    assert now() == 11


@pytest.mark.rule("D04")
async def test_waiting_for_a_retry_never_begins_where_the_deadline_would_end_it():
    agent = FakeAgent()
    agent.inject(Refuse(), on="SendMessage", times=9)
    slow = Resilience(retry=RetryPolicy(base_delay=4, jitter=False))

    with pytest.raises(A2AConnectionError) as caught:
        await connected(agent, resilience=slow).send_message("hello", timeout=10)

    assert now() == 4  # 4 s, and then 8 s would be too much
    assert [attempt.wait for attempt in caught.value.attempts] == [4, None]


# ── Retries ──────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_every_attempt_is_recorded(binding):
    agent = FakeAgent()
    client = await with_a_task(agent, binding)
    agent.inject(Delay(seconds=2), on="GetTask")  # is none
    agent.inject(Reset(), on="GetTask", times=4)
    await client.get_task("task-1")
    began = now()

    with pytest.raises(A2AConnectionError, match="4 attempts") as caught:
        await client.get_task("task-1")

    attempts = caught.value.attempts
    assert [attempt.number for attempt in attempts] == [1, 2, 3, 4]
    assert [attempt.wait for attempt in attempts] == [0.5, 1, 2, None]
    assert [attempt.started for attempt in attempts] == [0, 0.5, 1.5, 3.5]
    assert {attempt.duration for attempt in attempts} == {0}
    assert all("A2AConnectionError: " in attempt.error for attempt in attempts)
    assert {attempt.agent for attempt in attempts} == {caught.value.agent}
    assert now() - began == 3.5


@pytest.mark.rule("D08")
@pytest.mark.parametrize(
    ("fault", "at_least", "at_most"),
    [
        (rate_limited(retry_after=0), 0, 1),
        (rate_limited(retry_after=7), 7, 8),
        (rate_limited(retry_after="Tue, 14 Nov 2023 22:13:50 GMT"), 30, 31),
        (unavailable(retry_after=60), 60, 61),
        (Respond(status=429, headers={"retry-after-ms": "2500"}), 2.5, 3.5),
        (Respond(status=429, headers={"retry-after": "soon"}), 0, 1),
    ],
    ids=["zero", "seconds", "date", "503", "milliseconds", "unreadable"],
)
@both_bindings
@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999])
async def test_retry_after_is_a_lower_bound(fault, at_least, at_most, binding, draw):
    agent = FakeAgent()
    network = Recorded(agent)
    agent.inject(fault, on="SendMessage")

    await connected(agent, binding, network=network, env=Dice(draw)).send_message("hello")

    first, second = network.times[1:]
    assert at_least <= second - first <= at_most


@both_bindings
async def test_a_hint_beyond_the_bound_ends_it_at_once(binding):
    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=61), on="SendMessage")

    with pytest.raises(RateLimitedError, match="retry after 61 s") as caught:
        await connected(agent, binding).send_message("hello")

    assert (now(), caught.value.retry_after) == (0, 61)


@pytest.mark.parametrize("is_async", [False, True])
async def test_on_retry_is_called_before_each_wait(is_async):
    told = []

    def note(number, error, wait):
        told.append((now(), number, type(error), wait))

    async def note_later(number, error, wait):
        await asyncio.sleep(0)
        note(number, error, wait)

    agent = FakeAgent()
    agent.inject(Refuse(), on="SendMessage", times=2)
    policy = RetryPolicy(on_retry=note_later if is_async else note)

    await connected(agent, resilience=Resilience(retry=policy)).send_message("hello")

    assert told == [(0, 1, A2AConnectionError, 0.5), (0.5, 2, A2AConnectionError, 1.0)]


async def test_an_exception_of_on_retry_ends_the_call():
    def stop(_number, _error, _wait):
        raise LookupError("enough")

    agent = FakeAgent()
    agent.inject(Refuse(), on="SendMessage")
    resilience = Resilience(retry=RetryPolicy(on_retry=stop))

    with pytest.raises(LookupError, match="enough"):
        await connected(agent, resilience=resilience).send_message("hello")

    assert agent.executions == {}


@pytest.mark.parametrize(
    ("fault", "answer", "attempts"),
    [
        (Refuse(), True, 2),
        (Refuse(), False, 1),
        (Reset(), True, 1),  # a predicate never widens what is sent again
        (Respond(status=403), True, 1),
    ],
)
async def test_a_predicate_may_only_say_no(fault, answer, attempts):
    agent = FakeAgent()
    network = Recorded(agent)
    agent.inject(fault, on="SendMessage")
    resilience = Resilience(retry=RetryPolicy(retry_predicate=lambda _error: answer))
    client = connected(agent, network=network, resilience=resilience)

    await asyncio.gather(client.send_message("hello"), return_exceptions=True)

    assert len(network.calls()) == attempts


async def test_without_resilience_each_call_is_one_request():
    agent = FakeAgent()
    network = Recorded(agent)
    agent.inject(Refuse(), on="SendMessage")

    with pytest.raises(A2AConnectionError):
        await connected(agent, network=network, resilience=Resilience.off()).send_message("hello")

    assert len(network.calls()) == 1


# ── Budget ───────────────────────────────────────────────────────────────────────────────────


BUDGET_ALONE = Resilience(breaker=None)


async def fails_with(client, attempts, *, spent):
    with pytest.raises(A2AConnectionError) as caught:
        await client.get_task("task-1")
    assert len(caught.value.attempts) == attempts
    assert ("retry budget is exhausted" in str(caught.value)) == spent


@pytest.mark.rule("D08")
@both_bindings
async def test_a_spent_budget_fails_fast_and_recovers(binding):
    agent = FakeAgent()
    client = await with_a_task(agent, binding, resilience=BUDGET_ALONE)
    agent.inject(Reset(), on="GetTask", times=7)

    await fails_with(client, 4, spent=False)
    await fails_with(client, 2, spent=True)
    before = now()
    await fails_with(client, 1, spent=True)
    assert now() == before

    await asyncio.sleep(100)
    agent.inject(Reset(), on="GetTask", times=2)
    assert (await client.get_task("task-1")).id == "task-1"


async def test_successes_refill_the_budget():
    agent = FakeAgent()
    budget = BudgetPolicy(tokens=4, success_gives=0.5, seconds_per_token=math.inf)
    client = await with_a_task(agent, resilience=Resilience(budget=budget, breaker=None))
    agent.inject(Reset(), on="GetTask", times=9)
    await fails_with(client, 2, spent=True)  # three of four tokens are more than half, two are not
    await fails_with(client, 1, spent=True)
    while agent.pending_faults:
        await fails_with(client, 1, spent=True)

    for _ in range(8):  # from nothing back to four tokens
        await client.get_task("task-1")
    agent.inject(Reset(), on="GetTask")
    assert (await client.get_task("task-1")).id == "task-1"  # with one retry


async def test_a_failure_that_would_not_be_retried_does_not_blame_the_budget():
    agent = FakeAgent()
    budget = BudgetPolicy(tokens=1)
    client = await with_a_task(agent, resilience=Resilience(budget=budget, breaker=None))
    agent.inject(Respond(status=403), on="GetTask", times=2)

    for _ in range(2):
        with pytest.raises(PermissionDeniedError) as caught:
            await client.get_task("task-1")
        assert "budget" not in str(caught.value)


async def test_clients_that_share_share_the_budget():
    agent = FakeAgent()
    shared = Endpoints()
    first = await with_a_task(agent, shared=shared, resilience=BUDGET_ALONE)
    second = connected(agent, shared=shared, resilience=BUDGET_ALONE)
    agent.inject(Reset(), on="GetTask", times=6)
    await fails_with(first, 4, spent=False)
    await fails_with(first, 2, spent=True)

    agent.inject(Reset(), on="GetTask")
    await fails_with(second, 1, spent=True)


async def test_clients_that_share_with_other_budgets_get_what_each_asked_for():
    agent = FakeAgent()
    shared = Endpoints()
    budget = BudgetPolicy(tokens=1, success_gives=0, seconds_per_token=math.inf)
    strict = Resilience(budget=budget, breaker=None)
    first = await with_a_task(agent, shared=shared, resilience=strict)
    second = connected(agent, shared=shared, resilience=BUDGET_ALONE)
    agent.inject(Reset(), on="GetTask")
    await fails_with(first, 1, spent=True)

    agent.inject(Reset(), on="GetTask", times=4)
    await fails_with(second, 4, spent=False)
    await second.get_task("task-1")
    agent.inject(Reset(), on="GetTask")
    await fails_with(first, 1, spent=True)


async def test_clients_that_do_not_share_have_budgets_of_their_own():
    agent = FakeAgent()
    first = await with_a_task(agent, resilience=BUDGET_ALONE)
    second = connected(agent, resilience=BUDGET_ALONE)
    agent.inject(Reset(), on="GetTask", times=6)
    await fails_with(first, 4, spent=False)
    await fails_with(first, 2, spent=True)

    agent.inject(Reset(), on="GetTask", times=4)
    await fails_with(second, 4, spent=False)


# ── Timeouts of an attempt ───────────────────────────────────────────────────────────────────


@both_bindings
async def test_attempt_that_hangs_is_abandoned_and_named(binding):
    agent = FakeAgent()
    resilience = Resilience(timeouts=Timeouts(first_byte=3), retry=RetryPolicy(max_retries=0))
    client = await with_a_task(agent, binding, resilience=resilience)
    agent.inject(Stall(), on="GetTask")

    with pytest.raises(A2ATimeoutError) as caught:
        await client.get_task("task-1")

    assert (now(), caught.value.phase, caught.value.timeout) == (3, "first_byte", 3)
    assert caught.value.transient is True


@both_bindings
async def test_an_attempt_that_hangs_leaves_time_for_another(binding):
    agent = FakeAgent()
    client = await with_a_task(
        agent, binding, resilience=Resilience(timeouts=Timeouts(first_byte=3))
    )
    agent.inject(Stall(), on="GetTask", times=2)

    assert (await client.get_task("task-1")).id == "task-1"
    assert now() == 3 + 0.5 + 3 + 1


# ── Interceptors ─────────────────────────────────────────────────────────────────────────────


class Noting(Interceptor):
    def __init__(self, name, notes):
        self.name = name
        self.notes = notes

    async def before(self, call):
        self.notes.append(f"{self.name} before")
        return call

    async def after(self, call, outcome):
        self.notes.append(f"{self.name} after {type(outcome).__name__}")
        return outcome


@both_bindings
async def test_interceptors_stand_around_the_call_once_and_in_order(binding):
    notes = []
    agent = FakeAgent()
    agent.inject(Refuse(), on="SendMessage", times=2)
    interceptors = [Noting("outer", notes), Noting("inner", notes)]

    await connected(agent, binding, interceptors=interceptors).send_message("hello")

    assert notes == ["outer before", "inner before", "inner after Reply", "outer after Reply"]


@both_bindings
async def test_interceptors_see_failures(binding):
    notes = []
    agent = FakeAgent()
    interceptors = [Noting("outer", notes), Noting("inner", notes)]
    client = connected(agent, binding, interceptors=interceptors)

    with pytest.raises(TaskNotFoundError):
        await client.get_task("task-9")

    assert notes[2:] == ["inner after TaskNotFoundError", "outer after TaskNotFoundError"]


@both_bindings
async def test_an_interceptor_changes_the_request(binding):
    class Adding(Interceptor):
        async def before(self, call):
            return msgspec.structs.replace(call, headers={**call.headers, "x-trace": "abc"})

    agent = FakeAgent()

    await connected(agent, binding, interceptors=[Adding()]).send_message("hello")

    assert agent.calls("SendMessage")[0].headers["x-trace"] == "abc"


async def test_early_answer_interrupts_no_caller_and_is_seen_by_later_ones():
    class Cache(Noting):
        async def before(self, call):
            await super().before(call)
            return Reply(value=Task(id="from memory"))

    notes = []
    agent = FakeAgent()
    network = Recorded(agent)
    interceptors = [Noting("outer", notes), Cache("cache", notes), Noting("inner", notes)]
    client = connected(agent, network=network, interceptors=interceptors)

    assert (await client.get_task("task-1")).id == "from memory"

    assert network.requests == []
    assert notes == ["outer before", "cache before", "cache after Reply", "outer after Reply"]


@pytest.mark.parametrize(
    ("streaming", "value", "error"),
    [
        (False, SendMessageResponse(task=Task(id="early")), None),
        (True, StreamResponse(task=Task(id="early")), None),
        (
            False,
            Task(id="early"),
            r"not Task; pass SendMessageResponse\(task=…\)",
        ),
        (
            True,
            Message(),
            r"Early\.before answered .* not Message; pass StreamResponse\(mess",
        ),
        (
            True,
            SendMessageResponse(task=Task(id="1")),
            "be StreamResponse, not SendMessageResponse$",
        ),
    ],
)
async def test_an_early_reply_has_the_type_of_the_operation(streaming, value, error):
    class Early(Interceptor):
        async def before(self, call):
            return Reply(value=value)

    client = connected(FakeAgent(), interceptors=[Early()], streaming=streaming)

    async def task_of_call():
        if not streaming:
            return await client.send_message("hello")
        async with client.stream_message("hello") as events:
            return await anext(aiter(events))

    if error is None:
        assert (await task_of_call()).id == "early"
    else:
        with pytest.raises(TypeError, match=error):
            await task_of_call()


async def test_an_interceptor_turns_a_failure_into_a_result_and_back():
    class Mending(Interceptor):
        async def after(self, call, outcome):
            if isinstance(outcome, TaskNotFoundError):
                return Reply(value=Task(id="made up"))
            return outcome

    class Breaking(Interceptor):
        async def after(self, call, outcome):
            return InternalError("on purpose", executed=True)

    agent = FakeAgent()
    notes = []
    assert (await connected(agent, interceptors=[Mending()]).get_task("t-9")).id == "made up"
    with pytest.raises(InternalError, match="on purpose"):
        await connected(agent, interceptors=[Breaking()]).get_task("t-9")
    with pytest.raises(InternalError, match="on purpose"):
        await connected(agent, interceptors=[Noting("outer", notes), Breaking()]).get_task("t-9")
    assert notes[-1] == "outer after InternalError"


async def test_an_error_raised_in_an_interceptor_is_seen_by_those_outside():
    class Raising(Interceptor):
        def __init__(self, where):
            self.where = where

        async def before(self, call):
            if self.where == "before":
                raise InternalError("raised before")
            return call

        async def after(self, call, outcome):
            if self.where == "after":
                raise InternalError("raised after")
            return outcome

    for where in ("before", "after"):
        notes = []
        interceptors = [Noting("outer", notes), Raising(where)]
        with pytest.raises(InternalError, match=f"raised {where}"):
            await connected(FakeAgent(), interceptors=interceptors).send_message("hello")
        assert notes == ["outer before", "outer after InternalError"]


@pytest.mark.rule("P32")
@pytest.mark.parametrize("timeout", [0.25, 5])
async def test_an_interceptor_that_hangs_before_is_ended_by_the_deadline(timeout):
    class Hanging(Interceptor):
        async def before(self, call):
            await asyncio.sleep(1000)
            return call

    agent = FakeAgent()
    network = Recorded(agent)

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(agent, network=network, interceptors=[Hanging()]).send_message(
            "hello", timeout=timeout
        )

    assert (now(), network.requests, caught.value.executed) == (timeout, [], False)


class Forgetful(Interceptor):
    """Forgets what to return."""

    def __init__(self, **returned):
        self.returned = returned

    async def before(self, call):
        return self.returned.get("before", call)

    async def after(self, call, outcome):
        return self.returned.get("after", outcome)


NEITHER_CALL_NOR_REPLY = "Forgetful.before must return the call to make or a Reply, not NoneType"
NEITHER_REPLY_NOR_ERROR = "Forgetful.after must return a Reply or an A2AError, not {}"


@both_ways
async def test_an_interceptor_that_returns_no_call_is_named_before_anything_is_sent(streaming):
    agent = FakeAgent(streaming=streaming)
    client = connected(agent, interceptors=[Forgetful(before=None)])

    with pytest.raises(TypeError) as caught:
        await client.ask("hello")

    assert str(caught.value) == NEITHER_CALL_NOR_REPLY
    assert agent.calls("SendMessage") == agent.calls("SendStreamingMessage") == []


@both_ways
@pytest.mark.parametrize("returned", [None, "well", ValueError("no")])
async def test_an_interceptor_that_returns_no_outcome_is_named(streaming, returned):
    agent = FakeAgent(streaming=streaming)
    client = connected(agent, interceptors=[Noting("outer", []), Forgetful(after=returned)])

    with pytest.raises(TypeError) as caught:
        await client.ask("hello")

    assert str(caught.value) == NEITHER_REPLY_NOR_ERROR.format(type(returned).__name__)


async def test_a_failure_is_not_lost_on_an_interceptor_that_returns_no_outcome():
    client = connected(FakeAgent(), interceptors=[Forgetful(after=None)])

    with pytest.raises(TypeError) as caught:
        await client.get_task("none")

    assert isinstance(caught.value.__cause__, TaskNotFoundError)


@pytest.mark.parametrize("hook", ["before", "after"])
async def test_an_interceptor_that_cannot_be_awaited_is_named(hook):
    class Plain(Interceptor):
        pass

    setattr(Plain, hook, lambda self, *given: given[-1])
    client = connected(FakeAgent(), interceptors=[Plain()])

    with pytest.raises(TypeError, match=rf"Plain\.{hook} must be written with async def"):
        await client.send_message("hello")


async def test_an_interceptor_that_hangs_after_a_late_failure_has_a_last_word_of_a_second():
    class Hanging(Interceptor):
        async def after(self, call, outcome):
            await asyncio.sleep(1000)
            return outcome

    agent = FakeAgent()
    agent.inject(Stall(), on="GetAgentCard")

    with pytest.raises(DeadlineExceededError):
        await connected(agent, interceptors=[Hanging()]).send_message("hello", timeout=5)

    assert now() == 6


# ── Observers ────────────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_observers_get_the_details_in_order(binding):
    seen = []
    agent = FakeAgent(latency=1)
    client = await with_a_task(agent, binding, observers=[seen.append])
    agent.inject(Refuse(), on="GetTask")
    seen.clear()

    await client.get_task("task-1")

    begun, requested, started, failed, *scheduled_and_waited, again, succeeded, finished, ended = (
        seen
    )
    scheduled, waits, waited = scheduled_and_waited
    where = {"JSONRPC": "http://agent.test/rpc", "HTTP+JSON": "http://agent.test/rest"}[binding]
    assert begun == OperationStarted(
        operation_id=begun.operation_id,
        parent_id=None,
        request_id=None,
        operation="get_task",
        method=None,
        agent="http://agent.test",
        endpoint=None,
        message_id=None,
        task_id=None,
        context_id=None,
    )
    assert requested == RequestStarted(
        operation_id=begun.operation_id,
        parent_id=begun.operation_id,
        request_id=f"{begun.operation_id}.1",
        operation="get_task",
        method="GetTask",
        agent="http://agent.test",
        endpoint=None,
        message_id=None,
        task_id="task-1",
        context_id=None,
    )
    assert isinstance(started, AttemptStarted)
    assert (started.number, started.parent_id, started.endpoint) == (
        1,
        requested.request_id,
        where,
    )
    assert isinstance(failed, AttemptFinished)
    assert (failed.number, type(failed.error)) == (1, A2AConnectionError)
    assert failed.attempt_id == started.attempt_id
    assert isinstance(scheduled, RetryScheduled)
    assert (scheduled.number, scheduled.wait, scheduled.error) == (2, 0.5, failed.error)
    assert isinstance(waits, WaitStarted)
    assert isinstance(waited, WaitFinished)
    assert (waits.reason, waits.seconds, waited.duration) == ("backoff", 0.5, 0.5)
    assert isinstance(again, AttemptStarted)
    assert again.number == 2
    assert isinstance(succeeded, AttemptFinished)
    assert (succeeded.attempt_id, succeeded.error) == (again.attempt_id, None)
    assert again.attempt_id != started.attempt_id
    assert isinstance(finished, RequestFinished)
    assert (finished.attempts, finished.duration, finished.error) == (2, 1.5, None)
    assert isinstance(ended, OperationFinished)
    assert (ended.attempts, ended.retries, ended.requests) == (2, 1, 1)
    assert (ended.outcome, ended.duration, ended.error) == ("succeeded", 1.5, None)
    assert (ended.task_id, ended.executed) == ("task-1", True)
    assert {each.operation_id for each in seen} == {begun.operation_id}


async def test_a_request_that_a_circuit_refuses_has_no_attempt():
    seen, agent = [], FakeAgent()
    client = await with_a_task(agent, observers=[seen.append])
    await client.agent_card()  # from the cache
    agent.inject(Refuse(), on="GetTask", times=100)
    for _ in range(9):  # the circuit opens
        with pytest.raises(A2AError):
            await client.get_task("task-1")

    started = [each.request_id for each in seen if isinstance(each, RequestStarted)]
    finished = [each.request_id for each in seen if isinstance(each, RequestFinished)]
    assert sorted(finished) == sorted(started)
    refused = [each for each in seen if isinstance(each, RequestFinished) and not each.attempts]
    assert {type(each.error) for each in refused} == {CircuitOpenError}
    calls = [each for each in seen if isinstance(each, OperationFinished) and not each.attempts]
    assert {type(each.error) for each in calls} == {type(None), CircuitOpenError}


async def test_details_are_frozen():
    seen = []
    await with_a_task(FakeAgent(), observers=[seen.append])

    attempt = (AttemptStarted, AttemptFinished)
    assert [type(detail) for detail in seen] == [
        *(OperationStarted, RequestStarted),
        *(RequestStarted, *attempt, RequestFinished),  # for the card
        *(*attempt, RequestFinished, OperationFinished),
    ]
    for detail in seen:
        with pytest.raises(AttributeError):
            detail.agent = "somebody else"


async def test_a_failed_call_finishes_with_its_error():
    seen = []
    client = connected(FakeAgent(), observers=[seen.append])

    with pytest.raises(TaskNotFoundError) as caught:
        await client.get_task("task-9")

    assert seen[-1].error is caught.value


async def test_fetching_the_card_finishes_with_its_attempts_and_who_was_asked():
    seen = []
    agent = FakeAgent()
    agent.inject(Refuse(), on="GetAgentCard")
    client = connected(agent, observers=[seen.append])

    await asyncio.gather(client.agent_card(), client.agent_card())
    await client.agent_card()

    ended = [(each.operation, each.attempts, each.endpoint) for each in seen if is_end(each)]
    (fetched,) = [each for each in seen if isinstance(each, RequestFinished)]
    assert fetched.endpoint.startswith("http://agent.test")
    # Two wait for one fetch, which belongs to the first; the last one is answered by the cache.
    assert sorted(ended[:2], key=str) == [
        ("agent_card", 0, None),
        ("agent_card", 2, fetched.endpoint),
    ]
    assert ended[2] == ("agent_card", 0, None)


async def test_a_call_that_got_no_further_than_the_card_finishes_with_the_attempts_of_that():
    seen = []
    agent = FakeAgent()
    agent.inject(Refuse(), on="GetAgentCard", times=9)

    with pytest.raises(A2AConnectionError) as caught:
        await connected(agent, observers=[seen.append]).get_task("task-1")

    assert (seen[-1].operation, seen[-1].method) == ("get_task", "GetTask")
    assert seen[-1].attempts == len(caught.value.attempts)
    assert {each.agent for each in seen} == {"http://agent.test"}


def is_end(detail):
    return isinstance(detail, OperationFinished)


async def test_a_cancelled_call_finishes_and_was_not_well():
    seen = []
    agent = FakeAgent(latency=10)
    call = asyncio.create_task(connected(agent, observers=[seen.append]).send_message("hello"))
    await asyncio.sleep(1)
    call.cancel()
    await asyncio.wait([call])

    finished = [detail for detail in seen if isinstance(detail, OperationFinished)]
    assert [type(detail.error) for detail in finished] == [asyncio.CancelledError]


async def test_an_observer_that_fails_is_logged_and_harms_no_call(caplog):
    def broken(_detail):
        raise RuntimeError("observer out of order")

    seen = []
    client = connected(FakeAgent(), observers=[broken, seen.append])

    with pytest.warns(RuntimeWarning, match="RuntimeError: observer out of order") as warned:
        assert (await client.ask("hello")).text == "hello"

    assert seen
    assert len(warned) == 1  # of many failures
    assert "broken failed on AttemptStarted" in caplog.text
    assert "observer out of order" in caplog.text
    shown = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert len(shown) == len(set(shown))  # one of each kind, however many events there are


async def test_an_observer_that_returns_a_coroutine_is_reported_as_one_that_fails(caplog):
    async def observe(_detail):
        pass

    client = connected(FakeAgent(), observers=[lambda detail: observe(detail)])  # noqa: PLW0108

    with pytest.warns(RuntimeWarning, match="must be a plain function"):
        assert (await client.ask("hello")).text == "hello"
    assert "it returned a coroutine" in caplog.text


async def test_an_observer_that_fails_harms_no_call_where_warnings_are_errors():
    client = connected(FakeAgent(), observers=[lambda _: 1 / 0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (await client.ask("hello")).text == "hello"


class Awaitable:
    async def __call__(self, _observation):
        pass


async def awaitable(_prefix, _observation):
    pass


@pytest.mark.parametrize(
    "observer", [Awaitable(), Awaitable().__call__, functools.partial(awaitable, "")]
)
def test_observer_that_would_not_be_awaited_is_refused_at_once(observer):
    with pytest.raises(TypeError, match="coroutine function, which would never be awaited"):
        connected(FakeAgent(), observers=[observer])


# ── Consumers ────────────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
async def test_consumers_get_every_event_in_order_sync_or_not(binding, streaming):
    told = []

    def first(event, task, card):
        told.append(("first", type(event), task, card.name))

    async def second(event, task, card):
        await asyncio.sleep(0.1)
        told.append(("second", type(event), task, card.name))

    agent = FakeAgent(lambda _turn: completes("done", after=3, works=1), streaming=streaming)

    await connected(agent, binding, consumers=[first, second]).ask("hello")

    assert told[::2] == [("first", *what) for _, *what in told[1::2]]
    assert {(task.id, name) for _, _, task, name in told} == {("task-1", "Fake agent")}
    working, done = TaskState.WORKING, TaskState.COMPLETED
    assert [(kind, task.state, task.text) for _, kind, task, _ in told[::2]] == [
        (Task, TaskState.SUBMITTED, ""),
        (TaskStatusUpdateEvent, working, ""),
        (TaskArtifactUpdateEvent, working, "done"),
        (TaskStatusUpdateEvent, done, "done"),
    ]


async def test_consumers_get_a_message_without_a_task():
    told = []
    reply = Message(role=Role.AGENT, parts=(text_part("hi"),))
    client = connected(FakeAgent(lambda _turn: reply), consumers=[lambda *a: told.append(a)])

    await client.ask("hello")

    ((event, task, _card),) = told
    assert (event.text, task) == ("hi", None)


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_exception_of_a_consumer_propagates(is_async):
    def refuse(_event, _task, _card):
        raise LookupError("not wanted")

    async def refuse_later(event, task, card):
        refuse(event, task, card)

    later = []
    consumers = [refuse_later if is_async else refuse, lambda *a: later.append(a)]

    with pytest.raises(LookupError, match="not wanted"):
        await connected(FakeAgent(), consumers=consumers).ask("hello")

    assert later == []


@pytest.mark.rule("P32")
@pytest.mark.parametrize("how", ["ask", "send_message"])
async def test_a_consumer_that_hangs_is_ended_by_the_deadline(how):
    async def hang(_event, _task, _card):
        await asyncio.sleep(1000)

    client = connected(FakeAgent(), consumers=[hang])

    with pytest.raises(DeadlineExceededError, match="consumer") as caught:
        await getattr(client, how)("hello", timeout=5)

    assert now() == 5
    assert (caught.value.executed, caught.value.task.id) == (True, "task-1")


@both_ways
@pytest.mark.parametrize(
    "own",
    [
        DeadlineExceededError("the consumer's own", deadline="call", timeout=1, executed=False),
        A2AConnectionError("the consumer's own", failure="refused", transient=True),
        A2AError("the consumer's own", executed=False),
    ],
)
async def test_an_error_of_a_consumer_is_raised_unchanged(own, streaming):
    seen = []

    def consumer(event, _task, _card):
        seen.append(event)
        if len(seen) == 2:
            raise own

    agent = FakeAgent(completes("x", after=10, works=1), streaming=streaming)

    with pytest.raises(type(own)) as caught:
        await connected(agent, consumers=[consumer]).ask("hello")

    assert caught.value is own
    assert str(own) == "the consumer's own"
    assert len(seen) == 2


async def test_what_has_arrived_is_not_lost_because_the_card_is_gone():
    """The card grows old while the agent works, and cannot be fetched any more."""
    told = []
    agent = FakeAgent(latency=20)
    client = connected(agent, card_ttl=10, consumers=[lambda *a: told.append(a)])
    await client.agent_card()
    agent.inject(Respond(status=403), on="GetAgentCard", times=99)

    task = await client.send_message("hello")

    assert [event.id for event, _, _ in told] == [task.id]


# ── Layers of the caller's own ───────────────────────────────────────────────────────────────


class Noted:
    def __init__(self, inner, name, notes):
        self.inner = inner
        self.name = name
        self.notes = notes

    async def unary(self, call):
        where = "somewhere" if call.endpoint is None else "endpoint"
        secret = "with" if "authorization" in call.headers else "without"
        self.notes.append(f"{self.name} {call.attempt} {where} {secret}")
        try:
            return await self.inner.unary(call)
        except A2AError as error:
            self.notes.append(f"{self.name} {type(error).__name__}")
            raise

    async def close(self):
        self.notes.append(f"{self.name} closed")
        await self.inner.close()


@both_bindings
async def test_call_layers_see_the_call_once_and_attempt_layers_each_try(binding):
    notes = []

    def layer(name):
        return lambda inner: Noted(inner, name, notes)

    agent = FakeAgent()
    agent.inject(Refuse(), on="SendMessage")
    agent.inject(Reset(), on="SendMessage")
    client = connected(
        agent,
        binding,
        auth="Bearer t0ken",
        interceptors=[Noting("interceptor", notes)],
        call_layers=[layer("call outer"), layer("call inner")],
        attempt_layers=[layer("attempt outer"), layer("attempt inner")],
    )

    with pytest.raises(OutcomeUnknownError):
        await client.send_message("hello")
    await client.close()

    assert notes == [
        "interceptor before",
        "call outer 1 somewhere without",
        "call inner 1 somewhere without",
        "attempt outer 1 endpoint without",
        "attempt inner 1 endpoint without",
        "attempt inner A2AConnectionError",
        "attempt outer A2AConnectionError",
        "attempt outer 2 endpoint without",
        "attempt inner 2 endpoint without",
        "attempt inner A2AConnectionError",
        "attempt outer A2AConnectionError",
        "call inner A2AConnectionError",
        "call outer A2AConnectionError",
        "interceptor after OutcomeUnknownError",
        "call outer closed",
        "call inner closed",
        "attempt outer closed",
        "attempt inner closed",
    ]


# ── Logging ──────────────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
async def test_the_log_names_call_agent_and_attempt_and_shows_no_body(binding, streaming, caplog):
    caplog.set_level(logging.DEBUG, "holdfast")
    agent = FakeAgent(lambda _turn: completes("the moon is far"), streaming=streaming)
    sends = "SendStreamingMessage" if streaming else "SendMessage"
    agent.inject(Refuse(), on=sends)

    await connected(agent, binding).ask("how far is the moon?")

    records = [r for r in caplog.records if r.getMessage().startswith(sends)]
    request_id = records[0].getMessage().split()[1]
    where = {"JSONRPC": "http://agent.test/rpc", "HTTP+JSON": "http://agent.test/rest"}[binding]
    assert request_id.startswith("id-")
    assert records[0].getMessage() == f"{sends} {request_id} to http://agent.test: started"
    assert all(f"{sends} {request_id} to {where}:" in r.getMessage() for r in records[1:])
    said = [(r.levelname, r.getMessage().partition(f"{where}: ")[2]) for r in records[1:]]
    refused = "A2AConnectionError: the connection was refused (agent "
    assert said[0] == ("DEBUG", "attempt 1 started")
    assert said[1][1].startswith("attempt 1 failed with A2AConnectionError after 0.000 s: ")
    assert said[2][0] == "INFO"
    assert said[2][1].startswith(f"attempt 1 failed with {refused}")
    assert said[2][1].endswith("; attempt 2 follows in 0.500 s (backoff)")
    assert said[3:] == [
        ("DEBUG", "waiting for 0.500 s (backoff)"),
        ("DEBUG", "waited 0.500 s (backoff)"),
        ("DEBUG", "attempt 2 started"),
        ("DEBUG", "attempt 2 succeeded after 0.000 s"),
        ("DEBUG", "succeeded after 0.500 s (attempts: 2)"),
    ]
    operation = [r.getMessage() for r in caplog.records if r.getMessage().startswith("ask ")]
    operation_id = request_id.rpartition(".")[0]
    attempts = 4 if streaming else 3  # with the card, and the look at the task behind a stream
    assert operation == [
        f"ask {operation_id} to http://agent.test: started",
        f"ask {operation_id} to http://agent.test: succeeded after 0.500 s (attempts: {attempts})",
    ]
    assert "moon" not in caplog.text
    assert {record.name for record in records} == {"holdfast"}


# ── Credentials ──────────────────────────────────────────────────────────────────────────────


class Tokens:
    """Gives a token per question; knows another one after a 401, if told so."""

    def __init__(self, *tokens, again=True):
        self.tokens = list(tokens)
        self.again = again
        self.calls = []
        self.told = []

    async def credentials(self, call):
        self.calls.append(call.operation.name)
        token = self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]
        return Credentials(headers={"Authorization": f"Bearer {token}"})

    async def on_unauthorized(self, call, error):
        self.told.append(error)
        return self.again


@both_bindings
@both_ways
@pytest.mark.parametrize(
    "auth",
    ["Bearer t0ken", {"Authorization": "Bearer t0ken"}, Tokens("t0ken")],
    ids=["value", "headers", "provider"],
)
async def test_credentials_go_with_every_request(binding, streaming, auth):
    agent = FakeAgent(token="t0ken", streaming=streaming)
    network = Recorded(agent)

    assert (await connected(agent, binding, network=network, auth=auth).ask("hello")).text

    assert len(network.requests) == (3 if streaming else 2)
    assert {r.headers["authorization"] for r in network.requests} == {"Bearer t0ken"}


@both_bindings
async def test_a_provider_is_asked_for_each_attempt(binding):
    agent = FakeAgent()
    network = Recorded(agent)
    agent.inject(Refuse(), on="SendMessage", times=2)
    tokens = Tokens("card", "one", "two", "three")

    await connected(agent, binding, network=network, auth=tokens).send_message("hello")

    sent = [request.headers["authorization"] for request in network.requests]
    assert sent == ["Bearer card", "Bearer one", "Bearer two", "Bearer three"]
    assert tokens.calls == ["GetAgentCard", "SendMessage", "SendMessage", "SendMessage"]


@both_bindings
@pytest.mark.parametrize("operation", ["send", "get"])
async def test_a_401_is_replayed_once_with_new_credentials(binding, operation):
    agent = FakeAgent(token="new")
    first = connected(agent, binding, auth="Bearer new")
    await first.send_message("first")
    tokens = Tokens("card", "old", "new")
    client = connected(agent, binding, auth=tokens)

    if operation == "send":
        await client.send_message("hello")
    else:
        await client.get_task("task-1")

    assert [type(error) for error in tokens.told] == [AuthenticationError]
    assert {len(made) for made in agent.executions.values()} == {1}


@both_bindings
async def test_a_401_is_replayed_once_and_no_more(binding):
    agent = FakeAgent(token="another")
    network = Recorded(agent)
    tokens = Tokens("wrong")

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, binding, network=network, auth=tokens).send_message("hello")

    assert (len(network.calls()), len(tokens.told)) == (2, 1)
    assert (caught.value.http_status, caught.value.executed) == (401, False)
    assert agent.executions == {}


@both_bindings
async def test_a_401_is_final_where_the_provider_has_nothing_else(binding):
    agent = FakeAgent(token="another")
    network = Recorded(agent)
    tokens = Tokens("wrong", again=False)

    with pytest.raises(AuthenticationError):
        await connected(agent, binding, network=network, auth=tokens).send_message("hello")

    assert (len(network.calls()), len(tokens.told)) == (1, 1)


A2A_401 = {
    "JSONRPC": {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "who?"}},
    "HTTP+JSON": {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "who?"}},
}


@both_bindings
@pytest.mark.parametrize(("operation", "requests"), [("SendMessage", 1), ("GetTask", 2)])
async def test_a_401_with_an_a2a_body_is_replayed_for_a_read_only(binding, operation, requests):
    """The agent itself has spoken, and may have run the message first."""
    agent = FakeAgent()
    await connected(agent, binding).send_message("first")
    body = json.dumps(A2A_401[binding]).encode()
    agent.inject(Respond(status=401, body=body, after_execution=True), on=operation)
    network = Recorded(agent)
    tokens = Tokens("a")
    client = connected(agent, binding, network=network, auth=tokens)

    if operation == "GetTask":
        await client.get_task("task-1")
    else:
        with pytest.raises(AuthenticationError) as caught:
            await client.send_message("hello")
        assert caught.value.executed is None

    assert len(network.calls()) == requests
    assert len(tokens.told) == requests - 1
    assert {len(made) for made in agent.executions.values()} == {1}


@both_bindings
@pytest.mark.parametrize("fails_in", ["on_unauthorized", "credentials"])
async def test_a_provider_that_fails_after_an_a2a_401_leaves_open_what_was_executed(
    binding, fails_in
):
    class Failing(Tokens):
        async def credentials(self, call):
            if self.told:
                raise AuthenticationError("no token")
            return await super().credentials(call)

        async def on_unauthorized(self, call, error):
            await super().on_unauthorized(call, error)
            if fails_in == "on_unauthorized":
                raise AuthenticationError("no token")
            return True

    agent = FakeAgent(lambda _turn: works_forever())
    await connected(agent, binding).send_message("first", return_immediately=True)
    body = json.dumps(A2A_401[binding]).encode()
    agent.inject(Respond(status=401, body=body, after_execution=True), on="CancelTask")

    with pytest.raises(AuthenticationError, match="no token") as caught:
        await connected(agent, binding, auth=Failing("a")).cancel_task("task-1", confirm=False)

    assert caught.value.executed is None


@pytest.mark.rule("P32")
async def test_a_provider_that_hangs_is_ended_by_the_deadline():
    class Hanging(Tokens):
        async def credentials(self, call):
            if call.operation.name == "SendMessage":
                await asyncio.sleep(1000)
            return Credentials()

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(FakeAgent(), auth=Hanging("x")).send_message("hello", timeout=5)

    assert (now(), caught.value.executed) == (5, False)


async def test_a_provider_that_hangs_after_a_401_is_ended_by_the_deadline():
    class Hanging(Tokens):
        async def on_unauthorized(self, call, error):
            await asyncio.sleep(1000)
            return True

    agent = FakeAgent(token="another")

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(agent, auth=Hanging("x")).send_message("hello", timeout=5)

    assert (now(), caught.value.executed) == (5, False)  # a refusal is none that may have run


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────


def everything_of(error):
    """Whatever can be read from an error and what it hangs on, as one text."""
    texts = [*traceback.format_exception(error)]
    at = error
    while at is not None:
        texts += [repr(at), str(at), repr(at.args), repr(vars(at))]
        texts.append(repr(pickle.loads(pickle.dumps(at)).__dict__))
        at = at.__cause__
    return "\n".join(texts)


def rpc_error(**members):
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no", **members}}
    return json.dumps(body).encode()


ECHOES = {
    "HTML": (500, f"<p>Authorization: Bearer {CANARY}</p><p>x-api-key: {CANARY}</p>".encode()),
    "HTML, cut in the middle": (502, f"<p>{'x' * 175}Bearer {CANARY}</p>".encode()),
    "plain text with a 200": (200, f"you sent {CANARY}".encode()),
    "message": (200, rpc_error(message=f"bad token Bearer {CANARY}")),
    "long message": (200, rpc_error(message=f"{'x' * 485} {CANARY}")),
    "data": (200, rpc_error(data={"headers": [{"authorization": f"Bearer {CANARY}"}]})),
    "details": (
        400,
        rpc_error(
            data=[
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "TASK_NOT_FOUND",
                    "domain": "a2a-protocol.org",
                    "metadata": {"taskId": CANARY},
                }
            ],
            code=-32001,
        ),
    ),
    "RFC 9457": (401, json.dumps({"title": "no", "detail": f"Bearer {CANARY}"}).encode()),
    "REST": (
        400,
        json.dumps(
            {"error": {"code": 400, "status": "UNKNOWN", "message": f"Bearer {CANARY}"}}
        ).encode(),
    ),
}


WAYS = [
    (operation, given)
    for operation in ("SendMessage", "GetTask", "GetAgentCard")
    for given in ("auth value", "auth headers", "headers", "provider", "call")
    if (operation, given) != ("GetAgentCard", "call")  # it does not get there; see the next test
]


@both_bindings
@pytest.mark.parametrize(("operation", "given"), WAYS)
@pytest.mark.parametrize("echo", ECHOES)
async def test_a_secret_is_in_no_error_repr_or_log(binding, operation, echo, given, caplog):
    caplog.set_level(logging.DEBUG)
    status, body = ECHOES[echo]
    seen, reprs = [], []

    class Peeking(Interceptor):
        async def before(self, call):
            reprs.append(repr(call))
            return call

    class PeekingLayer(Noted):
        async def unary(self, call):
            reprs.append(repr(call))
            return await self.inner.unary(call)

    options = {
        "auth value": {"auth": f"Bearer {CANARY}"},
        "auth headers": {"auth": {"x-api-key": CANARY}},
        "headers": {"headers": {"Authorization": f"Bearer {CANARY}"}},
        "provider": {"auth": Tokens(CANARY)},
        "call": {},
    }[given]
    extra = {"headers": {"x-api-key": CANARY}} if given == "call" else {}
    agent = FakeAgent()
    headers = {"x-request-id": CANARY, "www-authenticate": f"Bearer realm={CANARY}"}
    agent.inject(Respond(status=status, headers=headers, body=body), on=operation, times=9)
    client = connected(
        agent,
        binding,
        observers=[seen.append],
        interceptors=[Peeking()],
        attempt_layers=[lambda inner: PeekingLayer(inner, "", [])],
        **options,
    )
    call = client.get_task if operation == "GetTask" else client.send_message

    with pytest.raises(A2AError) as caught:
        await call("hello", **extra)

    known = CANARY[:8]
    assert known not in everything_of(caught.value)
    assert known not in caplog.text
    assert known not in repr(client)
    assert known not in repr(seen)
    assert known not in repr(reprs)
    assert reprs


async def test_a_secret_that_has_to_be_escaped_is_found_as_well():
    secret = f'Digest username="{CANARY}", response="<&>"'
    agent = FakeAgent()
    for body in (rpc_error(data=[secret]), json.dumps({"echo": secret}).encode()):
        agent.inject(Respond(status=500, body=body), on="SendMessage")
        with pytest.raises(A2AError) as caught:
            await connected(agent, auth=secret).send_message("hello")
        assert CANARY not in everything_of(caught.value)


async def test_what_is_too_short_for_a_secret_makes_no_holes():
    agent = FakeAgent()
    agent.inject(Respond(status=403, body=b"1 of 1 was refused"), on="SendMessage")

    with pytest.raises(PermissionDeniedError) as caught:
        await connected(agent, headers={"x-one": "1"}).send_message("hello")

    assert caught.value.excerpt == "1 of 1 was refused"


async def test_the_rest_of_an_error_stays_readable():
    agent = FakeAgent()
    body = f"the token {CANARY} is too old".encode()
    agent.inject(Respond(status=403, body=body), on="SendMessage")

    with pytest.raises(A2AHTTPError) as caught:
        await connected(agent, auth=f"Bearer {CANARY}").send_message("hello")

    assert caught.value.excerpt == "the token *** is too old"
    assert caught.value.http_status == 403


async def test_a_tasks_state_survives_the_search_for_secrets():
    agent = FakeAgent()
    client = connected(agent, auth=f"Bearer {CANARY}")
    await client.send_message("hello")

    with pytest.raises(A2AError) as caught:
        await client.cancel_task("task-1")

    assert caught.value.state is TaskState.COMPLETED


# ── What a reply tells ───────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_reply_tells_where_it_came_from(binding):
    agent = FakeAgent()
    client = await with_a_task(agent, binding)
    agent.inject(Reset(), on="GetTask")

    reply = await client.call(op.GET_TASK, GetTaskRequest(id="task-1"))

    assert isinstance(reply.value, Task)
    assert reply.value.status == TaskStatus(
        state=TaskState.COMPLETED, timestamp=reply.value.status.timestamp
    )
    assert [attempt.number for attempt in reply.attempts] == [1, 2]
    assert reply.endpoint.agent.startswith("http://agent.test/r")
    assert '"task-1"' in reply.text
    assert "content-type" in reply.headers


async def test_a_config_is_never_created_twice_by_a_retry():
    agent = FakeAgent()
    client = await with_a_task(agent)
    agent.inject(Reset(after_execution=True), on="CreateTaskPushNotificationConfig")
    config = TaskPushNotificationConfig(task_id="task-1", url="https://me.test/push")

    with pytest.raises(A2AConnectionError) as caught:
        await client.create_task_push_notification_config(config)

    assert caught.value.executed is None
    assert len((await client.list_task_push_notification_configs("task-1")).configs) == 1


@both_bindings
async def test_the_headers_of_one_call_do_not_go_with_the_card_that_many_share(binding):
    agent = FakeAgent()
    client = connected(agent, binding, headers={"x-team": "blue"})

    await client.send_message("hello", headers={"x-api-key": CANARY})

    [card], [message] = agent.calls("GetAgentCard"), agent.calls("SendMessage")
    assert (card.headers.get("x-team"), card.headers.get("x-api-key")) == ("blue", None)
    assert (message.headers["x-team"], message.headers["x-api-key"]) == ("blue", CANARY)


# ── What an error says of giving up ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "options", "why"),
    [
        (
            rate_limited(retry_after=90),
            {},
            "the agent asked to wait 90 s, and max_retry_after is 60 s",
        ),
        (
            rate_limited(),
            {"resilience": Resilience(retry=RetryPolicy(max_retries=1))},
            "the limit of 1 retry is reached",
        ),
        (rate_limited(retry_after=50), {"timeout": 20}, "waiting 50"),
        (Respond(status=404), {}, None),
    ],
)
async def test_an_error_tells_why_it_was_not_tried_again(fault, options, why):
    agent = FakeAgent()
    agent.inject(fault, on="SendMessage", times=9)

    with pytest.raises(A2AHTTPError) as caught:
        await connected(agent, **options).send_message("hello")

    assert (caught.value.retry_stopped_reason or "None").startswith(str(why))
    again = "no further retry" if len(caught.value.attempts) > 1 else "not retried"
    assert (f"; {again}: " in str(caught.value)) == (why is not None)


async def test_a_header_that_is_no_secret_leaves_the_agents_words_alone():
    agent = FakeAgent()
    body = rpc_error(message="no such order in production", code=-32050)
    agent.inject(Respond(status=200, body=body), on="SendMessage")
    client = connected(agent, headers={"x-environment": "production"})

    with pytest.raises(A2AError, match="no such order in production"):
        await client.send_message("hello")


async def test_credentials_are_secret_whatever_they_look_like():
    agent = FakeAgent()
    body = rpc_error(message="who is blue7?", code=-32050)
    agent.inject(Respond(status=200, body=body), on="SendMessage")
    client = connected(agent, auth={"x-team": "blue7"})

    with pytest.raises(A2AError) as caught:
        await client.send_message("hello")

    assert "blue7" not in everything_of(caught.value)


async def test_any_operation_can_be_called_but_those_that_stream():
    agent = FakeAgent()
    client = await with_a_task(agent)
    [task_id] = agent.tasks

    reply = await client.call(op.GET_TASK, GetTaskRequest(id=task_id))

    assert (reply.value.id, len(reply.attempts)) == (task_id, 1)
    with pytest.raises(ValueError, match="answered by a stream"):
        await client.call(op.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=task_id))
    with pytest.raises(ValueError, match="message_id must not be empty"):
        await client.call(op.SEND_MESSAGE, SendMessageRequest(message=Message(role=Role.USER)))


@both_bindings
async def test_a_layer_of_ones_own_changes_what_it_overrides(binding):
    class Traced(BaseLayer):
        async def unary(self, call):
            headers = {**call.headers, "traceparent": "00-1-2-01"}
            return await self._inner.unary(msgspec.structs.replace(call, headers=headers))

    agent = FakeAgent()
    await connected(agent, binding, attempt_layers=[Traced]).ask("hello")

    assert {call.headers.get("traceparent") for call in agent.received} == {None, "00-1-2-01"}


# ── Closing ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("turns", range(8))
async def test_closing_ends_calls_in_flight_with_an_error_that_says_so(turns):
    agent = FakeAgent(works_forever())
    client = connected(agent)
    asking = asyncio.ensure_future(client.send_message("hello"))
    for _ in range(turns):
        await asyncio.sleep(0)

    await client.close()
    [outcome] = await asyncio.gather(asking, return_exceptions=True)

    if isinstance(outcome, OutcomeUnknownError):  # it had been sent
        outcome = outcome.__cause__
    assert "closed" in str(outcome)
    assert isinstance(outcome, A2AConnectionError if turns else RuntimeError)
    assert len(agent.executions) <= 1


async def test_closing_tells_what_is_known_of_a_message_that_was_sent():
    agent = FakeAgent(works_forever())
    client = connected(agent)
    asking = asyncio.ensure_future(client.send_message("hello"))
    await asyncio.sleep(5)

    await client.close()

    with pytest.raises(OutcomeUnknownError) as caught:
        await asking
    assert (caught.value.executed, caught.value.__cause__.failure) == (None, "closed")
    assert now() == 5


async def test_closing_waits_no_longer_than_a_last_word_for_a_layer_that_does_not_end():
    class Deaf(BaseLayer):
        async def unary(self, call):
            try:
                return await self._inner.unary(call)
            except asyncio.CancelledError:
                await asyncio.sleep(100)
                raise

    client = connected(FakeAgent(works_forever()), attempt_layers=[Deaf])
    asking = asyncio.ensure_future(client.send_message("hello"))
    await asyncio.sleep(5)

    await client.close()

    assert now() == 6
    with pytest.raises(OutcomeUnknownError):
        await asking


@both_ways
@pytest.mark.parametrize("after", [0.5, 30])
async def test_closing_ends_a_wait_with_an_error_that_names_the_task(streaming, after):
    agent = FakeAgent(works_forever(), streaming=streaming)
    client = connected(agent)
    asking = asyncio.ensure_future(client.ask("hello"))
    await asyncio.sleep(after)

    await client.close()

    with pytest.raises(A2AConnectionError, match=r"closed while .*task task-1 was") as caught:
        await asking
    error = caught.value
    assert (error.failure, error.executed) == ("closed", True)
    assert error.agent == "http://agent.test/rpc"
    assert now() == after


async def test_closing_wakes_a_stream_that_waits_to_reconnect():
    agent = FakeAgent(works_forever())
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    agent.inject(Fail(code=-32603, retry_after=50), on="SubscribeToTask", times=9)
    client = connected(agent)
    asking = asyncio.ensure_future(client.ask("hello"))
    await asyncio.sleep(20)

    await client.close()

    with pytest.raises(A2AConnectionError, match="closed while task task-1 was"):
        await asking
    assert now() == 20


class Patient(BaseLayer):
    """Gives each attempt another limit."""

    def handle(self, call, call_next):
        return call_next(msgspec.structs.replace(call, timeouts=Timeouts(first_byte=7)))


@both_bindings
async def test_a_layer_may_set_the_limits_of_an_attempt(binding):
    agent = FakeAgent()
    agent.inject(Stall())
    client = connected(agent, binding, resilience=Resilience.off(), attempt_layers=[Patient])

    with pytest.raises(A2ATimeoutError) as caught:
        await client.get_task("task-1")

    assert (caught.value.phase, caught.value.timeout) == ("first_byte", 7)
