"""Log records of clients: each that concerns an operation has its ids as fields."""

import ast
import asyncio
import contextlib
import logging

from tests.kit.paths import ROOT

from holdfast import A2AError, SqliteJournal, connect
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Respond,
    completes,
    streams,
    unavailable,
)

PACKAGE = ROOT / "src" / "holdfast"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
OTHER_LOGGERS = ("holdfast.security", "holdfast.push", "holdfast.server", "holdfast.cli")
WRITERS = {
    "_pipeline/observation_log.py": "the one function for records about operations",
    "_pipeline/listeners.py": "an observer that raised; the record has the fields too",
    "_aio/callbacks.py": "a background task that does not end when it is cancelled",
    "_journal/leases.py": "all calls of the process at once, or a call without an operation",
    "_journal/postgres.py": "the deletion of old records of any call",
    "_integrations/a2a_sdk/retry_loop.py": "the SDK's call: fields, but no operation of a client",
    "_integrations/a2a_sdk/notify.py": "the caller's hook of the SDK's call, which raised",
    "_integrations/otel/instrumentor.py": "a program that is instrumented twice",
    "_aio/guarded_telemetry.py": "a telemetry of servers that raised",
    "_integrations/otel/telemetry.py": "a provider of spans that raised",
    "_integrations/temporal/activities.py": "an activity: the fields that it knows",
}
"""Modules that write to the logger "holdfast" themselves, and about what."""


def test_each_module_that_logs_without_an_operation_is_listed():
    writers = set()
    for path in sorted(set(PACKAGE.rglob("*.py")) - set(PACKAGE.glob("_cli/**/*.py"))):
        tree = ast.parse(path.read_text())
        loggers, logs = set(), False
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "getLogger":
                loggers |= {ast.unparse(argument).strip("'\"") for argument in node.args}
            value = node.func.value
            is_logger = isinstance(value, ast.Name) and value.id in {"logger", "logging", "log"}
            logs = logs or (is_logger and node.func.attr in LEVELS)
        is_other = bool(loggers) and all(
            name == "SECURITY_LOGGER" or name.startswith(OTHER_LOGGERS) for name in loggers
        )
        if logs and not is_other:
            writers.add(path.relative_to(PACKAGE).as_posix())
    assert writers == set(WRITERS)


async def test_records_of_streams_and_abandoned_calls_name_their_operation(caplog):
    agent = FakeAgent(streams(*"abcdef", every=1), cancel_takes=None)
    agent.inject(Cut(after_events=2))
    agent.inject(unavailable(), on="SubscribeToTask", times=3)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        with contextlib.suppress(A2AError):
            await client.ask("hi")
        agent.inject(Respond(status=500), on="CancelTask", times=9)
        async with client.stream_message("hi", cancel_on_abandon=True) as events:
            await anext(events)
        await asyncio.sleep(20)
    older = FakeAgent(streams(*"abc", every=1), versions=("0.3",))
    async with connect(older.url, engine=FakeNetwork(older)) as client:
        task = await client.send_message("hi", return_immediately=True)
        async with client.subscribe_to_task(task.id) as events:
            assert [each async for each in events]
    records = [each for each in caplog.records if each.name == "holdfast"]
    assert [each.getMessage() for each in records if not hasattr(each, "operation_id")] == []
    texts = {
        each.operation: each.getMessage()
        for each in records
        if each.levelno == logging.WARNING and "missing after a cut" not in each.getMessage()
    }
    assert "was cut, and requests fail" in texts["ask"]
    assert "was not canceled" in texts["cancel_task"]
    assert "is polled" in texts["subscribe_to_task"]
    assert all(each.task_id for each in records if each.levelno == logging.WARNING)


class FailingJournal(SqliteJournal):
    """Records no outcome until it is told to."""

    fails = True

    async def update(self, message_id, generation, update, /):
        if self.fails and update.outcome is not None:
            raise OSError("no space left")
        return await super().update(message_id, generation, update)


async def test_records_of_a_journal_that_fails_name_the_operation(caplog, tmp_path):
    caplog.set_level(logging.INFO, "holdfast")
    agent, journal = FakeAgent(), FailingJournal(tmp_path / "calls.db")
    async with connect(agent.url, engine=FakeNetwork(agent), journal=journal) as client:
        await client.ask("hi")
        journal.fails = False
        await asyncio.sleep(20)
    await journal.close()
    failed, recorded = [each for each in caplog.records if each.name == "holdfast"]
    assert "no space left" in failed.getMessage()
    assert failed.error_type == "JournalError"
    assert "the outcome has been recorded" in recorded.getMessage()
    assert {each.operation for each in (failed, recorded)} == {"ask"}
    assert failed.operation_id == recorded.operation_id
    assert failed.message_id == recorded.message_id


async def test_a_record_of_an_observer_that_raises_names_the_operation(caplog):
    def fail(observation):
        raise LookupError

    agent = FakeAgent()
    async with connect(agent.url, engine=FakeNetwork(agent), observers=[fail]) as client:
        with contextlib.suppress(RuntimeWarning):
            await client.send_message("hi")
    assert {each.operation for each in caplog.records} == {"send_message"}


async def test_records_without_observers_have_the_task(caplog):
    caplog.set_level(logging.INFO, "holdfast")
    agent = FakeAgent(completes("42", after=60), streaming=False)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        call = asyncio.create_task(client.ask("hi"))
        await asyncio.sleep(5)
        agent.inject(unavailable(), on="GetTask")
        await call
        agent.inject(unavailable(), on="GetTask")
        await client.get_task("task-1")
    of_ask, of_get_task = caplog.records
    assert of_ask.task_id
    assert of_ask.context_id
    assert of_get_task.task_id == "task-1"  # the request names it
