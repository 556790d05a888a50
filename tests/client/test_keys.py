"""Keys: a message of one key is executed at most once, whoever sends it and how often."""

import asyncio
import contextlib

import pytest
from tests.kit.virtual_env import advance_wall

from holdfast import (
    A2AConnectionError,
    Coordinator,
    DeadlineExceededError,
    Message,
    OutcomeUnknownError,
    Part,
    Resilience,
    Role,
    SqliteJournal,
    TaskFailedError,
    TaskState,
    connect,
)
from holdfast.errors import (
    CallEndedError,
    DuplicateTasksError,
    InternalError,
    InvalidParamsError,
    JournalError,
    KeyConflictError,
)
from holdfast.extend import BaseLayer, RecordUpdate
from holdfast.observe import OperationFinished, OperationStarted, WaitFinished, WaitStarted
from holdfast.policies import ConcurrencyPolicy
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Stall,
    asks,
    completes,
    fails,
    replies,
    streams,
    works_forever,
)

SEND = "SendStreamingMessage"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.db"


@pytest.fixture
def client(path):
    """Return a function that connects to an agent, as another process with the same journal."""

    def connected(agent, **options):
        options = {"journal": path, **options}
        return connect(agent.url, engine=FakeNetwork(agent), **options)

    return connected


async def crashed_after(seconds, client, agent, **options):
    """Make a call in a process that crashes after some seconds, and leave its lease to end."""
    journal = SqliteJournal(options.pop("path"))
    process = client(agent, journal=journal)
    async with process:
        asking = asyncio.create_task(process.ask("How far?", **options))
        await asyncio.sleep(seconds)
        await journal.close()
        journal._do = lost  # what a crashed process does not write
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


async def lost(*_work):
    raise OSError("the process has crashed")


# ── One process after the other ──────────────────────────────────────────────────────────────


async def test_a_finished_call_is_not_sent_again(client):
    agent = FakeAgent(completes("42"))
    for _ in range(3):
        async with client(agent) as process:
            assert (await process.ask("How far?", key="moon")).text == "42"

    assert len(agent.calls(SEND)) == 1


async def test_wait_for_the_lease_of_a_crashed_process_is_observed(path, client):
    agent, seen = FakeAgent(completes("42", after=5)), []
    await crashed_after(2, client, agent, key="moon", path=path)
    async with client(agent, observers=[seen.append]) as process:
        assert (await process.ask("How far?", key="moon")).text == "42"

    assert isinstance(seen[0], OperationStarted)
    (started,) = [each for each in seen if isinstance(each, WaitStarted)]
    (finished,) = [each for each in seen if isinstance(each, WaitFinished)]
    assert (started.reason, finished.reason) == ("lease", "lease")
    assert finished.duration == pytest.approx(started.seconds) == pytest.approx(28)


async def test_wait_for_the_lease_of_a_crashed_process_is_logged_at_info(path, client, caplog):
    agent = FakeAgent(completes("42", after=5))
    await crashed_after(2, client, agent, key="moon", path=path)
    with caplog.at_level("INFO", "holdfast"):
        async with client(agent) as process:
            (pending,) = await process.pending()
            assert (await pending.resume()).text == "42"

    assert "waiting for 28.000 s (lease of another process" in caplog.text


async def test_other_keys_and_calls_without_a_key_are_sent(client):
    agent = FakeAgent(completes("42"))
    async with client(agent) as process:
        for key in ("a", "b", None, None):
            await process.ask("How far?", key=key)

    assert len(agent.calls(SEND)) == 4


async def test_each_way_of_sending_returns_the_same_result(client):
    agent = FakeAgent(completes("42"))
    async with client(agent) as process:
        first = await process.ask("How far?", key="moon")
        raw = await process.send_message("How far?", key="moon")
        async with process.stream_message("How far?", key="moon") as events:
            text = "".join([part async for part in events.text_deltas()])
            streamed = await events.result()
        said = await process.conversation().ask("How far?", key="moon")

    assert raw.id == first.task_id == streamed.task_id == said.task_id
    assert text == "42"
    assert len(agent.calls(SEND)) == 1
    assert agent.calls("SendMessage") == []


async def test_an_answer_without_a_task_is_returned_again_from_a_journal_with_messages(
    path, client
):
    agent = FakeAgent(replies("42"))
    journal = SqliteJournal(path, store_messages=True)
    async with client(agent, journal=journal) as process:
        answers = [await process.ask("How far?", key="moon") for _ in range(2)]
        raw = await process.send_message("How far?", key="moon")
    await journal.close()

    assert [answer.text for answer in answers] == ["42", "42"]
    assert isinstance(raw, Message)
    assert len(agent.calls(SEND)) == 1


async def test_an_answer_that_the_journal_does_not_store_is_named(client):
    agent = FakeAgent(replies("42"))
    async with client(agent) as process:
        await process.ask("How far?", key="moon")
        with pytest.raises(CallEndedError, match="its answer is not stored") as caught:
            await process.ask("How far?", key="moon")

    assert (caught.value.outcome, caught.value.executed) == ("answered", True)
    assert len(agent.calls(SEND)) == 1


class Doubled(BaseLayer):
    """A proxy that sends a message twice."""

    async def unary(self, call):
        if call.operation.name == "SendMessage":
            await super().unary(call)
        return await super().unary(call)


async def test_a_message_with_two_tasks_is_known_to_have_been_executed(client):
    agent = FakeAgent(completes("42"))
    agent.inject(Delay(seconds=0), on="SendMessage")
    agent.inject(Reset(after_execution=True), on="SendMessage")
    async with client(agent, attempt_layers=[Doubled]) as process:
        with pytest.raises(DuplicateTasksError):
            await process.send_message("How far?", key="moon")
        with pytest.raises(CallEndedError) as caught:
            await process.send_message("How far?", key="moon")

    assert (caught.value.outcome, caught.value.executed) == ("duplicated", True)


async def test_a_failed_task_fails_again(client):
    agent = FakeAgent(fails("no moon"))
    async with client(agent) as process:
        for _ in range(2):
            with pytest.raises(TaskFailedError, match="no moon"):
                await process.ask("How far?", key="moon")
        raw = await process.send_message("How far?", key="moon")

    assert raw.state is TaskState.FAILED
    assert len(agent.calls(SEND)) == 1


async def test_a_question_that_was_answered_leads_to_the_answer(client):
    agent = FakeAgent(lambda turn: completes("42") if turn.task else asks("which one?"))
    async with client(agent) as process:
        question = await process.ask("How far?", key="moon")
        assert (await process.ask("How far?", key="moon")).question == question.question
        await process.ask("The big one", task_id=question.task_id, key="moon, which")
        assert (await process.ask("How far?", key="moon")).text == "42"

    assert len(agent.calls(SEND)) == 2


async def test_a_refused_message_is_sent_again(client):
    agent = FakeAgent(completes("42"))
    agent.inject(Refuse(), on=SEND, times=4)
    async with client(agent) as process:
        with pytest.raises(Exception, match="refused"):
            await process.ask("How far?", key="moon")
        assert (await process.ask("How far?", key="moon")).text == "42"


# ── Several processes at once ────────────────────────────────────────────────────────────────


async def test_processes_that_call_at_once_share_one_execution(client):
    agent = FakeAgent(completes("42", after=20))

    async def process():
        async with client(agent) as process:
            return await process.ask("How far?", key="moon")

    answers = await asyncio.gather(*(process() for _ in range(8)))

    assert {answer.task_id for answer in answers} == {answers[0].task_id}
    assert len(agent.calls(SEND)) == 1


async def test_calls_of_one_client_share_one_execution(client):
    agent = FakeAgent(completes("42", after=20))
    async with client(agent) as process:
        first = asyncio.create_task(process.ask("How far?", key="moon"))
        second = asyncio.create_task(process.ask("How far?", key="moon"))
        raw = asyncio.create_task(process.send_message("How far?", key="moon"))
        assert (await first).task_id == (await second).task_id == (await raw).id

    assert len(agent.calls(SEND)) == 1


async def test_a_wait_for_another_process_ends_with_the_deadline(client):
    agent = FakeAgent(works_forever())
    async with client(agent) as process, client(agent) as other:
        first = asyncio.create_task(process.ask("How far?", key="moon"))
        await asyncio.sleep(1)
        with pytest.raises(DeadlineExceededError, match="is held until") as caught:
            await other.ask("How far?", key="moon", timeout=5)
        first.cancel()
        await asyncio.wait([first])

    assert (caught.value.executed, caught.value.task_id) == (True, "task-1")
    assert len(agent.calls(SEND)) == 1


@pytest.mark.parametrize("seconds", [1, 5])
async def test_a_call_of_a_crashed_process_is_resumed_without_sending(path, client, seconds):
    agent = FakeAgent(completes("42", after=60))
    await crashed_after(seconds, client, agent, key="moon", path=path)
    async with client(agent) as process:
        assert (await process.ask("How far?", key="moon")).text == "42"

    assert len(agent.calls(SEND)) == 1


async def test_a_cancelled_call_is_resumed_without_sending(client):
    agent = FakeAgent(completes("42", after=60))
    async with client(agent) as process:
        asking = asyncio.create_task(process.ask("How far?", key="moon"))
        await asyncio.sleep(1)
        asking.cancel()
        await asyncio.wait([asking])
        async with process.stream_message("How far?", key="moon") as events:
            assert (await events.result()).text == "42"

    assert len(agent.calls(SEND)) == 1


async def test_a_message_that_was_refused_twice_is_not_pending(client):
    agent = FakeAgent(completes("42"))
    agent.inject(Refuse(), on=SEND, times=2)
    message = Message(message_id="m-1", role=Role.USER, parts=[Part(text="How far?")])
    async with client(agent, resilience=Resilience.off()) as process:
        for _ in range(2):
            with pytest.raises(A2AConnectionError, match="refused"):
                await process.ask(message, key="moon")
        assert await process.pending() == []
        assert (await process.ask(message, key="moon")).text == "42"


async def test_send_message_returns_immediately_each_time(path, client):
    agent = FakeAgent(completes("42", after=600))
    await crashed_after(1, client, agent, key="crashed", path=path)
    async with client(agent) as process:
        asking = asyncio.create_task(process.ask("How far?", key="held"))
        await asyncio.sleep(1)
        for key in ("held", "crashed", "crashed", "new", "new"):
            raw = await process.send_message("How far?", key=key, return_immediately=True)
            assert not raw.state.is_settled
        assert asyncio.get_running_loop().time() < 60
        assert (await asking).text == "42"

    assert len(agent.executions) == 3


async def test_an_unknown_outcome_is_reported_again_without_a_search(client):
    agent = FakeAgent(completes("42"))
    agent.inject(Cut(), on=SEND)
    async with client(agent, on_unknown="raise") as process:
        with pytest.raises(OutcomeUnknownError):
            await process.ask("How far?", key="moon")
        with pytest.raises(OutcomeUnknownError, match="was not sent again") as caught:
            await process.ask("How far?", key="moon")

    assert (caught.value.executed, caught.value.agent) == (None, "http://agent.test")
    assert 'on_unknown="resend" then sends the message again' in caught.value.message
    assert len(agent.calls(SEND)) == 1
    assert agent.calls("ListTasks") == []


# ── Processes that stand still, or lose the journal, for longer than a lease ─────────────────


async def test_a_process_that_stood_still_while_it_recorded_a_call_does_not_send_it(path, client):
    class Slow(SqliteJournal):
        async def begin(self, record, /):
            record = await super().begin(record)
            await asyncio.sleep(50)
            return record

    agent = FakeAgent(completes("42"))
    slow, journal = Slow(path, lease=5), SqliteJournal(path, lease=5)
    async with client(agent, journal=slow) as first, client(agent, journal=journal) as second:
        late = asyncio.create_task(first.ask("How far?", key="moon"))
        await asyncio.sleep(1)
        answer = await second.ask("How far?", key="moon", on_unknown="resend_if_absent")

        assert (await late).task_id == answer.task_id

    assert len(agent.calls(SEND)) == 1
    await slow.close()
    await journal.close()


class OneSlot:
    """A client with one slot, which a call takes, while the call of a key waits for it."""

    def __init__(self, client, agent, journal):
        resilience = Resilience(concurrency=ConcurrencyPolicy(limit=1))
        self._client = client(agent, journal=journal, resilience=resilience)

    async def __aenter__(self):
        await self._client.__aenter__()
        self._first = asyncio.create_task(self._client.ask("first"))
        await asyncio.sleep(1)
        self.waiting = asyncio.create_task(self._client.ask("How far?", key="moon"))
        await asyncio.sleep(1)
        return self

    async def __aexit__(self, *error):
        await self._first
        await self._client.__aexit__(*error)

    async def close(self):
        await self._client.close()
        await asyncio.wait([self._first])
        self._first.exception()


async def test_a_message_whose_lease_ended_while_it_waited_for_a_slot_is_not_sent(path, client):
    class Cut(SqliteJournal):
        is_cut = False

        async def _do(self, work):
            if self.is_cut:
                raise JournalError("no route to the database", reason="unreachable")
            return await super()._do(work)

    agent = FakeAgent(lambda turn: completes("42", after=300 * (turn.message.text == "first")))
    cut, journal = Cut(path), SqliteJournal(path)
    async with OneSlot(client, agent, cut) as process, client(agent, journal=journal) as other:
        cut.is_cut = True
        answer = await other.ask("How far?", key="moon", on_unknown="resend_if_absent")

        with pytest.raises(JournalError, match="was not sent, because") as caught:
            await process.waiting

    assert answer.text == "42"
    assert (caught.value.reason, caught.value.executed) == ("unreachable", False)
    assert len(agent.calls(SEND)) == 2
    await cut.close()
    await journal.close()


async def test_a_process_whose_machine_was_suspended_leaves_its_call_to_another(path, client):
    """The clock of the event loop stands still meanwhile, unlike that of the journal."""
    agent = FakeAgent(lambda turn: completes("42", after=5))
    journal = SqliteJournal(path)
    async with OneSlot(client, agent, path) as process:
        advance_wall(60)
        (call,) = [each for each in await journal.unfinished() if each.state is None]
        taken = await journal.claim(call.message_id)
        await asyncio.sleep(8)
        assert len(agent.calls(SEND)) == 1
        await journal.update(call.message_id, taken.generation, RecordUpdate(outcome="dismissed"))

        with pytest.raises(CallEndedError, match="dismissed"):
            await process.waiting
    await journal.close()


async def test_a_suspension_of_the_machine_renews_the_leases_of_all_calls_once(path, client):
    class Counting(SqliteJournal):
        renewals = 0

        async def renew(self, held, /):
            self.renewals += 1
            return await super().renew(held)

    agent, journal = FakeAgent(streams(*"abc", every=8)), Counting(path)
    async with client(agent, journal=journal) as process:
        asking = [asyncio.create_task(process.ask("Spell.")) for _ in range(20)]
        await asyncio.sleep(1)
        advance_wall(60)
        await asyncio.sleep(8)  # each call gets an event
        assert journal.renewals == 1
        await asyncio.gather(*asking)
    await journal.close()


@pytest.mark.parametrize("way", ["ask", "conversation", "delegate", "fan_out"])
async def test_a_caller_whose_call_is_taken_over_gets_the_result_of_the_new_holder(path, way):
    agent, other = FakeAgent(completes("42", after=60)), SqliteJournal(path)
    options = {"journal": path, "engine": FakeNetwork(agent)}
    async with Coordinator({"moon": agent.url}, **options) as coordinator:
        if way == "ask":
            asking = coordinator.client("moon").ask("How far?", key="moon")
        elif way == "conversation":
            asking = coordinator.client("moon").conversation().ask("How far?", key="moon")
        elif way == "delegate":
            asking = coordinator.delegate("moon", "How far?", key="moon")
        else:
            asking = coordinator.fan_out("How far?", key="moon").results()
        asking = asyncio.ensure_future(asking)
        await asyncio.sleep(2)
        (call,) = await other.unfinished()
        await other.update(call.message_id, 1, RecordUpdate(releases=True))
        await other.claim(call.message_id)
        await asyncio.sleep(25)  # it notices at a renewal; the lease of the new holder lasts
        answered = RecordUpdate(outcome="answered", state="TASK_STATE_COMPLETED")
        await other.update(call.message_id, 2, answered)
        result = await asking
    await other.close()

    (result,) = result if way == "fan_out" else (result,)
    assert (result if way in {"ask", "conversation"} else result.unwrap()).text == "42"
    assert len(agent.calls(SEND)) == 1


class TakenOver:
    """Another client that takes a call over from its holder, which notices at its next renewal."""

    def __init__(self, path):
        self._path = path

    async def __aenter__(self):
        self._journal = SqliteJournal(self._path)
        await asyncio.sleep(2)
        (call,) = await self._journal.unfinished()
        await self._journal.update(call.message_id, 1, RecordUpdate(releases=True))
        await self._journal.claim(call.message_id)
        await asyncio.sleep(25)
        self.message_id = call.message_id
        return self

    async def __aexit__(self, *error):
        await self._journal.close()

    async def finish(self, **update):
        await self._journal.update(self.message_id, 2, RecordUpdate(**update))


async def booked(process, *, time="At 5.", key="time"):
    """Have the conversation of a program that may be started again."""
    conversation = process.conversation()
    await conversation.ask("Book a table.", key="table")
    return await conversation.ask(time, key=key)


def books(turn):
    return asks("When?") if turn.task is None else completes(f"booked: {turn.message.text}")


async def test_conversation_run_again_with_its_keys_returns_the_recorded_results(client):
    agent = FakeAgent(books)
    for _ in range(3):
        async with client(agent) as process:
            assert (await booked(process)).text == "booked: At 5."

    assert len(agent.tasks) == 1
    assert len(agent.calls(SEND)) == 2


async def test_conversation_run_again_after_a_crash_in_its_second_turn_resumes_it(path, client):
    def script(turn):
        return asks("When?") if turn.task is None else completes("booked", after=60)

    agent, journal = FakeAgent(script), SqliteJournal(path)
    async with client(agent, journal=journal) as process:
        booking = asyncio.create_task(booked(process))
        await asyncio.sleep(20)
        await journal.close()
        journal._do = lost
        booking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await booking
    for _ in range(2):
        async with client(agent) as process:
            assert (await booked(process)).text == "booked"

    assert len(agent.calls(SEND)) == 2


async def test_conversation_run_again_with_another_message_conflicts(client):
    agent = FakeAgent(books)
    async with client(agent) as process:
        await booked(process)
    async with client(agent) as process:
        with pytest.raises(KeyConflictError, match="used for another message"):
            await booked(process, time="At 6.")

    assert len(agent.calls(SEND)) == 2


async def test_conversation_run_again_with_a_new_key_begins_a_task(client):
    agent = FakeAgent(books)
    async with client(agent) as process:
        await booked(process)
    async with client(agent) as process:
        assert (await booked(process, key="other")).needs_input

    assert len(agent.calls(SEND)) == 3


async def test_key_conflict_of_the_same_content_names_the_recorded_task(client):
    agent = FakeAgent(books)
    async with client(agent) as process:
        answer = await booked(process)
        with pytest.raises(KeyConflictError, match=f"same content to the task {answer.task_id}"):
            await process.ask("At 5.", key="time")

    assert len(agent.calls(SEND)) == 2


async def test_a_conversation_continues_the_task_that_another_client_took_over(path, client):
    def script(turn):
        is_first = turn.message.text == "How far?"
        return asks("In miles?", after=60) if is_first else completes("42")

    agent = FakeAgent(script)
    async with client(agent) as process:
        conversation = process.conversation(context_id="space")
        asking = asyncio.create_task(conversation.ask("How far?", key="moon"))
        async with TakenOver(path) as other:
            (task,) = agent.tasks.values()
            state = "TASK_STATE_INPUT_REQUIRED"
            await other.finish(outcome="answered", task_id=task.id, state=state)
        question = await asking
        answer = await conversation.ask("Yes.", key="unit")

    assert (question.question, question.task_id) == ("In miles?", task.id)
    assert (answer.text, answer.task_id) == ("42", task.id)
    assert len(agent.calls(SEND)) == 2


async def test_a_conversation_keeps_its_deadline_and_task_while_another_client_has_its_call(
    path, client
):
    agent = FakeAgent(lambda turn: works_forever() if turn.task is None else completes("42"))
    seen = []
    async with client(agent, observers=[seen.append]) as process:
        conversation = process.conversation(timeout=40)
        asking = asyncio.create_task(conversation.ask("How far?", key="moon"))
        async with TakenOver(path):
            with pytest.raises(DeadlineExceededError, match="conversation timeout of 40"):
                await asking
        assert asyncio.get_running_loop().time() == pytest.approx(40)
        assert conversation.is_open
        assert conversation.task.id in agent.tasks
    (ended,) = [each for each in seen if isinstance(each, OperationFinished)]
    assert ended.duration == pytest.approx(40)


async def test_a_conversation_whose_reply_is_taken_over_asks_its_hook_once(path, client):
    def script(turn):
        return asks("In miles?") if turn.message.text == "How far?" else completes("42", after=60)

    agent, replies = FakeAgent(script), []

    def reply(interruption):
        replies.append(interruption.text)
        return "Yes."

    async with client(agent) as process:
        conversation = process.conversation(on_input=reply)
        asking = asyncio.create_task(conversation.ask("How far?", key="moon"))
        async with TakenOver(path):
            with pytest.raises(JournalError) as caught:
                await asking

    assert caught.value.reason == "taken_over"
    assert replies == ["In miles?"]
    assert len(agent.calls(SEND)) == 2


async def test_a_message_is_not_sent_after_the_closing_client_has_released_its_call(path, client):
    class Slow(SqliteJournal):
        async def update(self, message_id, generation, update, /):
            is_ours = await super().update(message_id, generation, update)
            await asyncio.sleep(3 * update.releases)
            return is_ours

    agent, journal = FakeAgent(completes("42", after=3)), Slow(path)
    process = OneSlot(client, agent, journal)
    await process.__aenter__()
    await process.close()

    with pytest.raises(A2AConnectionError, match="was closed before message") as caught:
        await process.waiting
    assert caught.value.executed is False
    assert len(agent.calls(SEND)) == 1
    await journal.close()


# ── Unknown outcomes ─────────────────────────────────────────────────────────────────────────


async def unknown_outcome(client):
    """Return an agent and the id of a message for the key "moon" that did not reach it."""
    agent = FakeAgent(completes("42"))
    agent.inject(Stall(after_execution=False), on=SEND)
    async with client(agent) as process:
        with pytest.raises(OutcomeUnknownError) as caught:
            await process.ask("How far?", key="moon")
    return agent, caught.value.message_id


async def test_an_unknown_outcome_is_offered_until_it_is_dismissed(client):
    agent, message_id = await unknown_outcome(client)
    async with client(agent) as process:
        for _ in range(2):
            (call,) = await process.pending()
            assert (call.message_id, call.is_unknown, call.is_held) == (message_id, True, False)
            (outcome,) = [outcome async for outcome in process.resume_pending()]
            assert isinstance(outcome.error, OutcomeUnknownError)
            assert outcome.duration < 5  # one search: an earlier one was repeated
        await call.dismiss()
        assert await process.pending() == []
        with pytest.raises(CallEndedError, match="dismissed, so it has no answer"):
            await process.ask("How far?", key="moon", on_unknown="resend")

    assert agent.executions == {}


@pytest.mark.parametrize("choice", ["resend", "resend_if_absent"])
@pytest.mark.parametrize("raw", [False, True])
async def test_a_caller_may_send_a_message_with_an_unknown_outcome_again(client, choice, raw):
    agent, message_id = await unknown_outcome(client)
    async with client(agent) as process:
        for _ in range(2):
            if raw:
                text = (await process.send_message("How far?", key="moon", on_unknown=choice)).text
            else:
                text = (await process.ask("How far?", key="moon", on_unknown=choice)).text
            assert text == "42"
        assert await process.pending() == []

    assert [*agent.executions] == [message_id]


@pytest.mark.parametrize("raw", [False, True])
async def test_a_repeated_call_searches_again_for_a_message_whose_outcome_is_unknown(client, raw):
    agent, clock = FakeAgent(completes("42")), asyncio.get_running_loop().time
    agent.inject(Delay(seconds=600, after_execution=False), on=SEND)  # a proxy holds it back
    async with client(agent) as process:
        with pytest.raises(OutcomeUnknownError, match="Repeat the call with the same key") as lost:
            await process.ask("How far?", key="moon")
        began = clock()
        with pytest.raises(OutcomeUnknownError, match="1 search in 0 s found no task") as again:
            await process.ask("How far?", key="moon")
        assert clock() - began < 5
        assert (again.value.message_id, again.value.executed) == (lost.value.message_id, None)
        assert again.value.agent == "http://agent.test"
        assert 'on_unknown="resend" then sends the message again' in again.value.message
        assert [call.is_unknown for call in await process.pending()] == [True]

        await asyncio.sleep(600 - clock())
        send = process.send_message if raw else process.ask
        result = await send("How far?", key="moon")
        assert (result.text if not raw else result.artifacts[0].parts[0].text) == "42"
        assert await process.pending() == []

    assert len(agent.calls(SEND)) == 1


async def test_callers_that_repeat_a_call_at_once_search_once(client):
    agent, _ = await unknown_outcome(client)
    searches = len(agent.calls("ListTasks"))
    async with client(agent) as process, client(agent) as other:
        asking = [caller.ask("How far?", key="moon") for caller in (process, other, process)]
        errors = await asyncio.gather(*asking, return_exceptions=True)

    assert [type(error) for error in errors] == [OutcomeUnknownError] * 3
    assert len(agent.calls("ListTasks")) - searches <= 3
    assert agent.executions == {}


@pytest.mark.parametrize("after_execution", [False, True])
async def test_an_internal_error_of_the_agent_leaves_the_outcome_unknown(client, after_execution):
    agent = FakeAgent(completes("42"))
    agent.inject(Fail(code=-32603, after_execution=after_execution), on=SEND)
    async with client(agent) as process:
        with pytest.raises(InternalError) as first:
            await process.ask("How far?", key="moon")
        assert first.value.executed is None
        assert [call.is_unknown for call in await process.pending()] == [True]
        if after_execution:
            assert (await process.ask("How far?", key="moon")).text == "42"
        else:
            with pytest.raises(OutcomeUnknownError, match="earlier call ended with InternalError"):
                await process.ask("How far?", key="moon")
            answer = await process.ask("How far?", key="moon", on_unknown="resend")
            assert answer.text == "42"

    assert len(agent.executions) == 1


async def test_a_message_that_the_agent_refuses_has_ended(client):
    agent = FakeAgent(completes("42"))
    agent.inject(Fail(code=-32602, message="no such dish"), on=SEND)
    async with client(agent) as process:
        with pytest.raises(InvalidParamsError):
            await process.ask("How far?", key="moon")
        assert await process.pending() == []
        with pytest.raises(CallEndedError, match=r"already ended: refused \(InvalidParamsError"):
            await process.ask("How far?", key="moon", on_unknown="resend")

    assert agent.executions == {}


async def test_a_task_that_appeared_later_is_found_in_place_of_a_resend(client):
    agent = FakeAgent(completes("42"))
    agent.inject(Cut(), on=SEND)
    async with client(agent, on_unknown="raise") as process:
        with pytest.raises(OutcomeUnknownError):
            await process.ask("How far?", key="moon")
        assert (await process.ask("How far?", key="moon", on_unknown="resend")).text == "42"

    assert len(agent.calls(SEND)) == 1


async def test_a_resend_that_is_refused_leaves_the_outcome_unknown(client):
    agent, _ = await unknown_outcome(client)
    agent.inject(Refuse(), on=SEND, times=1)
    async with client(agent, resilience=Resilience.off()) as process:
        with pytest.raises(OutcomeUnknownError, match="It was sent once, and could not be sent"):
            await process.ask("How far?", key="moon", on_unknown="resend")
        with pytest.raises(OutcomeUnknownError, match="as an earlier call of its key"):
            await process.ask("How far?", key="moon")
        assert [call.is_unknown for call in await process.pending()] == [True]


async def test_callers_that_resend_at_once_send_one_message(client):
    agent, message_id = await unknown_outcome(client)
    async with client(agent) as process, client(agent) as other:
        answers = await asyncio.gather(
            *(
                caller.ask("How far?", key="moon", on_unknown="resend")
                for caller in (process, other, process)
            ),
        )

    assert {answer.text for answer in answers} == {"42"}
    assert [*agent.executions] == [message_id]
    assert len(agent.calls(SEND)) == 1


async def test_a_message_of_a_crashed_process_is_sent_again_if_its_caller_allows_it(path, client):
    agent = FakeAgent(completes("42"))
    agent.inject(Stall(after_execution=False), on=SEND)
    await crashed_after(1, client, agent, key="moon", path=path)
    async with client(agent, on_unknown="resend_if_absent") as process:
        assert (await process.ask("How far?", key="moon")).text == "42"

    assert len(agent.executions) == 1


async def test_a_message_in_its_own_context_is_sent_again_in_that_context(client):
    agent = FakeAgent(completes("42"))
    agent.inject(Stall(after_execution=False), on=SEND)
    async with client(agent, context_ids="client") as process:
        with pytest.raises(OutcomeUnknownError) as caught:
            await process.ask("How far?", key="moon")
        answer = await process.ask("How far?", key="moon", on_unknown="resend")

    assert answer.task.context_id == caught.value.context_id


async def test_a_run_sends_messages_with_unknown_outcomes_again_if_its_caller_allows_it(client):
    agent = FakeAgent(completes("42"))
    agent.inject(Stall(after_execution=False), on=SEND)
    async with client(agent) as process:
        for choice, error in (("reconcile", OutcomeUnknownError), ("resend", type(None))):
            run = process.run(["How far?"], run_id="night", on_unknown=choice)
            (result,) = [result async for result in run]
            assert isinstance(result.error, error)

    assert len(agent.executions) == 1


# ── Wrong uses ───────────────────────────────────────────────────────────────────────────────


async def test_another_message_of_the_key_is_a_conflict(client):
    agent = FakeAgent(completes("42"))
    async with client(agent) as process:
        await process.ask("How far?", key="moon")
        for send in (process.ask, process.send_message):
            with pytest.raises(KeyConflictError, match="the key 'moon' was used for") as caught:
                await send("How big?", key="moon")
            assert (caught.value.key, caught.value.executed) == ("moon", False)

    assert len(agent.calls(SEND)) == 1


async def test_the_key_of_another_agent_is_a_conflict(client):
    agent, other = FakeAgent(completes("42")), FakeAgent(completes("43"), url="http://other.test")
    async with client(agent) as process:
        await process.ask("How far?", key="moon")
    async with client(other) as process:
        advice = r"to another agent, http://agent\.test; .* a key of its own .* both addresses"
        with pytest.raises(KeyConflictError, match=advice):
            await process.ask("How far?", key="moon")

    assert other.calls(SEND) == []


async def test_delegate_with_the_key_and_name_of_a_fan_out_sends_nothing_again(path):
    agent = FakeAgent(completes("42"))
    engine = FakeNetwork(agent)
    async with Coordinator({"moon": agent.url}, journal=path, engine=engine) as coordinator:
        await coordinator.fan_out("How far?", key="k")
        assert (await coordinator.delegate("moon", "How far?", key="k/moon")).error is None
        assert len(agent.executions) == 1
        await coordinator.delegate("moon", "How far?", key="k")

    assert len(agent.executions) == 2


async def test_keys_of_runs_and_keys_of_calls_are_apart(client):
    agent = FakeAgent(completes("42"))
    async with client(agent) as process:
        await process.ask("How far?", key="0")
        async for result in process.run(["How far?"], run_id="night"):
            assert result.answer.text == "42"
            assert not result.was_resumed
        await process.ask("How far?", key="night:0")

    assert len(agent.calls(SEND)) == 3


async def test_a_message_id_that_was_recorded_without_the_key_is_refused(client):
    agent = FakeAgent(completes("42"))
    message = Message(message_id="m-1", role=Role.USER, parts=[Part(text="How far?")])
    async with client(agent) as process:
        await process.ask(message)
        with pytest.raises(Exception, match="m-1 is in the journal"):
            await process.ask(message, key="moon")

    assert len(agent.calls(SEND)) == 1


@pytest.mark.parametrize(
    ("key", "error", "why"),
    [
        ("", ValueError, "key must not be empty"),
        ("x" * 513, ValueError, "key must have at most 512 characters, not 513"),
        ("a\nb", ValueError, r"key must not contain control characters; it has '\\n'"),
        (17, TypeError, "key must be a string, not int"),
        ("a\ud800", ValueError, "key has an unpaired surrogate"),
    ],
)
async def test_a_key_that_is_not_valid_is_refused(client, key, error, why):
    agent = FakeAgent(completes("42"))
    async with client(agent) as process:
        for use in (process.ask, process.send_message, process.conversation().ask):
            with pytest.raises(error, match=why):
                await use("How far?", key=key)
        with pytest.raises(error, match=why):
            process.stream_message("How far?", key=key)

    assert agent.calls(SEND) == agent.calls("SendMessage") == []


async def test_a_key_needs_a_journal():
    agent = FakeAgent(completes("42"))
    async with connect(agent.url, engine=FakeNetwork(agent)) as process:
        for use in (process.ask, process.send_message, process.conversation().ask):
            with pytest.raises(ValueError, match="key= needs a journal"):
                await use("How far?", key="moon")
    async with Coordinator([agent.url], engine=FakeNetwork(agent)) as coordinator:
        with pytest.raises(ValueError, match=r"pass one as .* or Coordinator\(…, journal=…\)"):
            await coordinator.delegate(agent.url, "How far?", key="moon")


async def test_a_fan_out_with_a_key_names_the_agent_whose_client_has_no_journal(path):
    agent = FakeAgent(completes("42"))
    network = FakeNetwork(agent)
    advice = r"the client of agent 'news' has none.*pass connect\(…, journal=…\), with"
    async with (
        connect(agent.url, engine=network) as news,
        Coordinator({"a": agent.url, "news": news}, engine=network, journal=path) as coordinator,
    ):
        with pytest.raises(ValueError, match=advice):
            coordinator.fan_out("How far?", key="moon")
        with pytest.raises(ValueError, match=advice):
            await coordinator.delegate("news", "How far?", key="moon")
        assert (await coordinator.delegate("a", "How far?", key="moon")).answer.text == "42"

    assert len(agent.calls(SEND)) == 1


async def test_a_key_and_tools_are_refused(client):
    async def distance(of: str) -> str:
        """Return the distance."""
        return of

    async with client(FakeAgent(completes("42"))) as process:
        with pytest.raises(ValueError, match="key cannot be combined with tools"):
            await process.ask("How far?", key="moon", tools=[distance])


async def test_a_fan_out_has_a_key_for_each_agent(path):
    agents = {name: FakeAgent(completes(name), url=f"http://{name}.test") for name in ("a", "b")}
    for _ in range(2):
        network = FakeNetwork(*agents.values())
        urls = {name: agent.url for name, agent in agents.items()}
        async with Coordinator(urls, journal=path, engine=network) as coordinator:
            results = await coordinator.fan_out("How far?", key="moon")
            assert [result.answer.text for result in results] == ["a", "b"]
            assert (await coordinator.delegate("a", "How far?", key="moon/a")).answer.text == "a"
            with pytest.raises(ValueError, match="no agent may occur more than once"):
                coordinator.fan_out([("a", "x"), ("a", "y")], key="pairs")
            with pytest.raises(ValueError, match="at most 510 characters, not 511: with a slash"):
                coordinator.fan_out("How far?", key="x" * 511)

    assert [len(agent.calls(SEND)) for agent in agents.values()] == [1, 1]


async def test_a_short_call_of_another_process_is_noticed_soon(client):
    agent = FakeAgent(completes("42", after=0.3))
    async with client(agent) as process, client(agent) as other:
        first = asyncio.create_task(process.ask("How far?", key="moon"))
        await asyncio.sleep(0.1)
        await other.ask("How far?", key="moon")
        assert asyncio.get_running_loop().time() < 0.8
        await first


async def test_a_key_is_kept_when_the_earlier_call_was_not_sent_after_all(path, client):
    class FindsLate(SqliteJournal):
        has_found = False

        async def find_label(self, label):  # the other process records its call just now
            found = await super().find_label(label) if self.has_found else None
            self.has_found = True
            return found

    agent, journal = FakeAgent(completes("42")), FindsLate(path)
    agent.inject(Refuse(), on=SEND, times=4)
    async with client(agent) as process, client(agent, journal=journal) as other:
        first = asyncio.create_task(process.ask("How far?", key="moon"))
        await asyncio.sleep(0.1)
        answer = await other.ask("How far?", key="moon")
        with pytest.raises(Exception, match="refused"):
            await first
        again = await process.ask("How far?", key="moon")
    await journal.close()

    assert again.task_id == answer.task_id
    assert len(agent.executions) == 1


async def test_a_key_that_is_free_again_before_its_refusal_arrives_is_used(path, client):
    class Lags(SqliteJournal):
        is_first = True

        async def find_label(self, label):  # the other process records its call just now
            is_first, self.is_first = self.is_first, False
            return None if is_first else await super().find_label(label)

        async def begin(self, record):
            try:
                return await super().begin(record)
            finally:
                await asyncio.sleep(20)

    agent, journal = FakeAgent(completes("42")), Lags(path)
    agent.inject(Refuse(), on=SEND, times=4)
    async with client(agent) as process, client(agent, journal=journal) as other:
        first = asyncio.create_task(process.ask("How far?", key="moon"))
        await asyncio.sleep(0.1)
        assert (await other.ask("How far?", key="moon")).text == "42"
        with pytest.raises(A2AConnectionError, match="refused"):
            await first
    await journal.close()

    assert len(agent.executions) == 1
