"""Lost replies: the task of the message is found, or the outcome is reported as unknown."""

import asyncio
import re

import msgspec
import pytest
from tests.kit.virtual_env import FixedDraws, VirtualWall

from holdfast import (
    A2AConnectionError,
    A2AError,
    BreakerPolicy,
    CircuitOpenError,
    DeadlineExceededError,
    Limits,
    Message,
    OutcomeUnknownError,
    Part,
    ReconcilePolicy,
    Resilience,
    RetryPolicy,
    Role,
    Task,
    TaskFailedError,
    TaskState,
    Timeouts,
    connect,
)
from holdfast.client import TextDelta
from holdfast.errors import DuplicateTasksError, InvalidParamsError, JournalError
from holdfast.extend import BaseLayer, SqliteJournal
from holdfast.observe import OperationFinished, Reconciled, ReconcileStarted, RequestFinished
from holdfast.protocol import SEND_MESSAGE
from holdfast.testing import (
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
    streams,
)
from holdfast.types import SendMessageRequest

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
losses = pytest.mark.parametrize(
    "loss",
    [
        pytest.param(Reset(after_execution=True), id="reset"),
        pytest.param(Cut(), id="cut"),
        pytest.param(Stall(after_execution=True), id="stall"),
        pytest.param(bad_gateway(after_execution=True), id="gateway"),
    ],
)

SENDS = {True: "SendStreamingMessage", False: "SendMessage"}


def connected(agent, binding="JSONRPC", **options):
    options.setdefault("engine", FakeNetwork(agent))
    return connect(agent.url, bindings=[binding], **options)


class Clock(BaseLayer):
    """A proxy that sets the Date header."""

    date = ""

    async def unary(self, call):
        reply = await super().unary(call)
        headers = {name: value for name, value in reply.headers.items() if name != "date"}
        if self.date:
            headers["date"] = self.date
        return msgspec.structs.replace(reply, headers=headers)


def clock_of(utc_time):
    return type("SomeClock", (Clock,), {"date": utc_time})


def now():
    return asyncio.get_running_loop().time()


# ── Found ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S05", "D01")
@both_bindings
@losses
async def test_s05_a_lost_reply_is_replaced_by_the_task_of_the_message(binding, loss):
    agent = FakeAgent(completes("42"))
    agent.inject(loss, on="SendMessage")

    task = await connected(agent, binding).send_message("How far?")

    assert (task.state, task.text) == (TaskState.COMPLETED, "42")
    assert list(agent.executions.values()) == [[task.id]]
    assert len(agent.calls("SendMessage")) == 1


@pytest.mark.rule("S05")
@both_bindings
@both_ways
@losses
async def test_s05_a_lost_answer_is_found(binding, streaming, loss):
    agent = FakeAgent(completes("42", after=3), streaming=streaming)
    agent.inject(loss, on=SENDS[streaming])

    answer = await connected(agent, binding).ask("How far?")

    assert answer.text == "42"
    assert list(agent.executions.values()) == [[answer.task_id]]
    assert len(agent.calls(SENDS[streaming])) == 1


@both_bindings
async def test_a_stream_lost_before_its_first_event_subscribes_to_the_task(binding):
    agent = FakeAgent(streams(*"abcdef", every=1))
    agent.inject(Reset(after_execution=True), on="SendStreamingMessage")

    async with connected(agent, binding).stream_message("Spell.") as events:
        pieces = [piece async for piece in events.text_changes()]
        answer = await events.result()

    assert all(isinstance(piece, TextDelta) for piece in pieces)
    assert "".join(piece.text for piece in pieces) == answer.text == "abcdef"
    assert len(agent.calls("SendStreamingMessage")) == 1
    assert len(agent.calls("SubscribeToTask")) == 1
    assert agent.open_streams == 0


NAMELESS = {
    "of an unknown kind": b'{"surprise": {}}',
    "nothing": b"{}",
    "a status": b'{"statusUpdate": {"status": {"state": "TASK_STATE_WORKING"}}}',
}
"""Return events that name no task."""


def nameless(name, *, tail=b""):
    return Respond(
        status=200,
        headers={"content-type": "text/event-stream"},
        body=b"data: " + NAMELESS[name] + b"\n\n" + tail,
        after_execution=True,
    )


@pytest.mark.rule("S05")
@pytest.mark.parametrize(
    ("name", "tail"),
    [("of an unknown kind", b""), ("nothing", b""), ("a status", b""), ("a status", b"data: {")],
)
async def test_s05_a_stream_that_breaks_before_it_names_its_task_finds_it(name, tail):
    agent = FakeAgent(streams(*"abcdef", every=1))
    agent.inject(nameless(name, tail=tail), on="SendStreamingMessage")

    async with connected(agent, "HTTP+JSON").stream_message("Spell.") as events:
        text = "".join([piece async for piece in events.text_deltas()])
        answer = await events.result()

    assert text == answer.text == "abcdef"
    assert list(agent.executions.values()) == [[answer.task_id]]


@pytest.mark.rule("S05")
@pytest.mark.parametrize(
    ("name", "on_unknown"),
    [
        ("nothing", "reconcile"),
        ("a status", "reconcile"),
        ("nothing", "raise"),
        ("nothing", "resend"),
    ],
)
async def test_s05_a_stream_that_never_named_its_task_has_an_unknown_outcome(name, on_unknown):
    agent = FakeAgent(completes("42"), lists_tasks=False)
    agent.inject(nameless(name), on="SendStreamingMessage")
    network = FakeNetwork(agent)
    client = connected(agent, "HTTP+JSON", engine=network)

    with pytest.raises(OutcomeUnknownError, match="before it named a task") as caught:
        async with client.stream_message("How far?", on_unknown=on_unknown) as events:
            await events.result()

    error = caught.value
    assert [error.message_id] == list(agent.executions)
    assert (error.executed, len(error.attempts), error.agent) == (None, 1, f"{agent.url}/rest")
    assert bool(error.searched) == (on_unknown == "reconcile")
    assert isinstance(error.__cause__, A2AConnectionError)
    assert len(agent.calls("SendStreamingMessage")) == 1
    assert network.in_flight == 0


async def test_an_error_event_before_a_task_is_raised_unchanged():
    agent = FakeAgent(completes("42"))
    says = b'event: error\ndata: {"error": {"code": 500, "message": "no", "details": []}}\n\n'
    agent.inject(nameless("nothing", tail=says), on="SendStreamingMessage")

    with pytest.raises(A2AError, match="no") as caught:
        await connected(agent, "HTTP+JSON").ask("How far?")

    assert not isinstance(caught.value, OutcomeUnknownError)
    assert not agent.calls("ListTasks")


async def test_a_task_that_failed_meanwhile_is_the_result():
    agent = FakeAgent(fails("no oven"))
    agent.inject(Reset(after_execution=True), on="SendStreamingMessage")

    with pytest.raises(TaskFailedError, match="no oven"):
        await connected(agent).ask("Bake.")


async def test_a_blocking_send_waits_for_the_found_task():
    agent = FakeAgent(completes("42", after=90))
    agent.inject(bad_gateway(after_execution=True), on="SendMessage")

    task = await connected(agent).send_message("How far?")

    assert task.state is TaskState.COMPLETED


async def test_return_immediately_returns_the_found_task_as_it_is():
    agent = FakeAgent(completes("42", after=90))
    agent.inject(Reset(after_execution=True), on="SendMessage")

    task = await connected(agent).send_message("How far?", return_immediately=True)

    assert task.state is not TaskState.COMPLETED
    assert now() < 30


@both_bindings
@both_ways
async def test_a_reply_to_a_known_task_is_searched_for_in_that_task(binding, streaming):
    agent = FakeAgent(
        lambda turn: asks("For how many?") if turn.task is None else completes("Booked."),
        streaming=streaming,
    )
    client = connected(agent, binding)
    question = await client.ask("Book.")
    agent.inject(Reset(after_execution=True), on=SENDS[streaming])

    answer = await client.ask("Two.", task_id=question.task_id, context_id=question.context_id)

    assert answer.text == "Booked."
    assert [len(attempts) for attempts in agent.executions.values()] == [1, 1]
    assert not agent.calls("ListTasks")


async def test_a_message_of_a_context_is_searched_for_in_that_context():
    agent = FakeAgent(completes("42"))
    client = connected(agent)
    first = await client.send_message("How far?")
    agent.inject(Reset(after_execution=True), on="SendMessage")

    second = await client.send_message("And Mars?", context_id=first.context_id)

    assert second.id != first.id
    assert second.context_id == first.context_id


async def test_a_request_that_arrives_late_is_found_in_a_later_round():
    agent = FakeAgent(completes("42"))
    agent.inject(Delay(seconds=125, after_execution=False), on="SendMessage")

    task = await connected(agent).send_message("How far?")  # first byte: 120 s

    assert task.text == "42"
    assert len(agent.calls("ListTasks")) > 1


def raw(text="How far?"):
    message = Message(message_id="m-1", role=Role.USER, parts=(Part(text=text),))
    return SEND_MESSAGE, SendMessageRequest(message=message)


async def test_a_message_of_a_raw_call_is_searched_for():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")

    reply = await connected(agent).call(*raw())

    assert reply.value.task.text == "42"
    assert agent.executions == {"m-1": [reply.value.task.id]}


async def test_on_unknown_applies_to_a_raw_call():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")

    with pytest.raises(OutcomeUnknownError, match="It was not sent again"):
        await connected(agent).call(*raw(), on_unknown="raise")

    assert not agent.calls("ListTasks")


async def test_a_message_of_a_raw_call_is_recorded_before_it_is_sent(tmp_path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Stall(after_execution=True), on="SendMessage")
    client = connected(agent, journal=journal)
    sending = asyncio.create_task(client.call(*raw()))
    await asyncio.sleep(1)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)

    (pending,) = await client.pending()
    assert pending.message_id == "m-1"
    assert (await pending.resume()).text == "42"
    with pytest.raises(JournalError, match="m-1"):
        await client.call(*raw())
    assert agent.executions == {"m-1": ["task-1"]}
    await journal.close()


async def test_the_reply_to_a_raw_call_finishes_its_record(tmp_path):
    answer = Message(message_id="a-1", role=Role.AGENT, parts=(Part(text="hi"),))
    agent, journal = FakeAgent(answer), SqliteJournal(tmp_path / "j")
    client = connected(agent, journal=journal)

    reply = await client.call(*raw())

    assert reply.value.message.text == "hi"
    assert reply.headers["content-type"] == "application/json"
    assert await client.pending() == []
    await journal.close()


async def test_a_lagging_store_is_searched_again():
    agent = FakeAgent(completes("42"), store_lag=8)
    agent.inject(Reset(after_execution=True), on="SendMessage")

    task = await connected(agent).send_message("How far?")

    assert task.text == "42"


@pytest.mark.parametrize("page", [0, 130, 249])
async def test_every_page_is_read(page):
    agent = FakeAgent(completes("42"))
    client = connected(agent)
    for _ in range(page):
        await client.send_message("before")
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(Delay(seconds=3, after_execution=False), on="ListTasks")
    sending = asyncio.create_task(client.send_message("How far?"))
    await asyncio.sleep(1)
    for _ in range(249 - page):
        await client.send_message("after")

    task = await sending

    assert task.history[0].parts[0].text == "How far?"


@both_bindings
@pytest.mark.parametrize(
    "trouble",
    [bad_gateway(), Respond(status=500), Fail(code=-32603), Garbage(), Stall()],
    ids=["gateway", "500", "internal", "garbage", "stall"],
)
async def test_a_failed_round_is_followed_by_another(binding, trouble):
    agent = FakeAgent(completes("42"))
    times = 1 if isinstance(trouble, Stall) else 6
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(trouble, on="ListTasks", times=times)
    agent.inject(bad_gateway(), on="GetTask", times=1)
    timeouts = Timeouts(first_byte=10)

    client = connected(agent, binding, resilience=Resilience(timeouts=timeouts))

    assert (await client.send_message("How far?")).text == "42"


async def test_an_agent_that_cannot_list_by_time_still_has_a_list():
    agent = FakeAgent(completes("42"))
    client = connected(agent)
    for _ in range(2):
        agent.inject(Reset(after_execution=True), on="SendMessage")
        agent.inject(Fail(code=-32004, message="no filter"), on="ListTasks")

        assert (await client.send_message("How far?")).text == "42"


async def test_a_page_that_is_too_large_is_requested_in_smaller_ones():
    agent = FakeAgent(completes("42"))
    client = connected(agent, limits=Limits(body=20_000))
    for _ in range(30):
        await client.send_message("x" * 1000)
    agent.inject(Reset(after_execution=True), on="SendMessage")

    assert (await client.send_message("How far?")).text == "42"


async def test_an_agent_that_is_unreachable_for_a_while_has_a_list():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(Respond(status=404, body=b"default backend"), on="ListTasks", times=3)

    task = await connected(agent, "JSONRPC").send_message("How far?")

    assert task.text == "42"


async def test_a_search_waits_for_the_circuit_that_the_lost_reply_has_opened():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")
    policies = Resilience(
        breaker=BreakerPolicy.simple(failures=1, open_for=10),
        reconcile=ReconcilePolicy(backoff=100, max_backoff=100),
    )

    task = await connected(agent, resilience=policies, env=FixedDraws()).send_message("How far?")

    assert (task.text, now()) == ("42", 10)


# ── Not found ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("D01")
@both_bindings
@both_ways
async def test_a_message_that_never_arrived_has_an_unknown_outcome(binding, streaming):
    agent = FakeAgent(streaming=streaming)
    agent.inject(Reset(), on=SENDS[streaming])

    with pytest.raises(OutcomeUnknownError) as caught:
        await connected(agent, binding).ask("hello")

    error = caught.value
    assert (error.executed, agent.executions) == (None, {})
    assert isinstance(error.__cause__, A2AConnectionError)
    (looked,) = error.searched
    assert looked.startswith("the tasks that changed since the message was sent (read ")
    searches = (
        r"\d+ searches in 30 s found no task of the message, which does not prove that it was "
    )
    searched = "not executed; searched: the tasks that changed since the message was sent. "
    assert re.search(searches + searched, error.message)
    assert agent.calls(SENDS[streaming]) == []
    assert now() <= 30


async def test_the_error_passed_to_observers_is_not_changed_later():
    agent, observed_errors, calls = FakeAgent(), [], []
    agent.inject(Reset(), on="SendMessage")

    def note(observation):
        if isinstance(observation, OperationFinished):
            calls.append(observation)
        elif isinstance(observation, RequestFinished) and observation.method == "SendMessage":
            observed_errors.append((observation.error, observation.error.message))

    with pytest.raises(OutcomeUnknownError, match="It was not sent again") as caught:
        await connected(agent, observers=[note]).send_message("hello")

    ((error, message),) = observed_errors
    assert error.message == message
    assert error.searched == ()
    assert caught.value.message.startswith(message)
    assert [(call.operation, call.error) for call in calls] == [("send_message", caught.value)]


async def test_a_reply_that_is_a_message_is_not_found():
    agent = FakeAgent(Message(role=Role.AGENT, parts=(Part(text="hi"),)))
    agent.inject(Reset(after_execution=True), on="SendMessage")

    with pytest.raises(OutcomeUnknownError):
        await connected(agent).send_message("hello")

    assert len(agent.executions) == 1


async def test_an_agent_without_histories_has_an_unknown_outcome():
    agent = FakeAgent(completes("42"), records_messages=False)
    agent.inject(Reset(after_execution=True), on="SendMessage")

    with pytest.raises(OutcomeUnknownError):
        await connected(agent).send_message("How far?")


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_an_agent_without_a_list_is_remembered_and_the_error_is_immediate(version):
    agent = FakeAgent(completes("42"), lists_tasks=False, versions=(version,))
    client = connected(agent)
    for _ in range(2):
        agent.inject(Reset(after_execution=True), on="SendMessage")
        with pytest.raises(OutcomeUnknownError, match="list") as caught:
            await client.send_message("How far?")
        assert len(caught.value.searched) == 1

    assert len(agent.calls("ListTasks")) <= 1
    assert now() == 0


@pytest.mark.parametrize(
    "options",
    [{"on_unknown": "raise"}, {"resilience": Resilience.off()}],
    ids=["raise", "off"],
)
async def test_on_unknown_raise_does_not_search(options):
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")

    with pytest.raises(OutcomeUnknownError) as caught:
        await connected(agent, **options).send_message("How far?")

    assert caught.value.searched == ()
    assert not agent.calls("ListTasks")
    assert now() == 0


@pytest.mark.parametrize("option", ["ask", "send_message", "stream_message"])
async def test_on_unknown_of_a_call_overrides_the_clients(option):
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), times=1)
    client = connected(agent)

    called = getattr(client, option)("How far?", on_unknown="raise")

    with pytest.raises(OutcomeUnknownError):
        await (called.__aenter__() if option == "stream_message" else called)

    assert not agent.calls("ListTasks")


async def test_on_unknown_is_only_for_operations_that_send_messages():
    agent = FakeAgent()
    client = connected(agent)

    with pytest.raises(TypeError, match="on_unknown"):
        await client.get_task("task-1", on_unknown="raise")
    with pytest.raises(ValueError, match="on_unknown must be one of reconcile, raise"):
        await client.ask("hello", on_unknown="again")


async def test_the_search_ends_at_the_deadline_of_the_call():
    agent = FakeAgent()
    agent.inject(Reset(), on="SendMessage")
    agent.inject(Stall(), on="ListTasks", times=9)

    with pytest.raises(OutcomeUnknownError) as caught:
        await connected(agent).send_message("hello", timeout=7)

    assert caught.value.searched
    assert now() == 7


async def test_the_search_ends_at_the_timeout_of_its_policy():
    agent = FakeAgent()
    agent.inject(Reset(), on="SendMessage")
    policy = ReconcilePolicy(timeout=300)

    with pytest.raises(OutcomeUnknownError):
        await connected(agent, resilience=Resilience(reconcile=policy)).send_message("hello")

    assert 290 < now() <= 300


async def test_closing_the_client_ends_the_search():
    agent = FakeAgent()
    agent.inject(Reset(), on="SendMessage")
    client = connected(agent)
    sending = asyncio.create_task(client.send_message("hello"))
    await asyncio.sleep(6)
    await client.close()

    with pytest.raises(OutcomeUnknownError):
        await sending

    assert now() == 6


ENDS = {
    "deadline": "the call timeout of 7 s",
    "closed": "the client was closed",
    "refused": "refused",
    "unauthorized": "401",
}


@both_ways
@pytest.mark.parametrize("end", ENDS)
async def test_an_unfinished_search_says_so_and_leaves_the_call_pending(tmp_path, streaming, end):
    agent, journal = FakeAgent(completes("42"), streaming=streaming), SqliteJournal(tmp_path / "j")
    agent.inject(Reset(), on=SENDS[streaming])
    if end == "refused":
        agent.inject(Refuse(), on="ListTasks", times=500)
    elif end == "unauthorized":
        agent.inject(Respond(status=401), on="ListTasks", times=500)
    client = connected(agent, journal=journal)
    sending = asyncio.create_task(client.ask("hello", timeout=7 if end == "deadline" else None))
    await asyncio.sleep(6)
    if end == "closed":
        await client.close()

    with pytest.raises(OutcomeUnknownError, match=ENDS[end]) as caught:
        await sending

    error = caught.value
    assert error.searched[0].startswith("the tasks that changed since the message was sent")
    assert error.search_error is not None
    assert error.search_error.message in error.message
    assert "does not prove that" not in error.message
    assert [call.message_id for call in await connected(agent, journal=journal).pending()] == [
        error.message_id
    ]
    await journal.close()


async def test_a_client_closed_once_the_task_is_found_says_so(tmp_path):
    agent, journal = FakeAgent(completes("42", after=90)), SqliteJournal(tmp_path / "j")
    agent.inject(bad_gateway(after_execution=True), on="SendMessage")
    closing = []

    def close(observation):
        if isinstance(observation, Reconciled):
            closing.append(asyncio.create_task(client.close()))

    client = connected(agent, journal=journal, observers=[close])

    with pytest.raises(A2AConnectionError, match="closed"):
        await client.send_message("How far?")

    await closing[0]
    (pending,) = await connected(agent, journal=journal).pending()
    assert (await pending.resume()).text == "42"
    await journal.close()


async def test_a_cancelled_search_leaves_the_call_pending(tmp_path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Delay(seconds=130, after_execution=False), on="SendMessage")
    client = connected(agent, journal=journal)
    sending = asyncio.create_task(client.send_message("hello"))
    await asyncio.sleep(121)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await asyncio.sleep(10)

    (pending,) = await client.pending()

    assert (await pending.resume()).text == "42"
    await journal.close()


async def test_a_search_that_never_began_is_unfinished(tmp_path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Stall(after_execution=True), on="SendMessage")
    client = connected(agent, journal=journal)

    with pytest.raises(OutcomeUnknownError, match="No search was made") as caught:
        await client.send_message("hello", timeout=5.12345)

    assert "did not finish within the call timeout of 5.12 s. No search" in caught.value.message
    assert "made: the call timeout of 5.12 s expired before the search" in caught.value.message
    assert caught.value.message.count("the search for message") == 1
    assert caught.value.searched == ()
    assert isinstance(caught.value.search_error, DeadlineExceededError)
    assert caught.value.search_error.deadline == "call"
    (pending,) = await client.pending()
    assert (await pending.resume()).text == "42"
    await journal.close()


async def test_a_client_closed_during_the_first_request_of_a_search_reports_that_it_began():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(Stall(), on="ListTasks")
    client = connected(agent)
    sending = asyncio.create_task(client.send_message("hello"))
    await asyncio.sleep(6)
    await client.close()

    with pytest.raises(
        OutcomeUnknownError, match=r"not finished after .* closed during"
    ) as caught:
        await sending

    assert "No search was made" not in caught.value.message


async def test_a_resumed_call_that_cannot_be_searched_for_says_why(tmp_path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Stall(after_execution=True), on="SendMessage")
    agent.inject(Refuse(), on="ListTasks", times=100)
    client = connected(agent, journal=journal)
    with pytest.raises(OutcomeUnknownError):
        await client.send_message("hello", timeout=5)
    (pending,) = await client.pending()

    with pytest.raises(OutcomeUnknownError, match=r"was sent failed: .*refused") as caught:
        await pending.resume(timeout=7)

    late = caught.value.search_error
    assert isinstance(late, DeadlineExceededError)
    assert late.deadline == "wait"
    assert isinstance(late.__cause__, A2AConnectionError | CircuitOpenError)
    assert caught.value.__cause__ is late
    assert caught.value.message_id == pending.message_id
    assert caught.value.executed is None
    assert [call.message_id for call in await client.pending()] == [pending.message_id]
    await journal.close()


@pytest.mark.parametrize("end", ["deadline", "closed", "cancelled"])
async def test_a_resumed_call_with_an_interrupted_search_can_be_resumed_again(tmp_path, end):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Delay(seconds=160, after_execution=False), on="SendMessage")
    first = connected(agent, journal=journal)
    with pytest.raises(OutcomeUnknownError):
        await first.send_message("hello", timeout=5)
    client = connected(agent, journal=journal)
    (pending,) = await client.pending()
    resuming = asyncio.create_task(pending.resume(timeout=7))
    await asyncio.sleep(6)
    if end == "closed":
        await client.close()
    elif end == "cancelled":
        resuming.cancel()

    errors = {"deadline": DeadlineExceededError, "closed": A2AConnectionError}
    if end == "cancelled":
        with pytest.raises(asyncio.CancelledError):
            await resuming
    else:
        with pytest.raises(OutcomeUnknownError) as caught:
            await resuming
        assert isinstance(caught.value.search_error, errors[end])
        assert caught.value.executed is None
    await asyncio.sleep(160)
    (pending,) = await connected(agent, journal=journal).pending()
    assert (await pending.resume()).text == "42"
    await journal.close()


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("timeout", [0, 0.5])
async def test_a_resumed_call_is_searched_for_at_least_once(tmp_path, arrives, timeout):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Stall(after_execution=arrives), on="SendMessage")
    agent.inject(Delay(seconds=3), on="ListTasks")
    resilience = Resilience(reconcile=ReconcilePolicy(timeout=timeout))
    client = connected(agent, journal=journal, resilience=resilience)
    sending = asyncio.create_task(client.send_message("How far?"))
    await asyncio.sleep(1)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    (pending,) = await client.pending()

    if arrives:
        assert (await pending.resume()).text == "42"
    else:
        with pytest.raises(
            OutcomeUnknownError,
            match="found no task of the message, which does not prove that it was not executed",
        ) as caught:
            await pending.resume()
        assert caught.value.search_error is None
    assert len(agent.calls("ListTasks")) == 1
    assert [call.is_unknown for call in await client.pending()] == [True] * (not arrives)
    await journal.close()


async def test_the_first_round_of_a_resumed_call_ends_at_its_deadline(tmp_path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Stall(), on="SendMessage")
    agent.inject(Stall(), on="ListTasks")
    client = connected(agent, journal=journal, resilience=Resilience.off())
    sending = asyncio.create_task(client.send_message("How far?"))
    await asyncio.sleep(1)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    (pending,) = await client.pending()

    with pytest.raises(OutcomeUnknownError, match="the wait timeout of 7 s") as caught:
        await pending.resume(timeout=7)

    assert isinstance(caught.value.search_error, DeadlineExceededError)
    assert len(await client.pending()) == 1
    await journal.close()


async def test_a_finished_search_leaves_a_call_with_an_unknown_outcome(tmp_path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Reset(), on="SendMessage")
    client = connected(agent, journal=journal)

    with pytest.raises(
        OutcomeUnknownError,
        match="found no task of the message, which does not prove that it was not executed",
    ) as caught:
        await client.send_message("hello")

    assert caught.value.search_error is None
    assert [call.is_unknown for call in await client.pending()] == [True]
    await journal.close()


async def test_an_agent_that_fails_during_the_search_does_not_prove_absence():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(), on="SendMessage")
    client = connected(agent, on_unknown="resend_if_absent")
    sending = asyncio.create_task(client.send_message("hello"))
    await asyncio.sleep(1)
    agent.inject(Refuse(), on="ListTasks", times=500)

    with pytest.raises(OutcomeUnknownError, match="refused") as caught:
        await sending

    assert caught.value.search_error is not None
    assert not agent.calls("SendMessage")


async def test_a_task_seen_in_a_list_proves_execution():
    agent = FakeAgent(completes("42", after=100))
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(Stall(), on="GetTask", times=9)

    with pytest.raises(DeadlineExceededError, match="task-1 was last seen") as caught:
        await connected(agent).send_message("How far?", return_immediately=True, timeout=7)

    assert caught.value.executed is True
    assert caught.value.task.id == "task-1"
    assert len(caught.value.attempts) == 1


async def test_a_task_seen_when_the_search_times_out_is_found(tmp_path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    client = connected(agent)
    for _ in range(500):
        await client.send_message("before")
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(Delay(seconds=9), on="ListTasks", times=9)
    client = connected(agent, journal=journal)

    task = await client.send_message("How far?")

    assert task.text == "42"
    assert len(agent.calls("ListTasks")) == 4
    assert await client.pending() == []
    await journal.close()


async def test_a_task_seen_in_a_list_is_recorded_though_it_cannot_be_fetched(tmp_path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(Stall(), on="GetTask", times=9)
    client = connected(agent, journal=journal)

    with pytest.raises(DeadlineExceededError, match="was last seen"):
        await client.send_message("How far?", timeout=60)
    (call,) = await client.pending()

    assert (call.task_id, call.state) == ("task-1", TaskState.COMPLETED)
    assert (await call.resume()).text == "42"
    await journal.close()


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_search_without_any_request_is_reported_as_such(version):
    agent = FakeAgent(completes("42"), lists_tasks=False, versions=(version,))
    agent.inject(Reset(after_execution=True), on="SendMessage")

    with pytest.raises(OutcomeUnknownError, match="the agent has no list of tasks") as caught:
        await connected(agent).send_message("How far?")

    assert "The search of the tasks that changed since the message was sent failed: " in str(
        caught.value
    )
    assert "not found" not in caught.value.message.partition("failed: ")[2]
    assert caught.value.search_error is None


async def test_cancelling_the_search_logs_nothing_and_sends_nothing():
    agent = FakeAgent()
    agent.inject(Reset(), on="SendMessage")
    sending = asyncio.create_task(connected(agent).send_message("hello"))
    await asyncio.sleep(6)
    sending.cancel()

    with pytest.raises(asyncio.CancelledError):
        await sending

    assert agent.executions == {}


# ── Duplicates ───────────────────────────────────────────────────────────────────────────────


class Doubled(BaseLayer):
    """A proxy that sends a request again if the reply is missing."""

    async def unary(self, call):
        if call.operation.name == "SendMessage":
            await super().unary(call)
        return await super().unary(call)


async def test_two_tasks_of_one_message_are_reported():
    agent = FakeAgent(completes("42"))
    agent.inject(Delay(seconds=0), on="SendMessage")
    agent.inject(Reset(after_execution=True), on="SendMessage")

    with pytest.raises(DuplicateTasksError) as caught:
        await connected(agent, attempt_layers=[Doubled]).send_message("How far?")

    (attempts,) = agent.executions.values()
    assert {task.id for task in caught.value.tasks} == set(attempts)
    assert len(attempts) == 2
    assert caught.value.executed is True
    assert all(task_id in str(caught.value) for task_id in attempts)


# ── Resending, as the caller allows ──────────────────────────────────────────────────────────


@pytest.mark.rule("D01")
async def test_resend_sends_again_without_a_search():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage", times=2)

    task = await connected(agent, on_unknown="resend").send_message("How far?")

    (attempts,) = agent.executions.values()
    assert task.text == "42"
    assert len(attempts) == 3  # the same message, as often as asked for
    assert not agent.calls("ListTasks")


async def test_resend_is_bounded_by_the_retry_policy():
    agent = FakeAgent()
    agent.inject(Reset(), on="SendMessage", times=9)

    with pytest.raises(OutcomeUnknownError):
        await connected(agent, on_unknown="resend").send_message("hello")

    assert len(agent.calls("SendMessage")) == 0
    assert len(agent.pending_faults) == 5


@pytest.mark.parametrize("on_unknown", ["raise", "reconcile"])
async def test_a_message_sent_once_is_reported_as_not_sent_again(on_unknown):
    agent = FakeAgent()
    agent.inject(Refuse(), on="SendMessage")
    agent.inject(Reset(), on="SendMessage")

    with pytest.raises(OutcomeUnknownError, match="It was not sent again") as caught:
        await connected(agent, on_unknown=on_unknown).send_message("hello")

    assert [attempt.executed for attempt in caught.value.attempts] == [False, None]


@both_ways
@pytest.mark.parametrize("on_unknown", ["resend", "resend_if_absent"])
async def test_a_resent_message_is_reported_with_every_attempt(on_unknown, streaming):
    agent = FakeAgent(streaming=streaming)
    agent.inject(Refuse(), on=SENDS[streaming])
    agent.inject(Reset(), on=SENDS[streaming], times=9)
    policy = Resilience(retry=RetryPolicy(max_retries=2, jitter=False))

    with pytest.raises(OutcomeUnknownError, match="It was sent 3 times") as caught:
        await connected(agent, on_unknown=on_unknown, resilience=policy).ask("hello")

    error = caught.value
    assert "not sent again" not in error.message
    assert [attempt.number for attempt in error.attempts] == [1, 2, 3, 4]
    assert [attempt.executed for attempt in error.attempts] == [False, None, None, None]
    ends = [attempt.started + attempt.duration for attempt in error.attempts]
    begins = [attempt.started for attempt in error.attempts[1:]]
    waits = [attempt.wait for attempt in error.attempts[:-1]]
    assert [end + wait for end, wait in zip(ends, waits, strict=False)] == pytest.approx(begins)
    assert error.attempts[-1].wait is None


async def test_a_refused_resend_is_reported():
    agent = FakeAgent()
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(Refuse(), on="SendMessage", times=99)
    client = connected(agent, on_unknown="resend")

    with pytest.raises(
        OutcomeUnknownError, match=r"It was sent once, and could not be sent again: .*refused"
    ) as caught:
        await client.send_message("hello")

    error = caught.value
    assert "not sent again" not in error.message
    assert error.__cause__.failure == "disconnected"
    assert [attempt.executed for attempt in error.attempts] == [None] + [False] * 4


async def test_a_reply_to_the_resend_has_the_first_attempt():
    agent = FakeAgent()
    agent.inject(Reset(), on="SendMessage")
    agent.inject(Fail(code=-32602, message="no"), on="SendMessage")

    with pytest.raises(InvalidParamsError) as caught:
        await connected(agent, on_unknown="resend").send_message("hello")

    assert [attempt.number for attempt in caught.value.attempts] == [1, 2]


async def test_a_deadline_during_the_resend_reports_the_first_attempt():
    agent = FakeAgent()
    agent.inject(Reset(), on="SendMessage")
    agent.inject(Stall(phase="connect"), on="SendMessage")
    client = connected(agent, on_unknown="resend")

    with pytest.raises(
        DeadlineExceededError, match="sent before, and its reply was lost"
    ) as caught:
        await client.send_message("hello", timeout=4)

    assert caught.value.executed is None
    assert [attempt.executed for attempt in caught.value.attempts] == [None, False]


async def test_a_client_closed_before_the_resend_reports_the_known_facts():
    agent = FakeAgent()
    agent.inject(Reset(), on="SendMessage", times=9)
    policy = Resilience(retry=RetryPolicy(base_delay=20, jitter=False))
    client = connected(agent, on_unknown="resend", resilience=policy)
    sending = asyncio.create_task(client.send_message("hello"))
    await asyncio.sleep(6)
    await client.close()

    with pytest.raises(OutcomeUnknownError, match="It was not sent again"):
        await sending

    assert now() == 6


async def test_a_list_that_was_not_read_to_its_end_does_not_prove_absence():
    agent = FakeAgent(completes("42"))
    client = connected(
        agent,
        on_unknown="resend_if_absent",
        resilience=Resilience(reconcile=ReconcilePolicy(max_pages=1)),
    )
    for _ in range(101):
        await client.send_message("before")
    agent.inject(Reset(), on="SendMessage")

    with pytest.raises(OutcomeUnknownError, match="not all of them"):
        await client.send_message("How far?")

    assert len(agent.calls("SendMessage")) == 101


async def test_a_failure_of_the_resend_leaves_the_first_outcome_unknown():
    agent = FakeAgent("hello", streaming=False)
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(Refuse(), on="SendMessage", times=99)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        with pytest.raises(OutcomeUnknownError) as caught:
            await client.ask("hello", on_unknown="resend")

    assert caught.value.executed is None
    assert isinstance(caught.value.__cause__, A2AConnectionError)


async def test_resend_if_absent_returns_a_found_task():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")

    task = await connected(agent, on_unknown="resend_if_absent").send_message("How far?")

    assert list(agent.executions.values()) == [[task.id]]


async def test_resend_if_absent_sends_again_if_nothing_is_found():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(), on="SendMessage")

    task = await connected(agent, on_unknown="resend_if_absent").send_message("How far?")

    assert task.text == "42"
    assert list(agent.executions.values()) == [[task.id]]
    assert agent.calls("ListTasks")


# ── Client context ids ───────────────────────────────────────────────────────────────────────


async def test_no_context_id_is_created_by_default():
    agent = FakeAgent()

    await connected(agent).send_message("hello")

    assert b"contextId" not in agent.calls("SendMessage")[0].body


@both_ways
async def test_with_a_client_context_id_a_task_without_messages_is_found(streaming):
    agent = FakeAgent(completes("42"), records_messages=False, streaming=streaming)
    client = connected(agent, context_ids="client")
    await client.ask("Something else")
    agent.inject(Reset(after_execution=True), on=SENDS[streaming])

    answer = await client.ask("How far?")

    assert answer.text == "42"
    assert [len(attempts) for attempts in agent.executions.values()] == [1, 1]
    assert len({task.context_id for task in agent.tasks.values()}) == 2


@both_ways
async def test_an_agent_that_refuses_client_context_ids_is_remembered(streaming):
    agent = FakeAgent(completes("42"), contexts="refused", streaming=streaming)
    client = connected(agent, context_ids="client")

    answers = [await client.ask("How far?") for _ in range(3)]

    assert [answer.text for answer in answers] == ["42"] * 3
    assert [len(attempts) for attempts in agent.executions.values()] == [1, 1, 1]
    assert len(agent.calls(SENDS[streaming])) == 4


async def test_a_context_id_refused_on_a_resend_is_omitted():
    agent = FakeAgent(completes("42"), contexts="refused")
    agent.inject(Reset(), on="SendMessage")
    agent.inject(Delay(seconds=0), on="SendMessage")
    agent.inject(Reset(after_execution=True), on="SendMessage")
    client = connected(agent, context_ids="client", on_unknown="resend_if_absent")

    task = await client.send_message("How far?")

    assert task.text == "42"
    assert [len(attempts) for attempts in agent.executions.values()] == [1]


async def test_an_attempt_with_a_refused_context_id_was_not_executed():
    agent = FakeAgent(completes("42"), contexts="refused")
    agent.inject(Delay(seconds=0), on="SendMessage")
    agent.inject(Reset(), on="SendMessage")

    with pytest.raises(OutcomeUnknownError, match="It was not sent again") as caught:
        await connected(agent, context_ids="client").send_message("How far?")

    assert [attempt.executed for attempt in caught.value.attempts] == [False, None]


async def test_a_message_resent_with_a_client_context_id_is_found():
    agent = FakeAgent(completes("42"), records_messages=False)
    agent.inject(Reset(), on="SendMessage")
    agent.inject(Reset(after_execution=True), on="SendMessage")
    client = connected(agent, context_ids="client", on_unknown="resend_if_absent")

    assert (await client.send_message("How far?")).text == "42"
    assert [len(attempts) for attempts in agent.executions.values()] == [1]


async def test_invalid_params_after_execution_cause_no_resend():
    agent = FakeAgent(completes("42"))
    wrong = Fail(code=-32602, message="the context is broken", after_execution=True)
    agent.inject(wrong, on="SendMessage")

    with pytest.raises(InvalidParamsError):
        await connected(agent, context_ids="client").send_message("How far?")

    assert [len(attempts) for attempts in agent.executions.values()] == [1]


async def test_an_agent_that_ignores_context_ids_is_searched_like_any_other():
    agent = FakeAgent(completes("42"), contexts="ignored", records_messages=True)
    client = connected(agent, context_ids="client")
    await client.ask("Something else")
    agent.inject(Reset(after_execution=True), on="SendStreamingMessage")

    answer = await client.ask("How far?")

    assert answer.text == "42"


# ── Observers ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("arrives", [True, False])
async def test_observers_get_the_outcome_of_the_search(arrives):
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=arrives), on="SendMessage")
    observations = []
    client = connected(agent, observers=[observations.append])

    result = (await asyncio.gather(client.send_message("How far?"), return_exceptions=True))[0]

    (reconciled,) = [
        observation for observation in observations if isinstance(observation, Reconciled)
    ]
    assert reconciled.method == "SendMessage"
    assert reconciled.searched[0].startswith("the tasks that changed since the message was sent")
    assert reconciled.request_id == next(
        each.request_id for each in observations if each.method == "SendMessage"
    )
    assert reconciled.task_id == (result.id if isinstance(result, Task) else None)
    assert reconciled.message_id in (agent.executions or [result.message_id])


@both_ways
async def test_observers_get_the_searched_locations(streaming):
    agent = FakeAgent(
        lambda turn: asks("For how many?") if turn.task is None else completes("Booked."),
        streaming=streaming,
    )
    observations = []
    client = connected(agent, observers=[observations.append])
    question = await client.ask("Book.")
    agent.inject(Reset(after_execution=True), on=SENDS[streaming])

    await client.ask("Two.", task_id=question.task_id, context_id=question.context_id)

    (reconciled,) = [
        observation for observation in observations if isinstance(observation, Reconciled)
    ]
    assert (reconciled.method, reconciled.searched) == (SENDS[streaming], ("task task-1",))


# ── Clocks ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("hours", [-30, -3, 0, 3, 30])
@pytest.mark.parametrize(
    "date",
    [
        None,
        "",
        "yesterday",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Thu, 01 Jan 2026 08:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ],
    ids=["own", "absent", "absurd", "epoch", "ahead", "far"],
)
async def test_a_task_that_appears_late_is_found_for_any_clock_skew(hours, date):
    class Wall(VirtualWall):
        def wall(self):
            return super().wall() - hours * 3600.0

    agent = FakeAgent(completes("42"), store_lag=3)
    agent.inject(Reset(after_execution=True), on="SendMessage")
    layers = [] if date is None else [clock_of(date)]
    client = connected(agent, env=Wall(), attempt_layers=layers)

    assert (await client.send_message("How far?")).text == "42"


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("on_unknown", "retry", ValueError),
        ("on_unknown", None, TypeError),
        ("context_ids", "mine", ValueError),
        ("context_ids", True, TypeError),
    ],
)
def test_invalid_options_are_refused(option, value, error):
    with pytest.raises(error, match=option):
        connect("http://agent.test", **{option: value})


@pytest.mark.parametrize("takes_contexts", [True, False])
async def test_a_message_with_a_client_context_id_is_recognized_by_the_callers_content(
    tmp_path, takes_contexts
):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "j")
    if not takes_contexts:
        refusal = Fail(code=-32602, message="unknown contextId")
        agent.inject(refusal, on="SendStreamingMessage")
    options = {
        "journal": journal,
        "context_ids": "client",
    }
    client = connected(agent, **options)
    message = Message(message_id="m-1", role=Role.USER, parts=(Part(text="How far?"),))

    for is_again in [False, True]:
        (result,) = [result async for result in client.run([message], run_id="r")]

        assert (result.error, result.was_resumed) == (None, is_again)

    assert len(agent.executions) == 1
    await journal.close()


# ── Searches that cannot succeed ─────────────────────────────────────────────────────────────

OWN_WORDS = Respond(status=500, body=b'{"code": 500, "reason": "the agent broke"}')


@both_bindings
@both_ways
@pytest.mark.parametrize(
    "trouble", [OWN_WORDS, Garbage(), Fail(code=-32603)], ids=["500", "garbage", "internal"]
)
async def test_a_search_that_the_agent_refuses_ends_after_a_few_attempts(
    binding, streaming, trouble
):
    agent = FakeAgent(completes("42"), streaming=streaming)
    agent.inject(OWN_WORDS, on=SENDS[streaming])
    agent.inject(trouble, on="ListTasks", times=99)

    with pytest.raises(OutcomeUnknownError) as caught:
        await connected(agent, binding).ask("How far?")

    assert 99 - len(agent.pending_faults) <= 12
    assert now() < 10
    assert caught.value.search_error is not None


@both_bindings
async def test_a_search_that_was_answered_once_continues_after_later_failures(binding):
    agent = FakeAgent(completes("42"), store_lag=25)
    agent.inject(Reset(after_execution=True), on="SendMessage")
    client = connected(agent, binding)
    asking = asyncio.create_task(client.send_message("How far?"))
    await asyncio.sleep(0.1)
    agent.inject(OWN_WORDS, on="ListTasks", times=3)

    assert (await asking).text == "42"


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@both_bindings
@pytest.mark.parametrize("is_known", [True, False], ids=["finished", "unknown"])
async def test_a_message_to_a_task_that_accepts_none_ends_the_search_early(
    is_known, binding, version
):
    agent = FakeAgent(completes("42"), versions=(version,))
    client = connected(agent, binding)
    if is_known:
        await client.send_message("How far?")
    agent.inject(OWN_WORDS, on="SendMessage")

    with pytest.raises(OutcomeUnknownError, match="does not prove that"):
        await client.send_message("And then?", task_id="task-1")

    assert (now() < 5, len(agent.executions)) == (True, int(is_known))


async def test_observers_and_the_log_report_the_start_of_a_search(caplog):
    caplog.set_level("INFO", "holdfast")
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")
    observations = []

    await connected(agent, observers=[observations.append]).send_message("How far?")

    (began,) = [
        observation for observation in observations if isinstance(observation, ReconcileStarted)
    ]
    (ended,) = [observation for observation in observations if isinstance(observation, Reconciled)]
    assert observations.index(began) < observations.index(ended)
    assert (began.method, began.message_id) == ("SendMessage", ended.message_id)
    assert (began.timeout, began.error.message_id) == (30, ended.message_id)
    log_lines = [
        record.getMessage() for record in caplog.records if "searching" in record.getMessage()
    ]
    assert len(log_lines) == 1
    assert log_lines[0].startswith("SendMessage ")
    assert began.message_id in log_lines[0]


@pytest.mark.rule("D01")
@pytest.mark.parametrize("trouble", [Refuse(), Fail(code=-32601, message="Method not found")])
async def test_a_failed_search_does_not_prove_absence(trouble):
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(after_execution=True), on="SendMessage")
    agent.inject(trouble, on="ListTasks", times=200)

    with pytest.raises(OutcomeUnknownError):
        await connected(agent, on_unknown="resend_if_absent").send_message("How far?")

    assert len(agent.calls("SendMessage")) == 1
