"""What ``--stream`` shows: text as it grows, JSON Lines, cuts, and what ends a stream."""

import asyncio
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.kit.cli_harness import AGENT, holdfast

from holdfast._cli.output.sanitizer import TerminalSanitizer, clean
from holdfast._cli.output.text import View
from holdfast._cli.output.text_output import LiveText
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    Plan,
    Refuse,
    Stall,
    Step,
    Streaming,
    asks,
    completes,
    crashes,
    fails,
    needs_auth,
    replies,
    streams,
    works_forever,
)
from holdfast.types import Artifact, Part, Task, TaskState, TaskStatus

BEGAN = "Task ID: task-1\nContext ID: context-2\nState: TASK_STATE_SUBMITTED\n"
ENDED = "Task ID: task-1\nContext ID: context-2\nState: TASK_STATE_COMPLETED\n"
WORKING = Step(state=TaskState.WORKING)


def follow(behaviour, *words, streaming=True, fault=None, on="SendStreamingMessage"):
    agent = FakeAgent(behaviour, streaming=streaming)
    if fault is not None:
        agent.inject(fault, on=on)
    return holdfast("send", "hello", "--stream", *words, agent=agent)


def artifact(*parts, name="report", append=False, after=0.0, artifact_id="a1"):
    found = Artifact(artifact_id=artifact_id, name=name, parts=parts)
    return Step(artifacts=(found,), append=append, after=after)


def plan(*steps, says=None):
    end = Step(state=TaskState.COMPLETED, says=says)
    return Plan((Step(state=TaskState.SUBMITTED), *steps, end))


def lines(done):
    return [json.loads(line) for line in done.out.splitlines()]


def kinds(done):
    return [next(iter(line)) for line in lines(done)]


# ── Text ─────────────────────────────────────────────────────────────────────────────────────


def test_text_that_grows_is_one_block():
    done = follow(streams("Hel", "lo, ", "world", every=1))
    grown = "Artifact: artifact-1\nText:\nHello, world\n\n"
    assert (done.exit, done.err) == (0, "")
    assert done.out == f"{BEGAN}State: TASK_STATE_WORKING\n{grown}{ENDED}"


def test_text_is_written_as_it_comes(monkeypatch):
    written = []

    def echo(content, **_):
        written.append((asyncio.get_running_loop().time(), content.decode()))

    monkeypatch.setattr("holdfast._cli.output.base.click.echo", echo)
    follow(streams("one ", "two ", "three", every=10))
    times = {text.partition("Text:\n")[2] or text: round(at) for at, text in written}
    assert times["two "] - times["one "] == times["three"] - times["two "] == 10


@pytest.mark.parametrize(
    "chunks",
    [
        ("one\n", "\n\ntwo"),
        ("one\n\n", "\ntwo"),
        ("\n", "one"),
        ("one\n",),
        ("one\n\n",),
        ("\n",),
        ("\x1b[", "31m"),
        ("one\r", "\ntwo"),
    ],
)
def test_a_block_that_grew_is_the_same_as_one_that_was_there_at_once(chunks):
    grown = follow(streams(*chunks, every=1)).out
    whole = holdfast("send", "hello", agent=FakeAgent("".join(chunks))).out
    block = grown[grown.index("Text:\n") : grown.index("\n\n") + 2]
    assert block == whole[whole.index("Text:\n") :]


def test_a_status_message_closes_the_block_and_the_artifact_is_named_again():
    done = follow(
        plan(
            artifact(Part(text="one")),
            Step(state=TaskState.WORKING, says="thinking"),
            artifact(Part(text=" two"), append=True, name=None),
            says="done",
        )
    )
    assert done.out == (
        f"{BEGAN}Artifact: report\nText:\none\n\n"
        "State: TASK_STATE_WORKING\nStatus message: thinking\n"
        f"Artifact: report\nText:\n two\n\n{ENDED}Status message: done\n"
    )


def test_artifacts_that_grow_together_are_distinguished():
    done = follow(
        plan(
            artifact(Part(text="a"), artifact_id="1", name="first"),
            artifact(Part(text="b"), artifact_id="2", name="second"),
            artifact(Part(text="c"), artifact_id="1", name=None, append=True),
        )
    )
    assert re.findall(r"Artifact: (\w+)\nText:\n(\w)\n\n", done.out) == [
        ("first", "a"), ("second", "b"), ("first", "c"),
    ]  # fmt: skip


def test_retracted_text_is_reported():
    done = follow(plan(artifact(Part(text="draft")), artifact(Part(text="final"))))
    assert "Text:\ndraft\n\nArtifact replaced: report\nText:\nfinal\n\n" in done.out


def test_whole_artifact_that_grows_is_only_appended_to():
    longer = artifact(Part(text="one two"), Part(data=1), Part(text=" three"))
    done = follow(plan(artifact(Part(text="one")), longer, longer))
    told = "Artifact: report\nText:\none two\n\nData:\n1\n\nText:\n three\n\n"
    assert done.out == f"{BEGAN}{told}{ENDED}"


def test_an_artifact_whose_files_change_is_replaced():
    done = follow(plan(artifact(Part(data=1)), artifact(Part(data=2))))
    assert "Data:\n1\n\nArtifact replaced: report\nData:\n2\n\n" in done.out


def test_no_part_is_lost():
    done = follow(
        plan(artifact(Part(text="a"), Part(raw=b"xyz", filename="x.bin"), Part(), Part(text="b")))
    )
    assert done.out == (
        f"{BEGAN}Artifact: report\nText:\na\n\nFile: x.bin\nMedia type: (none)\nSize: 3 bytes\n"
        f"Part: of a kind that is not known\nText:\nb\n\n{ENDED}"
    )


def test_verbose_tells_of_types_and_of_what_belongs_to_a_part():
    parts = (
        Part(text="a", media_type="text/plain", metadata={"n": 1}),
        Part(text="b", media_type="text/markdown"),
    )
    done = follow(plan(artifact(*parts)), "--verbose")
    assert "Artifact: report\nArtifact ID: a1\nMedia type: text/plain\nText:\na\n\n" in done.out
    assert 'Part metadata:\n{\n  "n": 1\n}\n\nMedia type: text/markdown\nText:\nb\n\n' in done.out
    assert "Updated: 2026" in done.out


@pytest.mark.parametrize("flags", [[], ["--stream"]])
def test_verbose_shows_text_of_many_chunks_as_one_text(flags):
    steps = [
        artifact(Part(text=word, media_type="text/plain", metadata={"n": 1}), append=n > 0)
        for n, word in enumerate(("Once ", "upon ", "a time"))
    ]
    agent = FakeAgent(plan(*steps), streaming=True)
    done = holdfast("send", "hello", "--verbose", *flags, agent=agent)
    assert "Media type: text/plain\nText:\nOnce upon a time\n\nPart metadata:\n" in done.out
    assert done.out.count("Part metadata:") == 1


def test_the_whole_task_at_the_end_repeats_nothing():
    done = follow(streams("one", " two"), streaming=Streaming(final_task=True))
    assert done.out.count("one") == 1
    assert done.out.endswith(ENDED)


def test_artifact_that_the_task_no_longer_has_is_reported():
    status = TaskStatus(state=TaskState.WORKING)
    told = Artifact(artifact_id="a1", name="report", parts=(Part(text="x"), Part(data=1)))
    before = Task(id="t", status=status, artifacts=(told,))
    after = Task(id="t", status=status)
    live = LiveText(View())
    list(live.event(before, before))
    assert "Artifact removed: report\n" in "".join(live.event(after, after))
    again = "".join(live.event(before, before))
    assert "Artifact: report\nText:\nx\n\nData:\n1\n\n" in again


def test_a_message_is_the_whole_answer():
    done = follow(replies("hi"))
    assert (done.exit, done.err) == (0, "")
    assert done.out == "Message ID: message-1\nContext ID: context-2\nText:\nhi\n\n"
    assert kinds(follow(replies("hi"), "-o", "json")) == ["message"]


# ── What steers a terminal ───────────────────────────────────────────────────────────────────

STEERING = (
    "ab\n\r\t\x1b[]\\P0;31m \x00\x07\x9b\x9c\x9d\x85\u2028\u202e\ud800é"
    "\u061c\u200b\u200c\u200d\u2060\ufe0f\U000e0041\U000e0100क😀字"
)
PIECES = st.lists(st.text(alphabet=st.sampled_from(STEERING)))


@given(PIECES)
@example(["\x1b", "[31", "mred\x1b", "]0;ti", "tle\x1b", "\\x\r", "\ny"])
@example(["\x1b[1", "\n2m"])
def test_it_does_not_matter_where_text_is_cut(pieces):
    plain = TerminalSanitizer()
    assert "".join(map(plain.feed, pieces)) == clean("".join(pieces))


@given(st.text(alphabet=st.sampled_from(STEERING)))
def test_nothing_but_text_and_line_ends_is_left(text):
    shown = clean(text)
    assert re.fullmatch(
        "[^\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u061c\u200b\u2060\ud800\U000e0041]*", shown
    )
    assert not re.search("[\u200c\u200d\ufe0f\U000e0100]{2}[\u200c\u200d\ufe0f\U000e0100]", shown)
    assert clean(shown) == shown


@pytest.mark.rule("P28")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2Jx", r"\x9b2Jx"),
        ("\x1b]8;;http://e.test\x1b\\x", r"\x1b]8;;http://e.test\x1b\x"),
        ("\x1b]never ends", r"\x1b]never ends"),
        ("a\r\nb\rc\x85d\u2028e\x0bf", "a\nb\nc\nd\ne\nf"),
        ("a\tb\x00\x08\x7f\ufeffc", "a\tb\\x00\\x08\\x7f\\ufeffc"),
        ("\ud83d", r"\ud83d"),
        (
            "a\u061c\u200e\u200f\u202a\u202e\u2066\u2069",
            r"a\u061c\u200e\u200f\u202a\u202e\u2066\u2069",
        ),
        ("pass\u200bword\xad\u2060\u2064\u206f", r"pass\u200bword\xad\u2060\u2064\u206f"),
        ("\u3164\U000e0041\U000e01f0", r"\u3164\U000e0041\U000e01f0"),
        ("a\u200db\u200cc\ufe0f", r"a\u200db\u200cc\ufe0f"),  # of no use in these letters
        ("😀\u200d\u200d\ufe0f😀\ufe0f\ufe0f", "😀\u200d\\u200d\\ufe0f😀\ufe0f\\ufe0f"),
        ("字\U000e0100\U000e0100", "字\U000e0100\\U000e0100"),
    ],
)
def test_what_steers_a_terminal_or_hides_in_it_is_escaped(text, plain):
    assert clean(text) == plain


@pytest.mark.rule("P28")
@pytest.mark.parametrize(
    "text",
    [
        "😀 日本 e\u0301 العربية עברית",
        "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 👩🏽\u200d🚀 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 ☎\ufe0e 🇩🇪",
        "می\u200cخواهم",  # noqa: RUF001  Persian
        "ක්\u200dරී",  # Sinhala
        "葛\U000e0100 ≨\ufe00 ᠠ\u180bᠡ",
    ],
)
def test_what_languages_and_emoji_need_is_shown(text):
    assert clean(text) == text


@pytest.mark.rule("P28")
def test_a_sequence_that_comes_in_two_chunks_is_escaped():
    done = follow(streams("re\x1b", "[31", "md\x1b]0;ti", "tle\x07\x9b", "2J!"))
    assert "Text:\nre\\x1b[31md\\x1b]0;title\\x07\\x9b2J!\n\n" in done.out
    hostile = "\x1b\x9b\u202e\u2028\u061c\u200b\U000e0041"
    for form in ("text", "json"):
        out = follow(streams("\x1b", f"[31m{hostile}"), "-o", form).out
        assert not set(out) & set(hostile)


def test_a_character_whose_bytes_come_apart_is_whole():
    done = follow(streams("Größe ", "日本 😀"), streaming=Streaming(piece=1))
    assert "Text:\nGröße 日本 😀\n\n" in done.out


def test_a_line_without_end_comes_through():
    chunk = "x" * 1_000_000
    assert follow(streams(chunk, chunk, chunk)).out.count("xx") == 1_500_000


# ── JSON Lines ───────────────────────────────────────────────────────────────────────────────


def test_each_event_is_one_line_of_the_protocols_own():
    done = follow(streams("one", "\u2028\ntwo", every=1), "-o", "json")
    assert (done.exit, done.err) == (0, "")
    expected = ["task", "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    assert kinds(done) == expected
    assert lines(done)[2]["artifactUpdate"] == {
        "taskId": "task-1",
        "contextId": "context-2",
        "artifact": {"artifactId": "artifact-1", "parts": [{"text": "one"}]},
    }
    assert lines(done)[3]["artifactUpdate"]["append"] is True
    assert lines(done)[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_an_error_is_the_last_line():
    done = follow(works_forever(), "-o", "json", "--timeout", "10s")
    assert kinds(done) == ["task", "statusUpdate", "error"]
    assert (done.exit, lines(done)[-1]["error"]["code"]) == (5, "A2ACLI_ERR_TIMEOUT")


@pytest.mark.parametrize("words", [["--stream"], ["--stream", "--nope"], ["--stream", "--async"]])
def test_an_error_before_anything_is_sent_is_one_line(words):
    done = holdfast("send", "-o", "json", *words, *["hello"][: len(words) - 1])
    assert done.exit == 2
    assert [line["error"]["code"] for line in lines(done)] == ["A2ACLI_ERR_USAGE"]


@pytest.mark.parametrize("words", [["task", "get", "task-1"], ["card", "get"]])
def test_what_has_no_events_is_one_line(words):
    agent = FakeAgent()
    holdfast("send", "hello", agent=agent)
    done = holdfast(*words, "-o", "json", "--stream", agent=agent)
    whole = holdfast(*words, "-o", "json", agent=agent)
    assert lines(done) == [whole.json]


@pytest.mark.parametrize(
    "words", [["task", "get", "t"], ["task", "cancel", "t"], ["task", "list"], ["card", "get"]]
)
def test_where_there_is_nothing_to_follow_the_flag_is_for_documents_only(words):
    agent = FakeAgent()
    done = holdfast(*words, "--stream", agent=agent)
    assert done.exit == 2
    assert "To follow a task: holdfast task subscribe --stream TASK_ID" in done.err
    assert agent.received == []


# ── Cuts ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("after", range(1, 5))
def test_a_cut_is_survived_and_told(after, form):
    chunks = ["one ", "two ", "three"]
    done = follow(streams(*chunks, every=1), "-o", form, fault=Cut(after_events=after))
    whole = follow(streams(*chunks, every=1), "-o", form)
    assert done.exit == 0
    (warning,) = re.findall("^Warning: the stream was cut(.*)$", done.err, re.MULTILINE)
    assert "; reconnected to task task-1; status messages" in warning
    if form == "text":
        text = "".join(re.findall(r"Text:\n(.*)\n\n", done.out))
        assert text == "one two three"
        assert done.out.endswith(ENDED)
    else:
        assert lines(done)[-1] == lines(whole)[-1]
        updates = [line["artifactUpdate"] for line in lines(done) if "artifactUpdate" in line]
        assert "".join(p["text"] for u in updates for p in u["artifact"]["parts"]) == (
            "one two three"
        )


def test_a_warning_begins_a_line_of_its_own_where_a_terminal_shows_both():
    done = follow(streams("one ", "two", every=1), fault=Cut(after_events=3))
    assert done.err.startswith("\nWarning: the stream was cut")
    assert done.err.count("\n") == 2
    assert "Text:\none two\n\n" in done.out


def test_stream_that_cannot_be_resumed_yet_is_reported():
    agent = FakeAgent(streams("one ", "two", every=60))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Refuse(), on="SubscribeToTask", times=2)
    done = holdfast("send", "hello", "--stream", agent=agent)
    assert done.exit == 0
    assert len(re.findall("^Warning: .* reconnected", done.err, re.MULTILINE)) == 1
    assert (
        done.err.count("cannot be resumed yet: SubscribeToTask: the connection was refused") == 2
    )


def test_task_that_ended_while_disconnected_is_emitted_to_its_end():
    agent = FakeAgent(streams("one ", "two", every=1))
    agent.inject(Stall(phase="idle", after_events=3), on="SendStreamingMessage")
    done = holdfast("send", "hello", "--stream", agent=agent)
    assert done.exit == 0
    assert "Text:\none two\n\n" in done.out
    assert "the stream was cut and not resumed" in done.err


def test_who_waits_for_the_outcome_hears_nothing_of_cuts():
    agent = FakeAgent(streams("one ", "two", every=5))
    agent.inject(Cut(after_events=1), on="SubscribeToTask", times=2)
    done = holdfast("send", "hello", agent=agent)
    assert (done.exit, done.err) == (0, "")
    assert "Text:\none two\n\n" in done.out


def test_where_subscriptions_lead_to_nothing_the_task_is_looked_at_and_that_is_reported():
    agent = FakeAgent(streams("one ", "two", every=5))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Fail(code=-32601), on="SubscribeToTask", times=20)
    done = holdfast("send", "hello", "--stream", agent=agent)
    assert done.exit == 0
    assert "".join(re.findall(r"Text:\n(.*)\n\n", done.out)) == "one two"
    assert "may be missing" in done.err


def test_a_stream_that_is_lost_for_good_says_how_to_continue():
    agent = FakeAgent(works_forever())
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    agent.inject(Refuse(), on="SubscribeToTask", times=1000)
    agent.inject(Refuse(), on="GetTask", times=1000)
    done = holdfast("send", "hello", "--stream", "-o", "json", agent=agent)
    error = lines(done)[-1]["error"]
    assert (done.exit, error["code"]) == (1, "HOLDFAST_ERR_STREAM_LOST")
    assert error["hint"] == f"holdfast task subscribe --stream task-1 --agent-card {AGENT}"


def test_a_message_whose_stream_never_began_is_not_sent_again():
    agent = FakeAgent(records_messages=False)
    agent.inject(Cut(after_events=0), on="SendStreamingMessage")
    done = holdfast("send", "hello", "--stream", "-o", "json", agent=agent)
    assert (done.exit, done.error["code"]) == (1, "HOLDFAST_ERR_OUTCOME_UNKNOWN")
    assert len(agent.calls("SendStreamingMessage")) == 1


# ── The end ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stays_open", [True, False])
@pytest.mark.parametrize(
    ("behaviour", "state", "hint"),
    [
        (asks("Which?"), "INPUT_REQUIRED", "holdfast send --task-id task-1 '<reply>'"),
        (needs_auth("Log in"), "AUTH_REQUIRED", "holdfast task get --wait --through-auth task-1"),
    ],
)
def test_it_stops_where_the_user_must_act(behaviour, state, hint, stays_open):
    done = follow(behaviour, streaming=Streaming(stays_open=stays_open))
    assert done.exit == 0
    last = done.out.split("Task ID: ")[-1]
    assert last.startswith(f"task-1\nContext ID: context-2\nState: TASK_STATE_{state}\n")
    assert f"{hint} " in done.err


def test_a_task_that_fails_is_no_failure_of_the_command():
    done = follow(fails("no"))
    assert done.exit == 0
    assert done.out.endswith("State: TASK_STATE_FAILED\nStatus message: no\n")
    assert "Warning: task task-1 failed" in done.err


@pytest.mark.parametrize("words", [[], ["-o", "json"]])
def test_what_the_agent_says_where_it_breaks_off_is_why_a_task_failed(words):
    done = follow(crashes("out of paper", after=1), *words)
    assert done.exit == 0
    why = "the agent answered -32603: out of paper"
    assert f"Warning: task task-1 failed (TASK_STATE_FAILED): {why}\n" in done.err


def test_what_broke_a_connection_is_not_why_a_task_failed():
    done = follow(fails(after=5), fault=Cut(after_events=2))
    assert "Warning: task task-1 failed (TASK_STATE_FAILED)\n" in done.err


def test_the_timeout_closes_what_is_open_and_says_how_to_continue():
    done = follow(streams("one", "two", every=60), "--timeout", "90s")
    assert done.exit == 5
    assert done.out.endswith(
        "Text:\none\n\nTask ID: task-1\nContext ID: context-2\nState: TASK_STATE_WORKING\n"
    )
    assert f"Hint: holdfast task subscribe --stream task-1 --agent-card {AGENT}\n" in done.err


def test_an_agent_without_streams_is_looked_at_and_that_is_reported():
    for form in ("text", "json"):
        done = follow(completes("fine", after=5), "-o", form, streaming=False)
        assert done.exit == 0
        assert (
            "Warning: the agent does not support streaming; the task is polled every 2s"
            in done.err
        )
        if form == "json":
            assert kinds(done) == ["task", "artifactUpdate", "statusUpdate"]
        else:
            assert done.out.endswith(f"Text:\nfine\n\n{ENDED}")


def test_a_flag_for_streams_beats_a_variable_against_them():
    agent = FakeAgent(completes("fine", after=5))
    done = holdfast("send", "hello", "--stream", agent=agent, env={"A2ACLI_ASYNC": "1"})
    assert done.out.endswith(ENDED)


def test_ctrl_c_says_how_to_continue():
    class Interrupted:
        """An engine in whose stream somebody presses Ctrl-C at the third event."""

        def __init__(self, inner):
            self._inner = inner
            self.request, self.close = inner.request, inner.close

        def stream(self, request):
            return Pieces(self._inner.stream(request))

    class Pieces:
        def __init__(self, inner):
            self._inner, self._left = inner, 3

        async def __aenter__(self):
            self._stream = await self._inner.__aenter__()
            self.status, self.headers = self._stream.status, self._stream.headers
            return self

        async def __aexit__(self, *details):
            return await self._inner.__aexit__(*details)

        def chunks(self):
            self._chunks = self._stream.chunks()
            return self

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1
            return await anext(self._chunks)

    network = Interrupted(FakeNetwork(FakeAgent(streams("one", "two", every=1))))
    done = holdfast("send", "hello", "--stream", engine=lambda **_: network)
    assert done.exit == 130
    assert done.out.endswith("Text:\none\n\nTask ID: task-1\nContext ID: context-2\n"
                             "State: TASK_STATE_WORKING\n")  # fmt: skip
    assert f"Hint: holdfast task subscribe --stream task-1 --agent-card {AGENT}\n" in done.err


# ── Subscribing ──────────────────────────────────────────────────────────────────────────────


def begun(behaviour, **more):
    agent = FakeAgent(behaviour, **more)
    holdfast("send", "hello", "--async", agent=agent)
    return agent


def test_a_subscription_begins_with_the_task():
    agent = begun(streams("one ", "two", every=5))
    done = holdfast("task", "subscribe", "task-1", "--stream", "-o", "json", agent=agent)
    assert kinds(done)[0] == "task"
    assert kinds(done)[-1] == "statusUpdate"
    assert len(agent.calls("SubscribeToTask")) == 1


def test_without_the_flag_a_subscription_gives_the_task_at_its_end():
    agent = begun(streams("one ", "two", every=5))
    done = holdfast("task", "subscribe", "task-1", "-o", "json", agent=agent)
    assert done.json["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [part["text"] for part in done.json["artifacts"][0]["parts"]] == ["one ", "two"]
    agent = begun(streams("one ", "two", every=5))
    done = holdfast("task", "subscribe", "task-1", agent=agent)
    assert done.out == f"{ENDED}Artifact: artifact-1\nText:\none two\n\n"


def test_a_task_that_is_over_is_its_only_event():
    agent = begun(completes("fine"))
    done = holdfast("task", "subscribe", "task-1", "--stream", agent=agent)
    assert (done.exit, done.out) == (0, holdfast("task", "get", "task-1", agent=agent).out)


def test_a_task_that_is_unknown_is_reported_by_its_error():
    done = holdfast("task", "subscribe", "nope", "--stream", "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "TaskNotFoundError")


def test_debug_tells_each_event_and_no_credential():
    agent = FakeAgent(streams("s3cret", "two", every=1), streaming=Streaming(piece=7))
    done = holdfast("send", "x", "--stream", "--debug", "--bearer", "s3cret", agent=agent)
    told = re.findall(r'^Debug: < data: .*"result":\{"(\w+)"', done.err, re.MULTILINE)
    assert told == ["task", "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    assert "s3cret" not in done.err
