"""How often and when `RetryTransport` tries again, around a transport that follows a script."""

import asyncio
import logging
import math

import pytest
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientError, A2AClientTimeoutError
from a2a.client.transports.base import ClientTransport
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.types import a2a_pb2 as sdk
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from hypothesis import strategies as st
from tests.kit.sdk_transports import (
    CALLS,
    CONDITIONAL,
    STREAMS,
    UNARY,
    Dice,
    Scripted,
    call,
    refused,
    status_error,
    timed_out,
    unanswered,
)
from tests.kit.strategies import given

from holdfast import BudgetPolicy
from holdfast.integrations.a2a_sdk import (
    RetryConfig,
    RetryFacts,
    RetryTransport,
    SharedBudget,
    retry_facts,
)
from holdfast.testing import run

GET = sdk.GetTaskRequest(id="t-1")


def around(inner, *draws, **options):
    return RetryTransport(inner, env=Dice(*draws or (0.5,)), **options)


async def failing(transport, name="get_task"):
    with pytest.raises(Exception) as raised:  # noqa: PT011  what it is the test says
        await call(transport, name)
    return raised.value


# ── A transport of the SDK ───────────────────────────────────────────────────────────────────


async def test_it_is_a_transport_of_the_sdk():
    inner = Scripted()

    async with RetryTransport(inner) as transport:
        assert isinstance(transport, ClientTransport)
        assert not inner.is_closed

    assert inner.is_closed


def test_it_has_every_method_of_the_sdks_transports():
    assert not RetryTransport.__abstractmethods__
    assert {*CALLS, "get_extended_agent_card", "close"} == ClientTransport.__abstractmethods__


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_goes_through_as_it_is(name):
    request = (UNARY | STREAMS)[name][0](tenant="mine")
    answer = (UNARY | STREAMS)[name][1]()
    inner, context = Scripted([answer] if name in STREAMS else answer), ClientCallContext()

    assert await call(around(inner), name, request, context) in (answer, [answer])

    [(asked, given_request, given_context, _)] = inner.calls
    assert (asked, given_request) == (name, request)
    assert given_context is context


@pytest.mark.parametrize("name", CALLS)
async def test_every_operation_is_tried_again(name):
    inner = Scripted(refused(), refused())

    await call(around(inner), name)

    assert [asked for asked, *_ in inner.calls] == [name] * 3


async def test_the_extended_card_is_asked_for_once():
    inner = Scripted(refused())

    with pytest.raises(A2AClientError):
        await around(inner).get_extended_agent_card(sdk.GetExtendedAgentCardRequest())

    assert len(inner.calls) == 1


# ── How often, and when ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("max_retries", [0, 1, 3, 8])
async def test_there_are_as_many_retries_as_agreed(max_retries):
    errors = [refused() for _ in range(20)]
    inner = Scripted(*errors)

    error = await failing(around(inner, max_retries=max_retries, base_delay=0))

    assert error is errors[max_retries]
    assert len(inner.calls) == max_retries + 1


@pytest.mark.parametrize(
    ("options", "draw", "times"),
    [
        ({}, 0.5, [0, 0.5, 1.5, 3.5]),
        ({}, 0.0, [0, 0, 0, 0]),
        ({"base_delay": 2.0}, 0.5, [0, 1, 3, 7]),
        ({"max_delay": 1.0}, 0.5, [0, 0.5, 1.0, 1.5]),
        ({"base_delay": 0.0}, 0.9, [0, 0, 0, 0]),
        ({"base_delay": 100.0}, 0.5, [0, 15, 30, 45]),
    ],
)
async def test_the_waits_grow_up_to_a_bound_and_are_drawn_below_it(options, draw, times):
    inner = Scripted(*[refused() for _ in range(4)])

    await failing(around(inner, draw, **options))

    assert inner.times == pytest.approx(times)


async def test_each_wait_has_a_draw_of_its_own():
    inner = Scripted(*[refused() for _ in range(4)])

    await failing(around(inner, 0.1, 0.2, 0.3, 0.4))

    assert inner.times == pytest.approx([0, 0.1, 0.5, 1.7])


DATE = "Sun, 09 Sep 2001 01:47:00 GMT"  # 20 s after the clock of `Dice`


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "45"}, 45.5),  # beyond max_delay, and spread by half of base_delay
        ({"retry_after": DATE}, 20.5),
        ({"retry_after": DATE, "date": "Sun, 09 Sep 2001 01:46:58 GMT"}, 2.5),
        ({"retry_after_ms": "2500"}, 3.0),
        ({"retry_after_ms": "1500", "retry_after": "40"}, 2.0),
        ({"retry_after": "0"}, 0.5),
        ({"retry_after": "soon"}, 0.5),
        ({"retry_after": "-5"}, 0.5),
        ({"retry_after": "60"}, 60.5),
    ],
)
@pytest.mark.parametrize("name", ["get_task", "subscribe", "send_message"])
async def test_a_hint_is_a_lower_bound_of_the_wait(name, headers, wait):
    inner = Scripted(status_error(429, **headers))

    await call(around(inner), name)

    assert inner.times == pytest.approx([0, wait])


async def test_a_hint_that_is_too_long_ends_the_call_at_once():
    error = status_error(503, retry_after="61")
    inner = Scripted(error)

    assert await failing(around(inner)) is error

    assert inner.times == [0]
    assert retry_facts(error) == RetryFacts(
        attempts=1,
        reason="the agent asked to wait 61 s, and max_retry_after is 60 s",
        executed=False,
        retry_after=61.0,
    )


@pytest.mark.parametrize(("most", "tries"), [(10.0, 1), (120.0, 2), (math.inf, 2)])
async def test_how_long_a_hint_may_be_is_the_callers_choice(most, tries):
    inner = Scripted(status_error(503, retry_after="100"))
    transport = around(inner, max_retry_after=most)

    await (failing(transport) if tries == 1 else call(transport, "get_task"))

    assert len(inner.calls) == tries


# ── The predicate ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", CALLS)
async def test_an_answer_in_the_protocols_terms_is_no_failure(name):
    error = TaskNotFoundError()
    inner = Scripted(error)

    assert await failing(around(inner), name) is error

    assert len(inner.calls) == 1
    assert retry_facts(error) is None
    assert not hasattr(error, "__notes__")


async def test_a_predicate_may_widen_what_is_tried_again():
    asked = []
    inner = Scripted(KeyError("of a third party"))

    transport = around(inner, retry_predicate=lambda error: asked.append(error) or True)
    await call(transport, "get_task")

    assert [type(error) for error in asked] == [KeyError]
    assert len(inner.calls) == 2


async def test_a_predicate_may_narrow_it():
    inner = Scripted(refused())

    await failing(around(inner, retry_predicate=lambda _: False))

    assert len(inner.calls) == 1


async def test_what_a_predicate_raises_ends_the_call():
    inner = Scripted(refused())

    error = await failing(around(inner, retry_predicate=lambda _: 1 / 0))

    assert isinstance(error, ZeroDivisionError)


# ── The listener ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_async", [True, False])
async def test_listener_is_called_before_each_wait(is_async):
    told = []
    errors = [refused(), timed_out(), unanswered()]

    def listen(attempt, error, delay):
        told.append((attempt, error, delay, asyncio.get_running_loop().time()))

    async def listen_async(*told_of):
        await asyncio.sleep(0)
        listen(*told_of)

    inner = Scripted(*errors)
    await call(around(inner, on_retry=listen_async if is_async else listen), "get_task")

    assert told == [(1, errors[0], 0.5, 0), (2, errors[1], 1.0, 0.5), (3, errors[2], 2.0, 1.5)]


async def test_a_listener_hears_nothing_of_what_is_not_tried_again():
    told = []
    inner = Scripted(TaskNotFoundError())

    await failing(around(inner, on_retry=lambda *args: told.append(args)))

    assert told == []


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_listener_that_fails_is_logged_and_changes_nothing(is_async, caplog):
    def listen(*_):
        raise RuntimeError("it cannot hear")

    async def listen_async(*_):
        listen()

    inner = Scripted(status_error(503))
    await call(around(inner, on_retry=listen_async if is_async else listen), "get_task")

    assert inner.times == [0, 0.5]
    assert "it cannot hear" in caplog.text
    assert "secret" not in caplog.text


async def test_what_a_listener_awaits_may_be_cancelled_and_the_call_is_not(caplog):
    async def listen(*_):
        other = asyncio.create_task(asyncio.sleep(9))
        other.cancel()
        await other

    inner = Scripted(status_error(503))
    await call(around(inner, on_retry=listen), "get_task")

    assert inner.times == [0, 0.5]
    assert "on_retry failed" in caplog.text


async def test_the_wait_continues_while_the_listener_is_busy():
    async def listen(*_):
        await asyncio.sleep(0.4)

    inner = Scripted(refused())
    await call(around(inner, on_retry=listen), "get_task")

    assert inner.times == pytest.approx([0, 0.5])


@pytest.mark.parametrize(("timeout", "ends"), [(None, 10.0), (3.0, 3.0)])
async def test_listener_that_never_ends_is_abandoned(timeout, ends, caplog):
    async def listen(*_):
        await asyncio.Event().wait()

    inner = Scripted(refused())
    transport = around(inner, on_retry=listen, timeout=timeout)

    await (call(transport, "get_task") if timeout is None else failing(transport))

    assert asyncio.get_running_loop().time() == pytest.approx(ends)
    assert "on_retry failed" in caplog.text


async def test_retries_are_logged_without_the_address(caplog):
    caplog.set_level(logging.INFO, "holdfast")

    await call(around(Scripted(unanswered())), "get_task")

    assert "GetTask: attempt 1 failed with A2AClientError; next attempt in 0.5 s" in caplog.text
    assert "secret" not in caplog.text


# ── What an earlier try has done ─────────────────────────────────────────────────────────────


CANCELED = sdk.Task(id="t-1", status=sdk.TaskStatus(state=sdk.TASK_STATE_CANCELED))
COMPLETED = sdk.Task(id="t-1", status=sdk.TaskStatus(state=sdk.TASK_STATE_COMPLETED))
CANCEL = sdk.CancelTaskRequest(id="t-1", tenant="acme")


@pytest.mark.parametrize("refusal", [TaskNotCancelableError, TaskNotFoundError])
async def test_a_task_that_the_first_try_canceled_is_canceled(refusal):
    inner = Scripted(timed_out(), refusal(), CANCELED)

    assert await around(inner).cancel_task(CANCEL) == CANCELED

    name, request, *_ = inner.calls[-1]
    assert (name, request) == ("get_task", sdk.GetTaskRequest(id="t-1", tenant="acme"))


@pytest.mark.parametrize("found", [COMPLETED, TaskNotFoundError(), refused()])
async def test_a_task_that_no_try_canceled_is_not(found):
    refusal = TaskNotCancelableError()

    assert await failing(around(Scripted(timed_out(), refusal, found)), "cancel_task") is refusal

    assert retry_facts(refusal).attempts == 2


async def test_looking_for_it_ends_with_the_time_of_the_call():
    refusal = TaskNotCancelableError()
    inner = Scripted(timed_out(), refusal, 100.0)

    assert await failing(around(inner, timeout=7), "cancel_task") is refusal

    assert asyncio.get_running_loop().time() == 7


@pytest.mark.parametrize("name", ["cancel_task", "delete_task_push_notification_config"])
@pytest.mark.parametrize("before", [(), (refused,)])
async def test_a_refusal_is_one_where_nothing_was_done_before(name, before):
    refusal = TaskNotFoundError()
    inner = Scripted(*[make() for make in before], refusal)

    assert await failing(around(inner), name) is refusal

    assert {asked for asked, *_ in inner.calls} == {name}


async def test_a_config_that_the_first_try_deleted_is_deleted():
    inner = Scripted(unanswered(), TaskNotFoundError())

    await call(around(inner), "delete_task_push_notification_config")

    assert len(inner.calls) == 2


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


EVENTS = [sdk.StreamResponse(message=sdk.Message(message_id=f"m-{n}")) for n in range(3)]


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_is_tried_again_before_its_first_event(name):
    inner = Scripted(refused(), [refused(), EVENTS[0]], EVENTS)

    assert await call(around(inner), name) == EVENTS

    assert len(inner.calls) == 3
    assert inner.open == 0


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("after", [1, 2])
async def test_a_failure_after_the_first_event_is_the_callers(name, after):
    error = refused()
    inner = Scripted([*EVENTS[:after], error])
    got = []

    async def follow():
        async for event in getattr(around(inner), name)((UNARY | STREAMS)[name][0]()):
            got.append(event)  # noqa: PERF401  what was got before the failure is looked at

    with pytest.raises(A2AClientError) as raised:
        await follow()

    assert raised.value is error
    assert retry_facts(error) is None
    assert (got, len(inner.calls), inner.open) == (EVENTS[:after], 1, 0)


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_without_events_is_over(name):
    inner = Scripted([])

    assert await call(around(inner), name) == []

    assert len(inner.calls) == 1


@pytest.mark.parametrize("name", STREAMS)
async def test_no_request_is_made_before_an_event_is_awaited(name):
    inner = Scripted()

    events = getattr(around(inner), name)((UNARY | STREAMS)[name][0]())
    await events.aclose()

    assert inner.calls == []


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_that_its_caller_leaves_is_closed_below(name):
    inner = Scripted(EVENTS)
    events = getattr(around(inner), name)((UNARY | STREAMS)[name][0]())

    assert await anext(events) == EVENTS[0]
    assert inner.open == 1
    await events.aclose()

    assert inner.open == 0


# ── Cancellation ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["get_task", "send_message", "subscribe"])
@pytest.mark.parametrize("at", [0.0, 0.5, 1.0, 1.25, 1.5, 2.0])
async def test_a_cancellation_goes_through_wherever_it_comes(name, at):
    """The tries last from 0 to 1 and from 1.5 to 2.5 s, and the listener from 1 to 1.25 s."""

    async def listen(*_):
        await asyncio.sleep(0.25)

    budget = SharedBudget()
    inner = Scripted(1.0, refused(), 1.0)
    transport = around(inner, on_retry=listen, budget=budget, timeout=100)
    calling = asyncio.create_task(call(transport, name))
    await asyncio.sleep(at)
    tokens = budget.tokens

    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert inner.open == 0
    assert budget.tokens == tokens
    assert asyncio.all_tasks() == {asyncio.current_task()}
    asked = len(inner.calls)
    await asyncio.sleep(100)
    assert len(inner.calls) == asked


async def test_a_cancellation_among_the_events_closes_the_stream_below():
    inner = Scripted(EVENTS)
    got = asyncio.Event()

    async def follow():
        async for _ in around(inner).subscribe(sdk.SubscribeToTaskRequest()):
            got.set()
            await asyncio.Event().wait()

    following = asyncio.create_task(follow())
    await got.wait()
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    del following
    await asyncio.sleep(1)  # what a caller left open, the event loop closes

    assert inner.open == 0


# ── The deadline ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_ends_with_its_time(name):
    inner = Scripted(100.0)

    error = await failing(around(inner, timeout=7), name)

    assert asyncio.get_running_loop().time() == 7
    assert type(error) is A2AClientTimeoutError
    assert "did not finish within the timeout of 7 s" in str(error)
    assert error.__cause__ is None
    assert retry_facts(error).attempts == 1
    assert inner.open == 0


async def test_the_error_of_a_deadline_has_the_last_failure_as_its_cause():
    first = refused()
    inner = Scripted(first, 100.0)

    error = await failing(around(inner, timeout=7))

    assert type(error) is A2AClientTimeoutError
    assert error.__cause__ is first
    assert retry_facts(error) == RetryFacts(attempts=2, reason="the timeout of the call expired")


async def test_a_wait_beyond_the_deadline_is_not_begun():
    error = status_error(503, retry_after="10")
    inner = Scripted(1.0, error)

    assert await failing(around(inner, timeout=11)) is error

    assert asyncio.get_running_loop().time() == 1
    assert "would exceed the deadline" in retry_facts(error).reason


async def test_the_events_of_a_stream_have_no_deadline():
    async def slow_events():
        for event in EVENTS:
            yield event
            await asyncio.sleep(100)

    inner = Scripted()
    inner.subscribe = lambda request, *, context=None: slow_events()

    assert await call(around(inner, timeout=7), "subscribe") == EVENTS


async def test_a_timeout_of_a_third_partys_transport_is_its_own():
    error = TimeoutError("its own")
    inner = Scripted(error)

    assert await failing(around(inner, timeout=7)) is error


# ── The budget ───────────────────────────────────────────────────────────────────────────────


async def test_retries_stop_while_most_calls_fail():
    inner = Scripted(*[refused() for _ in range(100)])
    transport = around(inner, base_delay=0)

    errors = [await failing(transport) for _ in range(10)]

    assert len(inner.calls) == 10 + 3
    assert retry_facts(errors[-1]).reason == "the agent's retry budget is exhausted"


async def test_a_budget_can_be_shared():
    budget = SharedBudget(BudgetPolicy(tokens=4))
    inner = Scripted(*[refused() for _ in range(100)])

    for _ in range(5):
        await failing(around(inner, base_delay=0, budget=budget))

    assert len(inner.calls) == 5 + 1
    assert budget.tokens == 0


async def test_there_need_be_no_budget():
    inner = Scripted(*[refused() for _ in range(100)])
    transport = around(inner, base_delay=0, budget=None)

    for _ in range(5):
        await failing(transport)

    assert len(inner.calls) == 5 * 4


async def test_a_success_gives_something_back():
    budget = SharedBudget(BudgetPolicy(tokens=10, success_gives=1, seconds_per_token=math.inf))
    transport = around(Scripted(refused()), budget=budget)

    await call(transport, "get_task")

    assert budget.tokens == 10


async def test_an_answer_costs_nothing():
    budget = SharedBudget()

    await failing(around(Scripted(TaskNotFoundError()), budget=budget))

    assert budget.tokens == 10


def test_each_event_loop_has_its_own_budget():
    budget = SharedBudget(BudgetPolicy(tokens=4))

    async def spend():
        inner = Scripted(*[refused() for _ in range(9)])
        await failing(around(inner, base_delay=0, budget=budget))
        return len(inner.calls)

    assert [run(spend()), run(spend())] == [2, 2]


# ── What the caller learns ───────────────────────────────────────────────────────────────────


async def test_the_error_is_the_sdks_own_and_says_what_was_tried():
    errors = [unanswered() for _ in range(4)]
    cause = errors[3].__cause__

    error = await failing(around(Scripted(*errors)))

    assert error is errors[3]
    assert error.__cause__ is cause
    assert error.__context__ is None
    assert error.__notes__ == [
        "Holdfast stopped retrying after 4 tries: the limit of 3 retries is reached"
    ]
    assert retry_facts(error) == RetryFacts(attempts=4, reason="the limit of 3 retries is reached")


@pytest.mark.parametrize("name", CONDITIONAL)
async def test_it_says_that_a_message_may_have_been_executed(name):
    error = await failing(around(Scripted(timed_out())), name)

    assert error.__notes__ == [
        "Holdfast stopped retrying after 1 try: the agent may have executed it"
    ]


async def test_the_same_error_is_noted_once():
    error = refused()

    for _ in range(2):
        assert await failing(around(Scripted(error), max_retries=0)) is error

    assert len(error.__notes__) == 1


# ── The caller's request ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [*CALLS, "get_extended_agent_card"])
async def test_what_a_decorator_writes_never_reaches_the_caller(name):
    seen = []
    kind = (UNARY | STREAMS).get(name, (sdk.GetExtendedAgentCardRequest,))[0]
    inner = Scripted(refused())
    request = kind()

    class Scribbler(TenantTransportDecorator):
        def _resolve_tenant(self, tenant):
            seen.append(tenant)
            return f"{tenant}x"

    transport = around(Scribbler(inner, "tenant"))
    if name == "get_extended_agent_card":
        inner._script.clear()
        await transport.get_extended_agent_card(request)
    else:
        await call(transport, name, request)

    assert request == kind()
    assert set(seen) == {""}
    assert {asked.tenant for _, asked, *_ in inner.calls} == {"x"}


@pytest.mark.parametrize("name", CALLS)
async def test_it_works_on_both_sides_of_the_tenant_decorator(name):
    for wrap in (
        lambda inner: around(TenantTransportDecorator(inner, "acme")),
        lambda inner: TenantTransportDecorator(around(inner), "acme"),
    ):
        inner = Scripted(refused())
        await call(wrap(inner), name)
        assert [asked.tenant for _, asked, *_ in inner.calls] == ["acme"] * 2


# ── Arguments ────────────────────────────────────────────────────────────────────────────────


class PredicateThatWaits:
    async def __call__(self, _):
        return False


async def predicate_that_waits(error):
    return True


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"max_retries": -1}, ValueError),
        ({"max_retries": 1.5}, TypeError),
        ({"max_retries": math.inf}, TypeError),
        ({"max_retries": True}, TypeError),
        *[
            ({name: value}, kind)
            for name in ("base_delay", "max_delay")
            for value, kind in [
                (-1, ValueError),
                (math.nan, ValueError),
                (math.inf, ValueError),
                (True, TypeError),
                ("1", TypeError),
                (None, TypeError),
            ]
        ],
        ({"max_retry_after": -1}, ValueError),
        ({"max_retry_after": math.nan}, ValueError),
        ({"max_retry_after": "60"}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": math.nan}, ValueError),
        ({"timeout": math.inf}, ValueError),
        ({"timeout": False}, TypeError),
        ({"timeout": "1"}, TypeError),
        ({"retry_predicate": True}, TypeError),
        ({"retry_predicate": predicate_that_waits}, TypeError),
        ({"retry_predicate": PredicateThatWaits()}, TypeError),
        ({"on_retry": "print"}, TypeError),
        ({"resend_ambiguous": 1}, TypeError),
        ({"budget": 10}, TypeError),
        ({"budget": "none"}, TypeError),
        ({"budget": True}, TypeError),
        ({"budget": BudgetPolicy}, TypeError),
    ],
)
def test_what_cannot_be_right_is_refused_where_it_is_written(option, error):
    [name] = option

    with pytest.raises(error, match=name):
        RetryTransport(Scripted(), **option)
    with pytest.raises(error, match=name):
        RetryConfig(**option)


@pytest.mark.parametrize("wrong", [None, "http://agent.example", Scripted, object()])
def test_only_a_transport_can_be_wrapped(wrong):
    with pytest.raises(TypeError, match="transport must be ClientTransport"):
        RetryTransport(wrong)


def test_a_shared_budget_is_made_of_a_policy():
    with pytest.raises(TypeError, match="policy must be BudgetPolicy"):
        SharedBudget(10)


async def test_a_config_serves_several_transports():
    told = []
    config = RetryConfig(max_retries=1, base_delay=2.0, on_retry=lambda *args: told.append(args))

    for _ in range(2):
        inner = Scripted(refused(), refused(), refused())
        await failing(RetryTransport.from_config(inner, config, env=Dice(0.5)))
        assert len(inner.calls) == 2

    assert [delay for _, _, delay in told] == [1.0, 1.0]
    with pytest.raises(TypeError, match="config must be RetryConfig"):
        RetryTransport.from_config(inner, {"max_retries": 1})


# ── Whatever happens ─────────────────────────────────────────────────────────────────────────


waits = st.floats(min_value=0, max_value=100)
failures = st.one_of(
    st.just(None),
    st.integers(min_value=0, max_value=90),
)


@given(
    script=st.lists(st.tuples(waits, failures), max_size=12),
    draws=st.lists(st.floats(min_value=0, max_value=1, exclude_max=True), min_size=1),
    timeout=st.none() | st.floats(min_value=0.001, max_value=200),
    max_retries=st.integers(min_value=0, max_value=8),
    base_delay=waits,
    max_delay=waits,
    name=st.sampled_from(CALLS),
)
def test_no_try_is_earlier_than_its_hint_and_none_later_than_the_deadline(
    script, draws, timeout, name, **numbers
):
    class Noting(Scripted):
        async def _next(self, *asked):
            try:
                return await super()._next(*asked)
            finally:
                ended.append(asyncio.get_running_loop().time())

    async def main():
        steps = []
        for lasts, hint in script:
            hints = {} if hint is None else {"retry_after": str(hint)}
            steps += [lasts, status_error(429, **hints)]
        inner = Noting(*steps)
        try:
            await call(around(inner, *draws, timeout=timeout, **numbers), name)
        except A2AClientError as error:
            facts = retry_facts(error)
            assert facts is not None
            assert facts.attempts == len(inner.calls)
        now = asyncio.get_running_loop().time()
        assert now - inner.times[0] <= (math.inf if timeout is None else timeout + 1e-6)
        assert len(inner.calls) <= numbers["max_retries"] + 1
        for begun, failed, (_, hint) in zip(inner.times[1:], ended, script, strict=False):
            assert begun >= failed + (hint or 0) - 1e-6
            assert hint is None or hint <= 60

    ended = []
    run(main())
