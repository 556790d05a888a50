"""Sending once: whatever goes wrong, nothing runs twice, and the error says what is known."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.answering_network import Answering
from tests.kit.effort import crossed, rounds

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    DeadlineExceededError,
    Limits,
    Message,
    OutcomeUnknownError,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    Role,
    TaskNotFoundError,
    TaskState,
    TaskTerminalError,
    connect,
    text_part,
)
from holdfast.errors import (
    AgentError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    ExtensionSupportRequiredError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    InvalidRequestError,
    LimitExceededError,
    MethodNotFoundError,
    ParseError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.extend import Endpoints, HttpReply, Interceptor
from holdfast.testing import (
    ConsistencyChecker,
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Garbage,
    Refuse,
    Reset,
    Respond,
    Stall,
    asks,
    bad_gateway,
    completes,
    fails,
    rate_limited,
    run,
    unavailable,
    works_forever,
)
from holdfast.types import TaskPushNotificationConfig

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])


class Recorded(FakeNetwork):
    """Keeps every request, those that no agent sees included."""

    def __init__(self, *agents):
        super().__init__(*agents)
        self.requests = []

    def stream(self, request):  # which every request goes through
        self.requests.append(request)
        return super().stream(request)

    def sent_ids(self):
        bodies = [json.loads(request.body) for request in self.requests if request.body]
        sent = [body.get("params", body) for body in bodies]
        return [params["message"]["messageId"] for params in sent if "message" in params]


def connected(agent, binding, *, network=None, **options):
    options.setdefault("on_unknown", "raise")  # what is known then; see test_lost_replies
    return connect(agent.url, engine=network or FakeNetwork(agent), bindings=(binding,), **options)


def now():
    return asyncio.get_running_loop().time()


# What goes wrong, and what a client can know of it: "never" ran, or "perhaps"; and whether trying
# again may help. What has "after" in its name happens after the agent ran the request.
FAULTS = {
    "refused": (Refuse(), "never", True),
    "429": (rate_limited(), "never", True),
    "429 with Retry-After": (rate_limited(retry_after=3), "never", True),
    "503 with Retry-After": (unavailable(retry_after=3), "never", True),
    "425": (Respond(status=425), "never", True),
    "403": (Respond(status=403), "never", False),
    "405": (Respond(status=405), "never", False),
    "413": (Respond(status=413), "never", False),
    "reset": (Reset(), "perhaps", True),
    "stall": (Stall(), "perhaps", True),
    "408": (Respond(status=408), "perhaps", True),
    "500": (Respond(status=500), "perhaps", True),
    "502": (bad_gateway(), "perhaps", True),
    "503": (unavailable(), "perhaps", True),
    "504": (Respond(status=504), "perhaps", True),
    "garbage": (Garbage(), "perhaps", False),
    "empty 200": (Respond(status=200, body=b"<html>"), "perhaps", False),
    "reset after": (Reset(after_execution=True), "perhaps", True),
    "stall after": (Stall(after_execution=True), "perhaps", True),
    "cut after": (Cut(after_bytes=20), "perhaps", True),
    "500 after": (Respond(status=500, after_execution=True), "perhaps", True),
    "502 after": (bad_gateway(after_execution=True), "perhaps", True),
    "503 after": (Respond(status=503, after_execution=True), "perhaps", True),
    "504 after": (Respond(status=504, after_execution=True), "perhaps", True),
    "garbage after": (Garbage(after_execution=True), "perhaps", False),
    "HTML after": (Respond(status=200, body=b"<html>", after_execution=True), "perhaps", False),
}
each_way_to_send = pytest.mark.parametrize(
    ("how", "operation"),
    [
        ("ask", "SendStreamingMessage"),
        ("ask", "SendMessage"),
        ("send_message", "SendMessage"),
    ],
)
each_fault = pytest.mark.parametrize("name", FAULTS)

CONFIG = TaskPushNotificationConfig(id="p-1", task_id="task-1", url="https://me.test/push")

# Each operation: what it needs to be there, and the call. Those that change something with each
# execution must not run twice.
CONDITIONAL = {
    "SendMessage": lambda client: client.send_message("again"),
    "CreateTaskPushNotificationConfig": lambda client: client.create_task_push_notification_config(
        CONFIG
    ),
}
REPEATABLE = {
    "GetTask": lambda client: client.get_task("task-1"),
    "ListTasks": lambda client: client.list_tasks(),
    "CancelTask": lambda client: client.cancel_task("task-1", timeout=600),
    "GetTaskPushNotificationConfig": lambda client: client.get_task_push_notification_config(
        "task-1", "p-1"
    ),
    "ListTaskPushNotificationConfigs": lambda client: client.list_task_push_notification_configs(
        "task-1"
    ),
    "DeleteTaskPushNotificationConfig": lambda client: client.delete_task_push_notification_config(
        "task-1", "p-1"
    ),
}


async def with_a_task(agent, binding, **options):
    client = connected(agent, binding, **options)
    await client.send_message("first", return_immediately=True)
    return client


@pytest.mark.rule("P31", "D01")
@crossed("operation, name, binding", CONDITIONAL, FAULTS, ["JSONRPC", "HTTP+JSON"], turns=2)
async def test_what_must_not_run_twice_does_not(binding, operation, name):
    fault, ran, passing = FAULTS[name]
    agent = FakeAgent()
    client = await with_a_task(agent, binding)
    before = len(agent.calls(operation))
    agent.inject(fault, on=operation)

    try:
        await CONDITIONAL[operation](client)
        error = None
    except A2AError as failure:
        error = failure

    executions = len(agent.calls(operation)) - before
    if ran == "never" and passing:
        assert (error, executions) == (None, 1)
    elif ran == "never":
        assert (error.executed, executions) == (False, 0)
    else:
        assert error.executed is None
        assert executions == name.endswith("after")
        assert len(error.attempts) == 1
        lost = operation == "SendMessage" and passing
        assert isinstance(error, OutcomeUnknownError) == lost
    assert {len(made) for made in agent.executions.values()} == {1}


@crossed("operation, name, binding", REPEATABLE, FAULTS, ["JSONRPC", "HTTP+JSON"], turns=4)
async def test_what_may_run_twice_outlasts_what_passes(binding, operation, name):
    fault, ran, passing = FAULTS[name]
    agent = FakeAgent(lambda _turn: works_forever())
    client = await with_a_task(agent, binding)
    await client.create_task_push_notification_config(CONFIG)
    agent.inject(fault, on=operation)

    if passing:
        await REPEATABLE[operation](client)
        return
    with pytest.raises(A2AError) as caught:
        await REPEATABLE[operation](client)
    assert caught.value.executed is (False if ran == "never" else None)
    assert len(caught.value.attempts) == 1
    assert len(agent.calls(operation)) == name.endswith("after")


@pytest.mark.rule("P31")
@both_bindings
@pytest.mark.parametrize("status", [401, 403, 404, 425, 429])
async def test_a_status_taken_out_of_the_refusals_proves_nothing(binding, status):
    agent = FakeAgent()
    agent.inject(Respond(status=status, after_execution=True), on="SendMessage")
    resilience = Resilience(refusals=frozenset({503}))
    client = connected(agent, binding, resilience=resilience)

    with pytest.raises(A2AError) as caught:
        await client.send_message("hello")

    assert caught.value.executed is None
    assert [len(made) for made in agent.executions.values()] == [1]


@both_bindings
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Reset(after_execution=True), A2AConnectionError),
        (Cut(after_bytes=7), A2AConnectionError),
        (Stall(after_execution=True), A2ATimeoutError),
        (bad_gateway(after_execution=True), A2AHTTPError),
    ],
    ids=["reset", "cut", "stall", "502"],
)
@each_way_to_send
async def test_lost_reply_is_reported_with_all_known_facts(binding, fault, cause, how, operation):
    agent = FakeAgent(streaming=operation == "SendStreamingMessage")
    agent.inject(Refuse(), on=operation)
    agent.inject(fault, on=operation)
    client = connected(agent, binding)
    message = Message(message_id="m-1", role=Role.USER, parts=(text_part("hello"),))

    with pytest.raises(OutcomeUnknownError, match="message m-1") as caught:
        await getattr(client, how)(message, context_id="c-1")

    error = caught.value
    assert (error.message_id, error.context_id, error.searched) == ("m-1", "c-1", ())
    assert type(error.__cause__) is cause
    assert (error.executed, error.transient) == (None, False)
    assert [attempt.number for attempt in error.attempts] == [1, 2]
    assert error.attempts == error.__cause__.attempts
    assert error.request_id == error.__cause__.request_id
    assert error.agent.startswith("http://agent.test/r")
    assert list(agent.executions) == ["m-1"]


@pytest.mark.rule("D06")
@both_bindings
async def test_a_deadline_while_a_message_is_out_leaves_its_outcome_unknown(binding):
    agent = FakeAgent()
    agent.inject(Stall(after_execution=True), on="SendMessage")

    with pytest.raises(OutcomeUnknownError, match="the call timeout of 5 s") as caught:
        await connected(agent, binding).send_message("hello", timeout=5)

    assert type(caught.value.__cause__) is DeadlineExceededError
    assert now() == 5


@pytest.mark.rule("D06")
@both_bindings
async def test_a_deadline_after_a_refusal_knows_that_nothing_ran(binding):
    """The message went out and was turned away; the time ends before it goes out again."""

    async def hang(_number, _error, _wait):
        await asyncio.sleep(1000)

    agent = FakeAgent()
    agent.inject(rate_limited(), on="SendMessage")
    resilience = Resilience(retry=RetryPolicy(on_retry=hang))

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(agent, binding, resilience=resilience).send_message("hello", timeout=60)

    assert caught.value.executed is False
    assert now() == 60


@pytest.mark.rule("D06")
@both_bindings
@pytest.mark.parametrize("end", ["retries", "deadline"])
async def test_a_refusal_does_not_wash_off_an_earlier_execution(binding, end):
    """A cancel may have run in its first try, whatever became of the others."""
    agent = FakeAgent(lambda _turn: works_forever())
    client = await with_a_task(agent, binding)
    agent.inject(Reset(after_execution=True), on="CancelTask")
    agent.inject(Refuse(), on="CancelTask", times=20)
    timeout = 0.001 if end == "deadline" else 60

    with pytest.raises(A2AError) as caught:
        await client.cancel_task("task-1", timeout=timeout)

    assert len(agent.calls("CancelTask")) == 1
    assert caught.value.executed is None


A2A_ERRORS = {
    -32001: TaskNotFoundError,
    -32002: TaskNotCancelableError,
    -32003: PushNotificationNotSupportedError,
    -32004: UnsupportedOperationError,
    -32005: ContentTypeNotSupportedError,
    -32006: InvalidAgentResponseError,
    -32007: ExtendedAgentCardNotConfiguredError,
    -32008: ExtensionSupportRequiredError,
    -32009: VersionNotSupportedError,
    -32602: InvalidParamsError,
    -32603: InternalError,
}
RPC_ERRORS = {
    -32700: ParseError,
    -32600: InvalidRequestError,
    -32601: MethodNotFoundError,
    -32042: AgentError,
}
CASES = [(b, c, k) for b in ("JSONRPC", "HTTP+JSON") for c, k in A2A_ERRORS.items()]
CASES += [("JSONRPC", code, kind) for code, kind in RPC_ERRORS.items()]


@pytest.mark.rule("P31")
@pytest.mark.parametrize(("binding", "code", "kind"), CASES)
@each_way_to_send
async def test_an_a2a_error_is_raised_as_itself_and_ends_the_call(
    binding, code, kind, how, operation
):
    agent = FakeAgent(streaming=operation == "SendStreamingMessage")
    agent.inject(Fail(code=code, message="not like this", after_execution=True), on=operation)

    with pytest.raises(A2AError, match="not like this") as caught:
        await getattr(connected(agent, binding), how)("hello")

    assert type(caught.value) is kind
    assert caught.value.code == code
    assert caught.value.executed is (False if code in {-32700, -32009} else None)
    assert len(agent.calls("SendMessage") + agent.calls("SendStreamingMessage")) == 1


@pytest.mark.rule("D01")
@both_bindings
@both_ways
@pytest.mark.parametrize("given", [None, "mine"])
async def test_one_message_id_through_all_retries(binding, streaming, given):
    agent = FakeAgent(streaming=streaming)
    for fault in (Refuse(), rate_limited(), unavailable(retry_after=2)):
        agent.inject(fault, on="SendStreamingMessage" if streaming else "SendMessage")
    network = Recorded(agent)
    message = Message(message_id=given or "", parts=(text_part("hello"),))

    await connected(agent, binding, network=network).ask(message)

    ids = network.sent_ids()
    assert len(ids) == 4
    assert len(set(ids)) == 1
    assert given in {None, ids[0]}
    assert list(agent.executions) == ids[:1]


@both_bindings
@both_ways
async def test_two_messages_have_two_ids(binding, streaming):
    agent = FakeAgent(streaming=streaming)
    network = Recorded(agent)
    client = connected(agent, binding, network=network)

    await client.ask("hello")
    await client.ask("hello")

    assert len(set(network.sent_ids())) == 2


@both_bindings
async def test_a_cancel_that_ran_before_is_a_success(binding):
    agent = FakeAgent(lambda _turn: works_forever())
    client = await with_a_task(agent, binding)
    agent.inject(Reset(after_execution=True), on="CancelTask")

    task = await client.cancel_task("task-1")

    assert task.state is TaskState.CANCELED
    assert len(agent.calls("CancelTask")) == 2
    assert len(agent.calls("GetTask")) == 1


@both_bindings
async def test_a_retried_cancel_of_a_task_that_ended_otherwise_is_none(binding):
    agent = FakeAgent()
    client = await with_a_task(agent, binding)
    agent.inject(Reset(), on="CancelTask")

    with pytest.raises(TaskNotCancelableError) as caught:
        await client.cancel_task("task-1")

    assert caught.value.state is TaskState.COMPLETED
    assert len(caught.value.attempts) == 2


@both_bindings
async def test_a_retried_cancel_of_an_unknown_task_is_none(binding):
    agent = FakeAgent()
    agent.inject(Reset(), on="CancelTask")

    with pytest.raises(TaskNotFoundError) as caught:
        await connected(agent, binding).cancel_task("task-9")

    assert caught.value.task_id == "task-9"


@both_bindings
async def test_a_first_cancel_is_not_looked_into(binding):
    agent = FakeAgent(lambda _turn: works_forever())
    client = await with_a_task(agent, binding)
    await client.cancel_task("task-1")

    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task("task-1")

    assert agent.calls("GetTask") == []


@both_bindings
@pytest.mark.parametrize(("fault", "found"), [(Reset(after_execution=True), True), (None, False)])
async def test_a_config_that_is_gone_was_deleted_only_after_a_retry(binding, fault, found):
    agent = FakeAgent()
    client = await with_a_task(agent, binding)
    await client.create_task_push_notification_config(CONFIG)
    if fault is not None:
        agent.inject(fault, on="DeleteTaskPushNotificationConfig")

    await client.delete_task_push_notification_config("task-1", "p-1")

    assert (await client.list_task_push_notification_configs("task-1")).configs == ()
    with pytest.raises(TaskNotFoundError):
        await client.delete_task_push_notification_config("task-1", "p-1")


async def test_an_error_object_with_a_rate_limit_is_no_refusal():
    """Servers answer so after the agent ran: a hint says when, never whether."""

    agent = FakeAgent()
    hints = {"retryable": True, "retryAfter": 2}
    agent.inject(Fail(code=-32029, data=hints, after_execution=True), on="SendMessage")

    with pytest.raises(AgentError) as caught:
        await connected(agent, "JSONRPC").send_message("hello")

    error = caught.value
    assert (error.executed, error.transient, error.retry_after) == (None, True, 2)
    assert len(agent.calls("SendMessage")) == 1


async def test_a_rate_limited_read_with_an_error_object_is_retried():
    agent = FakeAgent()
    client = connected(agent, "JSONRPC")
    task = await client.send_message("hello")
    agent.inject(Fail(code=-32029, data={"retryable": True}), on="GetTask")

    assert await client.get_task(task.id) == task


# ── Any schedule ─────────────────────────────────────────────────────────────────────────────

PLANS = {
    "at once": completes("done"),
    "soon": completes("part one", "part two", after=3, works=1),
    "late": completes("done", after=100),
    "fails": fails("no", after=2),
    "asks": asks("which one?", after=1),
    "never": works_forever(),
}
any_fault = st.sampled_from([fault for fault, _, _ in FAULTS.values()]) | st.builds(
    Delay, seconds=st.floats(0, 300)
)
schedules = st.lists(
    st.tuples(
        st.sampled_from(["ask", "send", "get", "wait", "cancel"]),
        st.sampled_from(sorted(PLANS)),
        st.floats(0, 20),
        st.floats(0.5, 400),
    ),
    min_size=1,
    max_size=8,
)
injections = st.lists(
    st.tuples(
        st.sampled_from(
            [
                None,
                "SendMessage",
                "SendStreamingMessage",
                "SubscribeToTask",
                "GetTask",
                "CancelTask",
            ]
        ),
        any_fault,
    ),
    max_size=12,
)


async def _one(client, number, action, plan, timeout):
    """Makes one call; returns the message id, the result and the error."""
    message = Message(message_id=f"m-{number}", role=Role.USER, parts=(text_part(plan),))
    calls = {
        "ask": lambda: client.ask(message, timeout=timeout),
        "send": lambda: client.send_message(message, timeout=timeout),
        "get": lambda: client.get_task("task-1", timeout=timeout),
        "wait": lambda: client.wait("task-1", timeout=timeout),
        "cancel": lambda: client.cancel_task("task-1", timeout=timeout),
    }
    sent = message.message_id if action in {"ask", "send"} else None
    try:
        return sent, await calls[action](), None
    except A2AError as error:
        return sent, None, error


def _tasks_of(result):
    return getattr(result, "task", result)


@pytest.mark.rule("P31", "D01")
@given(
    binding=st.sampled_from(["JSONRPC", "HTTP+JSON"]),
    schedule=schedules,
    faults=injections,
    seed=st.integers(0, 2**32),
)
@settings(max_examples=rounds(25, 100))
def test_no_schedule_of_faults_runs_a_message_twice(binding, schedule, faults, seed):
    async def main():
        agent = FakeAgent(lambda turn: PLANS[turn.message.text], latency=0.05)
        for on, fault in faults:
            agent.inject(fault, on=on)
        network, shared = FakeNetwork(agent), Endpoints()

        async def later(number, action, plan, start, timeout):
            # Calls at the same time may learn of one task in any order, so each has a history.
            checker = ConsistencyChecker(agent)
            client = connected(
                agent, binding, network=network, shared=shared, consumers=[checker.consumer]
            )
            await asyncio.sleep(start)
            outcome = await _one(client, number, action, plan, timeout)
            checker.check()
            return outcome

        outcomes = await asyncio.gather(
            *(later(number, *step) for number, step in enumerate(schedule))
        )

        assert network.in_flight == 0
        assert {len(made) for made in agent.executions.values()} <= {1}
        for message_id, result, error in outcomes:
            if message_id is None:
                continue
            ran = message_id in agent.executions
            if result is not None:
                assert ran
                task = _tasks_of(result)
                assert [task.id] == agent.executions[message_id]
            elif error.executed is not None:
                assert error.executed == ran
            if isinstance(error, OutcomeUnknownError):
                assert error.message_id == message_id
            if isinstance(error, TaskTerminalError):
                assert [error.task.id] == agent.executions[message_id]

    run(main(), seed=seed)


def test_the_checker_would_notice():
    """A client that sends again by itself is caught by the same test."""

    async def main():
        agent = FakeAgent()
        client = connected(agent, "JSONRPC")
        message = Message(message_id="m-1", parts=(text_part("hello"),))
        await client.send_message(message)
        await client.send_message(message)
        return ConsistencyChecker(agent).problems()

    (problem,) = run(main())
    assert problem.startswith("message m-1 was executed 2 times")


@both_bindings
@pytest.mark.parametrize("kind", [PermissionDeniedError, RateLimitedError])
async def test_the_status_of_a_refusal_is_its_type(binding, kind):
    status = {PermissionDeniedError: 403, RateLimitedError: 429}[kind]
    agent = FakeAgent()
    agent.inject(Respond(status=status, body=b"no"), on="SendMessage", times=10)

    with pytest.raises(kind) as caught:
        await connected(agent, binding).send_message("hello")

    assert (caught.value.http_status, caught.value.executed) == (status, False)
    assert agent.executions == {}


async def test_an_error_after_execution_is_not_taken_for_a_refused_context():
    agent = FakeAgent(completes("42"), contexts="ignored")
    wrong = Fail(code=-32602, message="the context window is exceeded", after_execution=True)
    agent.inject(wrong, on="SendMessage")

    with pytest.raises(InvalidParamsError):
        await connected(agent, "JSONRPC", context_ids="client").send_message("How far?")

    assert [len(made) for made in agent.executions.values()] == [1]


# ── Replies that cannot be read ──────────────────────────────────────────────────────────────────


SPOKEN = {
    "url": "http://agent.test/rpc",
    "protocolBinding": "JSONRPC",
    "protocolVersion": "1.0",
}


ANOTHER = b'{"jsonrpc": "2.0", "id": "another", "result": {}}'


@pytest.mark.parametrize(
    ("body", "limits", "kind"),
    [
        (b"<html>", Limits(), InvalidAgentResponseError),
        (ANOTHER, Limits(), InvalidAgentResponseError),
        (b'{"a": [[[[1]]]]}', Limits(json_depth=3), LimitExceededError),
    ],
)
async def test_the_error_of_an_unreadable_reply_names_the_message(body, limits, kind):
    card = {
        "name": "Mute",
        "supportedInterfaces": [SPOKEN],
    }
    network = Answering(lambda _: HttpReply(status=200, body=body))
    client = connect(card, engine=network, limits=limits)
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}

    with pytest.raises(kind) as caught:
        await client.send_message(message)
    assert caught.value.executed is None
    assert "message m-1 was sent, and may have been executed" in str(caught.value)

    with pytest.raises(A2AError) as caught:
        await client.get_task("t")
    assert "may have been executed" not in str(caught.value)


# ── Executed or not ──────────────────────────────────────────────────────────────────────────────


def card_at(url, **members):
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **members}
    return {"name": "Found", "supportedInterfaces": [interface]}


@pytest.mark.rule("P31")
@both_bindings
@pytest.mark.parametrize("status", [429, 503, 401, 404])
async def test_a_result_under_an_error_status_is_not_taken_for_a_refusal(binding, status):
    class Gate(FakeNetwork):
        async def request(self, request):
            got = await super().request(request)
            if request.method == "GET":
                return got
            headers = {**got.headers, "retry-after": "1"}
            return HttpReply(status=status, headers=headers, body=got.body)

    agent = FakeAgent(bindings=(binding,))

    with pytest.raises(A2AError) as caught:
        await connected(agent, binding, network=Gate(agent)).send_message("hello")

    assert caught.value.executed is None
    assert [len(made) for made in agent.executions.values()] == [1]


@both_bindings
async def test_a_json_body_of_a_gateway_is_not_a_result(binding):
    agent = FakeAgent(bindings=(binding,))
    agent.inject(Respond(status=429, body=b'{"message": "Too Many Requests"}'))

    assert (await connected(agent, binding).ask("hello")).text == "hello"


class Failing:
    """An `AuthProvider` whose own call to somebody fails."""

    async def credentials(self, _call):
        raise A2AConnectionError("the token's server hung up", failure="disconnected")

    async def on_unauthorized(self, _call, _error):
        return False


async def test_a_failure_of_the_token_server_means_that_nothing_was_sent():
    agent = FakeAgent()
    client = connect(card_at("http://agent.test/rpc"), engine=FakeNetwork(agent), auth=Failing())

    with pytest.raises(A2AConnectionError) as caught:
        await client.send_message("hello")

    assert (caught.value.executed, agent.received) == (False, [])
    assert not isinstance(caught.value, OutcomeUnknownError)


async def test_a_deadline_during_an_interceptor_says_that_the_message_was_executed():
    class Slow(Interceptor):
        async def after(self, call, outcome):
            await asyncio.sleep(1000)
            return outcome

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(FakeAgent(), "JSONRPC", interceptors=[Slow()]).send_message(
            "hello", timeout=10
        )

    assert caught.value.executed is True


async def test_a_refused_attempt_is_not_taken_for_the_deletion_of_a_config():
    agent = FakeAgent()
    agent.inject(Refuse(), on="DeleteTaskPushNotificationConfig")

    with pytest.raises(TaskNotFoundError):
        await connected(agent, "JSONRPC").delete_task_push_notification_config("task", "config")
