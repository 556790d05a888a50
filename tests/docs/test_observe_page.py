"""The code in docs/howto/observe.md runs as it stands, and does what the page says."""

import functools
import json
import logging
import re

import msgspec
import prometheus_client
import pytest
from tests.kit.pages import Page, execute

import holdfast
from holdfast import observe
from holdfast.testing import Cut, FakeAgent, FakeNetwork, Reset, rate_limited, streams

PAGE = Page("docs/howto/observe.md")
HERE = "http://localhost:9999"


@pytest.fixture
def run(monkeypatch):
    """Runs a block against an agent that is rate limited and cuts its stream; returns both."""

    async def run(text):
        printed = []
        agent = FakeAgent(streams("384,400", " km", every=1), url="http://localhost:9999")
        connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
        monkeypatch.setattr(holdfast, "connect", connect)
        agent.inject(rate_limited(retry_after=1), on="SendStreamingMessage")
        agent.inject(Cut(after_events=2), on="SendStreamingMessage")
        await execute(PAGE.block(text), print=lambda *words: printed.append(words))
        return agent, printed

    return run


async def test_each_level_logs_what_the_page_says(run, caplog, monkeypatch):
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("holdfast")
    before = logger.level

    await run("basicConfig(format")

    level, logger.level = logger.level, before
    assert level == logging.INFO
    said = {
        (record.levelname, words)
        for record in caplog.records
        for words in (
            "attempt 1 started",
            "attempt 2 follows in",
            "was interrupted with",
            "reconnected to task",
            "may be missing",
        )
        if words in record.message
    }
    assert said == {
        ("INFO", "attempt 2 follows in"),
        ("INFO", "was interrupted with"),
        ("INFO", "reconnected to task"),
        ("WARNING", "may be missing"),
    }


ROWS = PAGE.text.partition("| field | meaning |")[2].partition("\n\n")[0].splitlines()
FIELDS = {name for row in ROWS[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


async def test_records_have_the_fields_of_the_page(caplog):
    agent = FakeAgent(streams("forty", "-two"), lists_tasks=True)
    agent.inject(rate_limited(1), on="SendStreamingMessage")
    agent.inject(Reset(after_execution=True), on="SendStreamingMessage")
    agent.inject(Cut(after_events=1), on="SubscribeToTask")
    plain = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
    with caplog.at_level(logging.DEBUG, "holdfast"):
        async with holdfast.connect(agent.url, engine=FakeNetwork(agent)) as client:
            answer = await client.ask("How far is the moon?")

    records = [vars(record) for record in caplog.records if record.name == "holdfast"]
    found = {name for record in records for name in record.keys() - plain}
    assert found <= FIELDS
    assert {"request_id", "attempt", "wait_s", "error_type", "executed", "message_id"} <= found
    assert all("operation" in record for record in records)
    (found_task,) = [record for record in records if "was found as task" in record["message"]]
    assert found_task["task_id"] == answer.task_id
    waits = [record["wait_s"] for record in records if "wait_s" in record]
    assert waits[0] >= 1


async def test_an_observer_sees_each_call_once(run):
    _, printed = await run("def report")

    assert printed == [("ask", "ok", 6, "attempts")]


def test_the_table_has_every_observation_with_its_fields():
    base = observe.Observation.__struct_fields__
    classes = {
        name: set(kind.__struct_fields__) - set(base)
        for name in observe.__all__
        if isinstance(kind := getattr(observe, name), type)
        and issubclass(kind, observe.Observation)
        and kind is not observe.Observation
    }
    rows = [row.split(" | ", 2) for row in PAGE.text.splitlines() if row.startswith("| `")]
    table = {
        row[0].strip("| `"): set(re.findall(r"`(\w+)`", row[2])) if len(row) > 2 else set()
        for row in rows
        if row[0].strip("| `") in classes
    }
    assert table == classes


async def test_a_coroutine_function_is_not_an_observer():
    async def observer(observation):
        pass

    with pytest.raises(TypeError, match="observers"):
        holdfast.connect("http://localhost:9999", observers=[observer])


async def test_prometheus_counts_calls_retries_and_reconnects(run, monkeypatch):
    registry = prometheus_client.CollectorRegistry()
    for kind in ("Counter", "Histogram"):
        made = functools.partial(getattr(prometheus_client, kind), registry=registry)
        monkeypatch.setattr(prometheus_client, kind, made)

    await run("prometheus_client")

    value = registry.get_sample_value
    call = {"agent": HERE, "operation": "ask"}
    assert value("a2a_calls_total", {**call, "outcome": "ok"}) == 1
    assert value("a2a_call_seconds_count", call) == 1
    assert value("a2a_retries_total", {"agent": HERE, "error": "RateLimitedError"}) == 1
    assert value("a2a_reconnects_total", {"agent": HERE}) == 1


def test_the_alert_rules_name_metrics_of_the_block():
    block = PAGE.block("prometheus_client")
    counters = {f"{name}_total" for name in re.findall(r'Counter\(\s*"(\w+)"', block)}

    named = re.findall(r"increase\((\w+)", PAGE.text)

    assert named == ["a2a_calls_total", "a2a_circuit_opened_total"]
    assert set(named) <= counters
    assert issubclass(holdfast.OutcomeUnknownError, holdfast.A2AError)


@pytest.fixture
def root_logger():
    """The root logger, whose handlers and level a block may set; they are restored."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def lines_of(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


async def test_a_formatter_for_json_writes_the_fields(run, root_logger, capsys):
    root_logger.handlers.clear()  # those of pytest

    await run("JsonFormatter")

    (retry,) = [line for line in lines_of(capsys) if "wait_s" in line]
    example = json.loads(PAGE.text.partition("```json\n")[2].partition("\n```")[0])
    assert example.keys() <= retry.keys()
    assert retry.keys() - example.keys() == {
        "endpoint",
        "message_id",
        "parent_id",
        "transient",
        "executed",
    }
    same = ["levelname", "name", "operation", "method", "agent", "attempt", "wait_reason"]
    assert {name: retry[name] for name in same} == {name: example[name] for name in same}


async def test_structlog_writes_the_fields_and_what_the_program_has_bound(
    run, root_logger, capsys
):
    root_logger.handlers.clear()  # those of pytest

    await run("ProcessorFormatter")

    lines = lines_of(capsys)
    assert {(line["logger"], line["job"], line["operation"]) for line in lines} == {
        ("holdfast", "moon-7", "ask")
    }
    (retry,) = [line for line in lines if "wait_s" in line]
    assert (retry["level"], retry["error_type"]) == ("info", "RateLimitedError")
    assert "attempt 2 follows in" in retry["event"]


async def test_statistics_are_those_of_the_endpoints(run):
    _, printed = await run("retry_tokens")

    card, calls, (everything,) = printed
    assert card[1:3] == ("closed", 1)
    assert calls[1:3] == ("closed", 5)
    names = observe.EndpointStats.__struct_fields__
    assert set(everything["endpoints"][0]) == set(names)
    assert all(f"`{name}`" in PAGE.text for name in names)
    assert msgspec.json.encode(everything)


def test_every_block_is_run():
    PAGE.check_complete(
        "basicConfig(format",
        "def report",
        "prometheus_client",
        "JsonFormatter",
        "ProcessorFormatter",
        "retry_tokens",
    )


def test_every_link_leads_somewhere():
    PAGE.check_links()
