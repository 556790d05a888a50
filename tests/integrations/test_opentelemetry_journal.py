"""A call that another process resumes is linked to the trace in which it began."""

import contextlib
import inspect

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.kit.postgres_server import Postgres

from holdfast import A2AError, PostgresJournal, SqliteJournal, connect
from holdfast.extend import CallRecord
from holdfast.integrations.opentelemetry import Telemetry
from holdfast.testing import FakeAgent, FakeNetwork, completes


@pytest.fixture(scope="module")
def server():
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgres"])
def journal(request, tmp_path):
    """Makes the journals of processes, which share their records."""
    if request.param == "sqlite":
        return lambda: SqliteJournal(tmp_path / "calls.db")
    dsn = f"{request.getfixturevalue('server').dsn}&schema={tmp_path.name.strip('_')}"
    return lambda: PostgresJournal(dsn)


class Process:
    """The tracer provider of a process."""

    def __init__(self):
        self.provider, self._exporter = TracerProvider(), InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("program")

    def client(self, agent, journal, **options):
        telemetry = Telemetry(tracer_provider=self.provider, **options)
        return connect(agent.url, engine=FakeNetwork(agent), journal=journal, telemetry=telemetry)

    def links(self):
        """The names and attributes of linked spans, and the ids of what they are linked to."""
        return [
            (span.name, dict(link.attributes), link.context.trace_id, link.context.span_id)
            for span in self._exporter.get_finished_spans()
            for link in span.links
            if link.context.is_remote
        ]

    def named(self, name):
        (span,) = [each for each in self._exporter.get_finished_spans() if each.name == name]
        return span


async def begun(agent, journal, process, **options):
    """Begin a call whose process ends before its agent has finished; returns the span of it."""
    async with process.client(agent, journal, **options) as client:
        current = process.tracer.start_as_current_span("work")
        with current as span, contextlib.suppress(A2AError):
            await client.ask("hi", key="k", timeout=5)
    await journal.close()
    return span.get_span_context()


RESUMED = {"holdfast.link": "resumed"}


@pytest.mark.parametrize("how", ["resume_pending", "the same key"])
async def test_a_resumed_call_is_linked_to_the_span_in_which_it_began(how, journal):
    agent, first, second = FakeAgent(completes("42", after=60)), Process(), Process()
    began = await begun(agent, journal(), first)

    opened = journal()
    async with second.client(agent, opened) as client:
        if how == "resume_pending":
            assert [each.answer.text async for each in client.resume_pending()] == ["42"]
        else:
            assert (await client.ask("hi", key="k")).text == "42"
    await opened.close()

    ((name, attributes, *ids),) = second.links()
    assert (attributes, ids) == (RESUMED, [began.trace_id, began.span_id])
    assert name in {"GetTask", "SubscribeToTask"}
    assert len(agent.calls("SendStreamingMessage")) == 1


async def test_the_span_of_the_operation_is_linked_if_there_is_one(journal):
    agent, first, second = FakeAgent(completes("42", after=60)), Process(), Process()
    await begun(agent, journal(), first, operation_spans=True)
    began = first.named("holdfast.ask").context

    opened = journal()
    async with second.client(agent, opened, operation_spans=True) as client:
        assert [each async for each in client.resume_pending()]
    await opened.close()

    assert second.links() == [("holdfast.resume", RESUMED, began.trace_id, began.span_id)]


async def test_a_call_without_telemetry_has_no_trace_and_no_link(tmp_path):
    agent, process, journal = FakeAgent(completes("42", after=60)), Process(), tmp_path / "c.db"
    async with connect(agent.url, engine=FakeNetwork(agent), journal=journal) as client:
        with contextlib.suppress(A2AError), process.tracer.start_as_current_span("work"):
            await client.ask("hi", timeout=5)
    async with process.client(agent, journal) as client:
        (pending,) = await client.pending()
        record = await SqliteJournal(journal).find(pending.message_id)
        assert record.traceparent is None
        assert [each.answer.text async for each in client.resume_pending()] == ["42"]
    assert process.links() == []


class WithoutTrace:
    """A journal of somebody else's, which returns what an older Holdfast knew, or nonsense."""

    def __init__(self, inner, stored):
        self._inner, self._stored = inner, stored

    def __getattr__(self, name):
        method = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*arguments, **options):
            return self._forged(await method(*arguments, **options))

        return call

    def _forged(self, found):
        if isinstance(found, CallRecord):
            return msgspec.structs.replace(found, traceparent=self._stored)
        return [self._forged(each) for each in found] if isinstance(found, list | tuple) else found


@pytest.mark.parametrize("stored", [None, "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_nonsense_in_a_journal_is_no_link(stored, tmp_path, caplog):
    agent, first, second = FakeAgent(completes("42", after=60)), Process(), Process()
    await begun(agent, SqliteJournal(tmp_path / "c.db"), first)
    caplog.clear()

    opened = SqliteJournal(tmp_path / "c.db")
    async with second.client(agent, WithoutTrace(opened, stored)) as client:
        assert [each.answer.text async for each in client.resume_pending()] == ["42"]
    await opened.close()

    assert second.links() == []
    assert [each for each in caplog.messages if "OpenTelemetry" in each] == []


async def test_a_source_that_raises_records_the_call_without_a_trace(tmp_path, caplog):
    class Source:
        def observe(self, _observation):
            pass

        def layer(self, inner):
            return inner

        def traceparent(self, _operation_id):
            raise RuntimeError("out of order")

    agent, journal = FakeAgent(completes("42")), SqliteJournal(tmp_path / "c.db")
    with pytest.warns(RuntimeWarning, match="out of order"):
        async with connect(
            agent.url, engine=FakeNetwork(agent), journal=journal, telemetry=Source()
        ) as client:
            assert (await client.ask("hi")).text == "42"
    await journal.close()
    assert any("traceparent" in each for each in caplog.messages)
