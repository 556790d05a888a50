"""Bulk runs: each message is sent once, whatever happens to other messages and to the process."""

import asyncio
import contextlib
import gc
import itertools
import sqlite3
import uuid
from contextlib import aclosing

import pytest
from msgspec.structs import replace
from tests.kit.batch_runs import collected, ended

from holdfast import (
    Coordinator,
    DeadlineExceededError,
    Message,
    NotEnoughResultsError,
    OutcomeUnknownError,
    Part,
    Resilience,
    RunItem,
    TaskFailedError,
    connect,
)
from holdfast.errors import CallEndedError, KeyConflictError, TaskInputRequiredError
from holdfast.extend import CallRecord, RecordUpdate, SqliteJournal
from holdfast.observe import OperationFinished
from holdfast.policies import ConcurrencyPolicy
from holdfast.testing import (
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Stall,
    asks,
    completes,
    fails,
    replies,
)

pytestmark = pytest.mark.filterwarnings("error")


def connected(agent, **options):
    options.setdefault("engine", FakeNetwork(agent))
    return connect(agent.url, **options)


def now():
    return asyncio.get_running_loop().time()


def doubles(after=1):
    return FakeAgent(lambda turn: completes(turn.message.text * 2, after=after))


async def test_each_message_gets_its_answer():
    agent = doubles()

    results = await collected(connected(agent).run(["a", "b", "c"]))

    assert {key: result.answer.text for key, result in results.items()} == {
        "0": "aa",
        "1": "bb",
        "2": "cc",
    }
    assert all(result.error is None and not result.was_resumed for result in results.values())
    assert now() == pytest.approx(1, abs=0.1)  # together


async def test_concurrency_bounds_the_messages_in_flight():
    agent = doubles(after=10)
    network = FakeNetwork(agent)
    most = 0
    run = connected(agent, engine=network).run([str(n) for n in range(10)], concurrency=3)

    async for _ in run:
        most = max(most, len(agent.tasks))
        assert len(agent.tasks) <= 3 * (1 + int(now() // 10))

    assert most == 10
    assert now() >= 40


async def test_rate_bounds_the_sends_per_second():
    agent = doubles(after=0)

    await collected(connected(agent).run([str(n) for n in range(11)], rate=2))

    assert now() == pytest.approx(5, abs=0.1)


async def test_rate_does_not_delay_messages_that_an_earlier_run_sent(tmp_path):
    agent = doubles(after=0)
    numbers = [str(n) for n in range(11)]
    async with connected(agent, journal=f"sqlite:///{tmp_path}/calls.db") as client:
        await collected(client.run(numbers, run_id="r"))
        began = now()

        results = await collected(client.run([*numbers, "x", "y"], run_id="r", rate=0.1))

    assert now() - began == pytest.approx(10, abs=0.1)  # between x and y
    assert [result.was_resumed for result in results.values()].count(True) == 11
    assert len(agent.executions) == 13


@pytest.mark.parametrize("stores", [True, False])
async def test_a_question_is_an_error_until_it_is_answered(tmp_path, stores):
    def books(turn):
        return asks("When?") if turn.task is None else completes("Booked.", after=20)

    journal = SqliteJournal(tmp_path / "calls.db", store_messages=stores)
    async with connected(FakeAgent(books), journal=journal) as client:
        first = (await collected(client.run(["Book."], run_id="r")))["0"]
        again = (await collected(client.run(["Book."], run_id="r")))["0"]
        assert await client.pending() == []
        task_id = first.error.task.id
        await client.send_message("Friday", task_id=task_id, return_immediately=True)
        answered = (await collected(client.run(["Book."], run_id="r")))["0"]

    for result in (first, again):
        assert isinstance(result.error, TaskInputRequiredError)
        assert result.answer is None
        assert str(result.error).startswith(
            f"task {task_id} needs input: When?; answer with client.ask(…, task_id={task_id!r})"
        )
    assert answered.answer.text == "Booked."
    await journal.close()


async def test_messages_are_read_only_while_a_slot_is_free():
    read_messages = []

    async def messages():
        for number in range(6):
            read_messages.append(number)
            yield str(number)

    client = connected(doubles(after=10))
    async with aclosing(messages()) as source, client.run(source, concurrency=2) as run:
        await anext(run)

        assert len(read_messages) <= 4


async def test_an_error_of_one_message_is_its_result():
    def behave(turn):
        return fails("no oven") if turn.message.text == "b" else completes("done")

    agent = FakeAgent(behave)

    results = await collected(connected(agent).run(["a", "b", "", "c"]))

    assert [results[key].answer is not None for key in "0123"] == [True, False, False, True]
    assert isinstance(results["1"].error, TaskFailedError)
    assert isinstance(results["2"].error, ValueError)


@pytest.mark.parametrize(
    "content", ["", 5, {"parts": 3}, Message(parts=(Part(text="a"),), metadata={"x": object()})]
)
async def test_an_invalid_message_is_its_result(content):
    agent = doubles()

    results = await collected(connected(agent).run([content, "b"]))

    assert isinstance(results["0"].error, ValueError | TypeError)
    assert results["1"].answer.text == "bb"


async def test_keys_are_those_of_the_caller():
    items = [RunItem(key="x", content="a"), RunItem(key="y", content="b")]

    results = await collected(connected(doubles()).run(items))

    assert results["y"].answer.text == "bb"


async def test_a_repeated_key_is_refused():
    items = [RunItem(key="x", content="a"), RunItem(key="x", content="b")]

    with pytest.raises(ValueError, match="'x' was passed for more than one"):
        await collected(connected(doubles()).run(items))


@pytest.mark.parametrize("journaled", [False, True])
@pytest.mark.parametrize("kind", [ValueError, TypeError, RuntimeError])
async def test_an_exception_of_a_consumer_ends_the_run(tmp_path, kind, journaled):
    async def consumer(event, _task, _card):
        text = "the page is full"
        raise kind(text)

    agent = doubles()
    journal = f"sqlite:///{tmp_path}/calls.db" if journaled else None
    async with connected(agent, journal=journal, consumers=[consumer]) as client:
        run = client.run(["a"], run_id="r" if journaled else None)

        with pytest.raises(kind, match="the page is full"):
            await collected(run)

    assert len(agent.executions) == 1


async def test_an_exception_of_the_source_is_raised():
    def messages():
        yield "a"
        text = "the file is gone"
        raise OSError(text)

    with pytest.raises(OSError, match="gone"):
        await collected(connected(doubles()).run(messages()))


async def test_stop_lets_messages_in_flight_complete():
    agent = doubles(after=10)
    run = connected(agent).run([str(n) for n in range(10)], concurrency=4)
    first = await anext(run)
    run.stop()

    remaining = await collected(run)

    assert len({first.key, *remaining}) == 4
    assert len(agent.tasks) == 4


async def test_stop_does_not_wait_for_the_next_message():
    async def messages():
        yield "a"
        await asyncio.Event().wait()

    run = connected(doubles()).run(messages())
    assert (await anext(run)).key == "0"
    waiting = asyncio.ensure_future(anext(run, None))
    await asyncio.sleep(1)

    run.stop()

    assert await asyncio.wait_for(waiting, 1) is None


async def test_closing_a_run_early_leaks_nothing():
    agent = doubles(after=10)
    network = FakeNetwork(agent)

    async with connected(agent, engine=network).run([str(n) for n in range(10)]) as run:
        await anext(run)

    assert (network.in_flight, agent.open_streams) == (0, 0)
    with pytest.raises(StopAsyncIteration):
        await anext(run)


async def test_a_cancelled_iteration_can_be_resumed():
    run = connected(doubles(after=10)).run(["a", "b"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await anext(run)

    assert len(await collected(run)) == 2


async def test_an_exception_of_the_source_is_raised_after_the_results_in_flight():
    def messages():
        yield "a"
        yield "b"
        text = "the file is gone"
        raise OSError(text)

    agent = doubles(after=10)
    network = FakeNetwork(agent)
    run = connected(agent, engine=network).run(messages())
    results, error = await ended(run)

    assert sorted(result.answer.text for result in results) == ["aa", "bb"]
    assert str(error) == "the file is gone"
    assert (network.in_flight, agent.open_streams) == (0, 0)
    with pytest.raises(StopAsyncIteration):
        await anext(run)


async def test_messages_after_a_repeated_key_are_not_sent_and_earlier_ones_complete():
    items = [RunItem(key=key, content=key) for key in "xyxz"]
    agent = doubles(after=10)
    results, error = await ended(connected(agent).run(items))

    assert sorted(result.key for result in results) == ["x", "y"]
    assert str(error) == "the key 'x' was passed for more than one message"
    assert len(agent.executions) == 2


@pytest.mark.parametrize("pause", [0, 20])
async def test_a_message_that_waits_for_the_rate_is_not_sent_after_stop(pause):
    agent = doubles(after=0)
    run = connected(agent).run(["a", "b"], rate=0.1)
    await anext(run)
    await asyncio.sleep(pause)
    asyncio.get_running_loop().call_soon(run.stop)

    assert await collected(run) == {}
    assert len(agent.executions) == 1


async def test_a_run_has_one_iterator_at_a_time():
    run = connected(doubles(after=10)).run(["a", "b"])
    first = asyncio.create_task(anext(run))
    await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="is already being iterated"):
        await anext(run)

    assert (await first).answer is not None
    assert len(await collected(run)) == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"concurrency": 0}, ValueError),
        ({"concurrency": 1.5}, TypeError),
        ({"rate": 0}, ValueError),
        ({"rate": "50/s"}, TypeError),
        ({"run_id": ""}, ValueError),
        ({"run_id": "r"}, ValueError),
        ({"timeout": -1}, ValueError),
    ],
)
async def test_invalid_options_are_refused_at_once(options, error):
    with pytest.raises(error):
        connected(doubles()).run(["a"], **options)


# ── Repeated runs ────────────────────────────────────────────────────────────────────────────


async def test_a_killed_run_is_resumed_and_nothing_is_sent_twice(tmp_path):
    agent = doubles(after=10)
    messages = [str(n) for n in range(20)]
    path = tmp_path / "calls.db"
    answers = {}
    for _ in range(30):
        journal = SqliteJournal(path, store_messages=True)
        client = connected(agent, journal=journal)
        run = client.run(messages, run_id="r", concurrency=4)
        try:
            async with asyncio.timeout(7):
                async for result in run:
                    assert result.error is None
                    answers[result.key] = result.answer.text
        except TimeoutError:
            pass
        else:
            break
        finally:
            await run.close()
            await client.close()
            await journal.close()

    assert answers == {str(n): str(n) * 2 for n in range(20)}
    assert len(agent.executions) == 20
    assert all(len(attempts) == 1 for attempts in agent.executions.values())


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_changed_message_does_not_get_the_answer_of_another(tmp_path, keyed):
    def items(*texts):
        if not keyed:
            return list(texts)
        return [RunItem(key=str(index), content=text) for index, text in enumerate(texts)]

    agent = doubles()
    async with connected(agent, journal=f"sqlite:///{tmp_path}/calls.db") as client:
        await collected(client.run(items("a", "b"), run_id="r"))

        results = await collected(client.run(items("new", "b", "b"), run_id="r"))

    error = results["0"].error
    assert isinstance(error, KeyConflictError)
    assert str(error).startswith("the key '0' was used in this")
    assert (error.key, error.executed) == ("0", False)
    assert error.message_id in agent.executions
    assert [results[key].answer.text for key in "12"] == ["bb", "bb"]
    assert len(agent.executions) == 3


@pytest.mark.parametrize(
    "change",
    [{"contextId": "c2"}, {"taskId": "t1"}, {"extensions": ["urn:x"]}],
)
async def test_the_same_content_in_another_context_is_another_message(tmp_path, change):
    def item(**more):
        document = {"parts": [{"text": "yes"}], "contextId": "c1", "role": "ROLE_USER"}
        return RunItem(key="k", content={**document, **more})

    agent = doubles()
    async with connected(agent, journal=f"sqlite:///{tmp_path}/calls.db") as client:
        await collected(client.run([item()], run_id="r"))

        results = await collected(client.run([item(**change)], run_id="r"))
        again = await collected(client.run([item(messageId="m2")], run_id="r"))

    used_for = "another message" if "extensions" in change else "the same content to a new task"
    assert f"the key 'k' was used in this run for {used_for}" in str(results["k"].error)
    assert again["k"].answer.text == "yesyes"
    assert len(agent.executions) == 1


async def test_a_message_sent_in_its_own_context_is_recognized(tmp_path):
    agent = doubles()
    journal = f"sqlite:///{tmp_path}/calls.db"
    async with connected(agent, journal=journal, context_ids="client") as client:
        await collected(client.run(["a"], run_id="r"))

        results = await collected(client.run(["a"], run_id="r"))

    assert results["0"].answer.text == "aa"


async def test_a_message_that_was_not_sent_may_be_changed(tmp_path):
    agent = doubles()
    agent.inject(Refuse(), on="SendStreamingMessage", times=4)
    async with connected(agent, journal=f"sqlite:///{tmp_path}/calls.db") as client:
        await collected(client.run(["a"], run_id="r"))

        results = await collected(client.run(["b"], run_id="r"))

    assert results["0"].answer.text == "bb"


async def test_parts_from_a_one_shot_iterable_are_sent(tmp_path):
    async with connected(doubles(), journal=f"sqlite:///{tmp_path}/calls.db") as client:
        results = await collected(client.run([iter(["a"])], run_id="r"))

    assert results["0"].answer.text == "aa"


@pytest.mark.parametrize("stores", [True, False])
async def test_a_recorded_answer_is_not_fetched_again(tmp_path, stores):
    agent = doubles()
    journal = SqliteJournal(tmp_path / "calls.db", store_messages=stores)
    client = connected(agent, journal=journal)
    await collected(client.run(["a", "b"], run_id="r"))
    sent = len(agent.executions)

    results = await collected(client.run(["a", "b", "c"], run_id="r"))

    assert [results[key].answer.text for key in "012"] == ["aa", "bb", "cc"]
    assert [results[key].was_resumed for key in "012"] == [True, True, False]
    assert len(agent.executions) == sent + 1
    await client.close()
    await journal.close()


async def test_an_answer_that_is_a_message_is_recognized_if_messages_are_stored(tmp_path):
    agent = FakeAgent(replies("hi"))
    journal = SqliteJournal(tmp_path / "calls.db", store_messages=True)
    client = connected(agent, journal=journal)
    await collected(client.run(["a"], run_id="r"))

    (result,) = (await collected(client.run(["a"], run_id="r"))).values()

    assert result.answer.text == "hi"
    assert len(agent.executions) == 1
    await client.close()
    await journal.close()


async def test_an_unknown_outcome_is_reported_again_and_not_resent(tmp_path):
    agent = doubles()
    agent.inject(Reset(), on="SendStreamingMessage")
    journal = SqliteJournal(tmp_path / "calls.db")
    client = connected(agent, journal=journal)
    (first,) = (await collected(client.run(["a"], run_id="r"))).values()

    (second,) = (await collected(client.run(["a"], run_id="r"))).values()

    assert isinstance(first.error, OutcomeUnknownError)
    assert isinstance(second.error, OutcomeUnknownError)
    assert "It was not sent again" in str(second.error)
    assert second.error.message_id == first.error.message_id
    assert agent.executions == {}
    await client.close()
    await journal.close()


async def test_a_message_that_was_certainly_not_sent_is_sent_by_the_next_run(tmp_path):
    agent = doubles()
    agent.inject(Refuse(), on="SendStreamingMessage", times=4)
    journal = SqliteJournal(tmp_path / "calls.db")
    client = connected(agent, journal=journal)
    (first,) = (await collected(client.run(["a"], run_id="r"))).values()

    (second,) = (await collected(client.run(["a"], run_id="r"))).values()

    assert first.error.executed is False
    assert second.answer.text == "aa"
    await client.close()
    await journal.close()


async def test_a_call_of_a_killed_run_is_resumed_when_its_lease_ends(tmp_path):
    agent = doubles(after=5)
    task = await connected(agent).send_message("a", return_immediately=True)
    journal = SqliteJournal(tmp_path / "calls.db")
    record = pending_record(agent, task_id=task.id, state=str(task.state))
    await begin_elsewhere(journal.path, record, lease=20)
    client = connected(agent, journal=journal)
    run = client.run(["a"], run_id="r")
    running = asyncio.create_task(collected(run))
    await asyncio.sleep(19)
    assert (run.held, run.in_flight) == (1, 1)

    (result,) = (await running).values()

    assert result.answer.text == "aa"
    assert result.was_resumed
    assert run.held == 0
    assert now() == pytest.approx(20, abs=1)
    assert len(agent.executions) == 1
    await client.close()
    await journal.close()


async def test_a_call_that_another_run_finishes_is_not_taken_over(tmp_path):
    agent = doubles(after=100)
    journals = [SqliteJournal(tmp_path / "calls.db", lease=3) for _ in range(2)]
    first, second = (connected(agent, journal=journal) for journal in journals)
    first_run = asyncio.create_task(collected(first.run(["a"], run_id="r")))
    await asyncio.sleep(1)

    second_results = await collected(second.run(["a"], run_id="r"))

    assert (await first_run)["0"].answer.text == second_results["0"].answer.text == "aa"
    assert len(agent.executions) == 1
    for client, journal in zip((first, second), journals, strict=True):
        await client.close()
        await journal.close()


def pending_record(agent, **members):
    """Return the record of a call of the run ``r``."""
    return CallRecord(message_id="m1", agent=agent.url, label="r:0", **members)


async def begin_elsewhere(path, record, *, lease):
    """Record a call as another process, which then crashes."""
    journal = SqliteJournal(path, lease=lease)
    await journal.begin(record)
    await journal.close()


async def test_the_timeout_includes_the_wait_for_another_holder(tmp_path):
    agent = doubles(after=1000)
    task = await connected(agent).send_message("a", return_immediately=True)
    journal = SqliteJournal(tmp_path / "calls.db")
    record = pending_record(agent, task_id=task.id, state=str(task.state))
    await begin_elsewhere(journal.path, record, lease=95)
    async with connected(agent, journal=journal) as client:
        (result,) = (await collected(client.run(["a"], run_id="r", timeout=100))).values()

    assert isinstance(result.error, DeadlineExceededError)
    assert result.was_resumed
    assert now() == pytest.approx(100, abs=1)
    await journal.close()


async def test_the_timeout_includes_fetching_an_answer_again(tmp_path):
    agent = doubles()
    task = await connected(agent).ask("a")
    journal = SqliteJournal(tmp_path / "calls.db")
    record = pending_record(agent, task_id=task.task.id, state="TASK_STATE_WORKING")
    await begin_elsewhere(journal.path, record, lease=95)

    async def answer():
        await asyncio.sleep(50)
        agent.inject(Stall(), on="GetTask")
        await journal.update("m1", 1, RecordUpdate(outcome="answered"))

    async with connected(agent, journal=journal) as client:
        answering = asyncio.create_task(answer())
        (result,) = (await collected(client.run(["a"], run_id="r", timeout=100))).values()
        await answering

    assert isinstance(result.error, DeadlineExceededError)
    assert result.error.executed is True
    assert now() == pytest.approx(100, abs=2)
    await journal.close()


class Silent(SqliteJournal):
    """A journal that finds no label."""

    async def find_label(self, *label):
        await asyncio.sleep(1000)


async def test_the_timeout_applies_to_a_silent_journal(tmp_path):
    agent = doubles()
    journal = Silent(tmp_path / "calls.db")
    async with connected(agent, journal=journal) as client:
        (result,) = (await collected(client.run(["a"], run_id="r", timeout=5))).values()

    assert isinstance(result.error, DeadlineExceededError)
    assert "the journal did not return the key '0' within the call timeout" in str(result.error)
    assert now() == pytest.approx(5, abs=1)
    assert agent.executions == {}
    await journal.close()


async def test_a_message_that_its_holder_could_not_send_is_sent_by_the_waiting_run(tmp_path):
    agent = doubles()
    journal = SqliteJournal(tmp_path / "calls.db")
    await journal.begin(pending_record(agent))

    async def refuse():
        await asyncio.sleep(5)
        await journal.update("m1", 1, RecordUpdate(outcome="not_sent"))

    async with connected(agent, journal=journal) as client:
        refusing = asyncio.create_task(refuse())
        (result,) = (await collected(client.run(["a"], run_id="r"))).values()
        await refusing

    assert result.answer.text == "aa"
    assert not result.was_resumed
    assert len(agent.executions) == 1
    await journal.close()


async def test_concurrent_runs_report_alike_what_neither_could_send(tmp_path):
    agent = doubles()
    agent.inject(Refuse(), on="SendStreamingMessage", times=100)
    journals = [Outdated(tmp_path / "calls.db") for _ in range(2)]
    clients = [connected(agent, journal=journal) for journal in journals]
    each = await asyncio.gather(
        *(collected(client.run(["a"], run_id="night")) for client in clients)
    )

    assert [results["0"].error.executed for results in each] == [False, False]
    assert [results["0"].was_resumed for results in each] == [False, False]
    for client, journal in zip(clients, journals, strict=True):
        await client.close()
        await journal.close()


@pytest.mark.parametrize(
    ("members", "outcome", "executed"),
    [
        ({"outcome": "refused", "detail": "InvalidParamsError: no"}, "refused", None),
        ({"outcome": "dismissed"}, "dismissed", None),
        ({"outcome": "answered"}, "answered", True),
    ],
)
async def test_a_call_that_ended_without_an_answer_is_reported_with_its_outcome(
    tmp_path, members, outcome, executed
):
    agent = doubles()
    journal = SqliteJournal(tmp_path / "calls.db")
    await journal.begin(pending_record(agent, **members))
    async with connected(agent, journal=journal) as client:
        (result,) = (await collected(client.run(["a"], run_id="r"))).values()

    error = result.error
    assert isinstance(error, CallEndedError)
    assert (error.outcome, error.executed, error.message_id) == (outcome, executed, "m1")
    assert error.detail == members.get("detail")
    assert outcome in str(error)
    assert agent.executions == {}
    await journal.close()


async def test_options_of_the_run_apply_to_resumed_calls(tmp_path):
    agent = doubles(after=10)
    journal = SqliteJournal(tmp_path / "calls.db")
    client = connected(agent, journal=journal)
    options = {"headers": {"x-team": "blue"}, "on_unknown": "raise"}
    async with client.run(["a"], run_id="r", **options) as run:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await anext(run)

    await collected(client.run(["a"], run_id="r", **options))

    (subscribed,) = agent.calls("SubscribeToTask")
    assert subscribed.headers["x-team"] == "blue"
    await client.close()
    await journal.close()


async def test_an_unsent_message_with_an_id_is_sent_by_the_next_run(tmp_path):
    agent = doubles()
    agent.inject(Refuse(), on="SendStreamingMessage", times=4)
    journal = SqliteJournal(tmp_path / "calls.db")
    client = connected(agent, journal=journal)
    message = {"messageId": "m1", "parts": [{"text": "a"}]}
    (first,) = (await collected(client.run([message], run_id="r"))).values()

    (second,) = (await collected(client.run([message], run_id="r"))).values()

    assert first.error.executed is False
    assert second.answer.text == "aa"
    assert [*agent.executions] == ["m1"]
    await client.close()
    await journal.close()


# ── Each message once ────────────────────────────────────────────────────────────────────────


async def named_by_its_file(agent, path):
    """Return another name of an agent: the file of its card."""
    card = await connected(agent).agent_card()
    path.write_bytes(card.to_json().encode())
    return path


@pytest.mark.parametrize("store_messages", [True, False])
async def test_a_run_recognizes_its_messages_under_another_address_of_the_agent(
    tmp_path, store_messages
):
    agent = doubles(after=60)
    journal = SqliteJournal(tmp_path / "calls.db", store_messages=store_messages)
    async with connected(agent, journal=journal) as client:
        await collected(client.run(["a"], run_id="night"))
        await collected(client.run(["a", "b"], run_id="night", timeout=5))
    path = await named_by_its_file(agent, tmp_path / "card.json")
    network = FakeNetwork(agent)
    async with connect(path, engine=network, journal=journal) as client:
        for _ in range(2):
            results = await collected(client.run(["a", "b"], run_id="night"))

            assert [results[key].answer.text for key in "01"] == ["aa", "bb"]
            assert all(result.was_resumed for result in results.values())

    assert len(agent.executions) == 2
    await journal.close()


@pytest.mark.parametrize("store_messages", [True, False])
async def test_finished_messages_stay_finished_if_a_run_moves_to_another_agent(
    tmp_path, store_messages
):
    journal = SqliteJournal(tmp_path / "calls.db", store_messages=store_messages)
    here, there = FakeAgent("here"), FakeAgent("there", url="http://other.test")
    async with (
        connected(here, journal=journal) as first,
        connected(there, journal=journal) as second,
    ):
        await collected(first.run(["a"], run_id="night"))

        results = await collected(second.run(["a", "b"], run_id="night"))

    assert results["1"].answer.text == "there"
    assert len(there.executions) == 1
    assert [results[key].agent for key in "01"] == [here.url, None]
    if store_messages:
        assert results["0"].answer.text == "here"
    else:
        error = results["0"].error
        assert isinstance(error, CallEndedError)
        assert (error.outcome, error.executed) == ("answered", True)
        assert f"to {here.url} has already ended: answered" in str(error)
    await journal.close()


async def test_a_pending_call_of_another_agent_is_left_to_runs_that_name_that_agent(tmp_path):
    journal = SqliteJournal(tmp_path / "calls.db")
    here, there = doubles(after=60), FakeAgent("there", url="http://other.test")
    async with (
        connected(here, journal=journal) as first,
        connected(there, journal=journal) as second,
    ):
        await collected(first.run(["a"], run_id="night", timeout=5))

        error = (await collected(second.run(["a"], run_id="night")))["0"].error
        results = await collected(first.run(["a"], run_id="night"))

    assert isinstance(error, OutcomeUnknownError)
    assert (error.executed, error.search_error.reason) == (None, "other_agent")
    assert f"was recorded for {here.url}, but {there.url} has no task of it" in str(error)
    assert f"; connect to {here.url}, or pass another run_id" in str(error)
    assert error.search_error.agent == here.url
    assert there.executions == {}
    assert results["0"].answer.text == "aa"
    await journal.close()


async def test_a_resumed_call_that_times_out_is_known_to_be_executed(tmp_path):
    agent = doubles(after=60)
    async with connected(agent, journal=tmp_path / "calls.db") as client:
        await collected(client.run(["a"], run_id="night", timeout=5))
        agent.inject(Stall(), on="GetTask")
        error = (await collected(client.run(["a"], run_id="night", timeout=5)))["0"].error

    assert isinstance(error, DeadlineExceededError)
    assert (error.executed, error.task_id) == (True, "task-1")


async def test_a_dismissed_call_whose_task_was_seen_is_known_to_be_executed(tmp_path):
    agent = doubles(after=60)
    async with connected(agent, journal=tmp_path / "calls.db") as client:
        await collected(client.run(["a"], run_id="night", timeout=5))
        [pending] = await client.pending()
        await pending.dismiss()
        error = (await collected(client.run(["a"], run_id="night")))["0"].error

    assert isinstance(error, CallEndedError)
    assert (error.outcome, error.executed) == ("dismissed", True)


async def test_a_task_of_another_message_with_the_same_id_is_not_the_answer(tmp_path):
    agent = doubles()
    task = (await connected(agent).ask("something else")).task
    journal = SqliteJournal(tmp_path / "calls.db")
    for number, outcome in enumerate([None, "answered"]):
        record = pending_record(agent, task_id=task.id, state="TASK_STATE_WORKING")
        names = {"message_id": f"m{number}", "label": f"r:{number}", "context_id": "c-7"}
        await journal.begin(replace(record, agent="http://other.test", **names))
        await journal.update(f"m{number}", 1, RecordUpdate(outcome=outcome, releases=True))
    async with connected(agent, journal=journal) as client:
        results = await collected(client.run(["a", "b"], run_id="r"))

    assert results["0"].error.search_error.reason == "other_agent"
    assert isinstance(results["1"].error, CallEndedError)
    await journal.close()


async def test_labels_of_runs_and_keys_do_not_collide(tmp_path):
    agent = doubles()
    async with connected(agent, journal=f"sqlite:///{tmp_path}/calls.db") as client:
        await collected(client.run([RunItem(key="b:c", content="x")], run_id="a"))

        results = await collected(client.run([RunItem(key="c", content="y")], run_id="a:b"))

    assert results["c"].answer.text == "yy"


class Outdated(SqliteJournal):
    """A journal that returns the state of one second ago."""

    async def find_label(self, *label):
        record = await super().find_label(*label)
        await asyncio.sleep(1)
        return record


async def test_concurrent_runs_of_one_name_share_the_work(tmp_path):
    agent = doubles(after=5)
    journals = [Outdated(tmp_path / "calls.db") for _ in range(3)]
    clients = [connected(agent, journal=journal) for journal in journals]
    runs = (
        collected(client.run(list("abc"), run_id="night")) for client in [*clients, clients[0]]
    )
    each = await asyncio.gather(*runs)

    assert len(agent.executions) == 3
    for results in each:
        assert {key: result.answer.text for key, result in results.items()} == {
            "0": "aa",
            "1": "bb",
            "2": "cc",
        }
    assert sum(not result.was_resumed for results in each for result in results.values()) == 3
    for client, journal in zip(clients, journals, strict=True):
        await client.close()
        await journal.close()


async def test_concurrent_runs_of_one_name_share_the_calls_of_an_earlier_one(tmp_path):
    agent = doubles(after=50)
    journals = [SqliteJournal(tmp_path / "calls.db") for _ in range(4)]
    clients = [connected(agent, journal=journal) for journal in journals]
    first = clients[0].run(list("abc"), run_id="night")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await anext(first)
    await first.close()
    each = await asyncio.gather(
        *(collected(client.run(list("abc"), run_id="night")) for client in clients[1:])
    )

    assert len(agent.executions) == 3
    for results in each:
        assert sorted(result.answer.text for result in results.values()) == ["aa", "bb", "cc"]
    for client, journal in zip(clients, journals, strict=True):
        await client.close()
        await journal.close()


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_a_call_taken_over_from_a_run_is_awaited_there(tmp_path, is_resumed):
    agent = doubles(after=300)
    path = tmp_path / "calls.db"
    journals = [SqliteJournal(path) for _ in range(2)]
    holder, taker = (connected(agent, journal=journal) for journal in journals)
    if is_resumed:
        await collected(holder.run(["a"], run_id="night", timeout=1))
    running = asyncio.create_task(collected(holder.run(["a"], run_id="night")))
    await asyncio.sleep(35)
    with sqlite3.connect(path) as late:  # its lease is over, and it has not noticed
        late.execute("UPDATE calls SET lease_until = 0")
    late.close()
    (call,) = await taker.pending()

    assert (await call.resume()).text == "aa"
    assert (await running)["0"].answer.text == "aa"
    assert len(agent.executions) == 1
    for client, journal in zip((holder, taker), journals, strict=True):
        await client.close()
        await journal.close()


class Overtaken(SqliteJournal):
    """A journal whose calls are finished elsewhere just before they are claimed."""

    async def claim(self, message_id):
        await self.update(message_id, 1, RecordUpdate(outcome="answered"))
        return await super().claim(message_id)


async def test_a_call_that_is_finished_elsewhere_just_before_the_claim_has_its_answer(tmp_path):
    agent = doubles()
    task = (await connected(agent).ask("a")).task
    journal = Overtaken(tmp_path / "calls.db")
    await journal.begin(pending_record(agent, task_id=task.id, state=str(task.state)))
    await journal.update("m1", 1, RecordUpdate(releases=True))
    async with connected(agent, journal=journal) as client:
        (result,) = (await collected(client.run(["a"], run_id="r"))).values()

    assert result.answer.text == "aa"
    await journal.close()


async def test_a_message_whose_search_failed_is_not_resent(tmp_path):
    agent = doubles(after=60)
    journal = SqliteJournal(tmp_path / "calls.db")
    async with connected(agent, journal=journal) as client:
        run = client.run(["a"], run_id="night", timeout=5)
        await collected(run)
    down = FakeAgent()
    for operation in (None, "GetAgentCard"):
        down.inject(Refuse(), on=operation, times=500)
    network = FakeNetwork(down)
    async with connected(agent, engine=network, journal=journal, timeout=20) as client:
        assert (await collected(client.run(["a"], run_id="night")))["0"].error is not None
    async with connected(agent, journal=journal) as client:
        results = await collected(client.run(["a"], run_id="night"))

    assert results["0"].answer.text == "aa"
    assert len(agent.executions) == 1
    await journal.close()


async def test_an_error_that_is_fetched_again_shows_no_secret(tmp_path):
    agent = FakeAgent(fails("s3cret-token is not welcome"))
    headers = {"authorization": "Bearer s3cret-token"}
    async with connected(agent, journal=f"sqlite:///{tmp_path}/calls.db") as client:
        for _ in range(2):
            run = client.run(["a"], run_id="night", headers=headers)
            error = (await collected(run))["0"].error

            assert isinstance(error, TaskFailedError)
            assert "is not welcome" in str(error)
            assert "s3cret" not in str(error)


async def test_an_answer_that_cannot_be_fetched_again_was_executed(tmp_path):
    agent = doubles()
    async with connected(agent, journal=f"sqlite:///{tmp_path}/calls.db") as client:
        await collected(client.run(["a"], run_id="night"))
        agent.inject(Refuse(), on="GetTask", times=4)

        results = await collected(client.run(["a"], run_id="night"))

    assert results["0"].error.executed is True


@pytest.mark.parametrize("messages", ["abc", b"abc", {"role": "user", "parts": []}, None])
async def test_run_of_a_single_message_or_no_iterable_is_refused(messages):
    agent = FakeAgent()

    with pytest.raises(TypeError, match="messages must be a sequence, not"):
        connected(agent).run(messages)

    assert agent.executions == {}


# ── Keys, and unread results ─────────────────────────────────────────────────────────────────────


def test_a_key_with_an_unpaired_surrogate_is_refused_before_a_run_begins():
    with pytest.raises(ValueError, match="key has an unpaired surrogate"):
        RunItem(key="\ud800", content="a")


async def test_a_key_that_equals_the_position_of_another_item_is_refused():
    items = [RunItem(key="1", content="a"), "b"]
    agent = FakeAgent()

    async with connected(agent).run(items) as run:
        with pytest.raises(ValueError, match="'1' was passed for more than one"):
            _ = [result async for result in run]


async def test_unread_results_are_dropped_without_a_warning():
    loop_errors, go = [], asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: loop_errors.append(context)
    )

    async def breaks(*_):
        await go.wait()
        raise RuntimeError

    client = connected(FakeAgent(completes("42")))
    await client.add_event_consumer(breaks)
    async with client.run(["a", "b", "c"]) as run:
        asyncio.get_running_loop().call_later(10, go.set)
        with pytest.raises(RuntimeError):
            await anext(run)
    del run
    gc.collect()
    await asyncio.sleep(1)

    assert loop_errors == []


# ── Sources and hooks that end early, and lone surrogates ────────────────────────────────────────


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.db"


async def test_a_run_that_waited_for_another_one_has_its_timeout_once(path):
    agent, journal = FakeAgent(completes("42", after=1000)), SqliteJournal(path)
    clock = asyncio.get_running_loop().time
    async with (
        connected(agent, journal=journal) as first,
        connected(agent, journal=journal) as second,
    ):
        first_run, began = first.run(["How far?"], run_id="r"), clock()
        taking = asyncio.create_task(anext(first_run, None))
        await asyncio.sleep(5)
        waiting = asyncio.create_task(anext(second.run(["How far?"], run_id="r", timeout=60)))
        await asyncio.sleep(55)
        await first_run.close()

        result = await waiting

        assert isinstance(result.error, DeadlineExceededError)
        assert clock() == pytest.approx(began + 65)
        assert await taking is None
    await journal.close()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_cancelled_source_is_an_error_and_not_the_end_of_the_run(is_async):
    agent = FakeAgent(completes("42"))

    async def messages():
        yield "one"
        never_done = asyncio.get_running_loop().create_future()
        never_done.cancel()
        await never_done

    def plain():
        yield "one"
        raise asyncio.CancelledError

    async with connected(agent) as client:
        results, error = await ended(client.run(messages() if is_async else plain()))

    assert [result.answer.text for result in results] == ["42"]
    assert isinstance(error, RuntimeError)
    assert "cancelled" in str(error)


@pytest.mark.parametrize("source_kind", ["close", "stop", "fault"])
async def test_a_generator_of_messages_is_closed_with_the_run(source_kind):
    agent, closed = FakeAgent(completes("42")), []

    async def messages():
        try:
            while True:
                yield RunItem(
                    key="same" if source_kind == "fault" else str(uuid.uuid4()), content="one"
                )
        finally:
            await asyncio.sleep(0)
            closed.append(source_kind)

    source = messages()
    async with connected(agent) as client:
        run = client.run(source, concurrency=1)
        await anext(run)
        if source_kind == "close":
            await run.close()
        elif source_kind == "stop":
            run.stop()
            assert await anext(run, None) is None
        else:
            await ended(run)

        assert closed == [source_kind]


async def test_a_message_whose_interceptor_is_cancelled_is_not_skipped():
    agent = FakeAgent(completes("42"))

    class Hook:
        async def before(self, call):
            raise asyncio.CancelledError

        async def after(self, call):
            pass

    async with connected(agent, interceptors=[Hook()]) as client:
        results, error = await ended(client.run(["one"]))

    assert results == []
    assert isinstance(error, RuntimeError)
    assert "cancelled" in str(error)


@pytest.mark.parametrize("stores", [True, False])
async def test_an_answer_with_an_unpaired_surrogate_is_recognized_by_the_next_run(path, stores):
    agent = FakeAgent(completes("a\ud800b"))
    texts = []
    for _ in range(2):
        journal = SqliteJournal(path, store_messages=stores)
        async with connected(agent, journal=journal) as client:
            (result,) = (await collected(client.run(["hi"], run_id="r"))).values()
            assert result.error is None
            texts.append(result.answer.text)
        await journal.close()

    assert texts[0] == texts[1]


async def test_a_message_with_an_unpaired_surrogate_is_not_recorded(path):
    agent, journal = FakeAgent(completes("42")), SqliteJournal(path, store_messages=True)
    async with connected(agent, journal=journal) as client:
        with pytest.raises(ValueError, match="unpaired surrogate"):
            await client.ask("c\udfffd")
        (result,) = (await collected(client.run(["c\udfffd"], run_id="r"))).values()

        assert isinstance(result.error, ValueError)
        assert await client.pending() == []
    await journal.close()
    assert agent.received == []


async def test_observers_get_the_question_that_is_an_error_of_run_and_fan_out():
    seen = []
    agent = FakeAgent(asks("which one?"))
    options = {"engine": FakeNetwork(agent), "observers": [seen.append]}

    async with connect(agent.url, **options) as client:
        errors = [result.error async for result in client.run(["hello"])]
    async with Coordinator({"one": agent.url}, **options) as coordinator:
        with pytest.raises(NotEnoughResultsError) as caught:
            await coordinator.fan_out("hello")
    errors += [result.error for result in caught.value.results]

    finished = [each.error for each in seen if isinstance(each, OperationFinished)]
    assert [type(error) for error in errors] == [TaskInputRequiredError] * 2
    assert finished == errors


# ── Shared runs ──────────────────────────────────────────────────────────────────────────────


async def test_processes_of_a_shared_run_yield_each_result_once_and_work_in_parallel(tmp_path):
    agent = doubles(after=10)
    messages = [str(number) for number in range(100)]
    longest, left = [], []

    async def process():
        journal = SqliteJournal(tmp_path / "calls.db", store_messages=True)
        async with connected(agent, journal=journal) as client:
            run = client.run(messages, run_id="night", shared=True, concurrency=10)
            run.on_finished_elsewhere = left.append
            found = {}
            async for result in run:
                assert result.key not in found
                found[result.key] = result.answer.text
                longest.append(len(run._deferred))
            assert run.finished_elsewhere == len(messages) - len(found)
        await journal.close()
        return found

    began = now()
    first, second = await asyncio.gather(process(), process())

    assert not first.keys() & second.keys()
    assert first | second == {text: text * 2 for text in messages}
    assert min(len(first), len(second)) > 30
    assert now() - began < 65  # one process takes 100 s
    assert {len(tasks) for tasks in agent.executions.values()} == {1}
    assert sorted(left, key=int) == messages
    assert max(longest) <= 20


async def test_a_shared_run_resumes_the_calls_of_a_process_that_crashed(tmp_path):
    agent = doubles(after=20)
    crashed = SqliteJournal(tmp_path / "calls.db", lease=30)
    async with connected(agent, journal=crashed) as client:
        run = client.run(["a"], run_id="night", timeout=5)
        assert isinstance((await anext(run)).error, DeadlineExceededError)
        (call,) = await client.pending()
        await crashed.claim(call.message_id)  # by a process that renews no lease
        began = now()
        shared = await collected(client.run(["a", "b"], run_id="night", shared=True))
    await crashed.close()

    assert {key: result.answer.text for key, result in shared.items()} == {"0": "aa", "1": "bb"}
    assert 30 <= now() - began < 40
    assert {len(tasks) for tasks in agent.executions.values()} == {1}


async def test_a_shared_run_counts_the_messages_that_wait_for_another_process(tmp_path):
    agent, journal = FakeAgent(completes("42", after=60)), tmp_path / "calls.db"
    async with connected(agent, journal=journal) as one, connected(agent, journal=journal) as two:
        runs = [client.run(["a", "b"], run_id="night", shared=True) for client in (one, two)]
        collecting = asyncio.gather(*map(collected, runs))
        await asyncio.sleep(30)
        sending = max(runs, key=lambda run: run.in_flight)
        (waiting,) = [run for run in runs if run is not sending]
        assert (sending.in_flight + waiting.in_flight, sending.held + waiting.held) == (2, 2)
        await collecting
        assert [run.held for run in runs] == [0, 0]


async def test_a_call_that_another_process_of_a_shared_run_resumes_first_is_left_to_it(tmp_path):
    """The other process takes the call over after this one has read that its lease has ended."""
    taken = asyncio.Event()

    class First(SqliteJournal):
        async def claim(self, message_id, /):
            record = await super().claim(message_id)
            taken.set()
            return record

    class Second(SqliteJournal):
        async def find_label(self, label, /):
            record = await super().find_label(label)
            if not taken.is_set():
                resumed.set()
                await taken.wait()
            return record

    agent, resumed = doubles(after=20), asyncio.Event()
    journals = [kind(tmp_path / "calls.db", lease=5) for kind in (First, Second)]
    async with connected(agent, journal=journals[0]) as client:
        run = client.run(["a"], run_id="night", timeout=1)
        assert isinstance((await anext(run)).error, DeadlineExceededError)

    async def process(journal):
        async with connected(agent, journal=journal) as client:
            run = client.run(["a"], run_id="night", shared=True)
            results = await collected(run)
        await journal.close()
        return len(results), run.finished_elsewhere

    second = asyncio.create_task(process(journals[1]))
    await resumed.wait()
    first = await process(journals[0])

    assert first == (1, 0)
    assert await second == (0, 1)


async def test_a_shared_run_resumes_a_call_while_it_waits_for_the_next_message(tmp_path):
    agent, journal = doubles(after=1), SqliteJournal(tmp_path / "calls.db", lease=30)

    async def messages():
        yield "a"
        await asyncio.sleep(3600)

    async with connected(agent, journal=journal) as client:
        run = client.run(["a"], run_id="night", timeout=0.5)
        assert isinstance((await anext(run)).error, DeadlineExceededError)
        (call,) = await client.pending()
        await journal.claim(call.message_id)  # by a process that renews no lease
        began = now()
        async with client.run(messages(), run_id="night", shared=True) as run:
            assert (await anext(run)).answer.text == "aa"
            assert 30 <= now() - began < 40
            assert run.in_flight == 0
    await journal.close()


async def test_the_rate_applies_to_calls_that_another_process_of_a_run_did_not_send(
    tmp_path,
):
    agent, messages = doubles(after=60), [str(number) for number in range(10)]
    one_slot = Resilience(concurrency=ConcurrencyPolicy(limit=1))

    async def stopped_process():
        async with (
            connected(agent, journal=tmp_path / "calls.db", resilience=one_slot) as client,
            client.run(messages, run_id="night", shared=True) as run,
        ):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(anext(run), 1)

    stopped = asyncio.create_task(stopped_process())
    await asyncio.sleep(0.5)
    async with connected(agent, journal=tmp_path / "calls.db") as client:
        results = await collected(client.run(messages, run_id="night", shared=True, rate=0.1))
    await stopped

    assert results.keys() == set(messages)
    times = [call.at for call in agent.calls("SendStreamingMessage")]
    assert len(times) == 10
    assert min(later - at for at, later in itertools.pairwise(times[1:])) == pytest.approx(10)


async def test_a_call_that_another_process_of_a_shared_run_begins_first_is_not_observed(tmp_path):
    """The other process begins the call after this one has found no record of it."""
    agent, seen = doubles(after=5), []
    is_late, is_begun = asyncio.Event(), asyncio.Event()

    class Late(SqliteJournal):
        async def begin(self, record, /):
            is_late.set()
            await is_begun.wait()
            return await super().begin(record)

    class First(SqliteJournal):
        async def begin(self, record, /):
            record = await super().begin(record)
            is_begun.set()
            return record

    async def process(kind, **options):
        journal = kind(tmp_path / "calls.db")
        async with connected(agent, journal=journal, **options) as client:
            run = client.run(["a"], run_id="night", shared=True)
            results = await collected(run)
        await journal.close()
        return len(results), run.finished_elsewhere

    late = asyncio.create_task(process(Late, observers=[seen.append]))
    await is_late.wait()

    assert await process(First) == (1, 0)
    assert await late == (0, 1)
    assert seen == []


async def test_a_call_that_another_process_of_a_shared_run_has_is_not_observed(tmp_path):
    agent, journal, seen = doubles(after=5), tmp_path / "calls.db", []
    async with connected(agent, journal=journal) as client:
        other = asyncio.create_task(collected(client.run(["a"], run_id="night", shared=True)))
        await asyncio.sleep(1)
        async with connected(agent, journal=journal, observers=[seen.append]) as observed:
            run = observed.run(["a"], run_id="night", shared=True)
            assert await collected(run) == {}
        await other

    assert run.finished_elsewhere == 1
    assert seen == []


async def test_a_shared_run_does_not_send_a_message_of_unknown_outcome_again(
    tmp_path,
):
    agent = doubles()
    agent.inject(Stall(), on="SendStreamingMessage")
    async with connected(agent, journal=tmp_path / "calls.db") as client:
        options = {"run_id": "night", "on_unknown": "raise"}
        (lost,) = (await collected(client.run(["a"], shared=True, **options))).values()
        options["on_unknown"] = "resend"
        left = await collected(client.run(["a"], shared=True, **options))
        (sent,) = (await collected(client.run(["a"], **options))).values()

    assert isinstance(lost.error, OutcomeUnknownError)
    assert left == {}
    assert sent.answer.text == "aa"


async def test_a_shared_run_needs_a_name():
    with pytest.raises(ValueError, match="a shared run needs a run_id"):
        connected(doubles()).run(["a"], shared=True)


@pytest.mark.parametrize("key", ["", "a\x00b", "x" * 513])
def test_an_item_with_a_key_that_is_not_valid_is_refused(key):
    with pytest.raises(ValueError, match="key must"):
        RunItem(key=key, content="How far?")


@pytest.mark.parametrize(
    ("run_id", "error", "why"),
    [
        ("", ValueError, "run_id must not be empty"),
        ("x" * 513, ValueError, "run_id must have at most 512 characters, not 513"),
        ("a\x1bb", ValueError, "run_id must not contain control characters"),
        (17, TypeError, "run_id must be a string, not int"),
    ],
    ids=["empty", "long", "control", "number"],
)
async def test_the_name_of_a_run_that_is_not_valid_is_refused(tmp_path, run_id, error, why):
    agent = doubles()
    journal = SqliteJournal(tmp_path / "calls.db")
    with pytest.raises(error, match=why):
        connected(agent, journal=journal).run(["a"], run_id=run_id)
    assert agent.executions == {}
    await journal.close()


async def one_pair():
    yield ("k1", "one")


@pytest.mark.parametrize(
    "messages",
    [[("k1", "one")], iter([("k1", "one"), "two"]), one_pair()],
    ids=["list", "iterator", "async generator"],
)
async def test_run_of_pairs_names_run_item_and_sends_nothing(messages):
    agent = doubles()

    with pytest.raises(TypeError, match=r"tuple of two strings; .* RunItem\(key=…, content=…\)"):
        await collected(connected(agent).run(messages))

    assert not agent.executions


@pytest.mark.parametrize("messages", [{"k1": "one"}, {"k1": "one"}.items()], ids=["dict", "items"])
async def test_run_of_a_dict_names_run_item_before_the_iteration(messages):
    with pytest.raises(TypeError, match=r"RunItem\(key=…, content=…\)"):
        connected(doubles()).run(messages)


async def test_run_of_lists_and_tuples_of_parts_sends_each_as_one_message():
    agent = doubles()

    items = [["a", "b"], (Part(text="c"), Part(text="d")), ("e", Part(text="f"))]
    await collected(connected(agent).run(items))

    assert len(agent.executions) == 3


async def test_run_that_is_never_iterated_warns():
    run = connected(doubles()).run(["a"])

    with pytest.warns(RuntimeWarning, match=r"a run was never started.*nothing was sent"):
        del run


async def test_run_that_is_closed_before_the_iteration_does_not_warn():
    async with connected(doubles()).run(["a"]):
        pass
    gc.collect()
