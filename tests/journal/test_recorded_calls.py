"""Recorded calls: none is lost with its process, and none is sent twice."""

import asyncio
import contextlib
import gc
import logging
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.kit.foreign_journal import Foreign
from tests.kit.virtual_env import wall_time

from holdfast import (
    A2AConnectionError,
    A2AError,
    ConcurrencyPolicy,
    DeadlineExceededError,
    Limits,
    Message,
    OutcomeUnknownError,
    Part,
    Resilience,
    Role,
    RunItem,
    SqliteJournal,
    TaskFailedError,
    TaskState,
    connect,
)
from holdfast._model.digest import message_digest
from holdfast.errors import InvalidParamsError, JournalError
from holdfast.extend import BaseLayer
from holdfast.testing import (
    Delay,
    Fail,
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
)

both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])

SENDS = {True: "SendStreamingMessage", False: "SendMessage"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.db"


def connected(agent, journal, **options):
    options.setdefault("engine", FakeNetwork(agent))
    return connect(agent.url, journal=journal, **options)


class Dies(BaseException):
    """A process that ends here: nothing of it continues to run."""


class Process:
    """The client and the journal of one process."""

    def __init__(self, agent, path, *, lease=30.0, **options):
        self.journal = SqliteJournal(path, lease=lease)
        self.client = connected(agent, self.journal, **options)

    async def __aenter__(self):
        return self.client

    async def __aexit__(self, *error):
        await self.client.close()
        await self.journal.close()


async def die(task, journal):
    """End a task so that its journal records nothing more, as after SIGKILL."""
    methods = journal.update, journal.renew

    async def ignore_update(*_):
        return True

    journal.update = journal.renew = ignore_update
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    journal.update, journal.renew = methods


# ── Recording ────────────────────────────────────────────────────────────────────────────────


class Witness(BaseLayer):
    """Reads the journal at the moment at which a message is sent."""

    journal = None
    records_at_send = None

    def handle(self, call, call_next):
        async def looked():
            if call.operation.name in SENDS.values():
                self.records_at_send.append(await self.journal.unfinished())
            return await call_next(call)

        return looked()


@both_ways
@pytest.mark.parametrize("method", ["ask", "send_message", "stream_message"])
async def test_a_call_is_recorded_before_it_is_sent_and_finished_by_its_answer(
    path, streaming, method
):
    agent = FakeAgent(completes("42", after=3), streaming=streaming)
    journal, records_at_send = SqliteJournal(path), []

    def witness(inner):
        layer = Witness(inner)
        layer.journal, layer.records_at_send = journal, records_at_send
        return layer

    async with connected(agent, journal, attempt_layers=[witness]) as client:
        if method == "stream_message":
            async with client.stream_message("How far?") as events:
                await events.result()
        else:
            await getattr(client, method)("How far?")

        ((noted,),) = records_at_send
        (message_id,) = agent.executions
        assert (noted.message_id, noted.agent, noted.state) == (message_id, agent.url, None)
        assert noted.request is None
        assert await client.pending() == []
    await journal.close()


async def test_nothing_is_sent_if_the_call_cannot_be_recorded(tmp_path):
    agent = FakeAgent()
    journal = f"sqlite:///{tmp_path}/missing/calls.db"
    async with connected(agent, journal) as client:
        for call in (client.ask("hello"), client.send_message("hello")):
            with pytest.raises(JournalError, match=r"missing/calls\.db") as caught:
                await call
            assert caught.value.executed is False

    assert agent.received == []


async def test_a_failing_update_does_not_lose_the_answer(path, caplog):
    agent = FakeAgent(completes("42", after=5))
    async with Process(agent, path) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(1)
        vandal = sqlite3.connect(path)
        vandal.execute("DROP TABLE calls")
        vandal.close()
        with caplog.at_level(logging.WARNING, logger="holdfast"):
            answer = await asking

    assert answer.text == "42"
    assert "cannot be used" in caplog.text


@pytest.mark.parametrize(
    ("outcome", "error"),
    [(fails("no oven"), TaskFailedError), (None, A2AConnectionError)],
)
async def test_a_failed_call_is_finished(path, outcome, error):
    agent = FakeAgent(outcome or "")
    if outcome is None:
        agent.inject(Refuse(), times=9)
    async with Process(agent, path) as client:
        with pytest.raises(error):
            await client.ask("Bake.")

        assert await client.pending() == []


NO_ANSWERS = {
    "cut JSON": Respond(
        status=200,
        headers={"content-type": "application/json"},
        body=b'{"jsonrpc": "2.0", "result": {"task": {"id": "t',
        after_execution=True,
    ),
    "a page": Respond(
        status=200,
        headers={"content-type": "text/html"},
        body=b"<html>One moment, please.</html>",
        after_execution=True,
    ),
    "a status": Respond(status=501, after_execution=True),
    "too much": Respond(
        status=200,
        headers={"content-type": "application/json"},
        body=b'"' + b"x" * 9000 + b'"',
        after_execution=True,
    ),
}


@both_ways
@pytest.mark.parametrize("no_answer", NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_an_unreadable_reply_leaves_the_call_pending(path, streaming, no_answer):
    agent = FakeAgent(completes("42", after=60), streaming=streaming)
    agent.inject(no_answer, on=SENDS[streaming])
    async with Process(agent, path, limits=Limits(body=5000)) as client:
        with pytest.raises(A2AError) as caught:
            await client.ask("How far?")
        assert (caught.value.executed, caught.value.code) == (None, None)

        (call,) = await client.pending()
        assert (await call.resume()).text == "42"
    assert len(agent.executions) == 1


async def test_each_message_of_a_conversation_is_a_call(path):
    agent = FakeAgent(
        lambda turn: asks("For how many?") if turn.task is None else completes("Booked.", after=9)
    )
    async with Process(agent, path) as client:
        talk = client.conversation(on_input=lambda _interruption: "Two.")
        asking = asyncio.create_task(talk.ask("Book."))
        await asyncio.sleep(3)
        (open_call,) = await client.pending()
        answer = await asking

        assert answer.text == "Booked."
        assert open_call.message_id == list(agent.executions)[1]
        assert await client.pending() == []


async def test_messages_are_stored_if_the_journal_stores_them(path):
    agent = FakeAgent()
    agent.inject(Reset(), on="SendStreamingMessage")
    journal = SqliteJournal(path, store_messages=True)
    async with connected(agent, journal) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(1)
        (call,) = await client.pending()
        asking.cancel()

        assert call.message.text == "How far?"
        assert call.message.message_id == call.message_id
    await journal.close()


@pytest.mark.parametrize(
    "journal", ["sqlite:///calls.db", "calls.db", Path("calls.db"), "./calls.db", "ABSOLUTE"]
)
async def test_a_journal_is_accepted_as_path_or_address(tmp_path, monkeypatch, journal):
    monkeypatch.chdir(tmp_path)
    if journal == "ABSOLUTE":
        journal = f"sqlite:///{tmp_path}/calls.db"
    async with connected(FakeAgent(), journal) as client:
        await client.ask("hello")
        assert await client.pending() == []

    assert (tmp_path / "calls.db").exists()


@pytest.mark.parametrize(
    "journal",
    [
        "",
        "sqlite:///",
        "sqlite://calls.db",
        "sqlite:calls.db",
        "postgresql:x",
        "mysql:///x",
        "redis://u:secret@h/0",
    ],
)
def test_an_address_without_a_file_is_refused(journal):
    with pytest.raises(ValueError, match=r"sqlite:///calls\.db") as caught:
        connect("http://agent.test", journal=journal)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "journal",
    [
        ":memory:",
        Path(":memory:"),
        "sqlite:///:memory:",
        "file::memory:?cache=shared",
        "file:calls?cache=shared&mode=memory",
    ],
)
def test_an_in_memory_journal_is_refused(tmp_path, monkeypatch, journal):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match="must be a file, such as"):
        connect("http://agent.test", journal=journal)

    assert not list(tmp_path.iterdir())


async def test_a_custom_journal_is_used():
    agent, journal = FakeAgent(completes("42", after=60)), Foreign()
    async with connected(agent, journal) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()

        assert (await call.resume()).text == "42"

    (record,) = journal.records.values()
    assert record.outcome == "answered"
    assert not journal.is_closed  # it may be shared


LACKING = {
    "begin": None,
    "update": "text",
    "renew": None,
    "claim": None,
    "find": None,
    "unfinished": None,
    "find_label": None,
    "close": None,
    "stores_messages": None,
    "lease": "30",
}


@pytest.mark.parametrize(("lacking", "value"), LACKING.items())
def test_missing_methods_of_a_journal_are_named(lacking, value):
    journal = type("Half", (Foreign,), {lacking: value})()

    with pytest.raises(TypeError, match=rf"Half has no {lacking}\b[^,]*$"):
        connect("http://agent.test", journal=journal)


@pytest.mark.parametrize("journal", [object(), 7, SqliteJournal, b"calls.db"])
def test_an_object_that_is_not_a_journal_is_refused(journal):
    with pytest.raises(TypeError, match="journal"):
        connect("http://agent.test", journal=journal)


@pytest.mark.parametrize("store_messages", [True, False])
async def test_the_detail_of_a_refusal_has_one_line_and_only_what_is_stored(path, store_messages):
    agent = FakeAgent()
    agent.inject(Fail(code=-32602, message="no such dish: stew"), times=9)
    journal = SqliteJournal(path, store_messages=store_messages)
    async with connected(agent, journal) as client:
        async with client.run([RunItem(key="a", content="Stew.")], run_id="r") as run:
            assert [isinstance(result.error, A2AError) async for result in run] == [True]
        record = await journal.find_label("r:a")

    assert record.outcome == "refused"
    assert record.detail.startswith("InvalidParamsError")
    assert ("stew" in record.detail) is store_messages
    assert record.digest == message_digest(Message(role=Role.USER, parts=(Part(text="Stew."),)))
    await journal.close()


async def test_a_run_does_not_resend_a_message_after_the_journal_was_used_by_others(path):
    agent = FakeAgent()
    for _ in range(2):
        process = Process(agent, path)
        async with process as client, client.run(["Bake."], run_id="night") as run:
            assert [result.answer.text async for result in run] == ["Bake."]
        await asyncio.sleep(8 * 86400)
        async with connected(agent, str(path)) as other_client:
            await other_client.ask("hello")

    assert len(agent.calls(SENDS[True])) == 3


async def test_a_run_recognizes_messages_sent_in_contexts_of_their_own(path):
    agent = FakeAgent()
    for was_sent in (False, True):
        process = Process(agent, path, context_ids="client")
        async with process as client, client.run(["Bake."], run_id="night") as run:
            (result,) = [result async for result in run]
        assert (result.error, result.was_resumed) == (None, was_sent)

    assert len(agent.executions) == 1


async def test_an_agent_has_one_name_for_all_its_addresses(path):
    agent = FakeAgent(completes("42", after=60), url="http://localhost:9999")
    async with Process(agent, path) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)

    journal = SqliteJournal(path)
    for address in ("http://localhost:9999/", "http://127.0.0.1:9999"):
        async with connect(address, journal=journal, engine=FakeNetwork(agent)) as client:
            assert len(await client.pending()) == 1
    await journal.close()


async def test_pending_and_run_id_need_a_journal():
    agent = FakeAgent()
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        with pytest.raises(ValueError, match=r"pending\(\) needs a journal; pass one as connect"):
            await client.pending()
        with pytest.raises(ValueError, match="run_id needs a journal; pass one as connect"):
            client.run(["a"], run_id="r")


async def test_pending_finds_one_call_by_its_message(path):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as client, Process(FakeAgent(), path) as other:
        for text in ("How far?", "How long?"):
            with pytest.raises(DeadlineExceededError):
                await client.ask(text, timeout=5)
        first, second = await client.pending()

        (call,) = await client.pending(message_id=second.message_id)
        assert call.message_id == second.message_id
        await call.dismiss()
        assert await client.pending(message_id=second.message_id) == []
        assert await client.pending(message_id="m") == []
        assert [call.message_id for call in await client.pending()] == [first.message_id]
        assert other


async def test_pending_call_names_its_key_and_its_run(path):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as client:
        for options in ({}, {"key": "order:17"}):
            with pytest.raises(DeadlineExceededError):
                await client.ask("How far?", timeout=5, **options)
        async for result in client.run(["How far?"], run_id="night:50%", timeout=5):
            assert isinstance(result.error, DeadlineExceededError)

        calls = await client.pending()

    named = [(call.run_id, call.key) for call in calls]
    assert named == [(None, None), (None, "order:17"), ("night:50%", "0")]
    assert "run_id='night:50%', key='0'" in repr(calls[-1])


# ── Pending calls ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("D10")
@both_ways
async def test_a_call_of_a_crashed_process_is_resumed(path, streaming):
    agent = FakeAgent(completes("42", after=60), streaming=streaming)
    first = Process(agent, path)
    asking = asyncio.create_task(first.client.ask("How far?"))
    await asyncio.sleep(10)
    await die(asking, first.journal)

    await asyncio.sleep(40)  # its lease ends
    async with Process(agent, path) as client:
        (call,) = await client.pending()
        assert call.state is not None
        answer = await call.resume()

        assert answer.text == "42"
        assert await client.pending() == []
    assert [len(attempts) for attempts in agent.executions.values()] == [1]
    assert len(agent.calls(SENDS[streaming])) == 1
    await first.journal.close()


@pytest.mark.rule("D10")
@both_ways
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_message_without_a_known_task_is_searched_for_and_never_resent(
    path, streaming, arrives
):
    agent = FakeAgent(completes("42", after=60), streaming=streaming)
    agent.inject(Stall(after_execution=arrives), on=SENDS[streaming])
    first = Process(agent, path)
    asking = asyncio.create_task(first.client.ask("How far?"))
    await asyncio.sleep(1)
    await die(asking, first.journal)

    await asyncio.sleep(40)
    async with Process(agent, path) as client:
        (call,) = await client.pending()
        assert (call.state, call.task_id) == (None, None)
        if arrives:
            assert (await call.resume()).text == "42"
        else:
            with pytest.raises(OutcomeUnknownError) as caught:
                await call.resume()
            assert caught.value.searched
            assert caught.value.message_id == call.message_id

        assert [call.is_unknown for call in await client.pending()] == [True] * (not arrives)
    assert len(agent.executions) == arrives
    assert len(agent.calls(SENDS[streaming])) == arrives
    await first.journal.close()


@pytest.mark.rule("D10")
async def test_a_call_that_crashed_between_a_refusal_and_its_retry_may_have_been_sent(path):
    agent = FakeAgent(streaming=False)
    agent.inject(Respond(status=429, headers={"retry-after": "30"}), on="SendMessage")
    first = Process(agent, path)
    asking = asyncio.create_task(first.client.ask("How far?"))
    await asyncio.sleep(1)
    await die(asking, first.journal)
    await asyncio.sleep(60)

    async with Process(agent, path) as client:
        (call,) = await client.pending()
        with pytest.raises(OutcomeUnknownError, match="it may have been sent, and the journal"):
            await call.resume()
    assert agent.executions == {}
    await first.journal.close()


async def test_a_cancelled_wait_leaves_the_call_to_be_resumed_at_once(path):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()

        with pytest.raises(DeadlineExceededError):
            await call.resume(timeout=5)
        answer = await (await client.pending())[0].resume()

    assert answer.text == "42"
    assert len(agent.executions) == 1


@both_ways
async def test_a_call_cancelled_while_it_waits_after_a_refusal_was_not_sent(path, streaming):
    agent = FakeAgent(completes("done"), streaming=streaming)
    agent.inject(rate_limited(retry_after=30), on=SENDS[streaming])
    message = Message(message_id="order-17", role=Role.USER, parts=(Part(text="hello"),))
    async with Process(agent, path) as client:
        await cancelled_after(5, client.ask(message))
        assert await client.pending() == []
        assert (await client.ask(message)).text == "done"  # the same id is accepted

    assert sum(map(len, agent.executions.values())) == 1


class Slow(BaseLayer):
    """A layer that takes 10 s after the agent's reply."""

    async def handle(self, call, call_next, /):
        reply = await call_next(call)
        await asyncio.sleep(10)
        return reply


@both_ways
@pytest.mark.parametrize("layers", ["call_layers", "attempt_layers", "none"])
async def test_a_call_cancelled_after_its_message_was_sent_stays_pending(path, streaming, layers):
    agent = FakeAgent(completes("done"), streaming=streaming)
    options = {layers: [Slow]}
    if layers == "none":
        agent.inject(Stall(after_execution=True), on=SENDS[streaming])
        options = {}
    agent.inject(rate_limited(retry_after=1), on=SENDS[streaming])
    async with Process(agent, path, **options) as client:
        await client.agent_card()
        await cancelled_after(5, client.ask("hello"))
        assert len(await client.pending()) == 1


async def test_a_task_is_recorded_before_it_is_delivered(path):
    agent = FakeAgent(streams(*"abcdef", every=1))
    async with Process(agent, path) as client, client.stream_message("Spell.") as events:
        first = await anext(events)
        (call,) = await client.pending()

        assert call.task_id == first.id


async def test_a_stream_that_was_left_early_is_resumed(path):
    agent = FakeAgent(streams(*"abcdef", every=1))
    async with Process(agent, path) as client:
        async with client.stream_message("Spell.") as events:
            async for text in events.text_deltas():
                if text == "c":
                    break
        (call,) = await client.pending()
        async with call.stream() as events:
            answer = await events.result()

        assert answer.text == "abcdef"
        assert await client.pending() == []


async def test_closing_the_client_releases_its_calls_at_once(path):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(1)
    await asyncio.gather(asking, return_exceptions=True)

    async with Process(agent, path) as client:
        (call,) = await client.pending()
        assert (await call.resume()).text == "42"


async def test_dismiss_finishes_the_call_without_notifying_the_agent(path):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()
        received_count = len(agent.received)

        await call.dismiss()

        assert await client.pending() == []
        assert len(agent.received) == received_count
        with pytest.raises(JournalError, match="has already ended: dismissed") as caught:
            await call.resume()
        assert (caught.value.reason, caught.value.message_id) == ("finished", call.message_id)


async def test_dismiss_raises_if_the_journal_cannot_be_written():
    class Full(Foreign):
        async def update(self, message_id, generation, update):
            if update.outcome == "dismissed":
                raise JournalError("the disk is full", reason="full")
            return await super().update(message_id, generation, update)

    agent, journal = FakeAgent(completes("42", after=60)), Full()
    async with connected(agent, journal) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()

        with pytest.raises(JournalError, match="the disk is full"):
            await call.dismiss()

        assert len(await client.pending()) == 1


async def test_dismiss_raises_if_another_client_takes_the_call_over_first():
    class Slow(Foreign):
        async def update(self, message_id, generation, update):
            if update.outcome == "dismissed":
                later = replace(self.records[message_id], generation=generation + 1)
                self.records[message_id] = later
            return await super().update(message_id, generation, update)

    agent = FakeAgent(completes("42", after=60))
    async with connected(agent, Slow()) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()

        with pytest.raises(JournalError, match="taken over") as caught:
            await call.dismiss()

    assert caught.value.reason == "taken_over"


async def test_a_pending_call_that_is_no_longer_recorded_is_missing(path):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("DELETE FROM calls")

        for going_on in (call.resume(), call.dismiss()):
            with pytest.raises(JournalError, match="is not in the journal") as caught:
                await going_on
            assert (caught.value.reason, caught.value.message_id) == ("missing", call.message_id)


async def test_a_question_is_an_answer(path):
    agent = FakeAgent(lambda _turn: asks("For how many?"))
    async with Process(agent, path) as client:
        answer = await client.ask("Book.")

        assert answer.needs_input
        assert await client.pending() == []


async def test_an_answer_that_is_a_message_finishes_the_call(path):
    agent = FakeAgent(Message(role=Role.AGENT, parts=(Part(text="hi"),)))
    async with Process(agent, path) as client:
        assert (await client.ask("hello")).text == "hi"
        assert await client.pending() == []


@both_ways
async def test_a_call_whose_agent_is_unreachable_stays_pending(path, streaming):
    agent = FakeAgent(completes("42", after=60), streaming=streaming)
    async with Process(agent, path) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
    down = FakeAgent()
    for operation in (None, "GetAgentCard"):
        down.inject(Refuse(), on=operation, times=500)
    async with Process(agent, path, engine=FakeNetwork(down)) as client:
        (call,) = await client.pending()
        with pytest.raises(A2AError) as caught:
            await call.resume(timeout=20)
    assert caught.value.executed is True

    async with Process(agent, path) as client:
        (call,) = await client.pending()
        assert (await call.resume()).text == "42"
    assert len(agent.executions) == 1


@both_ways
@pytest.mark.parametrize(
    "trouble", [Respond(status=401), Fail(code=-32001, message="Task not found")]
)
async def test_a_failed_request_while_resuming_leaves_the_call_pending(path, streaming, trouble):
    agent = FakeAgent(completes("42", after=60), streaming=streaming)
    async with Process(agent, path) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        agent.inject(trouble, on="SubscribeToTask" if streaming else "GetTask")
        while agent.pending_faults:
            (call,) = await client.pending()
            with contextlib.suppress(A2AError):
                await call.resume()

        calls = await client.pending()
        assert all([(await call.resume()).text == "42" for call in calls])
        assert await client.pending() == []
    assert len(agent.executions) == 1


@both_ways
@pytest.mark.parametrize("trouble", [Refuse(), Respond(status=401), unavailable()])
async def test_a_search_that_fails_leaves_the_call_pending(path, streaming, trouble):
    agent = FakeAgent(completes("42", after=60), streaming=streaming)
    agent.inject(Stall(after_execution=True), on=SENDS[streaming])
    first = Process(agent, path)
    asking = asyncio.create_task(first.client.ask("How far?"))
    await asyncio.sleep(1)
    await die(asking, first.journal)
    await asyncio.sleep(40)
    down = FakeAgent()
    down.inject(trouble, on="ListTasks", times=500)
    async with Process(agent, path, engine=FakeNetwork(down)) as client:
        (call,) = await client.pending()
        with pytest.raises(OutcomeUnknownError) as caught:
            await call.resume()
        assert caught.value.message_id == call.message_id
        assert caught.value.search_error is caught.value.__cause__ is not None
        assert caught.value.executed is None

    async with Process(agent, path) as client:
        (call,) = await client.pending()
        assert (await call.resume()).text == "42"
    await first.journal.close()


class SlowDisk(SqliteJournal):
    """Returns the pending calls late."""

    async def begin(self, record):
        begun = await super().begin(record)
        await asyncio.sleep(10)
        return begun


async def test_a_call_cancelled_while_it_is_recorded_is_not_sent(path):
    agent, journal = FakeAgent(), SlowDisk(path)
    async with connected(agent, journal) as client:
        with pytest.raises(DeadlineExceededError, match="nothing was sent"):
            await client.ask("How far?", timeout=5)
    async with connected(agent, journal) as client:
        assert await client.pending() == []
    assert agent.executions == {}
    await journal.close()


# ── Resuming all pending calls ───────────────────────────────────────────────────────────────


async def left_behind(agent, path, *messages):
    """Leave calls pending, as a crashed process does."""
    crashed = Process(agent, path)
    asking = [asyncio.create_task(crashed.client.ask(message)) for message in messages]
    await asyncio.sleep(1)
    await asyncio.gather(*(die(task, crashed.journal) for task in asking))
    await crashed.journal.close()


async def test_resume_pending_yields_the_outcome_of_each_call_and_raises_none(path):
    def behaviour(turn):
        after = float(turn.message.text)
        return fails("no", after=after) if after == 60 else completes(f"{after:g}", after=after)

    agent = FakeAgent(behaviour)
    agent.inject(Respond(status=502), on="SendStreamingMessage")  # of the first: nobody knows
    agent.inject(Stall(after_execution=False), on="SendStreamingMessage")
    await left_behind(agent, path, "10", "70", "60", "50")

    async with Process(agent, path) as client:
        outcomes = [outcome async for outcome in client.resume_pending(concurrency=2)]
        again = [outcome async for outcome in client.resume_pending()]

    texts = [outcome.answer.text for outcome in outcomes if outcome.answer is not None]
    errors = {type(outcome.error) for outcome in outcomes if outcome.error is not None}
    assert errors == {OutcomeUnknownError, TaskFailedError}
    assert sorted(texts) == sorted(
        f"{float(agent_task.history[0].text):g}"
        for agent_task in agent.tasks.values()
        if agent_task.state is TaskState.COMPLETED
    )
    assert [outcome.remaining for outcome in outcomes] == [3, 2, 1, 0]
    assert {type(outcome.error) for outcome in again} == {OutcomeUnknownError}
    assert all(len(tasks) == 1 for tasks in agent.executions.values())


async def test_resume_pending_resumes_at_most_concurrency_calls_at_once(path):
    agent = FakeAgent(completes("done", after=100))
    await left_behind(agent, path, *"abcdef")

    async with Process(agent, path) as client:
        outcomes = client.resume_pending(concurrency=2)
        assert (await anext(outcomes)).answer.text == "done"
        is_held = [call.is_held for call in await client.pending()]
        await outcomes.aclose()

        assert is_held.count(True) <= 2
        assert [call.is_held for call in await client.pending()].count(True) == 0
        assert {outcome.error async for outcome in client.resume_pending()} == {None}
    assert len(agent.executions) == 6


@pytest.mark.parametrize("leave", ["break", "exception", "close", "client closed"])
async def test_resume_pending_left_early_keeps_pending_what_it_has_not_yielded(path, leave):
    agent = FakeAgent(lambda turn: completes(turn.message.text, after=5))
    await left_behind(agent, path, *"abcdef")
    await asyncio.sleep(60)  # all have ended: their answers come at once

    async def first_of(client):
        async for outcome in client.resume_pending(concurrency=4):
            texts.append(outcome.answer.text)
            if leave == "exception":
                raise Dies
            break

    texts = []
    async with Process(agent, path) as client:
        if leave == "close":
            outcomes = client.resume_pending(concurrency=4)
            texts.append((await anext(outcomes)).answer.text)
            await outcomes.aclose()
        elif leave == "exception":
            with pytest.raises(Dies):
                await first_of(client)
        else:
            await first_of(client)
        if leave != "client closed":
            remaining = await client.pending()
            assert len(remaining) == 5
            assert not any(call.is_held for call in remaining)
            texts += [
                outcome.answer.text async for outcome in client.resume_pending(concurrency=4)
            ]
    async with Process(agent, path) as client:
        texts += [outcome.answer.text async for outcome in client.resume_pending()]
        assert await client.pending() == []

    assert sorted(texts) == [*"abcdef"]
    assert len(agent.executions) == 6


async def test_resume_pending_left_early_keeps_the_outcomes_of_failed_and_lost_calls(path):
    agent = FakeAgent(lambda turn: fails(turn.message.text, after=5))
    agent.inject(Stall(after_execution=False), on="SendStreamingMessage")
    await left_behind(agent, path, *"abc")
    await asyncio.sleep(60)
    outcomes_by_id = {}
    for _ in range(3):
        async with Process(agent, path) as client:
            async for outcome in client.resume_pending():
                outcomes_by_id[outcome.message_id] = type(outcome.error)
                break
    async with Process(agent, path) as client:
        assert [call.is_unknown for call in await client.pending()] == [True]
    assert sorted(kind.__name__ for kind in outcomes_by_id.values()) == [
        "OutcomeUnknownError",
        "TaskFailedError",
        "TaskFailedError",
    ]


async def test_resume_pending_cancelled_at_any_step_yields_each_outcome_once(path):
    agent = FakeAgent(lambda turn: completes(turn.message.text, after=5))
    await left_behind(agent, path, *map(str, range(6)))
    await asyncio.sleep(60)
    texts, steps = [], 0

    async def collect(client):
        async for outcome in client.resume_pending(concurrency=3):
            texts.append(outcome.answer.text)  # noqa: PERF401  cancelled on its way

    async with Process(agent, path) as client:
        while calls := await client.pending():
            assert not any(call.is_held for call in calls)
            before = len(texts)
            collecting, steps = asyncio.create_task(collect(client)), steps + 3
            for _ in range(steps):
                await asyncio.sleep(0)
            if len(texts) > before:
                steps //= 2
            collecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await collecting

    assert sorted(texts, key=int) == [*map(str, range(6))]
    assert len(agent.executions) == 6


async def test_resume_pending_holds_at_most_concurrency_calls_while_its_caller_works(path):
    agent = FakeAgent(completes("done", after=5))
    await left_behind(agent, path, *"abcdef")
    await asyncio.sleep(60)
    async with Process(agent, path) as client, Process(agent, path) as other:
        async for _ in client.resume_pending(concurrency=2):
            await asyncio.sleep(100)  # longer than a lease
            remaining = await other.pending()
            assert [call.is_held for call in remaining].count(True) <= 2
        assert await other.pending() == []


class SlowUpdates(SqliteJournal):
    """Confirms updates late."""

    async def update(self, message_id, generation, update, /):
        is_ours = await super().update(message_id, generation, update)
        await asyncio.sleep(1)
        return is_ours


@pytest.mark.parametrize("pause", [0.5, 5])
async def test_resume_pending_yields_no_outcome_that_closing_the_client_has_left_pending(
    path, pause
):
    agent = FakeAgent(lambda turn: completes(turn.message.text, after=5))
    await left_behind(agent, path, *"abc")
    await asyncio.sleep(60)
    journal = SlowUpdates(path)
    client = connected(agent, journal)
    outcomes = client.resume_pending()
    first = asyncio.create_task(anext(outcomes))
    await asyncio.sleep(pause)  # the outcomes are on their way, or wait to be yielded
    await client.close()
    yielded = [await first] + [outcome async for outcome in outcomes]
    await journal.close()
    texts = [outcome.answer.text for outcome in yielded if outcome.answer is not None]
    errors = [outcome.error for outcome in yielded if outcome.error is not None]
    async with Process(agent, path) as client:
        texts += [outcome.answer.text async for outcome in client.resume_pending()]
    assert sorted(texts) == [*"abc"]
    assert {error.failure for error in errors} == {"closed"}


async def test_resume_pending_yields_no_outcome_of_a_call_that_another_client_took_over(path):
    agent = FakeAgent(lambda turn: completes(turn.message.text, after=5))
    await left_behind(agent, path, *"abc")
    await asyncio.sleep(60)
    held_up = Process(agent, path)
    renew, goes_on = held_up.journal.renew, asyncio.Event()

    async def renew_later(*leases):
        await goes_on.wait()
        return await renew(*leases)

    held_up.journal.renew = renew_later
    async with Process(agent, path) as other, held_up as client:
        outcomes = client.resume_pending()
        texts = [(await anext(outcomes)).answer.text]
        await asyncio.sleep(31)  # the others have come, and their leases are over
        texts += [outcome.answer.text async for outcome in other.resume_pending()]
        goes_on.set()
        await asyncio.sleep(30)
        reasons = [outcome.error.reason async for outcome in outcomes]
    assert sorted(texts) == [*"abc"]
    assert reasons == ["taken_over"] * 2


class SlowClaims(SqliteJournal):
    """Acquires each lease but the first slowly."""

    claims = 0

    async def claim(self, message_id, /):
        record = await super().claim(message_id)
        self.claims += 1
        await asyncio.sleep(self.claims > 1)
        return record


async def test_a_lease_acquired_during_close_is_released(path):
    agent = FakeAgent(lambda turn: completes(turn.message.text, after=5))
    await left_behind(agent, path, *"abc")
    await asyncio.sleep(60)
    journal = SlowClaims(path)
    async with connected(agent, journal) as client:
        async for _ in client.resume_pending():
            break
    await journal.close()
    async with Process(agent, path) as client:
        assert [call.is_held for call in await client.pending()] == [False] * 2


async def test_resume_pending_checks_its_arguments_at_once(path):
    async with Process(FakeAgent(), path) as client:
        with pytest.raises(ValueError, match="concurrency"):
            client.resume_pending(concurrency=0)
        with pytest.raises(TypeError, match="did you mean 'concurrency'"):
            client.resume_pending(concurency=2)
    async with connect("http://agent.test", engine=FakeNetwork(FakeAgent())) as client:
        with pytest.raises(ValueError, match="needs a journal"):
            client.resume_pending()


# ── Two holders ──────────────────────────────────────────────────────────────────────────────


class Overtaken(SqliteJournal):
    """A journal in which another process has taken over each call when its lease is renewed."""

    steps = 0  # of the event loop, until that is known

    async def renew(self, leases, /):
        for _ in range(self.steps):
            await asyncio.sleep(0)
        return set()


@pytest.mark.parametrize("ending", ["stream_message", "ask", "send_message"])
async def test_a_lease_lost_as_the_reply_arrives_leaks_nothing(path, ending):
    agent = FakeAgent(streams("a", "b", every=1))
    journal, network = Overtaken(path, lease=30.0), FakeNetwork(agent)
    limit = Resilience(concurrency=ConcurrencyPolicy(limit=1))
    reasons = []
    async with connected(agent, journal, engine=network, resilience=limit) as client:
        for steps in range(16):
            journal.steps = steps
            # The first event comes in the moment in which the lease is renewed.
            agent.inject(Delay(seconds=10), on=SENDS[ending != "send_message"])
            try:
                if ending == "stream_message":
                    async with client.stream_message("hi") as events:
                        await events.result()
                else:
                    await getattr(client, ending)("hi")
            except JournalError as error:
                reasons.append(error.reason)
            gc.collect(1)  # the waste of one call is young
            assert network.in_flight == 0
        journal.steps = 0
        assert (await client.ask("hi", timeout=5.0)).text == "ab"
    await journal.close()

    assert set(reasons) == {"taken_over"}


async def test_a_call_held_by_a_live_process_is_not_taken_over(path):
    agent = FakeAgent(completes("42", after=400))
    async with Process(agent, path) as holder, Process(agent, path) as theirs:
        asking = asyncio.create_task(holder.ask("How far?"))
        for _ in range(5):
            await asyncio.sleep(50)  # longer than a lease, which is renewed
            (call,) = await theirs.pending()
            with pytest.raises(JournalError, match="held by another client"):
                await call.resume()

        assert (await asking).text == "42"


async def test_a_process_suspended_beyond_its_lease_stops_its_call(path):
    agent = FakeAgent(completes("42", after=300))
    held_up = Process(agent, path)
    asking = asyncio.create_task(held_up.client.ask("How far?"))
    await asyncio.sleep(5)
    renew = held_up.journal.renew
    resumed = asyncio.Event()

    async def renew_later(*leases):
        await resumed.wait()
        return await renew(*leases)

    held_up.journal.renew = renew_later
    await asyncio.sleep(60)
    async with Process(agent, path) as other:
        (call,) = await other.pending()
        resuming = asyncio.create_task(call.resume())
        await asyncio.sleep(5)
        resumed.set()

        with pytest.raises(JournalError, match="taken over by another client") as caught:
            await asking

        assert caught.value.executed is None
        assert (caught.value.reason, caught.value.message_id) == ("taken_over", call.message_id)
        assert (await resuming).text == "42"
        assert await other.pending() == []
    assert len(agent.executions) == 1
    await held_up.client.close()
    await held_up.journal.close()


async def test_taking_over_a_call_of_the_same_client_leaves_one_holder(path):
    agent = FakeAgent(completes("42", after=300))
    async with Process(agent, path) as client, Process(agent, path) as other:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(5)
        with sqlite3.connect(path) as late:  # its lease is over, and it has not noticed
            late.execute("UPDATE calls SET lease_until = 0")
        late.close()
        (call,) = await client.pending()
        resuming = asyncio.create_task(call.resume())

        with pytest.raises(JournalError, match="taken over by this client itself"):
            await asking
        await asyncio.sleep(100)
        with pytest.raises(JournalError, match="held by another client"):
            await (await other.pending())[0].resume()
        assert (await resuming).text == "42"


@pytest.mark.rule("D10")
async def test_of_two_clients_that_resume_a_call_one_succeeds(path):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as first, Process(agent, path) as second:
        with pytest.raises(DeadlineExceededError):
            await first.ask("How far?", timeout=5)
        calls = [*await first.pending(), *await second.pending()]

        outcomes = await asyncio.gather(*(call.resume() for call in calls), return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Answer", "JournalError"]


async def test_pending_omits_calls_of_other_agents(path):
    here, there = FakeAgent(completes("42", after=60)), FakeAgent(url="http://other.test")
    async with Process(here, path) as client, Process(there, path) as other:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)

        assert await other.pending() == []
        (call,) = await client.pending()
        assert call.agent == here.url
        assert call.state is TaskState.SUBMITTED or call.state is TaskState.WORKING
        assert call.task_id in repr(call)


# ── Waiting for another holder ───────────────────────────────────────────────────────────────


async def left_by_the_dead(agent, path, *, after=5, count=1):
    """Yield the resources of a process that crashed ``after`` seconds, with its calls pending."""
    crashed = Process(agent, path)
    asking = [asyncio.create_task(crashed.client.ask(f"How far? {n}")) for n in range(count)]
    await asyncio.sleep(after)
    await asyncio.gather(*(die(task, crashed.journal) for task in asking))
    return crashed.journal


async def test_a_call_of_a_process_that_just_crashed_is_resumed_after_its_lease(path):
    agent = FakeAgent(completes("42", after=60))
    crashed = await left_by_the_dead(agent, path, count=2)

    async with Process(agent, path) as client:
        answers = [await call.resume() for call in await client.pending()]

        assert [answer.text for answer in answers] == ["42", "42"]
    assert len(agent.executions) == 2
    await crashed.close()


async def test_a_pending_call_shows_its_lease(path):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as client, Process(agent, path) as other:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(15)
        now = datetime.fromtimestamp(wall_time(), UTC)
        for process in (client, other):
            (call,) = await process.pending()
            assert call.is_held
            assert now < call.held_until <= now + timedelta(seconds=30)
            assert "is_held=True" in repr(call)
        await cancelled(asking)

        (call,) = await other.pending()
        assert (call.is_held, call.held_until) == (False, None)


async def cancelled(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("method", ["resume", "dismiss"])
async def test_resuming_a_call_that_this_client_holds_is_refused(path, method):
    agent = FakeAgent(completes("42", after=60))
    async with Process(agent, path) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(5)
        (call,) = await client.pending()

        with pytest.raises(JournalError, match="held by this client, in another call") as caught:
            await getattr(call, method)()
        assert (caught.value.reason, caught.value.held_until) == ("held", call.held_until)

        assert (await asking).text == "42"


async def test_a_renewed_call_is_held_with_the_time_of_the_renewal(path):
    agent = FakeAgent(completes("42", after=100))
    async with Process(agent, path) as holder, Process(agent, path) as waiting_client:
        asking = asyncio.create_task(holder.ask("How far?"))
        await asyncio.sleep(5)
        (call,) = await waiting_client.pending()

        with pytest.raises(
            JournalError, match="held by another client, which has just renewed its lease"
        ) as caught:
            await call.resume()
        renewed_at = caught.value.held_until - timedelta(seconds=30)
        assert renewed_at == call.began + timedelta(seconds=10)
        with pytest.raises(
            JournalError, match="held by another client, or by one that crashed"
        ) as caught:
            await call.dismiss()
        (call,) = await waiting_client.pending()
        assert (caught.value.reason, caught.value.held_until) == ("held", call.held_until)

        assert (await asking).text == "42"


async def test_of_two_clients_that_wait_for_a_lease_one_resumes_the_call(path):
    agent = FakeAgent(completes("42", after=60))
    crashed = await left_by_the_dead(agent, path)
    async with Process(agent, path) as first, Process(agent, path) as second:
        calls = [*await first.pending(), *await second.pending()]

        outcomes = await asyncio.gather(*(call.resume() for call in calls), return_exceptions=True)

    answer, refused = sorted(outcomes, key=lambda outcome: isinstance(outcome, JournalError))
    assert answer.text == "42"
    assert "held by another client, which has just taken it over" in str(refused)
    await crashed.close()


async def test_waiting_for_another_holder_ends_at_the_deadline(path):
    agent = FakeAgent(completes("42", after=60))
    crashed = await left_by_the_dead(agent, path)

    async with Process(agent, path) as client:
        (call,) = await client.pending()
        with pytest.raises(
            DeadlineExceededError, match="is held until 2026-01-01T00:00:"
        ) as caught:
            await call.resume(timeout=5)
        assert caught.value.executed is True
        assert (await call.resume()).text == "42"
    await crashed.close()


async def test_a_call_that_its_holder_finishes_while_another_waits_is_finished(path):
    agent = FakeAgent(completes("42", after=8))
    async with Process(agent, path) as holder, Process(agent, path) as waiting_client:
        asking = asyncio.create_task(holder.ask("How far?"))
        await asyncio.sleep(2)
        (call,) = await waiting_client.pending()

        with pytest.raises(JournalError, match="has already ended: answered"):
            await call.resume()
        assert (await asking).text == "42"


async def test_closing_the_client_ends_the_wait_for_another_holder(path):
    agent = FakeAgent(completes("42", after=60))
    crashed = await left_by_the_dead(agent, path)

    async with Process(agent, path) as client:
        (call,) = await client.pending()
        resuming = asyncio.create_task(call.resume())
        await asyncio.sleep(2)
    with pytest.raises(A2AConnectionError, match="was closed"):
        await resuming
    await crashed.close()


@both_ways
async def test_a_resumed_call_is_polled_at_the_given_interval(path, streaming):
    agent = FakeAgent(completes("42", after=900), streaming=False)
    async with Process(agent, path) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        before = len(agent.calls("GetTask"))
        (call,) = await client.pending()
        if streaming:
            async with call.stream(poll_interval=300, timeout=2000) as events:
                answer = await events.result()
        else:
            answer = await call.resume(poll_interval=300, timeout=2000)

        assert answer.text == "42"
    assert len(agent.calls("GetTask")) - before < 12


async def test_a_resumed_run_polls_at_the_given_interval(path):
    agent = FakeAgent(completes("42", after=900), streaming=False)
    async with Process(agent, path) as client:
        async with client.run(["How far?"], run_id="r", timeout=5) as run:
            assert [type(result.error) async for result in run] == [DeadlineExceededError]
        before = len(agent.calls("GetTask"))
        more = {"poll_interval": 300, "timeout": 2000}
        async with client.run(["How far?"], run_id="r", **more) as run:
            assert [result.answer.text async for result in run] == ["42"]

    assert len(agent.executions) == 1
    assert len(agent.calls("GetTask")) - before < 12


async def test_a_closed_client_records_no_calls(path):
    agent = FakeAgent(completes("42", after=60))
    process = Process(agent, path)
    async with process as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()
        await client.close()

        with pytest.raises(RuntimeError, match="closed"):
            await client.pending()
        for late in (call.resume(), call.dismiss(), client.ask("hello")):
            with pytest.raises(RuntimeError, match="closed"):
                await late


# ── Dropped streams ──────────────────────────────────────────────────────────────────────────


@both_ways
@pytest.mark.parametrize("abandonment", ["events", "text_deltas"])
async def test_a_dropped_stream_holds_its_call_no_longer_than_a_lease(
    path, streaming, abandonment
):
    agent = FakeAgent(streams(*"abcdef", every=20), streaming=streaming)
    async with Process(agent, path) as client:
        events = client.stream_message("Spell.")
        await events.__aenter__()
        await anext(events if abandonment == "events" else events.text_deltas())
        await asyncio.sleep(40)
        (call,) = await client.pending()
        assert call.is_held
        del events
        gc.collect()
        await asyncio.sleep(40)

        (call,) = await client.pending()
        assert not call.is_held
        assert (await call.resume()).text == "abcdef"


async def test_closing_the_client_after_a_dropped_stream_succeeds(path):
    agent = FakeAgent(streams(*"abcdef", every=20))
    async with Process(agent, path) as client:
        events = client.stream_message("Spell.")
        await events.__aenter__()
        del events
        gc.collect()
    assert [task for task in asyncio.all_tasks() if "lease" in task.get_name()] == []


# ── Failing journals ─────────────────────────────────────────────────────────────────────────


class Ailing(Foreign):
    """A journal of which some methods hang, or fail."""

    def __init__(self, *ailing, error=None):
        super().__init__()
        self.ailing = set(ailing)
        self.error = error

    def __getattribute__(self, name):
        method = super().__getattribute__(name)
        if name in {"ailing", "error"} or name not in self.ailing:
            return method

        async def ail(*_args, **_more):
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()

        return ail


class DriverError(Exception):
    """An exception as a database driver raises it."""


ERRORS = [OSError("disk on fire"), DriverError("no such table"), TimeoutError()]


@both_ways
@pytest.mark.parametrize("timeout", [5, 900])
async def test_a_hanging_journal_loses_no_answer(streaming, timeout, caplog):
    agent = FakeAgent(completes("42", after=3), streaming=streaming)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        async with connected(agent, Ailing("update", "renew")) as client:
            assert (await client.ask("How far?", timeout=timeout)).text == "42"

    assert "the journal did not answer within" in caplog.text


async def test_a_journal_that_is_slow_once_records_the_next_call():
    class Slow(Foreign):
        seconds = 2

        async def update(self, *update):
            await asyncio.sleep(self.seconds)
            return await super().update(*update)

    agent, journal = FakeAgent(completes("42", after=3)), Slow()
    async with connected(agent, journal) as client:
        assert (await client.ask("one", timeout=6)).text == "42"  # which it is too slow for
        assert len(await client.pending()) == 1
        assert (await client.ask("two")).text == "42"
        assert await client.pending() == []  # the first outcome was recorded meanwhile, too


class Outage(Foreign):
    """A journal whose updates fail while it is down."""

    is_down = False

    async def update(self, *update):
        if self.is_down:
            raise OSError("the database is restarting")
        return await super().update(*update)


@both_ways
async def test_outcomes_are_recorded_once_the_journal_works_again(streaming, caplog):
    agent, journal = FakeAgent(completes("42"), streaming=streaming), Outage()
    async with connected(agent, journal) as client:
        journal.is_down = True
        for number in range(3):
            assert (await client.ask("How far?", key=f"k{number}")).text == "42"
        await asyncio.sleep(300)
        assert len(await client.pending()) == 3
        journal.is_down = False
        await asyncio.sleep(journal.lease)
        assert await client.pending() == []
        assert (await client.ask("How far?", key="k0")).text == "42"

    assert len(agent.executions) == 3
    assert "not recorded" not in caplog.text


@pytest.mark.parametrize("is_back", [True, False])
async def test_a_client_that_closes_records_outcomes_for_the_last_time(is_back, caplog):
    agent, journal = FakeAgent(completes("42")), Outage()
    async with connected(agent, journal) as client:
        journal.is_down = True
        for number in range(3):
            await client.ask("How far?", key=f"k{number}")
        journal.is_down = not is_back

    async with connected(agent, journal) as client:
        assert len(await client.pending()) == (0 if is_back else 3)
    said = "the journal did not record the outcomes of 3 calls, which stay pending"
    assert (said in caplog.text) is not is_back
    assert not [task for task in asyncio.all_tasks() if "holdfast" in task.get_name()]


async def test_an_outcome_that_is_recorded_late_does_not_replace_that_of_another_client():
    agent, journal = FakeAgent(completes("42")), Outage()
    async with connected(agent, journal) as first, connected(agent, journal) as second:
        journal.is_down = True
        assert (await first.ask("How far?", key="k")).text == "42"
        await asyncio.sleep(2 * journal.lease)
        journal.is_down = False
        assert (await second.ask("How far?", key="k")).text == "42"
        record = await journal.find_label(":k")
        await asyncio.sleep(2 * journal.lease)
        assert await journal.find_label(":k") == record

    assert record.generation == 2
    assert len(agent.executions) == 1


async def test_a_journal_that_hangs_at_the_deadline_does_not_extend_it():
    agent = FakeAgent(completes("42", after=100))
    async with connected(agent, Ailing("update")) as client:
        with pytest.raises(DeadlineExceededError):
            async with asyncio.timeout(12):
                await client.ask("How far?", timeout=10)


@pytest.mark.parametrize("method", ["ask", "send_message"])
async def test_a_call_that_a_hanging_journal_does_not_record_is_not_sent(method):
    agent = FakeAgent()
    async with connected(agent, Ailing("begin")) as client:
        with pytest.raises(DeadlineExceededError, match="nothing was sent") as caught:
            await getattr(client, method)("How far?", timeout=5)
        assert caught.value.executed is False
        with pytest.raises(JournalError, match="did not answer") as caught:
            await client.stream_message("How far?").__aenter__()  # which has no deadline
        assert caught.value.executed is False

    assert agent.received == []


@pytest.mark.parametrize("hangs", ["find", "claim"])
async def test_resuming_waits_for_the_journal_until_the_deadline(hangs):
    agent, journal = FakeAgent(completes("42", after=60)), Ailing()
    async with connected(agent, journal) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()
        journal.ailing = {hangs}
        with pytest.raises(DeadlineExceededError, match=r"message .* was not"):
            await call.resume(timeout=5)
        journal.ailing = set()

        assert (await call.resume()).text == "42"


@pytest.mark.parametrize("fails", ["find", "claim"])
async def test_a_journal_error_during_a_takeover_is_raised(fails):
    agent, journal = FakeAgent(completes("42", after=60)), Ailing(error=OSError("disk on fire"))
    async with connected(agent, journal) as client:
        with pytest.raises(DeadlineExceededError):
            await client.ask("How far?", timeout=5)
        (call,) = await client.pending()
        journal.ailing = {fails}

        with pytest.raises(JournalError, match="the journal failed: OSError: disk on fire"):
            await call.resume()


async def test_listing_calls_of_a_hanging_journal_ends():
    async with connected(FakeAgent(), Ailing("unfinished")) as client:
        with pytest.raises(JournalError, match="did not answer within 60 s"):
            await client.pending()


@both_ways
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_exception_of_the_journal_after_the_start_loses_no_answer(
    streaming, error, caplog
):
    agent = FakeAgent(completes("42", after=100), streaming=streaming)
    journal = Ailing("update", "renew", error=error)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        async with connected(agent, journal) as client:
            assert (await client.ask("How far?")).text == "42"

    assert f"the journal failed: {type(error).__name__}" in caplog.text


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_exception_of_the_journal_at_the_start_sends_nothing(error):
    agent = FakeAgent()
    async with connected(agent, Ailing("begin", error=error)) as client:
        with pytest.raises(JournalError, match="the journal failed") as caught:
            await client.ask("How far?")

    assert caught.value.executed is False
    assert caught.value.__cause__ is error
    assert (caught.value.reason, caught.value.message_id) == ("unusable", None)
    assert agent.received == []


@pytest.mark.parametrize("error", [None, *ERRORS], ids=lambda error: type(error).__name__)
async def test_leases_are_renewed_again_after_failures_of_the_journal(error):
    agent, journal = FakeAgent(completes("42", after=300)), Ailing("renew", error=error)
    async with connected(agent, journal) as first, connected(agent, journal) as second:
        asking = asyncio.create_task(first.ask("How far?"))
        await asyncio.sleep(25)
        journal.ailing = set()
        await asyncio.sleep(100)
        (call,) = await second.pending()

        with pytest.raises(JournalError, match="which has just renewed its lease"):
            await call.resume()
        assert (await asking).text == "42"


SECRET = "k-5ecret"


def written(path):
    """Return the outcome and the detail of the one call in a journal's file."""
    with contextlib.closing(sqlite3.connect(path)) as file:
        (row,) = file.execute("SELECT outcome, detail FROM calls").fetchall()
    return row


@pytest.mark.parametrize("after_events", [None, 0], ids=["in its place", "as its first event"])
async def test_the_error_of_a_stream_is_recorded_without_secrets(path, after_events):
    journal, agent = SqliteJournal(path, store_messages=True), FakeAgent(completes("42"))
    refusal = Fail(code=-32602, message=f"I do not know {SECRET}", after_events=after_events)
    agent.inject(refusal, on="SendStreamingMessage")
    async with connected(agent, journal) as client:
        with pytest.raises(InvalidParamsError):
            await client.stream_message("hello", headers={"X-Api-Key": SECRET}).__aenter__()

    outcome, detail = written(path)
    assert outcome == "refused"
    assert "I do not know ***" in detail
    assert SECRET.encode() not in path.read_bytes() + path.with_name("calls.db-wal").read_bytes()
    await journal.close()


@both_ways
async def test_the_error_of_a_refusal_is_recorded_without_secrets(path, streaming):
    journal, agent = SqliteJournal(path, store_messages=True), FakeAgent(streaming=streaming)
    agent.inject(Fail(code=-32602, message=f"I do not know {SECRET}"), on=SENDS[streaming])
    async with connected(agent, journal) as client:
        with pytest.raises(InvalidParamsError):
            await client.ask("hello", headers={"X-Api-Key": SECRET})

    outcome, detail = written(path)
    assert outcome == "refused"
    assert "I do not know ***" in detail
    await journal.close()


# ── Calls cancelled while the journal is slow ────────────────────────────────────────────────────


def message(message_id):
    return Message(message_id=message_id, role=Role.USER, parts=(Part(text="How far?"),))


class SlowJournal(SqliteJournal):
    """Returns results late."""

    is_slow = False

    async def begin(self, record):
        try:
            return await super().begin(record)
        finally:
            if self.is_slow:
                await asyncio.sleep(10)

    async def claim(self, message_id):
        record = await super().claim(message_id)
        if self.is_slow:
            await asyncio.sleep(10)
        return record


async def cancelled_after(seconds, awaitable):
    task = asyncio.ensure_future(awaitable)
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_cancelling_a_second_call_of_a_message_leaves_the_first_one_recorded(path):
    agent, journal = FakeAgent(completes("42", after=100)), SlowJournal(path)
    async with connected(agent, journal) as client:
        asking = asyncio.create_task(client.ask(message("m")))
        await asyncio.sleep(5)
        journal.is_slow = True
        await cancelled_after(5, client.ask(message("m")))
        await asyncio.sleep(20)
        journal.is_slow = False

        (pending,) = await client.pending()

        assert pending.message_id == "m"
        with pytest.raises(JournalError, match="already"):
            await client.ask(message("m"))
        assert (await asking).text == "42"
        assert await client.pending() == []
    assert [len(attempts) for attempts in agent.executions.values()] == [1]
    await journal.close()


async def test_cancelling_a_resume_while_it_claims_the_call_frees_the_call_at_once(path):
    agent, journal = FakeAgent(completes("42", after=100)), SlowJournal(path)
    async with connected(agent, journal) as client:
        await cancelled_after(5, client.ask("How far?"))
        (pending,) = await client.pending()
        journal.is_slow = True
        await cancelled_after(5, pending.resume())
        await asyncio.sleep(6)
        journal.is_slow = False

        assert (await pending.resume()).text == "42"
    await journal.close()


async def test_a_search_ended_by_closing_the_client_stays_pending_for_the_next_client(path):
    agent, journal = FakeAgent(completes("42"), streaming=False), SqliteJournal(path)
    agent.inject(Reset(), on="SendMessage")
    async with connected(agent, journal) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(6)

    with pytest.raises(OutcomeUnknownError):
        await asking
    async with connected(agent, journal) as client:
        assert len(await client.pending()) == 1
    await journal.close()


async def test_a_call_cancelled_during_a_slow_renewal_leaves_nothing_behind(path):
    class SlowRenewal(SqliteJournal):
        async def renew(self, leases):
            await asyncio.sleep(1000)

    agent, journal = FakeAgent(completes("42", after=300)), SlowRenewal(path)
    async with connected(agent, journal) as client:
        asking = asyncio.create_task(client.ask("How far?"))
        await asyncio.sleep(50)
        await cancelled_after(5, client.ask("How far?"))
        gc.collect()
        await cancelled_after(0, asking)
    await journal.close()


@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
async def test_a_call_whose_search_failed_stays_pending_and_can_be_resumed(path, streaming):
    agent, journal = FakeAgent(completes("42"), streaming=streaming), SqliteJournal(path)
    agent.inject(Reset(after_execution=True), on=SENDS[streaming])
    agent.inject(Refuse(), on="ListTasks", times=200)
    async with connected(agent, journal) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.ask("How far?")
    async with connected(agent, journal) as client:
        while agent.pending_faults:
            with contextlib.suppress(A2AError):
                await client.list_tasks()
            await asyncio.sleep(1)  # the agent is left alone in between
        (pending,) = await client.pending()

        assert (await pending.resume()).text == "42"
    assert [len(attempts) for attempts in agent.executions.values()] == [1]
    await journal.close()


# ── Renewals, replies and characters that cannot be stored ───────────────────────────────────────


class SlowToRenew(SqliteJournal):
    """Renews leases late, as over a slow network."""

    async def renew(self, leases):
        await asyncio.sleep(5)
        return await super().renew(leases)


async def test_a_renewal_in_flight_takes_nothing_from_a_call_that_was_resumed(path):
    agent, journal = FakeAgent(completes("42", after=60)), SlowToRenew(path)
    async with connected(agent, journal) as client:
        asking, other = (asyncio.create_task(client.ask(message(name))) for name in "ab")
        await asyncio.sleep(12)  # a renewal has begun
        asking.cancel()
        await asyncio.wait([asking])
        call = {call.message_id: call for call in await client.pending()}["a"]

        assert (await call.resume()).text == "42"
        assert (await other).text == "42"
    await journal.close()


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_input_reply_is_recorded_before_its_events_are_delivered(path, streaming):
    agent = FakeAgent(
        lambda turn: asks("For how many?") if turn.task is None else completes("Booked.", after=9)
    )
    journal, states = SqliteJournal(path), []
    async with connected(agent, journal, streaming=streaming) as client:
        talk = client.conversation(on_input=lambda _interruption: "Two.")
        async with talk.stream_message("Book.") as events:
            async for _ in events:
                record = await journal.find(list(agent.executions)[-1])
                states.append((record.state, str(events.task.state)))
    await journal.close()

    assert len(agent.executions) == 2
    assert all(written == delivered for written, delivered in states)
