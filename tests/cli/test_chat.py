"""``holdfast chat``: what somebody at a terminal sees, in virtual time and on a real terminal."""

import asyncio
import contextlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.kit.cli_harness import AGENT, CTRL_C, CTRL_D, Stop, Typist, holdfast
from tests.kit.cli_process import BOUND, environment, served
from tests.kit.messages import fold_of

from holdfast._cli.environment import InterruptedLine, open_terminal
from holdfast._cli.output.chat_text import ChatText, Wrapping
from holdfast._cli.output.text import View
from holdfast.testing import (
    Cut,
    Delay,
    Fail,
    FakeAgent,
    Plan,
    Refuse,
    Reset,
    Stall,
    Step,
    Streaming,
    asks,
    completes,
    crashes,
    fails,
    needs_auth,
    rejects,
    replies,
    streams,
    works_forever,
)
from holdfast.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

LEFT = f"Hint: to continue: holdfast chat --context-id context-2 --agent-card {AGENT}\n"
FOLLOWS = (
    "Hint: task task-1 was last seen TASK_STATE_WORKING; Enter follows it again, or later: "
    f"holdfast task subscribe --stream task-1 --agent-card {AGENT}\n"
)
OPEN = (
    "Hint: to continue: holdfast chat --context-id context-2 --task-id task-1 "
    f"--agent-card {AGENT}\n"
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])


class Impatient(Typist):
    """Presses Ctrl-C at these seconds of the chat."""

    def __init__(self, *stops):
        super().__init__()
        self._stops = stops

    @contextmanager
    def interrupts(self, call):
        for stop in self._stops:
            asyncio.get_running_loop().call_later(stop, call)
        yield


class Scripted:
    """An agent that does one thing after another, and notes what it was told."""

    def __init__(self, *behaviours, faults=(), **options):
        self.told = []
        self._left = [*behaviours]
        self.agent = FakeAgent(self._behave, **options)
        for fault, operation in faults:
            self.agent.inject(fault, on=operation)

    def _behave(self, turn):
        self.told.append((turn.message.text, turn.message.context_id, turn.message.task_id))
        return self._left.pop(0)

    def chat(self, *keys, words=(), **more):
        more = {"terminal": Typist(*keys), **more}
        return holdfast("chat", *words, agent=self.agent, **more)


def saying(*steps, says=None, state=TaskState.COMPLETED):
    return Plan((Step(state=TaskState.SUBMITTED), *steps, Step(state=state, says=says)))


def artifact(*parts, append=False, artifact_id="a1", name="report"):
    found = Artifact(artifact_id=artifact_id, name=name, parts=parts)
    return Step(artifacts=(found,), append=append)


# ── Turn by turn ─────────────────────────────────────────────────────────────────────────────


@both_bindings
@both_ways
def test_what_is_asked_is_replied_to_on_the_next_line(streaming, binding):
    plans = asks("Which city?"), completes("Paris is nice."), completes("Bye.")
    agent = Scripted(*plans, streaming=streaming, bindings=(binding,))
    done = agent.chat("a trip", "Paris", "thanks")
    assert (done.exit, done.err) == (0, LEFT)
    assert done.out == (
        "> a trip\nWhich city?\nreply> Paris\nParis is nice.\n> thanks\nBye.\n> \n"
    )
    assert agent.told == [
        ("a trip", None, None),
        ("Paris", "context-2", "task-1"),
        ("thanks", "context-2", None),
    ]


@pytest.mark.parametrize(
    "streaming",
    [
        Streaming(stays_open=True),
        Streaming(overlap=1),
        Streaming(stays_open=True, overlap=1),
        Streaming(stays_open=True, overlap=9),
        Streaming(snapshot=False, final_task=True),
    ],
)
def test_a_question_is_asked_once_however_the_agent_streams(streaming):
    plans = asks("Which city?"), asks("And when?"), completes("Booked.", after=1)
    agent = Scripted(*plans, streaming=streaming)
    done = agent.chat("a trip", "Paris", "now", words=["--timeout", "10s"])
    assert (done.exit, done.err) == (0, LEFT)
    assert done.out == (
        "> a trip\nWhich city?\nreply> Paris\nAnd when?\nreply> now\nBooked.\n> \n"
    )


def test_question_that_is_replied_to_may_be_emitted_again():
    """By the task that the stream begins with, where the agent does not say that it works."""
    reply = Plan((artifact(Part(text="Paris is nice.")), Step(state=TaskState.COMPLETED)))
    done = Scripted(asks("Which city?"), reply).chat("a trip", "Paris")
    assert done.out == "> a trip\nWhich city?\nreply> Paris\nParis is nice.\n> \n"


def test_a_question_without_words_is_seen_by_the_prompt():
    asking = Plan((Step(state=TaskState.INPUT_REQUIRED, after=1),))
    agent = Scripted(asking, asking, completes("ok"), streaming=Streaming(stays_open=True))
    done = agent.chat("one", "two", "three", words=["--timeout", "10s"])
    assert done.out == "> one\nreply> two\nreply> three\nok\n> \n"
    assert done.err == LEFT


def test_polled_tasks_are_looked_at_as_often_as_asked_for():
    agent = Scripted(completes("ok", after=100), streaming=False)
    agent.chat("go", words=["--poll-interval", "20s"])
    assert len(agent.agent.calls("GetTask")) < 15


def test_an_answer_shows_as_it_comes(monkeypatch):
    written = []

    def echo(content, **_):
        written.append((asyncio.get_running_loop().time(), content.decode()))

    monkeypatch.setattr("holdfast._cli.output.base.click.echo", echo)
    Scripted(streams("one ", "two ", "three", every=10)).chat("count")
    times = {text: round(at) for at, text in written}
    assert times["two "] - times["one "] == times["three"] - times["two "] == 10


def test_a_message_is_an_answer_too():
    agent = Scripted(replies("hi"), replies("again"))
    done = agent.chat("hello", "and?")
    assert done.out == "> hello\nhi\n> and?\nagain\n> \n"
    assert agent.told[1] == ("and?", "context-2", None)


def test_a_line_that_ends_in_a_backslash_continues_on_the_next_one():
    agent = Scripted(completes("ok"))
    done = agent.chat("one\\", "two\\", "three")
    assert agent.told[0][0] == "one\ntwo\nthree"
    assert done.out.startswith("> one\\\n... two\\\n... three\nok\n")


def test_what_is_said_first_may_stand_on_the_command_line():
    agent = Scripted(completes("ok"))
    assert agent.chat(words=["hello"]).out == "ok\n> \n"
    assert agent.told == [("hello", None, None)]


def test_an_empty_line_says_nothing():
    agent = Scripted()
    assert agent.chat("", "  ").out == "> \n>   \n> \n"
    assert agent.told == []


def test_metadata_goes_along_with_each_message():
    agent = Scripted(replies("a"), replies("b"))
    agent.chat("one", "two", words=["--metadata", '{"role": "me"}'])
    requests = [json.loads(call.body) for call in agent.agent.calls("SendStreamingMessage")]
    assert [request["params"]["metadata"] for request in requests] == [{"role": "me"}] * 2


def test_the_time_is_that_of_each_answer():
    agent = Scripted(completes("a", after=40), completes("b", after=40), works_forever())
    done = agent.chat("one", "two", "three", words=["--timeout", "1m"])
    assert (done.exit, "a\n> two\nb\n" in done.out) == (0, True)
    assert "Error: the timeout of 1m expired; task task-4 was last seen" in done.err


# ── What is shown ────────────────────────────────────────────────────────────────────────────


def shown(*plans, words=()):
    """What shows between the line that was typed and the next prompt."""
    done = Scripted(*plans).chat("hello", words=words)
    return re.fullmatch(r"> hello\n(.*)> \n", done.out, re.DOTALL)[1]


def test_what_the_agent_says_at_work_stands_in_brackets():
    working = Step(state=TaskState.WORKING, says="looking it up")
    told = shown(saying(working, artifact(Part(text="here")), working, says="done"))
    assert told == "[looking it up]\nhere\n[looking it up]\n[done]\n"


def test_a_status_message_at_the_end_is_an_answer_only_without_an_artifact():
    assert shown(saying(says="done")) == "done\n"
    assert shown(saying(artifact(Part(data=1)), says="done")) == "Data:\n1\n\ndone\n"
    told = shown(saying(artifact(Part(text="42")), says="done", state=TaskState.FAILED))
    assert told == "42\n[done]\n"


WORKING = Step(state=TaskState.WORKING, says="The answer\nis 42.")
ANSWER = artifact(Part(text="The answer "))
OTHER = artifact(Part(text="x"), artifact_id="x")
REST = artifact(Part(text="is 42."), append=True)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (saying(ANSWER, REST, says="The answer\nis 42.\n"), "The answer is 42.\n"),
        (
            saying(
                artifact(Part(text="x"), artifact_id="x"), ANSWER, REST, says="The answer is 42."
            ),
            "x\nThe answer is 42.\n",
        ),
        (saying(WORKING, artifact(Part(text="The answer is 42."))), "[The answer\nis 42.]\n"),
        (saying(WORKING, says="The answer\nis 42."), "[The answer\nis 42.]\n"),
    ],
)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_an_answer_in_a_status_message_and_an_artifact_shows_once(plan, told, version):
    done = Scripted(plan, versions=(version,)).chat("hello")
    assert done.out == f"> hello\n{told}> \n"


@both_ways
def test_an_answer_shows_once_at_each_turn_of_a_task(streaming):
    draft = saying(artifact(Part(text="draft")), says="draft", state=TaskState.INPUT_REQUIRED)
    final = saying(artifact(Part(text="final"), artifact_id="a2"), says="final")
    done = Scripted(draft, draft, final, streaming=streaming).chat("write", "again", "no")
    assert done.out == "> write\ndraft\nreply> again\ndraft\nreply> no\nfinal\n> \n"


def written(*events):
    text, task = ChatText(View()), None
    pieces = []
    for number, event in enumerate(events, 1):
        task = fold_of(events[:number]).task
        pieces += text.event(event, task)
    return "".join([*pieces, *text.close()])


def snapshot(*artifacts, time="2026-01-01T00:00:00Z", says="Good?"):
    message = Message(message_id="m", role=Role.AGENT, parts=(Part(text=says),))
    status = TaskStatus(state=TaskState.INPUT_REQUIRED, message=message, timestamp=time)
    return Task(id="t", context_id="c", status=status, artifacts=artifacts)


def test_a_snapshot_that_repeats_a_status_with_another_time_shows_it_once():
    again = snapshot(time="2026-01-01T00:00:00.5Z")
    assert written(snapshot(), again) == "Good?\n"


def test_a_snapshot_whose_artifacts_have_other_ids_or_other_borders_shows_nothing_again():
    def made(*texts, name):
        return [
            Artifact(artifact_id=f"{name}{number}", parts=(Part(text=text), Part(data=text)))
            for number, text in enumerate(texts)
        ]

    first = written(snapshot(*made("one ", "two", name="a")))
    both = Artifact(
        artifact_id="b", parts=(Part(text="one two"), Part(data="one "), Part(data="two"))
    )
    assert written(snapshot(*made("one ", "two", name="a")), snapshot(both)) == first
    assert "[the agent replaced this]" in written(
        snapshot(*made("one", name="a")), snapshot(*made("two", name="b"))
    )


def test_an_answer_that_is_said_twice_shows_once():
    assert shown(saying(artifact(Part(text="42\n")), says="42")) == "42\n"


@pytest.mark.parametrize("state", [TaskState.WORKING, TaskState.COMPLETED])
def test_an_answer_in_a_status_and_then_in_chunks_of_an_artifact_shows_once(state):
    chunks = [artifact(Part(text=text), append=n > 0) for n, text in enumerate(["4", "2\n", "!"])]
    first = Step(state=TaskState.WORKING, says="42!")
    again = "42!" if state is TaskState.COMPLETED else None
    assert shown(saying(first, *chunks, says=again)) == "[42!]\n"


def test_an_answer_in_chunks_of_an_artifact_and_then_in_a_status_shows_once():
    chunks = [artifact(Part(text=text), append=n > 0) for n, text in enumerate(["4", "2\n", "!"])]
    last = Step(state=TaskState.WORKING, says="42!")
    assert shown(saying(*chunks, last, says="42!")) == "42\n!\n"


def test_an_artifact_that_only_begins_as_the_status_before_it_shows_whole():
    def chunks(*texts):
        return [artifact(Part(text=text), append=n > 0) for n, text in enumerate(texts)]

    first = Step(state=TaskState.WORKING, says="42 is next")
    assert shown(saying(first, *chunks("42", " it", " is"))) == "[42 is next]\n42 it is\n"
    assert shown(saying(first, *chunks("4", "2"), says="Done")) == "[42 is next]\n42\n[Done]\n"


def screen(pieces, columns):
    """What a terminal shows of what is written, without the spaces at the ends of lines."""
    rows, column = [[]], 0
    for character in "".join(pieces):
        if character == "\n":
            rows, column = [*rows, []], 0
        elif character == "\b":
            column -= 1
        else:
            rows[-1][column:] = [character, *rows[-1][column + 1 :]]
            column += 1
        assert 0 <= column < columns
    return ["".join(row).rstrip() for row in rows]


@pytest.mark.parametrize("columns", [12, 40, 80])
def test_text_is_broken_at_spaces_however_it_is_cut_into_pieces(columns):
    text = "It was a bright cold day in April,\nand the clocks were striking thirteen. " * 3
    words = Wrapping(lambda: columns).feed(text)
    for size in (1, 2, 3, 5, len(text)):
        wrapping = Wrapping(lambda: columns)
        pieces = [wrapping.feed(text[at : at + size]) for at in range(0, len(text), size)]
        rows = screen(pieces, columns)
        assert rows == screen([words], columns)
        assert " ".join(" ".join(rows).split()) == " ".join(text.split())


def test_a_word_longer_than_a_line_is_left_to_the_terminal_and_wide_text_breaks_anywhere():
    address = f"https://agent.test/{'x' * 30}"
    assert Wrapping(lambda: 20).feed(f"see {address} ") == f"see \n{address}\n"
    assert Wrapping(lambda: 12).feed("\u4e2d" * 8) == f"{chr(0x4E2D) * 5}\n{chr(0x4E2D) * 3}"
    assert Wrapping(lambda: None).feed(address + " " + address) == f"{address} {address}"


def test_lines_with_a_slash_and_one_word_are_commands_to_the_chat():
    agent = Scripted(completes("a"), completes("b"))
    done = agent.chat("/help", "/reset", "//reset", "/etc/hosts is what?", "/exit", "hello")
    assert "/exit    ends the chat (also /quit" in done.out
    assert "/reset is not a command of this chat, and was not sent; /help shows" in done.err
    assert [told[0] for told in agent.told] == ["/reset", "/etc/hosts is what?"]


def test_each_artifact_begins_on_a_line_of_its_own():
    steps = [artifact(Part(text=text), artifact_id=text) for text in "ab"]
    assert shown(saying(*steps)) == "a\nb\n"


def test_parts_without_text_are_printed_as_fields():
    parts = Part(text="see"), Part(raw=b"xyz", filename="x.bin"), Part(data=1)
    told = shown(saying(artifact(*parts), artifact(*parts, Part(data=2))))
    assert told == "see\nFile: x.bin\nMedia type: (none)\nSize: 3 bytes\nData:\n1\n\nData:\n2\n\n"


def test_what_is_no_text_shows_where_it_is_added():
    added = artifact(Part(data=2), append=True)
    whole = artifact(*(Part(data=number) for number in (1, 2, 3)))
    told = shown(saying(artifact(Part(data=1)), added, whole))
    assert told == "Data:\n1\n\nData:\n2\n\nData:\n3\n\n"


def test_what_is_no_text_shows_anew_where_it_was_replaced():
    told = shown(saying(artifact(Part(data=1)), artifact(Part(data=2))))
    assert told == "Data:\n1\n\nData:\n2\n\n"


def test_parts_of_messages_show_too():
    message = Message(role=Role.AGENT, parts=(Part(text="see"), Part(data=1)))
    assert shown(message) == "see\nData:\n1\n\n"
    status = TaskStatus(state=TaskState.COMPLETED, message=message)
    text = "".join(ChatText(View()).event(Task(id="t", status=status), None))
    assert text == "see\nData:\n1\n\n"


def test_each_task_has_its_own_artifacts():
    done = Scripted(*[completes(Part(data=1))] * 2).chat("one", "two")
    assert done.out == "> one\nData:\n1\n\n> two\nData:\n1\n\n> \n"


def test_what_steers_a_terminal_is_shown_where_it_stands():
    steps = [artifact(Part(text=text), artifact_id=text) for text in ("a\x1b]0;", "b")]
    assert shown(saying(*steps)) == "a\\x1b]0;\nb\n"


def test_retracted_text_is_reported():
    told = shown(saying(artifact(Part(text="draft")), artifact(Part(text="final"))))
    assert told == "draft\n[the agent replaced this]\nfinal\n"


def test_an_artifact_that_is_made_anew_in_a_later_turn_takes_nothing_back():
    first = saying(artifact(Part(text="draft")), says="Good?", state=TaskState.INPUT_REQUIRED)
    steps = [artifact(Part(text=text)) for text in ("next", "final")]
    done = Scripted(first, saying(*steps)).chat("write", "no")
    assert done.out == (
        "> write\ndraft\nGood?\nreply> no\nnext\n[the agent replaced this]\nfinal\n> \n"
    )


def test_nothing_that_steers_a_terminal_gets_through():
    steering = "re\x1b[31md\x1b]0;title\x07\u202e"
    working = Step(state=TaskState.WORKING, says=steering)
    plan = saying(working, artifact(Part(text="x\x1b[")), artifact(Part(text="2Jy"), append=True),
                  says=f"{steering}!")  # fmt: skip
    escaped = r"re\x1b[31md\x1b]0;title\x07\u202e"
    assert shown(plan) == f"[{escaped}]\nx\\x1b[2Jy\n[{escaped}!]\n"
    assert shown(replies(steering)) == f"{escaped}\n"


def test_verbose_names_tasks_states_and_artifacts():
    told = shown(completes("x"), words=["--verbose"])
    assert "Text:\nhello\n" in told  # what was sent
    assert "State: TASK_STATE_COMPLETED\n" in told
    assert "Artifact: artifact-1\nArtifact ID: artifact-1\n" in told


# ── What goes wrong ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (fails("no fuel"), "failed (TASK_STATE_FAILED)"),
        (rejects("no fuel"), "was rejected (TASK_STATE_REJECTED)"),
    ],
)
def test_a_task_that_does_not_succeed_is_reported_and_the_chat_continues(plan, told):
    agent = Scripted(plan, completes("ok"))
    done = agent.chat("go", "again")
    assert done.out == "> go\nno fuel\n> again\nok\n> \n"
    assert done.err == f"Warning: task task-1 {told}\n{LEFT}"
    assert agent.told[1] == ("again", "context-2", None)


def test_what_the_agent_says_where_it_breaks_off_is_why_a_task_failed():
    done = Scripted(crashes("out\nof fuel", after=1)).chat("go")
    why = "the agent answered -32603: out of fuel"
    assert f"Warning: task task-1 failed (TASK_STATE_FAILED): {why}\n" in done.err


@pytest.mark.parametrize(
    ("words", "discards"), [([], False), (["--task-id", "nope"], True)], ids=["begins", "fails"]
)
def test_what_was_typed_is_discarded_only_where_a_chat_cannot_begin(words, discards):
    typist = Typist()
    done = holdfast("chat", *words, agent=FakeAgent(), terminal=typist)
    assert (done.exit != 0, typist.is_discarded) == (discards, discards)


def test_when_the_time_of_an_answer_is_over_there_is_one_way_to_continue():
    done = holdfast(
        "chat", "--timeout", "2s", agent=FakeAgent(works_forever()), terminal=Typist("go")
    )
    assert done.err == (
        "Error: the timeout of 2s expired; task task-1 was last seen TASK_STATE_WORKING\n"
        f"Code: A2ACLI_ERR_TIMEOUT\n{FOLLOWS}{OPEN}"
    )


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_while_an_answer_cannot_be_picked_up_no_tries_are_counted(version):
    agent = FakeAgent(streams("one ", "two", every=1), versions=(version,))
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    agent.inject(Refuse(), on="SubscribeToTask", times=2)
    agent.inject(Refuse(), on="GetTask", times=6)
    done = holdfast("chat", "--a2a-version", version, agent=agent, terminal=Typist("go"))
    assert "one two" in done.out
    asked = "SubscribeToTask" if version == "1.0" else "GetTask"
    assert f"the stream was cut, and cannot be resumed yet: {asked}: the connection" in done.err
    assert "attempt" not in done.err


def test_where_there_are_no_streams_it_is_told_that_a_look_failed():
    agent = FakeAgent(completes("done", after=9), streaming=False)
    agent.inject(Refuse(), on="GetTask", times=2)
    done = holdfast("chat", agent=agent, terminal=Typist("go"))
    assert re.search(r": the connection was refused .*; retrying in [\d.m]+s\n", done.err)
    assert "attempt" not in done.err
    assert "cut" not in done.err


@both_bindings
def test_a_cut_is_reported_and_the_answer_continues(binding):
    cut = Cut(after_events=3), "SendStreamingMessage"
    agent = Scripted(streams("one ", "two ", "three", every=5), faults=[cut], bindings=(binding,))
    done = agent.chat("count")
    assert done.out.startswith("> count\none two three\n> ")
    assert "Warning: the stream was cut" in done.err
    assert "reconnected to task task-1" in done.err


def test_stream_that_cannot_be_resumed_is_reported():
    faults = [
        (Cut(after_events=3), "SendStreamingMessage"),
        (Fail(code=-32004), "SubscribeToTask"),
    ]
    done = Scripted(streams("one ", "two", every=5), faults=faults).chat("count")
    assert "one two\n" in done.out
    assert "was cut and not resumed" in done.err


@pytest.mark.parametrize(
    ("fault", "times", "told"),
    [
        (Refuse(), 9, "Warning: the agent did not execute your message; you can send it again"),
        (Fail(code=-32603), 1, "Warning: it is unknown whether the agent executed your message"),
        (Reset(after_execution=True), 1, " is unknown: the connection was closed"),
    ],
)
def test_of_what_has_no_answer_it_is_said_what_is_known(fault, times, told):
    agent = Scripted(*[completes("ok")] * 2, streaming=False, records_messages=False)
    agent.agent.inject(fault, on="SendMessage", times=times)
    done = agent.chat("go", *["again"] * (times == 1))
    assert done.exit == 0
    assert told in done.err
    assert len(re.findall("is unknown", done.err)) == (times == 1)
    assert done.out.endswith("> again\nok\n> \n" if times == 1 else "> \n")


def test_a_reply_that_is_refused_makes_no_new_task():
    agent = Scripted(asks("Which city?"))
    for fault in (Fail(code=-32602), Delay(seconds=0), Fail(code=-32602)):
        agent.agent.inject(fault, on="SendStreamingMessage")
    done = agent.chat("a trip", "a trip", "Paris")
    assert done.err.count("Code: InvalidParamsError\n") == 2
    assert "no new task was created instead" not in done.err


def test_an_error_in_the_middle_of_an_answer_says_how_to_pick_it_up():
    faults = [(Cut(after_events=3), "SendStreamingMessage"), (Refuse(), "SubscribeToTask")]
    agent = Scripted(streams("one ", "two", every=5), faults=faults)
    agent.agent.inject(Refuse(), on="GetTask", times=99)
    agent.agent.inject(Refuse(), on="SubscribeToTask", times=99)
    done = agent.chat("count", words=["--timeout", "20s"])
    assert "> count\none \n> \n" in done.out
    assert "Code: A2ACLI_ERR_TIMEOUT\n" in done.err
    assert done.err.endswith(FOLLOWS + OPEN)


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
def test_a_task_that_the_agent_forgot_is_dropped_with_one_hint(streaming):
    agent = Scripted(asks("Which city?"), completes("ok"), streaming=streaming)
    for operation in ("SubscribeToTask", "GetTask"):
        agent.agent.inject(Fail(code=-32001), on=operation, times=2)
    done = agent.chat("go", "", "", "again")
    assert done.out == "> go\nWhich city?\nreply> \n> \n> again\nok\n> \n"
    assert done.err.count("Code: TaskNotFoundError\n") == 1
    assert done.err.count("Hint: ") == 2  # the other one is at the end of the chat
    assert "an agent that keeps its tasks in memory loses them" in done.err
    assert f"; the next line begins a new task\n{LEFT}" in done.err
    assert agent.told[1] == ("again", "context-2", None)


def test_a_task_that_the_agent_forgot_while_it_was_followed_again_is_dropped():
    agent = Scripted(works_forever(), completes("ok"), streaming=False)
    for fault in (*[Delay(seconds=0)] * 8, Fail(code=-32001)):
        agent.agent.inject(fault, on="GetTask")
    done = agent.chat("go", Stop(5), "", "", "again")
    assert done.err.count("Code: TaskNotFoundError\n") == 1
    assert done.out.endswith("> \n> \n> again\nok\n> \n")
    assert done.err.endswith(f"; the next line begins a new task\n{LEFT}")


def test_a_reply_to_a_task_that_the_agent_forgot_is_followed_by_a_new_task():
    agent = Scripted(asks("Which city?"), completes("ok"))
    for fault in (Delay(seconds=0), Fail(code=-32001)):
        agent.agent.inject(fault, on="SendStreamingMessage")
    done = agent.chat("go", "Paris", "Paris")
    assert done.out == "> go\nWhich city?\nreply> Paris\n> Paris\nok\n> \n"
    assert agent.told[1] == ("Paris", "context-2", None)


def test_an_agent_that_cannot_be_reached_ends_it_before_anything_is_asked_for():
    agent = FakeAgent()
    agent.inject(Refuse(), on="GetAgentCard", times=9)
    done = holdfast("chat", agent=agent, terminal=Typist("hello"))
    assert (done.exit, done.out) == (3, "")


def test_an_authorization_is_waited_for():
    plan = needs_auth("see https://login.test", cleared_after=30, then=completes("in"))
    done = Scripted(plan).chat("go", words=("--timeout", "100s"))
    assert done.out == "> go\nsee https://login.test\nin\n> \n"
    assert done.err == (
        "Warning: task task-1 waits for authorization; waiting for it until Ctrl-C, 1m40s "
        f"(--timeout) at most\n{LEFT}"
    )


# ── Ctrl-C and Ctrl-D ────────────────────────────────────────────────────────────────────────


@both_ways
def test_ctrl_c_stops_following_and_cancels_nothing(streaming):
    agent = Scripted(streams("one ", "two", every=10), streaming=streaming)
    done = agent.chat("count", Stop(15))
    assert (done.exit, done.err) == (0, FOLLOWS + OPEN)
    assert done.out == "> count\none \n> \n"
    assert agent.agent.calls("CancelTask") == []


def test_an_empty_line_follows_again_and_repeats_nothing():
    agent = Scripted(streams("one ", "two ", "three", every=10), completes("ok"))
    done = agent.chat("count", Stop(15), "", "next")
    assert done.out == "> count\none \n> \ntwo three\n> next\nok\n> \n"
    assert done.err == FOLLOWS + LEFT
    assert agent.told[1] == ("next", "context-2", None)


def test_what_is_said_after_ctrl_c_is_a_message_of_its_own():
    agent = Scripted(works_forever(), completes("ok"))
    done = agent.chat("count", Stop(5), "something else")
    assert agent.told[1] == ("something else", "context-2", None)
    assert done.out == "> count\n\n> something else\nok\n> \n"


def test_what_is_said_to_a_task_at_work_that_is_named_goes_to_it():
    agent = Scripted(works_forever(), completes("ok"))
    agent.chat("count", Stop(5))
    agent.chat(words=["--task-id", "task-1", "faster"])
    assert agent.told[1] == ("faster", "context-2", "task-1")


@both_bindings
def test_a_stream_that_ends_where_an_authorization_is_waited_for_is_no_cut(binding):
    plan = needs_auth("see https://login.test", cleared_after=30, then=completes("in"))
    end = Cut(after_events=2, clean=True), "SendStreamingMessage"
    agent = Scripted(plan, faults=[end], bindings=(binding,))
    done = agent.chat("book")
    assert done.out == "> book\nsee https://login.test\nin\n> \n"
    assert "cut" not in done.err
    assert agent.agent.calls("SubscribeToTask")


def test_a_stream_that_breaks_where_an_authorization_is_waited_for_is_cut_once():
    plan = needs_auth("see https://login.test", cleared_after=30, then=completes("in"))
    broken = Cut(after_events=2), "SendStreamingMessage"
    ended = Cut(after_events=1, clean=True), "SubscribeToTask"
    agent = Scripted(plan, faults=[broken, ended])
    done = agent.chat("book")
    assert done.out == "> book\nsee https://login.test\nin\n> \n"
    assert done.err.count("the stream was cut") == 1
    assert len(agent.agent.calls("SubscribeToTask")) == 2


def test_ctrl_c_stops_waiting_for_an_authorization():
    agent = Scripted(needs_auth("log in"), completes("ok"))
    done = agent.chat("go", Stop(60), "done")
    assert done.out == "> go\nlog in\n\n> done\nok\n> \n"
    assert agent.told[1] == ("done", "context-2", "task-1")


def test_an_answer_with_a_file_names_the_command_that_saves_it():
    done = Scripted(completes(Part(raw=b"xyz", filename="x.bin"))).chat("go")
    assert "Hint: to save the files: holdfast task download task-1 --agent-card " in done.err


def test_ctrl_c_before_there_is_an_answer_names_the_message():
    stall = Stall(), "SendStreamingMessage"
    done = Scripted(completes("ok"), faults=[stall]).chat("go", Stop(2))
    assert re.fullmatch(
        r"Warning: message [0-9a-f-]{36} was in flight; the agent may have received it\n", done.err
    )


@pytest.mark.parametrize(
    ("fault", "stops", "told"),
    [
        (Fail(code=-32603, retry_after=900), [], "did not execute your message"),
        (Stall(), [5], "was not sent"),
    ],
)
def test_what_was_not_sent_is_said_to_be_so(fault, stops, told):
    """Whether a task at work that is named is still open is asked before anything is sent."""
    agent = Scripted(works_forever())
    agent.chat("count", Stop(5))
    for one in (Delay(seconds=0), fault):
        agent.agent.inject(one, on="GetTask")
    terminal = Impatient(*stops)
    done = agent.chat(words=["--task-id", "task-1", "faster"], terminal=terminal)
    assert len(agent.told) == 1
    assert re.search(rf"Warning: .* {told}", done.err)


def test_an_empty_line_looks_again_at_a_task_that_waits():
    done = Scripted(asks("Which city?"), completes("ok")).chat("a trip", "", "Paris")
    assert done.out == "> a trip\nWhich city?\nreply> \nreply> Paris\nok\n> \n"


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_it_ends_at_an_empty_line(key):
    agent = Scripted(completes("ok"))
    done = agent.chat("hello", key, "not said")
    assert (done.exit, done.err, len(agent.told)) == (0, LEFT, 1)


def test_it_ends_without_a_word_where_nothing_was_said():
    done = Scripted().chat()
    assert (done.exit, done.out, done.err) == (0, "> \n", "")


def test_ctrl_c_forgets_the_line_that_was_begun():
    agent = Scripted(completes("ok"))
    done = agent.chat(InterruptedLine("hel"), "one\\", CTRL_C, "two")
    assert [text for text, *_ in agent.told] == ["two"]
    assert (done.exit, done.err) == (0, LEFT)


def test_the_end_in_the_middle_of_a_message_is_reported():
    agent = Scripted()
    done = agent.chat("one\\", CTRL_D)
    assert (done.exit, agent.told) == (0, [])
    assert done.err == "Warning: the message is incomplete and was not sent\n"


@pytest.mark.parametrize("typed", ["half \ud83d", UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")])
def test_what_is_no_text_is_not_sent(typed):
    agent = Scripted(completes("ok"))
    done = agent.chat(typed, "text")
    assert [text for text, *_ in agent.told] == ["text"]
    assert "is not UTF-8" in done.err


# ── Going on ─────────────────────────────────────────────────────────────────────────────────


def begun(*plans):
    """An agent that was spoken to before."""
    agent = Scripted(*plans)
    holdfast("send", "before", "--async", agent=agent.agent)
    agent.told.clear()
    return agent


def test_a_context_can_be_resumed():
    agent = begun(completes("ok"), completes("ok"))
    done = agent.chat("more", words=["--context-id", "context-2"])
    assert agent.told == [("more", "context-2", None)]
    assert done.err == LEFT


def test_a_task_that_waits_is_shown_and_replied_to():
    agent = begun(asks("Which city?"), completes("ok"))
    done = agent.chat("Paris", words=["--task-id", "task-1"])
    assert done.out == "Which city?\nreply> Paris\nok\n> \n"
    assert agent.told == [("Paris", "context-2", "task-1")]


def test_a_task_at_work_is_followed():
    agent = begun(streams("one ", "two", every=1))
    done = agent.chat(words=["--task-id", "task-1"])
    assert done.out == "one two\n> \n"
    assert done.err == LEFT


@pytest.mark.parametrize(
    ("words", "exit_code", "told"),
    [
        (["--task-id", "task-1"], 1, "task task-1 is TASK_STATE_COMPLETED, and takes no more"),
        (["--task-id", "nope"], 1, "TaskNotFoundError"),
        (["--task-id", "task-3", "--context-id", "other"], 2, "of the conversation 'context-4'"),
    ],
)
def test_task_that_cannot_be_continued_is_not_replaced_by_a_new_one(words, exit_code, told):
    agent = begun(completes("ok"), asks("?"))
    holdfast("send", "before", "--async", agent=agent.agent)
    done = agent.chat("more", words=words)
    assert (done.exit, ">" in done.out) == (exit_code, False)
    assert told in done.err
    assert ("no new task was created instead" in done.err) == (exit_code == 1)
    assert len(agent.told) == 1


# ── Without a terminal ───────────────────────────────────────────────────────────────────────


def test_without_a_terminal_it_asks_for_nothing():
    agent = FakeAgent()
    done = holdfast("chat", agent=agent, stdin=b"not read\n")
    assert (done.exit, done.out, agent.received) == (2, "", [])
    assert "holdfast send TEXT" in done.err


def test_without_a_terminal_the_text_is_sent_as_by_send():
    done, same = (
        holdfast(command, "hello", agent=FakeAgent(), stdin=b"not read\n")
        for command in ("chat", "send")
    )
    assert done == same
    assert done.field("State") == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("terminal", [None, Typist("hello")])
def test_there_is_no_json_of_it(terminal):
    for more in ({"env": {"A2ACLI_OUTPUT": "json"}}, {"env": {}}):
        words = [] if more["env"] else ["-o", "json"]
        done = holdfast("chat", "hello", *words, terminal=terminal, **more)
        assert (done.exit, done.error["code"]) == (2, "A2ACLI_ERR_USAGE")
        assert "holdfast send -o json" in done.error["message"]


# ── On a real terminal ───────────────────────────────────────────────────────────────────────


AT_A_TERMINAL = """
import fcntl, signal, sys, termios
from holdfast.cli import main
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


class Screen(io.StringIO):
    """What is a terminal by its own account."""

    def isatty(self):
        return True


@pytest.mark.real_time
async def test_a_ctrl_c_just_before_the_prompt_does_not_eat_the_next_line(monkeypatch):
    """The second of two quick ones, or one that comes as an answer ends."""
    monkeypatch.setattr("sys.stdin", Screen())
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.setattr("builtins.input", lambda _: "hello again")
    terminal, stopped = open_terminal(), []

    with terminal.interrupts(lambda: stopped.append("the answer")):
        signal.raise_signal(signal.SIGINT)
        with contextlib.suppress(InterruptedLine):
            assert await terminal.read("> ") == "hello again"
            await asyncio.sleep(0)  # by now this line is on its way to the agent

    assert not stopped


def test_what_was_typed_for_a_chat_that_cannot_begin_does_not_go_to_the_shell(monkeypatch):
    person, terminal = os.openpty()
    with os.fdopen(terminal) as stdin, os.fdopen(person, "wb", buffering=0) as keys:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", Screen())
        keys.write(b"rm notes\n")
        assert select.select([stdin], [], [], BOUND)[0]
        open_terminal().discard()
        assert not select.select([stdin], [], [], 0)[0]


@pytest.mark.real_time
async def test_a_ctrl_c_while_nothing_is_read_is_reported(monkeypatch):
    monkeypatch.setattr("sys.stdin", Screen())
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.setattr("builtins.input", lambda _: "hello")
    terminal, stopped = open_terminal(), []

    with terminal.interrupts(lambda: stopped.append("the answer")):
        await terminal.read("> ")
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)

    assert stopped == ["the answer"]


class Person:
    """Somebody at a pseudo-terminal, where the command runs."""

    def __init__(self, *words, **variables):
        self._fd, terminal = os.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", AT_A_TERMINAL, *words],
            stdin=terminal, stdout=terminal, stderr=terminal,
            env=environment(**{"TERM": "dumb", "INPUTRC": os.devnull, **variables}),
            start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._fd)

    def sees(self, text):
        """Waits until the text shows, and forgets what came before."""
        while text not in self.seen:
            assert select.select([self._fd], [], [], BOUND)[0], self.seen
            try:
                self.seen += os.read(self._fd, 65536).decode()
            except OSError:  # it has ended
                break
        before, found, self.seen = self.seen.partition(text)
        assert found, before
        return before

    def types(self, text):
        os.write(self._fd, text.encode())

    def interrupts(self):
        """Presses Ctrl-C; between two keys readline notices it with the next one only."""
        self.types("\x03")
        while not select.select([self._fd], [], [], BOUND / 10)[0]:
            self.types("\x03")

    def terminates(self):
        """Sends SIGTERM; just after the prompt readline notices it with the next one only."""
        self._process.send_signal(signal.SIGTERM)
        while not select.select([self._fd], [], [], BOUND / 100)[0]:
            self._process.send_signal(signal.SIGTERM)

    def leaves(self):
        """Waits until it has ended, and gives the exit code."""
        return self._process.wait(timeout=BOUND)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_on_a_terminal_ctrl_c_leaves_an_answer_and_then_the_chat():
    agent = FakeAgent(streams("one ", "two", every=0.01, then=works_forever()))
    with served(agent) as url, Person("chat", "-a", url) as person:
        person.sees("> ")
        person.types("count\r")
        person.sees("one two")
        person.interrupts()
        person.sees("Hint: task task-1 was last seen TASK_STATE_WORKING")
        person.sees("> ")
        person.types("half a line")
        person.sees("half a line")
        person.interrupts()
        person.sees("> ")
        person.types("\x04")
        person.sees("Hint: to continue: holdfast chat --context-id context-2 --task-id task-1")
        assert person.leaves() == 0
    assert len(agent.calls("SendStreamingMessage")) == 1
    assert agent.calls("CancelTask") == []


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_on_a_terminal_typed_text_stays_out_of_an_answer_and_begins_the_next_line():
    agent = FakeAgent(streams(*["word "] * 10, every=0.1))
    colours = {"TERM": "xterm", "NO_COLOR": ""}
    with served(agent) as url, Person("chat", "-a", url, **colours) as person:
        banner = person.sees("> ")
        assert "Connected to \x1b[1mFake agent\x1b[0m at http://127.0.0.1:" in banner
        assert "/help lists the commands" in banner
        assert "\x1b[1;36m" in banner
        person.types("count\r")
        person.sees("word ")
        person.types("typed")
        answer = person.sees("> ")
        assert answer.count("word ") == 9
        assert "typed" not in answer
        person.sees("typed")
        person.types("\x15\x04")
        assert person.leaves() == 0


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
@pytest.mark.parametrize("is_answering", [True, False])
def test_on_a_terminal_sigterm_ends_the_chat_with_its_own_exit_code(is_answering):
    agent = FakeAgent(streams("one ", "two", every=0.01, then=works_forever()))
    with served(agent) as url, Person("chat", "-a", url) as person:
        person.sees("> ")
        if is_answering:
            person.types("count\r")
            person.sees("one two")
        person.terminates()
        if is_answering:
            assert "Enter" not in person.sees("later: holdfast task")
        person.sees("Warning: SIGTERM has ended the chat")
        if is_answering:
            person.sees("Hint: to continue: holdfast chat --context-id context-2 --task-id task-1")
        assert person.leaves() == 143
    assert agent.calls("CancelTask") == []
