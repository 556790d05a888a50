"""``holdfast resume``: what a crash left is gone on with, and nothing is sent again."""

import asyncio
import json
import shlex
import sqlite3

import pytest
from tests.kit.cli_harness import AGENT, VirtualWall, holdfast
from tests.kit.virtual_env import set_wall

from holdfast.extend import CallRecord, RecordUpdate, SqliteJournal
from holdfast.testing import FakeAgent, FakeNetwork, Stall, completes, fails, replies, run

OTHER = "http://other.test"
BEGAN = 1_700_000_000.0
"""When the calls in a journal began, in seconds since 1970: before the commands of all tests."""

LONG = 2e9
"""A lease that lasts longer than all tests, in seconds."""


class Left:
    """A journal with the calls that a crash left."""

    def __init__(self, path):
        self.path = path

    def add(self, message_id, agent=AGENT, *, lease=30.0, **known):
        record = CallRecord(message_id=message_id, agent=agent, **known)

        async def begin():
            set_wall(BEGAN)
            journal = SqliteJournal(self.path, lease=lease)
            await journal.begin(record)
            await journal.close()

        run(begin())

    def sent(self, agent, *texts):
        """Messages that were sent, and whose answer nobody waited for."""
        source = self.path.with_name("in.txt")
        source.write_text("".join(f"{text}\n" for text in texts))
        words = ["--input", str(source), "--results", "-", "--journal", str(self.path)]
        done = holdfast("run", *words, "--grace", "0", agent=agent, stops=[5])
        assert done.exit == 130

    def resume(self, *words, **more):
        return holdfast("resume", "--journal", str(self.path), *words, **more)


@pytest.fixture
def left(tmp_path):
    return Left(tmp_path / "calls.db")


def slow():
    return FakeAgent(lambda turn: completes(turn.message.text.upper(), after=100))


def documents(done):
    return [json.loads(line) for line in done.out.splitlines()]


def test_what_came_of_each_call_is_shown(left):
    agent = slow()
    left.sent(agent, "a", "b")
    done = left.resume(agent=agent)

    assert (done.exit, done.err) == (0, "")
    assert done.out.count("Message ID: ") == 2
    assert "Text:\nA\n\n" in done.out
    assert "Text:\nB\n\n" in done.out
    assert len(agent.executions) == 2

    assert left.resume(agent=agent).err == "Calls: no call is pending\n"


def test_documents_are_one_for_each_call(left):
    agent = slow()
    left.sent(agent, "a", "b")
    done = left.resume("-o", "json", agent=agent)

    assert {one["messageId"] for one in documents(done)} == set(agent.executions)
    assert {one["task"]["status"]["state"] for one in documents(done)} == {"TASK_STATE_COMPLETED"}
    assert {one["agent"] for one in documents(done)} == {AGENT}


def test_a_task_that_failed_is_what_came_of_a_call(left):
    agent = FakeAgent(fails("no oven", after=100))
    left.sent(agent, "a")
    done = left.resume(agent=agent)

    assert done.exit == 0
    assert "State: TASK_STATE_FAILED\n" in done.out


def test_call_with_unknown_outcome_names_where_it_was_searched(left):
    left.add("m1")
    agent = FakeAgent()
    done = left.resume(agent=agent)

    assert done.exit == 1
    reason = "it may have been sent, and the journal has no reply to it"
    assert f"Message ID: m1\nError: the outcome of message m1 is unknown: {reason}" in done.out
    assert "; searched: " in done.out
    assert "Code: HOLDFAST_ERR_OUTCOME_UNKNOWN\n" in done.out
    assert "Error: 1 of 1 calls to http://agent.test have no answer\n" in done.err
    command = f"holdfast resume --journal {left.path} --dismiss m1"
    assert f"as the call stays pending; to end it: {command}" in done.out
    assert "Outcome: unknown\n" in left.resume("--list", agent=agent).out
    assert agent.executions == {}


def test_call_left_by_a_timeout_is_not_said_to_be_of_a_process_that_ended(left):
    agent = FakeAgent()
    agent.inject(Stall(), on="SendStreamingMessage")
    sent = holdfast("send", "a", "--journal", str(left.path), "--timeout", "5s", agent=agent)
    assert sent.exit == 5
    agent = FakeAgent()  # without the task
    done = left.resume(agent=agent)

    assert "is unknown: it may have been sent, and the journal has no reply to it" in done.out
    assert "ended before" not in done.out


def test_call_whose_task_the_agent_lost_names_the_command_that_ends_it(left):
    left.add("m1", task_id="task-of-before", state="TASK_STATE_WORKING")
    done = left.resume(agent=FakeAgent())

    assert done.exit == 1
    command = f"holdfast resume --journal {left.path} --dismiss m1"
    assert "Hint: the agent no longer knows the task" in done.out
    assert command in done.out
    assert holdfast(*shlex.split(command)[1:]).exit == 0
    assert left.resume().err == "Calls: no call is pending\n"


def test_a_call_whose_time_is_over_once_more_stays_open(left):
    agent = slow()
    left.sent(agent, "a")
    done = left.resume("--timeout", "1s", "-o", "json", agent=agent)

    call, end = documents(done)
    assert done.exit == 1
    assert call["error"]["code"] == "A2ACLI_ERR_TIMEOUT"
    assert end["error"]["code"] == "HOLDFAST_ERR_RESUME"
    assert left.resume(agent=agent).exit == 0


def test_calls_are_listed_and_left(left):
    left.add("m1", task_id="task-7", context_id="c-1", state="TASK_STATE_WORKING")
    left.add("m2", agent=OTHER, lease=LONG)
    agent = FakeAgent()
    told = left.resume("--list", card=None, agent=agent)
    listed = left.resume("--list", "-o", "json", card=None, agent=agent)
    chosen = left.resume("--list", "-o", "json", card=OTHER, agent=agent)

    assert told.out.startswith(
        "Message ID: m1\nAgent: http://agent.test\nTask ID: task-7\nContext ID: c-1\n"
        "Last known state: TASK_STATE_WORKING\nBegan: 2023-11-14T22:13:20Z\n\nMessage ID: m2\n"
    )
    first, second = documents(listed)
    assert first == {
        "messageId": "m1", "agent": AGENT, "taskId": "task-7", "contextId": "c-1",
        "state": "TASK_STATE_WORKING", "began": "2023-11-14T22:13:20Z",
    }  # fmt: skip
    assert set(second) == {"messageId", "agent", "began", "heldUntil"}
    assert documents(chosen) == [second]
    assert (told.exit, listed.exit, chosen.exit) == (0, 0, 0)


def test_without_an_agent_all_are_asked_each_at_its_own_address(left):
    agents = FakeAgent(replies("hi"), url=AGENT), FakeAgent(replies("hi"), url=OTHER)
    left.add("m1")
    left.add("m2", agent=OTHER)
    done = left.resume("-o", "json", card=None, engine=lambda *, verify: FakeNetwork(*agents))

    told = [one for one in documents(done) if "messageId" in one]
    assert [(one["messageId"], one["agent"]) for one in told] == [("m1", AGENT), ("m2", OTHER)]


def test_a_journal_may_be_named_by_its_address(left):
    left.add("m1")
    done = holdfast("resume", "--list", "--journal", f"sqlite:///{left.path}")

    assert (done.exit, "Message ID: m1\n" in done.out) == (0, True)


def test_an_address_of_no_journal_is_a_wrong_usage():
    done = holdfast("resume", "--journal", "mysql://u:s3cret@db/calls")

    assert done.exit == 2
    assert "--journal must be a file" in done.err
    assert "s3cret" not in done.err


def test_what_may_be_secret_in_an_address_has_to_be_said_again(left):
    address = f"{AGENT}?key=s3cret"
    agent = slow()
    left.add("m1", agent=f"{AGENT}#query-faddc41837a7c9ca")

    without = left.resume(card=None, agent=agent)
    named = left.resume("--list", card=address, agent=agent)
    resumed = left.resume(card=address, agent=agent)

    assert without.exit == 1
    assert (
        "the journal does not store the query of an address; name the agent with --agent-card"
        in without.err
    )
    assert "Message ID: m1\n" in named.out
    assert "s3cret" not in named.out + named.err + without.err
    assert "OUTCOME_UNKNOWN" in resumed.out
    assert agent.calls("ListTasks")


@pytest.mark.parametrize("words", [["--bearer", "secret"], ["--svc-param", "x-key:secret"]])
def test_credentials_go_to_the_agent_that_is_named(left, words):
    left.add("m1")
    agent = FakeAgent()
    done = left.resume(*words, card=None, agent=agent)

    assert done.exit == 2
    assert "go to one agent: name it with --agent-card" in done.err
    assert left.resume("--list", *words, card=None, agent=agent).exit == 0


def test_a_call_is_dismissed(left):
    left.add("m1")
    left.add("m2")
    agent = FakeAgent()
    done = left.resume("--dismiss", "m1", "-o", "json", card=None, agent=agent)

    assert done.exit == 0
    assert (done.json["messageId"], done.json["dismissed"]) == ("m1", True)
    assert [one["messageId"] for one in documents(left.resume("--list", "-o", "json"))] == ["m2"]

    again = left.resume("--dismiss", "m1", agent=agent)
    assert again.exit == 1
    assert "no call of message m1 is pending in" in again.err
    assert "\nHint: holdfast resume --list --journal " in again.err


def test_a_call_that_is_held_is_not_dismissed(left):
    left.add("m1", lease=LONG)
    done = left.resume("--dismiss", "m1")

    assert done.exit == 1
    assert "the call of message m1 is held by another client, or by one that crashed" in done.err
    assert "check --journal" not in done.err


def test_call_that_ends_while_it_is_dismissed_is_reported(left):
    left.add("m1")

    def engine(*, verify):
        asyncio.run(end())
        return FakeNetwork(FakeAgent())

    async def end():
        journal = SqliteJournal(left.path)
        await journal.update("m1", 1, RecordUpdate(outcome="answered"))
        await journal.close()

    done = left.resume("--dismiss", "m1", engine=engine)

    assert done.exit == 1
    assert "Error: the call of message m1 has finished in the meantime\n" in done.err


def held(left, agent, *, is_alive, outcome=None):
    """What is told of a call that somebody holds, who may renew the lease, or end the call."""
    wall = VirtualWall()
    lease = wall.start + 5 - BEGAN
    left.add("m1", task_id="task-1", state="TASK_STATE_WORKING", lease=lease)

    async def renew():
        await asyncio.sleep(3)
        journal = SqliteJournal(left.path)
        if outcome is None:
            await journal.renew([("m1", 1)])
        else:
            await journal.update("m1", 1, RecordUpdate(outcome=outcome))
        await journal.close()

    class Renewed(FakeNetwork):
        renewing = None

        async def request(self, request):
            if is_alive and self.renewing is None:
                self.renewing = asyncio.create_task(renew())
            return await super().request(request)

    return left.resume("-o", "json", engine=lambda *, verify: Renewed(agent), wall=wall)


def test_call_that_another_client_holds_is_named_and_skipped(left):
    agent = FakeAgent()
    done = held(left, agent, is_alive=True)

    assert done.exit == 1
    assert "Warning: 1 of 1 calls are leased by another process, which may have " in done.err
    first, last = documents(done)
    assert first["status"] == "held"
    assert last["error"]["message"] == "1 of 1 calls to http://agent.test have no answer"
    assert agent.calls("GetTask") == []


@pytest.mark.parametrize(("outcome", "code"), [("answered", 0), ("refused", 1)])
def test_call_that_another_client_finishes_is_named_and_skipped(left, outcome, code):
    agent = FakeAgent()
    done = held(left, agent, is_alive=True, outcome=outcome)

    assert done.exit == code
    assert documents(done)[0]["status"] == "ended"
    assert agent.calls("GetTask") == []


def test_call_of_a_crashed_program_is_resumed_once_the_crash_is_certain(left):
    agent = FakeAgent()
    done = held(left, agent, is_alive=False)

    assert done.exit == 1
    assert "waiting until the leases expire, at 20" in done.err
    assert agent.calls("SubscribeToTask") or agent.calls("GetTask")


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, " does not exist"), (b"notes, and nothing else", "is not a SQLite database")],
)
def test_a_journal_that_cannot_be_used_is_reported(left, content, told):
    if content is not None:
        left.path.write_bytes(content)
    done = left.resume("-o", "json")

    assert done.exit == 1
    assert done.error["code"] == "HOLDFAST_ERR_JOURNAL"
    assert told in done.error["message"]
    assert left.path.exists() == (content is not None)


@pytest.mark.parametrize("words", [[], ["--list"], ["--dismiss", "m1"]])
def test_a_missing_journal_is_named_with_what_creates_one_and_is_not_created(
    tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    done = holdfast("resume", "--journal", "nope.db", *words, card=None)

    assert (done.exit, done.out) == (1, "")
    assert f"Error: the journal {tmp_path / 'nope.db'} does not exist\n" in done.err
    assert "Hint: check the path; a journal is created by holdfast run or send with" in done.err
    assert list(tmp_path.iterdir()) == []


def test_agent_that_cannot_be_called_is_reported_and_the_others_are_called(left):
    left.add("m1", agent="ftp://agent.test")
    left.add("m2")
    done = left.resume("-o", "json", card=None, agent=FakeAgent())

    assert done.exit == 1
    first, second, _ = documents(done)
    assert "calls to ftp://agent.test cannot be resumed: " in first["error"]["message"]
    assert second["messageId"] == "m2"


@pytest.mark.parametrize("words", [[], ["--agent-card", AGENT]])
def test_calls_recorded_for_several_replicas_are_resumed_at_all_of_them(left, words):
    agent = slow()
    left.sent(agent, "a")
    (message_id,) = agent.executions
    with sqlite3.connect(left.path) as connection:
        connection.execute("UPDATE calls SET agent = ?", (f"{AGENT} {OTHER}",))
    network = FakeNetwork(agent, FakeAgent(url=OTHER))
    listed = left.resume("--list", *words, "-o", "json", card=None)
    done = left.resume(*words, "-o", "json", card=None, engine=lambda **_: network)

    assert documents(listed)[0]["agent"] == f"{AGENT} {OTHER}"
    assert (done.exit, done.err) == (0, "")
    assert documents(done)[0]["messageId"] == message_id
    assert len(agent.executions) == 1


@pytest.mark.parametrize("words", [[], ["--list"], ["--list", "-o", "json"]])
def test_resume_of_one_agent_names_the_agents_that_others_are_pending_to(left, words):
    left.add("m1", agent="http://u:s3cret@other.test")
    left.add("m2", agent="http://u:s3cret@other.test")
    one = left.resume(*words)
    for number in range(6):
        left.add(f"n{number}", agent=f"http://a{number}.test")
    many = left.resume(*words)

    none = "Calls: no call to http://agent.test is pending; "
    assert (one.exit, one.out) == (0, "")
    assert one.err == f"{none}2 calls to another agent are pending: http://***@other.test\n"
    others = "http://***@other.test, http://a0.test, "
    assert many.err.startswith(f"{none}8 calls to other agents are pending: {others}")
    assert many.err.endswith(", http://a3.test and 2 more\n")


def test_dismissing_a_call_of_another_agent_names_that_agent(left):
    left.add("m1", agent=OTHER)
    done = left.resume("--dismiss", "m1")

    assert done.exit == 1
    assert "no call of message m1 to http://agent.test is pending in " in done.err
    assert "; 1 call to another agent is pending: http://other.test\n" in done.err


@pytest.mark.parametrize("place", ["environment", "file"])
def test_an_agent_of_the_settings_does_not_limit_which_calls_are_resumed(left, tmp_path, place):
    agents = FakeAgent(replies("hi"), url=AGENT), FakeAgent(replies("hi"), url=OTHER)
    left.add("m1")
    left.add("m2", agent=OTHER)
    settings = tmp_path / "settings.env"
    settings.write_text(f"A2ACLI_AGENT_CARD={AGENT}\n")
    env = {"A2ACLI_AGENT_CARD": AGENT}
    chosen = {"env": env} if place == "environment" else {"env": {"A2ACLI_CONFIG": str(settings)}}
    chosen |= {"card": None, "engine": lambda *, verify: FakeNetwork(*agents)}
    listed = left.resume("--list", "-o", "json", **chosen)
    done = left.resume("-o", "json", **chosen)
    left.add("m3", agent=OTHER)
    left.add("m4", agent=OTHER)
    left.resume("--dismiss", "m3", **chosen)

    assert {one["messageId"] for one in documents(listed)} == {"m1", "m2"}
    assert [one["messageId"] for one in documents(done) if "messageId" in one] == ["m1", "m2"]
    assert all(agent.calls("ListTasks") for agent in agents)
    rest = documents(left.resume("--list", "-o", "json", **chosen))
    assert {one["messageId"]: one.get("outcome") for one in rest} == {
        "m1": "unknown",
        "m2": "unknown",
        "m4": None,
    }


@pytest.mark.parametrize(
    ("words", "env"), [((), {"A2ACLI_BEARER": "s3cret"}), (("--bearer", "s3cret"), {})]
)
def test_credentials_beside_an_agent_of_the_settings_go_to_no_other(left, words, env):
    agents = FakeAgent(replies("hi"), url=AGENT), FakeAgent(replies("hi"), url=OTHER)
    left.add("m1")
    left.add("m2", agent=OTHER)
    done = left.resume(
        *words,
        card=None,
        env={"A2ACLI_AGENT_CARD": AGENT, **env},
        engine=lambda *, verify: FakeNetwork(*agents),
    )
    sent = [
        [call.headers.get("authorization") for call in one.calls("ListTasks")] for one in agents
    ]

    assert {*sent[0]} == {"Bearer s3cret"}
    assert {*sent[1]} == {None}
    assert " is not sent: " in done.err
    assert "s3cret" not in done.out + done.err


def test_list_and_dismiss_contradict_each_other(left):
    assert left.resume("--list", "--dismiss", "m1").exit == 2


def spoil(path):
    """Damages pages in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 5] = b"\xff" * 4096 * 3
    path.write_bytes(content)


@pytest.mark.parametrize("words", [(), ("--list",)])
def test_a_journal_with_damaged_pages_is_reported(left, words):
    left.add("m1")
    spoil(left.path)
    done = left.resume(*words, "-o", "json", agent=FakeAgent())

    assert done.exit == 1
    assert done.error["code"] == "HOLDFAST_ERR_JOURNAL"
    assert done.error["hint"].startswith("restore an earlier copy of the journal")


def test_listing_writes_nothing(left):
    left.add("m1")
    before = left.path.stat().st_mtime_ns, left.path.read_bytes()
    done = left.resume("--list")

    assert (done.exit, "Message ID: m1\n" in done.out) == (0, True)
    assert (left.path.stat().st_mtime_ns, left.path.read_bytes()) == before
    assert [*left.path.parent.iterdir()] == [left.path]


def test_a_journal_that_cannot_be_written_is_reported_where_a_call_is_to_be_dismissed(left):
    left.add("m1")

    def engine(*, verify):
        left.path.unlink()
        left.path.mkdir()
        return FakeNetwork(FakeAgent())

    done = left.resume("--dismiss", "m1", "-o", "json", engine=engine)

    assert done.exit == 1
    assert done.error["code"] == "HOLDFAST_ERR_JOURNAL"
    assert done.error["hint"].startswith("check --journal")


def test_an_empty_file_is_no_journal_and_is_left_empty(left):
    left.path.touch()
    done = left.resume("--list")

    assert done.exit == 1
    assert "is not a journal: it is empty" in done.err
    assert left.path.read_bytes() == b""


def test_calls_are_listed_without_a_byte_written(left):
    left.add("m1")
    before = {file.name: file.read_bytes() for file in left.path.parent.iterdir()}
    done = left.resume("--list")

    assert (done.exit, "Message ID: m1\n" in done.out) == (0, True)
    assert {file.name: file.read_bytes() for file in left.path.parent.iterdir()} == before
