"""The code in the pages about calls, streams, conversations and tools runs as it stands."""

import asyncio
import functools
import sys

import pytest
from tests.kit.client_tools import Scripted, call, calls
from tests.kit.pages import Page, execute

import holdfast
import holdfast.sync
from holdfast.client import TextReset
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    LoopbackServer,
    Plan,
    Refuse,
    Reset,
    Step,
    asks,
    completes,
    fails,
    needs_auth,
    streams,
    works_forever,
)
from holdfast.types import Part

CALLS = Page("docs/howto/calls.md")
STREAMS = Page("docs/howto/cut-stream.md")
PEOPLE = Page("docs/howto/human-in-the-loop.md")
TOOLS = Page("docs/howto/client-tools.md")
SYNC = Page("docs/howto/sync.md")
HERE = "http://localhost:9999"


def client_of(agent):
    return holdfast.connect(agent.url, engine=FakeNetwork(agent))


def books(turn):
    """Asks when, once."""
    table = "table" in turn.message.text
    return asks("When?") if table and turn.task is None else completes(turn.message.text)


# ── Calls ────────────────────────────────────────────────────────────────────────────────────


async def test_call_connects_and_asks(monkeypatch):
    agent = FakeAgent("384,400 km", url=HERE)
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast, "connect", connect)
    printed = []

    await execute(CALLS.block("import holdfast"), print=printed.append)
    names = await execute(CALLS.block("patient = "))
    await names["agent"].close()

    assert printed == ["384,400 km"]


@pytest.mark.parametrize("begin", ["task_id=answer.task_id", "agent.conversation()"])
async def test_question_is_replied_to(begin):
    agent, printed = FakeAgent(books), []
    await execute(CALLS.block(begin), agent=client_of(agent), print=printed.append)
    assert printed[:2] == ["When?", "Tonight."]


async def test_message_has_many_forms(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = FakeAgent()
    await execute(CALLS.block("holdfast.file_part"), agent=client_of(agent))
    [task] = agent.tasks.values()
    file, data = task.history[0].parts[1:]
    assert (file.media_type, file.raw) == ("text/plain", b"The moon is 384,400 km away.")
    assert data.data == {"unit": "km"}


async def test_progress_is_shown_from_status_messages():
    printed = []
    done = holdfast.Artifact(artifact_id="a", parts=(holdfast.text_part("done"),))
    agent = FakeAgent(
        Plan(
            (
                Step(state=holdfast.TaskState.WORKING, says="0 %"),
                Step(state=holdfast.TaskState.WORKING, says="50 %", after=1),
                Step(artifacts=(done,), after=1),
                Step(state=holdfast.TaskState.COMPLETED),
            )
        )
    )
    await execute(
        STREAMS.block("event.status.message"),
        agent=client_of(agent),
        holdfast=holdfast,
        print=lambda *words: printed.append(" ".join(words)),
    )
    assert printed == ["progress: 0 %", "progress: 50 %", "done"]


async def test_bytes_are_sent_as_a_file_with_a_name():
    agent = FakeAgent()
    await execute(CALLS.block("chart.png"), agent=client_of(agent), holdfast=holdfast)
    [task] = agent.tasks.values()
    part = task.history[0].parts[1]
    assert (part.filename, part.media_type) == ("chart.png", "image/png")
    assert part.raw.startswith(b"\x89PNG")


async def test_received_files_are_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = [
        Part(raw=b"384,400 km", filename="../moon.txt", media_type="text/plain"),
        Part(raw=b"?"),
        Part(url="https://files.example/moon.pdf"),
        Part(text="Both files."),
    ]
    printed = []
    await execute(
        CALLS.block("write_bytes"),
        agent=client_of(FakeAgent(completes(*parts))),
        print=lambda *words: printed.append(" ".join(map(str, words))),
    )
    assert printed == [
        "saved moon.txt text/plain",
        "saved unnamed None",
        "to be downloaded from https://files.example/moon.pdf",
    ]
    saved = {path.name: path.read_bytes() for path in (tmp_path / "received").iterdir()}
    assert saved == {"moon.txt": b"384,400 km", "unnamed": b"?"}


async def test_calls_run_in_parallel():
    printed = []
    await execute(
        CALLS.block("asyncio.gather"),
        agent=client_of(FakeAgent(lambda turn: completes(turn.message.text))),
        print=printed.append,
    )
    assert printed == [["How far?", "How big?"]]


async def test_operations_are_methods():
    agent, printed = FakeAgent(completes("done", after=1000, works=1)), []
    names = await execute(
        CALLS.block("agent.iter_tasks("),
        agent=client_of(agent),
        print=lambda *words: printed.append(words),
    )
    assert [state for _, state in printed] == ["SUBMITTED"]
    assert names["task"].text == "done"


@pytest.mark.parametrize(
    ("behaviour", "fault", "printed"),
    [
        ("", Reset(after_execution=True), "the connection"),
        (lambda _: fails("no oven"), None, "the task failed: task"),
    ],
)
async def test_errors_have_facts(behaviour, fault, printed):
    agent = FakeAgent(behaviour, records_messages=False)
    if fault:
        agent.inject(fault)
    lines = []
    await execute(
        CALLS.block("except holdfast.OutcomeUnknownError"),
        agent=client_of(agent),
        print=lambda *words: lines.append(" ".join(map(str, words))),
    )
    [line] = lines
    assert printed in line.lower()


async def test_task_is_canceled():
    agent, printed = FakeAgent(works_forever()), []
    names = {"agent": client_of(agent), "print": lambda *words: printed.append(words)}
    await execute(CALLS.block("agent.cancel_task("), **names)
    assert printed == [("CANCELED",)]

    done = FakeAgent(completes("done"))
    await execute(CALLS.block("agent.cancel_task("), **{**names, "agent": client_of(done)})
    assert printed[1][0] == "it has ended already, or cannot be canceled:"

    await execute(CALLS.block("cancel_on_abandon=True"), **names)
    await names["agent"].close()
    assert [task.state.name for task in agent.tasks.values()] == ["CANCELED", "CANCELED"]
    assert printed[2] == ("too late; the client cancels task", list(agent.tasks)[1])


async def test_wait_returns_a_failed_task_and_ask_raises():
    async with client_of(FakeAgent(fails("no moon"))) as agent:
        with pytest.raises(holdfast.TaskFailedError) as caught:
            await agent.ask("How far?")
        assert (await agent.wait(caught.value.task.id)).state.name == "FAILED"
    assert "`agent.wait`, `send_message` and `get_task` do not raise" in CALLS.text


def test_default_limits_are_those_of_the_page():
    resilience = holdfast.Resilience()
    seconds = resilience.timeouts
    waits = (seconds.pool, seconds.connect, seconds.write, seconds.first_byte, seconds.idle)
    assert f"{', '.join(f'{wait:g}' for wait in waits)} s |" in CALLS.text
    assert f"| {resilience.reconcile.timeout:g} s | `ReconcilePolicy(" in CALLS.text
    assert f"| {resilience.reconnect.max_quiet:,.0f} s | `ReconnectPolicy(" in CALLS.text
    assert f"| after {resilience.reconnect.max_reconnects} consecutive reconnects" in CALLS.text
    assert f"| {resilience.budget.tokens:g} tokens |" in CALLS.text
    assert f"| {resilience.retry.max_retries}, after" in CALLS.text
    assert f"opens after {resilience.breaker.failures} " in CALLS.text


async def test_conversation_ignores_the_timeout_of_its_client():
    agent = FakeAgent(completes("done", after=2_000))
    async with holdfast.connect(agent.url, engine=FakeNetwork(agent), timeout=10) as client:
        answer = await client.conversation().ask("Think.")
        with pytest.raises(holdfast.DeadlineExceededError):
            await client.conversation(timeout=20).ask("Think.")
    assert answer.text == "done"


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


async def test_stream_is_cut_and_text_is_whole():
    agent = FakeAgent(streams("384,400 ", "km, ", "on average", every=1))
    agent.inject(Cut(after_events=3))
    printed = []
    block = STREAMS.block("if answer.question:")
    names = await execute(
        block, agent=client_of(agent), print=lambda text, **_: printed.append(text)
    )
    assert printed == ["384,400 ", "km, ", "on average"]
    assert names["answer"].text == "384,400 km, on average"
    assert agent.pending_faults == ()

    await execute(
        block,
        agent=client_of(FakeAgent(asks("When?"))),
        print=lambda text, **_: printed.append(text),
    )
    assert printed[-1] == "When?"


async def test_question_in_a_stream_is_replied_to():
    printed = []
    await execute(
        STREAMS.block("if answer.needs_input"),
        agent=client_of(FakeAgent(books)),
        print=lambda text, **_: printed.append(text),
    )
    assert printed == ["When?", "Tonight."]


async def test_events_are_those_of_the_protocol():
    agent, printed = FakeAgent(streams("a", "b")), []
    await execute(
        STREAMS.block("event.append"),
        agent=client_of(agent),
        print=lambda *words: printed.append(words),
    )
    assert printed == [
        ("artifact-1", False),
        ("artifact-1", True),
        ("COMPLETED", 0, False),
    ]


async def test_replaced_text_begins_again():
    def artifact(text):
        return (holdfast.Artifact(artifact_id="a", parts=(holdfast.text_part(text),)),)

    steps = (
        Step(state=holdfast.TaskState.WORKING),
        Step(artifacts=artifact("383,000 km")),
        Step(artifacts=artifact("384,400 km")),
        Step(state=holdfast.TaskState.COMPLETED),
    )
    printed, seen = [], []
    agent = client_of(FakeAgent(Plan(steps)))
    await execute(STREAMS.block("text_changes"), agent=agent, print=printed.append)
    async with agent.stream_message("x") as events:
        seen += [change async for change in events.text_changes()]
    assert printed == ["384,400 km"]
    assert any(isinstance(change, TextReset) for change in seen)


async def test_existing_task_is_followed():
    agent, printed = FakeAgent(streams("a", "b", every=5)), []
    await execute(
        STREAMS.block("async with agent.subscribe_to_task(task_id) as events:\n    async for"),
        agent=client_of(agent),
        print=lambda text, **_: printed.append(text),
    )
    assert "".join(printed) == "ab"


async def test_stream_of_an_agent_that_stays_down_names_its_task(monkeypatch):
    agent, printed = FakeAgent(streams("a", "b", every=5), url=HERE), []
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    agent.inject(Refuse(), on="SubscribeToTask", times=99)
    agent.inject(Refuse(), on="GetTask", times=99)
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast, "connect", connect)

    await execute(STREAMS.block("max_outage=60"), print=printed.append)

    assert printed == ["resume later: agent.subscribe_to_task('task-1')"]
    assert asyncio.get_running_loop().time() < 70


async def test_stream_of_an_agent_that_lost_its_tasks_is_an_error(monkeypatch):
    agent, printed = FakeAgent(streams("a", "b", every=5), url=HERE), []
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    for operation in ("SubscribeToTask", "GetTask"):
        agent.inject(Fail(code=-32001, message="Task not found"), on=operation, times=99)
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast, "connect", connect)

    await execute(STREAMS.block("max_outage=60"), print=printed.append)

    assert printed == ["the agent has lost the task task-1; the message was executed"]


async def test_task_of_an_interrupted_program_is_waited_for(monkeypatch):
    agent, printed = FakeAgent(streams("a", "b", every=5), url=HERE), []
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast, "connect", connect)
    async with holdfast.connect(HERE) as client:
        task = await client.send_message("x", return_immediately=True)

    names = {"task_id": task.id, "print": lambda *words: printed.append(words)}
    await execute(STREAMS.block("agent.wait(task_id)"), **names)

    assert printed == [("COMPLETED", "ab")]


# ── People ───────────────────────────────────────────────────────────────────────────────────


async def test_handler_replies():
    printed = []
    await execute(
        PEOPLE.block('return "tonight"'), agent=client_of(FakeAgent(books)), print=printed.append
    )
    assert printed == ["tonight"]


@pytest.mark.real_time
async def test_reading_standard_input_does_not_prevent_the_exit():
    program = PEOPLE.block("stdin_lines()")
    async with LoopbackServer(FakeAgent(books)) as server, asyncio.timeout(60):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", program.replace(HERE, server.url)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert await process.stdout.readline() == b"When?\n"
        process.stdin.write(b"tonight\n")
        # Standard input stays open: the thread still reads it when the program ends.
        output, errors = await process.stdout.read(), await process.stderr.read()
        assert (await process.wait(), output, errors) == (0, b"tonight\n", b"")


async def test_reply_comes_later():
    printed = []
    await execute(
        PEOPLE.block("# later, perhaps"), agent=client_of(FakeAgent(books)), print=printed.append
    )
    assert printed == ["When?", "tonight"]


async def test_authorization_is_waited_for():
    agent, printed = FakeAgent(needs_auth("Log in.", cleared_after=60)), []
    await execute(PEOPLE.block("on_auth=authorize"), agent=client_of(agent), print=printed.append)
    assert printed == ["Log in.", "authorized"]


async def test_failed_handler_leaves_the_task_open():
    printed = []
    await execute(
        PEOPLE.block("too_late"),
        agent=client_of(FakeAgent(books)),
        print=lambda *words: printed.append(words),
    )
    state, cause = printed[0]
    assert (state, "no reply in time" in cause) == ("INPUT_REQUIRED", True)
    assert printed[1:] == [("tonight",)]


# ── Tools ────────────────────────────────────────────────────────────────────────────────────


async def test_agent_calls_a_function():
    answers = calls(call(1, "distance", '{"body":"moon"}')), completes("384400.0 km")
    names = await execute(TOOLS.block("ToolError"), agent=Scripted(*answers).client())
    bounded = await execute(
        TOOLS.block("max_tool_calls=20"),
        agent=Scripted(*answers).client(),
        distance=names["distance"],
    )
    assert names["answer"].text == bounded["answer"].text == "384400.0 km"


# ── Without asyncio ──────────────────────────────────────────────────────────────────────────


def test_everything_is_there_without_asyncio(monkeypatch):
    def behave(turn):
        if turn.task is None and "table" in turn.message.text:
            return asks("When?")
        return completes(f"{turn.message.text}!")

    agent = FakeAgent(behave, url=HERE)
    connect = functools.partial(holdfast.sync.connect, engine=FakeNetwork(agent))
    monkeypatch.setattr(holdfast.sync, "connect", connect)
    printed, asked = [], []
    names = {
        "print": lambda text, **_: printed.append(text),
        "input": lambda question: asked.append(question) or "tonight",
    }

    exec(SYNC.block("holdfast.sync.connect"), names)

    assert printed == ["How far is the moon?!", "And in miles?!", "tonight!"]
    assert asked == ["When? "]


def test_agents_are_asked_without_asyncio(monkeypatch):
    here, there = FakeAgent("a", url=HERE), FakeAgent("b", url="http://localhost:9998")
    network = FakeNetwork(here, there)
    coordinator = functools.partial(holdfast.sync.Coordinator, engine=network)
    monkeypatch.setattr(holdfast.sync, "Coordinator", coordinator)
    printed = []
    exec(SYNC.block("Coordinator"), {"print": lambda *words: printed.append(words)})
    assert sorted(printed) == [("news", "b"), ("weather", "a")]


# ── Pages ────────────────────────────────────────────────────────────────────────────────────


def test_every_block_is_run():
    CALLS.check_complete(
        "import holdfast",
        "task_id=answer.task_id",
        "holdfast.file_part",
        "chart.png",
        "write_bytes",
        "asyncio.gather",
        "agent.iter_tasks(",
        "agent.conversation()",
        "agent.cancel_task(",
        "cancel_on_abandon=True",
        "patient = ",
        "except holdfast.OutcomeUnknownError",
    )
    STREAMS.check_complete(
        "if answer.question:",
        "if answer.needs_input",
        "event.append",
        "event.status.message",
        "text_changes",
        "async with agent.subscribe_to_task(task_id) as events:\n    async for",
        "max_outage=60",
        "agent.wait(task_id)",
    )
    PEOPLE.check_complete(
        'return "tonight"',
        "stdin_lines()",
        "# later, perhaps",
        "on_auth=authorize",
        "too_late",
    )
    TOOLS.check_complete("ToolError", "max_tool_calls=20")
    SYNC.check_complete("holdfast.sync.connect", "Coordinator")


def test_every_block_can_be_pasted():
    for page in (CALLS, STREAMS, TOOLS, SYNC):
        page.check_pastes()
    PEOPLE.check_pastes("stdin_lines()")


@pytest.mark.parametrize(
    "page", [CALLS, STREAMS, PEOPLE, TOOLS, SYNC], ids=lambda page: page.path.stem
)
def test_every_link_leads_somewhere(page):
    page.check_links()
