"""The a2a-cli specification, requirement by requirement.

A test carries the requirement's identifier in its name: ``test_send_001_…`` is about
``A2ACLI_SEND_001``. `tests.cli_compliance` makes the compliance report of them. Where it can, a
test runs twice: against the fake agent in virtual time, and against an agent on the official SDK
over sockets.
"""

import json
import os
import re
import shlex
import signal
import urllib.request
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from tests import cli_compliance
from tests.kit.cli_harness import AGENT, PLAIN, Outcome, Typist, holdfast
from tests.kit.cli_process import BOUND, start
from tests.kit.paths import ROOT
from tests.kit.real_agents import TOKEN
from tests.kit.tck import kit_at

from holdfast import __version__
from holdfast._cli.demo_agent import DemoAgent
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    Plan,
    Refuse,
    Respond,
    Stall,
    Step,
    asks,
    completes,
    fails,
    needs_auth,
    rejects,
    replies,
    streams,
    works_forever,
)
from holdfast.types import (
    AgentCard,
    AgentInterface,
    APIKeySecurityScheme,
    Artifact,
    HTTPAuthSecurityScheme,
    Part,
    SecurityScheme,
    TaskState,
)

SECRET = TOKEN
SOON = ("--poll-interval", "50ms")

# ── The agents ───────────────────────────────────────────────────────────────────────────────


def file_named(name):
    return Part(raw=bytes(range(256)), filename=name, media_type="application/octet-stream")


def slow(argument):
    seconds, _, text = argument.partition(" ")
    return completes(text, after=float(seconds), works=0.0)


COMMANDS = {
    "echo": completes,
    "message": replies,
    "fail": fails,
    "reject": rejects,
    "ask": asks,
    "auth": needs_auth,
    "slow": slow,
    "data": lambda argument: completes(Part(data=json.loads(argument))),
    "file": lambda argument: completes(file_named(argument)),
    "chunks": lambda argument: streams(*(f"chunk {n}\n" for n in range(1, int(argument) + 1))),
}


def scripted(turn):
    """Does what the agent on the SDK does."""
    word, _, argument = turn.message.text.partition(" ")
    if turn.task is not None or word not in COMMANDS:
        return completes(turn.message.text)
    return COMMANDS[word](argument)


@dataclass
class Fake:
    """The fake agent, in process and in virtual time."""

    agent: FakeAgent = field(default_factory=lambda: FakeAgent(scripted))
    url: str = AGENT

    def __post_init__(self):
        self._network = FakeNetwork(self.agent)

    def run(self, *words, **more) -> Outcome:
        return holdfast(*words, engine=lambda **_: self._network, **{"card": self.url, **more})

    def executions(self):
        return sum(len(made) for made in self.agent.executions.values())

    def paths(self):
        return [call.url.removeprefix(self.url) for call in self.agent.received]

    def versions(self):
        return {call.headers.get("a2a-version") for call in self.agent.received}


@dataclass
class Sdk:
    """The agent on the official SDK, in a process of its own, over sockets."""

    url: str

    def __post_init__(self):
        self._before = {name: len(self._get(name)) for name in ("requests", "executions")}

    def run(self, *words, **more) -> Outcome:
        return holdfast(*words, on_sockets=True, **{"card": self.url, **more})

    def executions(self):
        return len(self._get("executions")) - self._before["executions"]

    def paths(self):
        return [seen["path"] for seen in self._seen()]

    def versions(self):
        return {seen["a2a-version"] for seen in self._seen()}

    def _seen(self):
        return self._get("requests")[self._before["requests"] :]

    def _get(self, name):
        with urllib.request.urlopen(f"{self.url}/{name}", timeout=20) as reply:
            return json.load(reply)


@pytest.fixture(params=["fake", pytest.param("sdk", marks=pytest.mark.sdk)])
def agent(request):
    return Fake() if request.param == "fake" else Sdk(request.getfixturevalue("sdk_url"))


@pytest.fixture
def fake():
    return Fake()


def json_lines(done):
    """Each line of the output, read by itself."""
    return [json.loads(line) for line in done.out.splitlines()]


def body(call):
    content = json.loads(call.body)
    return content["params"] if "jsonrpc" in content else content


def sent_message(fake, number=0):
    return body(fake.agent.calls("SendMessage")[number])["message"]


def resume_command(done):
    """The command to go on that was printed, without the program's name."""
    (hint,) = re.findall(r"^Hint: (?:to continue: )?holdfast (.*)$", done.err, re.MULTILINE)
    return shlex.split(hint)


def card_with(*interfaces, **schemes):
    return AgentCard(
        name="Made to measure",
        supported_interfaces=interfaces or (interface(),),
        security_schemes=schemes,
    )


def interface(binding="JSONRPC", version="1.0", tenant=None):
    path = {"JSONRPC": "rpc", "HTTP+JSON": "rest"}.get(binding, "other")
    return AgentInterface(
        url=f"{AGENT}/{path}", protocol_binding=binding, protocol_version=version, tenant=tenant
    )


def key_in(location):
    return SecurityScheme(
        api_key_security_scheme=APIKeySecurityScheme(location=location, name="the-key")
    )


BEARER = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer"))

# ── CARD_GET ─────────────────────────────────────────────────────────────────────────────────


def test_card_get_001_from_a_host_an_address_and_a_file(agent, tmp_path):
    origin = agent.run("card", "get", "-o", "json")
    path = tmp_path / "card.json"
    path.write_text(origin.out)
    host = agent.url.removeprefix("http://")
    references = [f"{agent.url}/.well-known/agent-card.json", path.as_uri(), str(path)]
    if host.startswith("127."):
        references.append(host)
    for reference in references:
        done = agent.run("card", "get", "-o", "json", card=reference)
        assert (done.exit, done.out) == (0, origin.out)


def test_card_get_001_shows_what_the_agent_is_and_can(agent):
    done = agent.run("card", "get")
    assert done.exit == 0
    for label in ("Name", "Version", "Streaming", "Push notifications", "Extended card"):
        assert done.field(label)
    card = json.loads(agent.run("card", "get", "-o", "json").out)
    assert done.out.count("Interface: ") == len(card["supportedInterfaces"]) >= 2
    assert done.field("Transport") in re.findall(r"Interface: (.*)", done.out)
    assert "Skill: " in done.out


def test_card_get_001_shows_security_schemes():
    fake = Fake(FakeAgent(card=card_with(key=key_in("header"), token=BEARER)))
    done = fake.run("card", "get")
    assert "Security scheme: key: API key in header the-key\n" in done.out
    assert "Security scheme: token: HTTP Bearer\n" in done.out


def test_card_get_001_a_card_on_file_leads_to_its_transport(agent, tmp_path):
    path = tmp_path / "card.json"
    path.write_text(agent.run("card", "get", "-o", "json").out)
    assert agent.run("send", "echo hello", *SOON, card=str(path)).exit == 0


# ── SEND ─────────────────────────────────────────────────────────────────────────────────────


def test_send_001_starts_an_interaction(agent):
    done = agent.run("send", "echo hello", *SOON)
    assert done.exit == 0
    assert done.field("State") == "TASK_STATE_COMPLETED"
    assert "Text:\nhello\n\n" in done.out
    assert agent.executions() == 1


def test_send_002_waits_by_default(agent):
    done = agent.run("send", "slow 0.4 done", *SOON)
    assert done.field("State") == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("flag", ["--async", "--return-immediately", "--no-wait"])
def test_send_002_async_returns_the_identifiers_at_once(agent, flag):
    done = agent.run("send", "slow 20 done", flag)
    assert done.exit == 0
    assert done.field("State") in {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
    assert done.field("Task ID")
    assert done.field("Context ID")


def test_send_003_a_message_without_a_task_is_a_clean_end(agent):
    done = agent.run("send", "message hi there")
    assert (done.exit, done.err) == (0, "")
    assert "Text:\nhi there\n\n" in done.out
    answer = agent.run("send", "message hi there", "-o", "json")
    assert answer.json["message"]["parts"] == [{"text": "hi there"}]


def test_send_003_stream_shows_events_as_fields_and_blocks(agent):
    done = agent.run("send", "chunks 3", "--stream")
    assert (done.exit, done.err) == (0, "")
    found = read_text_output(done.out)
    assert [label for label, _ in found[:3]] == ["Task ID", "Context ID", "State"]
    text = "".join(content + "\n" for label, content in found if label == "Text")
    assert text == "chunk 1\nchunk 2\nchunk 3\n"
    assert found[-3:] == [*found[:2], ("State", "TASK_STATE_COMPLETED")]


def test_send_003_stream_of_a_message_is_a_clean_end(agent):
    done = agent.run("send", "message hi there", "--stream")
    assert (done.exit, done.err) == (0, "")
    assert "Text:\nhi there\n\n" in done.out
    (line,) = json_lines(agent.run("send", "message hi there", "--stream", "-o", "json"))
    assert line["message"]["parts"] == [{"text": "hi there"}]


@pytest.mark.parametrize(("word", "state"), [("ask", "INPUT"), ("auth", "AUTH")])
def test_send_003_stream_stops_where_the_user_must_act(agent, word, state):
    done = agent.run("send", f"{word} please", "--stream")
    found = read_text_output(done.out)
    assert done.exit == 0
    assert [label for label, _ in found[-4:]] == [
        "Task ID", "Context ID", "State", "Status message",
    ]  # fmt: skip
    assert found[-2][1] == f"TASK_STATE_{state}_REQUIRED"
    assert found[-4][1] in resume_command(done)


def test_send_003_without_streams_it_falls_back_says_so_and_never_hangs():
    fake = Fake(FakeAgent(scripted, streaming=False))
    done = fake.run("send", "slow 5 done", "--stream")
    assert (done.exit, "Text:\ndone\n\n" in done.out) == (0, True)
    assert "does not support streaming" in done.err
    assert fake.agent.calls("SendStreamingMessage") == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("echo two\nlines", "Text:\ntwo\nlines\n\n"),
        ('data {"n": [true]}', 'Data:\n{\n  "n": [\n    true\n  ]\n}\n\n'),
        (
            "file x.bin",
            "File: x.bin\nMedia type: application/octet-stream\nSize: 256 bytes\n",
        ),
    ],
)
def test_send_004_renders_artifacts_of_every_kind(agent, text, shown):
    done = agent.run("send", text, *SOON)
    assert done.field("Artifact")
    assert shown in done.out
    (artifact,) = agent.run("send", text, *SOON, "-o", "json").json["task"]["artifacts"]
    assert len(artifact["parts"]) == 1


def test_send_004_discards_no_part():
    parts = (Part(text="a"), Part(url="https://e.test/x"), Part(), Part(data=None), Part(text="b"))
    fake = Fake(FakeAgent(completes(Artifact(artifact_id="a1", parts=parts))))
    done = fake.run("send", "hello")
    assert "Text:\na\n\n" in done.out
    assert "URL: https://e.test/x\n" in done.out
    assert "Part: of a kind that is not known\n" in done.out
    assert "Data:\nnull\n\n" in done.out
    assert "Text:\nb\n\n" in done.out
    shown = fake.run("send", "hello", "-o", "json").json["task"]["artifacts"][0]["parts"]
    assert len(shown) == len(parts)


def test_send_005_a_media_type_belongs_to_the_part_before_it(fake, tmp_path):
    report = tmp_path / "report.bin"
    report.write_bytes(b"%PDF")
    page = tmp_path / "page.html"
    page.write_bytes(b"<p>")
    fake.run(
        "send", "--file", str(report), "--media-type", "application/pdf", "--file", str(page),
        "--text", "x", "--media-type", "text/markdown", "--file", str(report),
    )  # fmt: skip
    types = [part.get("mediaType") for part in sent_message(fake)["parts"]]
    assert types[:3] == ["application/pdf", "text/html", "text/markdown"]
    assert types[3] != "application/pdf"


def test_send_005_a_media_type_without_a_part_is_a_usage_error(fake):
    assert fake.run("send", "--media-type", "text/plain", "--text", "x").exit == 2


def test_send_006_parts_keep_their_order_and_may_be_repeated(fake, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("file")
    fake.run(
        "send", "--data", "-", "--text", "one", "--file", str(path), "--text", "two",
        "--file", "https://e.test/b.txt", stdin=b'{"n": 1}',
    )  # fmt: skip
    assert sent_message(fake)["parts"] == [
        {"data": {"n": 1}},
        {"text": "one"},
        {"raw": "ZmlsZQ==", "filename": "a.txt", "mediaType": "text/plain"},
        {"text": "two"},
        {"url": "https://e.test/b.txt", "filename": "b.txt", "mediaType": "text/plain"},
    ]


@pytest.mark.sdk
def test_send_006_a_real_agent_gets_the_parts_in_their_order(sdk_url, tmp_path):
    sent = _parts_at(Sdk(sdk_url), tmp_path)
    assert [next(iter(part.keys() & {"text", "raw", "data"})) for part in sent] == [
        "text", "data", "raw", "text",
    ]  # fmt: skip


@pytest.mark.sdk
def test_send_005_a_real_agent_gets_the_media_type_of_each_part(sdk_url, tmp_path):
    sent = _parts_at(Sdk(sdk_url), tmp_path)
    assert [part.get("mediaType", "") for part in sent if "data" not in part] == [
        "", "application/pdf", "text/markdown",
    ]  # fmt: skip


def _parts_at(agent, directory):
    """The parts of a message as the agent's store has them."""
    (directory / "a.bin").write_bytes(b"%PDF")
    task_id = agent.run(
        "send", "--text", "echo x", "--data", "-", "--file", str(directory / "a.bin"),
        "--media-type", "application/pdf", "--text", "two", "--media-type", "text/markdown",
        *SOON, stdin=b'{"n": 1}',
    ).field("Task ID")  # fmt: skip
    task = agent.run("task", "get", task_id, "--history", "9", "-o", "json").json
    return next(one["parts"] for one in task["history"] if one["role"] == "ROLE_USER")


# ── TASK_GET, TASK_CANCEL ────────────────────────────────────────────────────────────────────


def begun(agent, text, *flags):
    """The id of a task that this text began."""
    return agent.run("send", text, *SOON, *flags).field("Task ID")


def test_task_get_001_state_artifacts_and_history(agent):
    task_id = begun(agent, "echo hello")
    done = agent.run("task", "get", task_id, "--history", "5")
    assert done.exit == 0
    assert done.field("Task ID") == task_id
    assert done.field("Context ID")
    assert done.field("State") == "TASK_STATE_COMPLETED"
    assert "Text:\nhello\n\n" in done.out
    assert "History message: " in done.out
    assert "Role: ROLE_USER\n" in done.out


def test_task_get_001_the_document_is_the_whole_task(agent):
    task_id = begun(agent, "file x.bin")
    task = agent.run("task", "get", task_id, "-o", "json").json
    assert task["id"] == task_id
    assert task["artifacts"][0]["parts"][0]["filename"] == "x.bin"
    assert task["artifacts"][0]["parts"][0]["raw"].startswith("AAEC")


def test_task_cancel_001_reports_the_resulting_state(agent):
    task_id = begun(agent, "slow 20 done", "--async")
    done = agent.run("task", "cancel", task_id, *SOON)
    assert done.exit == 0
    assert done.field("Task ID") == task_id
    assert done.field("State") == "TASK_STATE_CANCELED"


def test_task_cancel_001_again_changes_nothing(agent):
    task_id = begun(agent, "slow 20 done", "--async")
    agent.run("task", "cancel", task_id, *SOON)
    again = agent.run("task", "cancel", task_id, *SOON)
    assert (again.exit, again.field("State")) == (0, "TASK_STATE_CANCELED")


def test_task_cancel_001_a_refusal_reports_the_state_too(agent):
    task_id = begun(agent, "echo over")
    done = agent.run("task", "cancel", task_id, *SOON)
    assert (done.exit, done.field("State")) == (1, "TASK_STATE_COMPLETED")
    told = agent.run("task", "cancel", task_id, *SOON, "-o", "json").error
    assert told["code"] == "TaskNotCancelableError"
    assert "TASK_STATE_COMPLETED" in told["message"]


# ── INTERACT ─────────────────────────────────────────────────────────────────────────────────


def test_interact_001_a_context_is_continued_with_a_new_task(agent):
    first = agent.run("send", "echo one", *SOON)
    second = agent.run("send", "echo two", *SOON, "--context-id", first.field("Context ID"))
    assert second.field("Context ID") == first.field("Context ID")
    assert second.field("Task ID") != first.field("Task ID")


@pytest.mark.parametrize("with_context", [True, False])
def test_interact_002_a_task_is_continued_with_or_without_its_context(agent, with_context):
    first = agent.run("send", "ask Which city?", *SOON)
    context = ["--context-id", first.field("Context ID")] if with_context else []
    second = agent.run("send", "Paris", *SOON, "--task-id", first.field("Task ID"), *context)
    assert second.exit == 0
    assert second.field("Task ID") == first.field("Task ID")
    assert second.field("Context ID") == first.field("Context ID")
    assert second.field("State") == "TASK_STATE_COMPLETED"


def rejected(agent, *flags):
    """Sends to a task that does not take it; no other one may come of that."""
    before = agent.executions()
    done = agent.run("send", "hello", *SOON, "-o", "json", *flags)
    assert done.exit == 1
    assert not done.error["code"].startswith("A2ACLI_ERR_")
    assert "no new task was created" in done.error["hint"]
    assert "--debug" in done.error["hint"]
    assert agent.executions() == before
    return done.error["code"]


def test_interact_002_an_unknown_task_is_an_error_and_not_a_new_task(agent):
    assert rejected(agent, "--task-id", "no-such-task") == "TaskNotFoundError"


def test_interact_002_a_task_that_is_over_takes_no_message(agent):
    rejected(agent, "--task-id", begun(agent, "echo over"))


def test_interact_002_a_context_that_is_not_the_tasks_is_an_error(agent):
    task_id = begun(agent, "ask Which city?")
    other = agent.run("send", "echo other", *SOON).field("Context ID")
    rejected(agent, "--task-id", task_id, "--context-id", other)


def test_interact_002_debug_shows_the_protocols_own_error(agent):
    done = agent.run("send", "hello", "--task-id", "no-such-task", "--debug")
    assert re.search(r"^Debug: < .*-32001", done.err, re.MULTILINE)


def test_interact_003_no_identifier_of_the_server_is_invented(fake):
    fake.run("send", "echo hello")
    assert sent_message(fake).keys() == {"messageId", "role", "parts"}


def test_interact_003_each_message_has_an_id_of_its_own(fake):
    fake.run("send", "echo hello")
    fake.run("send", "echo hello")
    assert sent_message(fake, 0)["messageId"] != sent_message(fake, 1)["messageId"]


@pytest.mark.sdk
def test_interact_003_a_real_agent_names_the_task_and_the_context(sdk_url):
    agent = Sdk(sdk_url)
    first, second = (agent.run("send", "echo x", *SOON, "-v", "--debug") for _ in range(2))
    assert first.field("Task ID") != second.field("Task ID")
    assert first.field("Context ID") != second.field("Context ID")
    sent = "".join(line for line in first.err.splitlines() if line.startswith("Debug: > "))
    assert '"messageId"' in sent
    assert first.field("Context ID") not in sent.partition("GetTask")[0]
    assert '"taskId"' not in sent


def test_interact_003_a_context_is_no_chat_session():
    told = holdfast("send", "--help", card=None).out
    assert not re.search(r"session|chat|conversation", told, re.IGNORECASE)
    of_chat = " ".join(holdfast("chat", "--help", card=None).out.split())
    said = [sentence for sentence in re.split(r"[.;:]", of_chat) if "context" in sentence]
    assert said
    assert not re.search(r"session|chat|conversation", "".join(said))


@pytest.mark.parametrize("text", ["echo hello", "fail no luck", "ask Which?", "auth log in"])
def test_interact_004_identifiers_and_state_can_be_copied(agent, text):
    done = agent.run("send", text, *SOON)
    document = agent.run("task", "get", done.field("Task ID"), "-o", "json").json
    assert done.field("Task ID") == document["id"]
    assert done.field("Context ID") == document["contextId"]
    assert done.field("State") == document["status"]["state"]


def test_interact_004_the_command_that_answers_can_be_run_as_it_is_printed(agent):
    asked = agent.run("send", "ask Which city?", *SOON)
    words = [word.replace("<reply>", "Paris") for word in resume_command(asked)]
    done = agent.run(*words, *SOON, card=None)
    assert done.field("Task ID") == asked.field("Task ID")
    assert done.field("State") == "TASK_STATE_COMPLETED"


def test_interact_004_the_command_that_waits_can_be_run_as_it_is_printed(agent):
    left = agent.run("send", "slow 0.3 done", "--async")
    done = agent.run(*resume_command(left), *SOON, card=None)
    assert done.field("Task ID") == left.field("Task ID")
    assert done.field("State") == "TASK_STATE_COMPLETED"


def test_interact_005_nothing_is_remembered(agent, tmp_path):
    places = {"home": tmp_path, "directory": tmp_path}
    first = agent.run("send", "ask Which city?", *SOON, **places)
    assert list(tmp_path.iterdir()) == []
    second = agent.run("send", "hello", *SOON, **places)
    assert second.field("Task ID") != first.field("Task ID")
    assert second.field("Context ID") != first.field("Context ID")


@pytest.mark.parametrize("flag", ["--continue", "--resume", "--last"])
def test_interact_005_nothing_can_be_continued_without_its_name(fake, flag):
    assert fake.run("send", "hello", flag).exit == 2


# ── TASK_POLL ────────────────────────────────────────────────────────────────────────────────


def test_task_poll_001_one_look_or_a_wait(agent):
    task_id = begun(agent, "slow 0.4 done", "--async")
    assert agent.run("task", "get", task_id).field("State") != "TASK_STATE_COMPLETED"
    done = agent.run("task", "get", task_id, "--wait", *SOON)
    assert done.field("State") == "TASK_STATE_COMPLETED"


def test_task_poll_002_the_interval_bounds_a_backoff():
    fake = Fake(FakeAgent(scripted, streaming=False))
    fake.run("send", "slow 100 done", "--poll-interval", "8s")
    looks = [call.at for call in fake.agent.calls("GetTask")]
    gaps = [after - before for before, after in pairwise(looks)]
    assert gaps == sorted(gaps)
    assert min(gaps) > 0
    assert max(gaps) == 8


def test_task_poll_002_the_timeout_ends_the_wait(agent):
    done = agent.run("send", "slow 20 done", *SOON, "--timeout", "300ms", "-o", "json")
    assert done.exit == 5
    assert done.error["code"] == "A2ACLI_ERR_TIMEOUT"
    assert re.search(r"^Task ID: \S+$", done.err, re.MULTILINE)


@pytest.mark.parametrize("form", ["text", "json"])
def test_task_poll_002_an_interruption_does_not_lose_the_task(fake, form):
    class Interrupted:
        """An engine in the middle of whose wait somebody presses Ctrl-C."""

        def __init__(self, inner):
            self._inner = inner

        async def request(self, request):
            if b"GetTask" in request.body:
                raise KeyboardInterrupt
            return await self._inner.request(request)

        def stream(self, request):
            return self._inner.stream(request)

        async def close(self):
            await self._inner.close()

    network = Interrupted(FakeNetwork(fake.agent))
    done = holdfast("send", "slow 100 x", "-o", form, engine=lambda **_: network)
    assert done.exit == 130
    assert "Task ID: task-1\n" in (done.out if form == "text" else done.err)
    assert resume_command(done)[:4] == ["task", "get", "--wait", "task-1"]
    assert fake.agent.calls("CancelTask") == []


@pytest.mark.parametrize(("word", "state"), [("ask", "INPUT"), ("auth", "AUTH")])
def test_task_poll_003_a_wait_stops_where_the_user_must_act(agent, word, state):
    sent = agent.run("send", f"{word} please", *SOON)
    waited = agent.run("task", "get", "--wait", sent.field("Task ID"), *SOON)
    for done in (sent, waited):
        assert (done.exit, done.field("State")) == (0, f"TASK_STATE_{state}_REQUIRED")


def test_task_poll_003_unspecified_is_neither_an_end_nor_an_interruption():
    unspecified = Step(state=TaskState.UNSPECIFIED, after=1)
    goes_on = Plan((unspecified, Step(state=TaskState.COMPLETED, after=60)))
    assert Fake(FakeAgent(goes_on)).run("send", "x").field("State") == "TASK_STATE_COMPLETED"
    stays = Fake(FakeAgent(Plan((unspecified,)))).run("send", "x", "--timeout", "90s")
    assert (stays.exit, stays.field("State")) == (5, "TASK_STATE_UNSPECIFIED")


def test_task_poll_004_a_wait_is_driven_to_its_end_through_failures(fake):
    fake.agent.inject(Refuse(), on="GetTask", times=12)
    assert fake.run("send", "slow 60 done").field("State") == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("word", ["slow", "ask"])
@pytest.mark.parametrize(
    "fault",
    [Refuse(), Fail(code=-32601), Cut(after_events=1), Stall(phase="idle"), Respond(status=500)],
    ids=lambda fault: type(fault).__name__,
)
def test_task_poll_004_a_wait_falls_back_to_polling_where_streams_fail(fault, word):
    fake = Fake(FakeAgent(lambda _: completes("x", after=300) if word == "slow" else asks("?")))
    fake.agent.inject(fault, on="SubscribeToTask", times=10_000)
    done = fake.run("send", "hello", "--timeout", "2h")
    assert (done.exit, done.field("State") in {"TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"}
            ) == (0, True)  # fmt: skip


def test_task_poll_004_a_wait_prefers_streams(agent):
    done = agent.run("send", "slow 0.4 done", "--poll-interval", "1h")
    assert done.field("State") == "TASK_STATE_COMPLETED"


# ── OUT ──────────────────────────────────────────────────────────────────────────────────────


def each_command_about_a_task(agent, form):
    """What each of them says, in this form."""
    task_id = begun(agent, "slow 20 x", "--async")
    yield agent.run("send", "echo hello", *SOON, "-o", form)
    yield agent.run("send", "slow 20 x", "--async", "-o", form)
    yield agent.run("task", "get", task_id, "-o", form)
    yield agent.run("task", "cancel", task_id, *SOON, "-o", form)


def test_out_001_every_answer_names_context_task_and_state(agent):
    for done in each_command_about_a_task(agent, "text"):
        for label in ("Task ID", "Context ID", "State"):
            assert done.field(label)
    for done in each_command_about_a_task(agent, "json"):
        task = done.json.get("task", done.json)
        assert task["id"]
        assert task["contextId"]
        assert task["status"]["state"]


def test_out_001_an_unfinished_wait_names_them_too(fake):
    done = fake.run("send", "slow 900 x", "--timeout", "30s")
    for label in ("Task ID", "Context ID", "State"):
        assert done.field(label)


def test_out_001_diagnostics_go_to_stderr(agent):
    quiet = agent.run("task", "get", begun(agent, "fail no luck"), "-o", "json")
    assert "Warning: " in quiet.err
    noisy = agent.run("send", "ask Which?", *SOON, "--debug", "--insecure", "-o", "json")
    assert noisy.json["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    labels = {line.partition(": ")[0] for line in noisy.err.splitlines()}
    assert {"Warning", "Debug", "Hint"} <= labels <= {"Warning", "Debug", "Hint", "Task ID"}


@pytest.mark.parametrize(
    ("text", "kind"), [("slow 0.3 done", "task"), ("message hi", "message"), ("fail x", "task")]
)
def test_out_002_one_document_that_is_the_outcome(agent, text, kind):
    done = agent.run("send", text, *SOON, "-o", "json", env={"A2ACLI_STREAM": "1"})
    document, end = json.JSONDecoder().raw_decode(done.out)
    assert done.out[end:] == "\n"
    assert list(document) == [kind]
    assert kind == "message" or done.json["task"]["status"]["state"] in {
        "TASK_STATE_COMPLETED", "TASK_STATE_FAILED",
    }  # fmt: skip


def test_out_002_task_commands_give_a_bare_task_and_card_get_a_bare_card(agent):
    task_id = begun(agent, "slow 20 x", "--async")
    assert agent.run("task", "get", task_id, "-o", "json").json["id"] == task_id
    assert agent.run("task", "cancel", task_id, *SOON, "-o", "json").json["id"] == task_id
    assert "supportedInterfaces" in agent.run("card", "get", "-o", "json").json


class Broken:
    """An engine with a fault of its own."""

    def __init__(self, inner):
        self._inner = inner

    async def request(self, request):
        if request.method == "POST":
            raise ZeroDivisionError
        return await self._inner.request(request)

    def stream(self, request):
        raise NotImplementedError

    async def close(self):
        pass


def with_fault(fault, operation):
    agent = FakeAgent(works_forever())
    agent.inject(fault, on=operation, times=99)
    return {"agent": agent}


FAILURES = {
    "A2ACLI_ERR_USAGE": (2, ["--nope"], dict),
    "A2ACLI_ERR_CARD_NOT_FOUND": (3, [], lambda: with_fault(Respond(status=404), "GetAgentCard")),
    "A2ACLI_ERR_CARD_INVALID": (1, [], lambda: {"agent": FakeAgent(card=[])}),
    "A2ACLI_ERR_UNREACHABLE": (3, [], lambda: with_fault(Refuse(), "GetAgentCard")),
    "A2ACLI_ERR_CREDENTIALS_MISSING": (
        4, [], lambda: with_fault(Respond(status=401), "SendMessage"),
    ),
    "A2ACLI_ERR_AUTH_FAILED": (
        4, ["--bearer", SECRET], lambda: with_fault(Respond(status=401), "SendMessage"),
    ),
    "A2ACLI_ERR_TIMEOUT": (
        5, ["--timeout", "5s"], lambda: {"agent": FakeAgent(works_forever())},
    ),
    "A2ACLI_ERR_INTERNAL": (
        1, [], lambda: {"engine": lambda **_: Broken(FakeNetwork(FakeAgent()))},
    ),
}  # fmt: skip


def test_out_003_each_event_is_a_line_and_the_last_one_is_terminal(agent):
    done = agent.run("send", "chunks 3", "--stream", "-o", "json")
    assert (done.exit, done.err) == (0, "")
    lines = json_lines(done)
    assert all(len(line) == 1 for line in lines)
    (task,) = lines[0].values()
    assert lines[0].keys() == {"task"}
    chunks = [line["artifactUpdate"] for line in lines if "artifactUpdate" in line]
    assert [chunk["artifact"]["parts"][0]["text"] for chunk in chunks] == [
        "chunk 1\n", "chunk 2\n", "chunk 3\n",
    ]  # fmt: skip
    last = lines[-1]["statusUpdate"]
    assert (last["taskId"], last["contextId"]) == (task["id"], task["contextId"])
    assert last["status"]["state"] == "TASK_STATE_COMPLETED"


def test_out_003_an_error_is_a_line_of_its_own_at_the_end(agent):
    done = agent.run("send", "slow 20 x", "--stream", "-o", "json", "--timeout", "300ms")
    *events, last = json_lines(done)
    assert done.exit == 5
    assert events[0].keys() == {"task"}
    assert last["error"]["code"] == "A2ACLI_ERR_TIMEOUT"
    for words in (["send", "x", "--task-id", "nope"], ["send"], ["task", "get", "nope"]):
        (line,) = json_lines(agent.run(*words, "--stream", "-o", "json"))
        assert line.keys() == {"error"}


def test_out_003_what_cannot_stream_is_lines_all_the_same():
    fake = Fake(FakeAgent(scripted, streaming=False))
    lines = json_lines(fake.run("send", "slow 5 done", "--stream", "-o", "json"))
    assert lines[0].keys() == {"task"}
    assert lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task_id = lines[0]["task"]["id"]
    for words in (["task", "get", task_id], ["card", "get"]):
        (line,) = json_lines(fake.run(*words, "--stream", "-o", "json"))
        assert line == fake.run(*words, "-o", "json").json


def test_out_003_streams_are_never_asked_for_by_a_setting(agent, tmp_path):
    (tmp_path / ".env").write_text("A2ACLI_STREAM=true\n")
    for more in ({"env": {"A2ACLI_STREAM": "1"}}, {"directory": tmp_path}):
        done = agent.run("send", "echo x", *SOON, "-o", "json", **more)
        assert done.json.keys() == {"task"}


@pytest.mark.parametrize("code", FAILURES)
def test_out_004_a_failure_of_the_tools_own_is_an_envelope_with_its_code(code):
    _, flags, world = FAILURES[code]
    done = holdfast("send", "hello", "-o", "json", *flags, **world())
    assert list(done.json) == ["error"]
    ids = {"taskId", "contextId", "messageId"}  # of what it is about, where that is known
    assert done.error.keys() - ids == {"code", "message", "hint", "a2aCode"}
    assert done.error["code"] == code
    assert done.error["message"]
    assert done.error["hint"]


def test_out_004_the_namespace_of_the_specification_holds_its_codes_only():
    sources = (ROOT / "src" / "holdfast" / "_cli").rglob("*.py")
    named = re.findall(r"A2ACLI_ERR_[A-Z_]+", "".join(path.read_text() for path in sources))
    assert set(named) - {"A2ACLI_ERR_"} == set(cli_compliance.ERROR_CODES) == set(FAILURES)


@pytest.mark.parametrize(
    ("words", "name", "number"),
    [
        (["task", "get", "nope"], "TaskNotFoundError", -32001),
        (["task", "cancel", "nope"], "TaskNotFoundError", -32001),
        (["send", "hello", "--task-id", "nope"], "TaskNotFoundError", -32001),
    ],
)
def test_out_004_an_error_of_the_protocol_keeps_its_name_on_every_transport(
    agent, words, name, number
):
    errors = [
        agent.run(*words, "-o", "json", "--transport", binding).error
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert [error["code"] for error in errors] == [name, name]
    assert [error["a2aCode"] for error in errors] == [number, 404]
    assert errors[0]["hint"] == errors[1]["hint"]


def test_out_004_one_error_is_the_same_on_every_transport(agent):
    task_id = begun(agent, "echo over")
    errors = [
        agent.run("task", "cancel", task_id, "-o", "json", "--transport", binding).error
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert {error["code"] for error in errors} == {"TaskNotCancelableError"}


# The labels that text output may use, wherever they appear.
LABELS = {
    "Artifact", "Artifact ID", "Context ID", "Description", "Documentation", "Extended card",
    "File", "History message", "Input modes", "Interface", "Media type", "Message ID", "Name",
    "Output modes", "Provider", "Push notifications", "Role", "Security requirement",
    "Security scheme", "Sent message", "Signature", "Size", "Skill", "Skill description",
    "Skill example", "Skill tags", "State", "Status message", "Streaming", "Task ID", "Transport",
    "URL", "Updated", "Version",
}  # fmt: skip
BLOCKS = {"Text", "Data", "Description", "Status message", "Skill description"}


def read_text_output(out):
    """Reads text as the specification has it: fields, and blocks that an empty line ends."""
    lines, found = iter(out.splitlines()), []
    for line in lines:
        label, colon, value = line.partition(":")
        assert colon, line
        if value:
            assert label in LABELS, line
            assert value.startswith(" "), line
            found.append((label, value[1:]))
        else:
            assert label in BLOCKS, line
            content = []
            for inside in lines:
                if not inside:
                    break
                content.append(inside)
            else:
                pytest.fail(f"the block {label} has no end")
            found.append((label, "\n".join(content)))
    return found


@pytest.mark.parametrize("verbose", [True, False])
def test_out_005_text_is_fields_and_blocks(agent, verbose):
    flags = ["--verbose"] if verbose else []
    for text in ("echo a: b\n\nTask ID: x", 'data {"n": 1}', "file x", "message hi", "fail no"):
        done = agent.run("send", text, *SOON, *flags)
        found = dict(read_text_output(done.out))
        if text != "message hi":
            task = agent.run("task", "get", found["Task ID"], "--history", "9", *flags)
            assert dict(read_text_output(task.out))["Task ID"] == found["Task ID"]
    assert dict(read_text_output(agent.run("card", "get", *flags).out))["Name"]


def test_out_005_an_empty_line_ends_a_block_and_nothing_else_does():
    fake = Fake(FakeAgent(completes("one\n\n\ntwo", Part(data={"n": 1}))))
    found = read_text_output(fake.run("send", "hello").out)
    assert [label for label, _ in found][3:] == ["Artifact", "Text", "Artifact", "Data"]
    assert dict(found)["Text"].split("\n")[0::3] == ["one", "two"]


def test_out_005_nothing_steers_a_terminal():
    evil = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \r\x08 end"
    for form in ("text", "json"):
        done = Fake(FakeAgent(completes(evil))).run("send", "hello", "--verbose", "-o", form)
        assert not set(done.out + done.err) & set("\x1b\x9b\x07\x08\r")
        assert "red" in done.out


def test_out_005_command_asks_no_questions(fake):
    for words in (["send"], ["send", "ask Which?"], ["task", "get"], ["card"], []):
        fake.run(*words, stdin=b"")  # whoever read from it would find its end, or wait for ever
    assert fake.run("send", "ask Which?").field("State") == "TASK_STATE_INPUT_REQUIRED"


@pytest.mark.parametrize("flag", ["--async", "--no-wait"])
def test_out_006_without_waiting_there_is_a_result_with_its_identifiers(agent, flag):
    task = agent.run("send", "slow 20 x", flag, "-o", "json").json["task"]
    assert task["id"]
    assert task["contextId"]
    assert agent.run("task", "get", task["id"]).field("Context ID") == task["contextId"]


# ── EXIT ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("code", FAILURES)
def test_exit_001_the_status_agrees_with_the_error(code, form):
    status, flags, world = FAILURES[code]
    done = holdfast("send", "hello", "-o", form, *flags, **world())
    assert done.exit == status
    assert code in (done.out if form == "json" else done.err)


def test_exit_001_zero_when_it_is_done_and_one_when_the_agent_says_no(agent):
    assert agent.run("send", "echo hello", *SOON).exit == 0
    assert agent.run("task", "get", "nope").exit == 1


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("fail no luck", "FAILED"),
        ("reject not mine", "REJECTED"),
        ("ask Which?", "INPUT_REQUIRED"),
        ("auth log in", "AUTH_REQUIRED"),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_exit_002_what_the_agent_decides_is_no_failure_of_the_tool(agent, text, state, form):
    done = agent.run("send", text, *SOON, "-o", form)
    assert done.exit == 0
    assert f"TASK_STATE_{state}" in done.out
    assert re.search(rf"^Warning: task \S+ .*\(TASK_STATE_{state}\)", done.err, re.MULTILINE)


# ── AUTH ─────────────────────────────────────────────────────────────────────────────────────


GIVEN = {
    "flag": lambda name: {"words": (f"--{name}", SECRET)},
    "environment": lambda name: {"env": {f"A2ACLI_{name.replace('-', '_').upper()}": SECRET}},
}
given = pytest.mark.parametrize("by", GIVEN)


@given
@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_auth_001_a_bearer_token_goes_with_each_request(by, transport):
    how = GIVEN[by]("bearer")
    fake = Fake(FakeAgent(scripted, token=SECRET))
    done = fake.run(
        "send", "slow 9 x", "--transport", transport, *how.get("words", ()), env=how.get("env")
    )
    assert done.exit == 0
    calls = [call for call in fake.agent.received if call.operation != "GetAgentCard"]
    assert {call.headers.get("authorization") for call in calls} == {f"Bearer {SECRET}"}


@given
@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("header", lambda call: call.headers.get("the-key")),
        ("query", lambda call: call.url.partition("?the-key=")[2]),
        ("cookie", lambda call: call.headers.get("cookie", "").removeprefix("the-key=")),
    ],
)
def test_auth_001_an_api_key_goes_where_the_card_declares(by, location, where):
    how = GIVEN[by]("api-key")
    fake = Fake(FakeAgent(scripted, card=card_with(key=key_in(location))))
    done = fake.run("send", "slow 9 x", *how.get("words", ()), env=how.get("env"))
    assert done.exit == 0
    calls = [call for call in fake.agent.received if call.operation != "GetAgentCard"]
    assert {where(call) for call in calls} == {SECRET}


@pytest.mark.sdk
@given
def test_auth_001_an_agent_that_asks_for_a_token(guarded_sdk_url, by):
    how = GIVEN[by]("bearer")
    agent = Sdk(guarded_sdk_url)
    assert agent.run("send", "echo hello", *SOON, "-o", "json").error["code"] == (
        "A2ACLI_ERR_CREDENTIALS_MISSING"
    )
    wrong = agent.run("send", "echo hello", *SOON, "--bearer", "another", "-o", "json")
    assert wrong.error["code"] == "A2ACLI_ERR_AUTH_FAILED"
    done = agent.run("send", "echo hello", *SOON, *how.get("words", ()), env=how.get("env"))
    assert done.field("State") == "TASK_STATE_COMPLETED"


def test_auth_001_a_service_parameter_is_something_else(fake):
    done = fake.run("send", "slow 9 x", "--svc-param", "X-Trace-Id:abc", "--svc-param", "b:c")
    assert done.exit == 0
    calls = [call for call in fake.agent.received if call.operation != "GetAgentCard"]
    assert {(call.headers["x-trace-id"], call.headers["b"]) for call in calls} == {("abc", "c")}
    told = holdfast("help", "options", card=None).out
    about = " ".join(told.partition("--svc-param")[2].partition("\n  --")[0].split()).lower()
    assert "service parameter" in about
    assert not re.search(r"auth|credential|token|secret|log ?in", about)


@pytest.mark.parametrize(
    ("name", "header", "value"),
    [("bearer", "authorization", "Bearer {}"), ("api-key", "x-api-key", "{}")],
)
def test_auth_002_a_flag_beats_the_environment(fake, name, header, value):
    variable = f"A2ACLI_{name.replace('-', '_').upper()}"
    fake.run("send", "hello", env={variable: "of-the-environment"})
    assert fake.agent.received[-1].headers[header] == value.format("of-the-environment")
    fake.run("send", "hello", f"--{name}", SECRET, env={variable: "of-the-environment"})
    assert fake.agent.received[-1].headers[header] == value.format(SECRET)


@pytest.mark.parametrize("flag", ["--bearer", "--api-key"])
def test_auth_002_help_says_that_a_flag_is_exposed(flag):
    told = " ".join(holdfast("help", "options", card=None).out.split())
    about = told.partition(f" {flag} ")[2].partition("[env var: ")[0]
    assert "process table" in about
    assert "history" in about


@pytest.mark.parametrize(
    "flags",
    [["--bearer", SECRET], ["--api-key", SECRET], ["--svc-param", f"x-auth:{SECRET}"]],
)
def test_auth_003_a_credential_without_verification_is_warned_of(flags):
    asked = []
    network = FakeNetwork(FakeAgent())

    def engine(*, verify):
        asked.append(verify)
        return network

    done = holdfast("send", "hello", "--insecure", *flags, engine=engine)
    assert "Warning: SECURITY: a credential" in done.err
    quiet = holdfast("send", "hello", *flags, engine=engine)
    assert quiet.err == PLAIN
    assert asked == [False, True]


def test_auth_003_verification_is_never_left_out_silently(fake):
    for more in ({"env": {"A2ACLI_INSECURE": "1"}}, {}):
        words = [] if more else ["--insecure"]
        assert "Warning: --insecure: TLS" in fake.run("card", "get", *words, **more).err


@pytest.mark.parametrize(
    "flags",
    [["--bearer", SECRET], ["--api-key", SECRET], ["--svc-param", f"x-my-own:{SECRET}"]],
)
@pytest.mark.parametrize("louder", [[], ["--debug"], ["--debug", "--verbose"]])
def test_auth_004_no_diagnostic_shows_a_credential(flags, louder):
    agent = FakeAgent()
    body = json.dumps({"error": {"code": 500, "message": f"what is {SECRET}?"}}).encode()
    agent.inject(Respond(status=500, body=body), on="GetTask", times=9)
    for form in ("text", "json"):
        done = holdfast("task", "get", "t", "-o", form, *flags, *louder, agent=agent)
        assert done.exit == 1
        assert SECRET not in done.out + done.err
        assert ("Debug: > " in done.err) is bool(louder)


@pytest.mark.sdk
@pytest.mark.parametrize("by", ["flag", "environment"])
def test_auth_002_a_credential_goes_to_a_real_agent(guarded_sdk_url, by):
    given = {"flag": {}, "environment": {"env": {"A2ACLI_BEARER": SECRET}}}[by]
    words = ("--bearer", SECRET) if by == "flag" else ()
    done = Sdk(guarded_sdk_url).run("send", "echo hello", *SOON, *words, **given)
    assert done.field("State") == "TASK_STATE_COMPLETED"


@pytest.mark.sdk
def test_auth_003_a_real_agent_without_verification_is_warned_of(sdk_url):
    done = Sdk(sdk_url).run("send", "echo x", *SOON, "--insecure", "--bearer", SECRET)
    assert done.exit == 0
    assert "Warning: SECURITY: a credential" in done.err


@pytest.mark.sdk
def test_auth_004_no_diagnostic_at_a_real_agent_shows_a_credential(sdk_url):
    words = ("--svc-param", f"x-my-own:{SECRET}", "--debug", "--verbose")
    done = Sdk(sdk_url).run("send", "echo x", *SOON, *words)
    assert (done.exit, "Debug: > " in done.err) == (0, True)
    assert SECRET not in done.out + done.err


# ── TX, VER ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("offered", "used"),
    [
        (("JSONRPC", "HTTP+JSON"), "/rpc"),
        (("HTTP+JSON", "JSONRPC"), "/rest/message:send"),
        (("GRPC", "HTTP+JSON", "JSONRPC"), "/rest/message:send"),
        (("x-pigeon", "JSONRPC"), "/rpc"),
    ],
)
def test_tx_001_the_cards_order_counts(offered, used):
    card = card_with(*(interface(binding) for binding in offered))
    fake = Fake(FakeAgent(card=card))
    assert fake.run("send", "hello").exit == 0
    assert fake.paths()[1] == used


def test_tx_001_a_card_without_a_transport_for_us_is_an_error():
    fake = Fake(FakeAgent(card=card_with(interface("GRPC"))))
    done = fake.run("send", "hello", "-o", "json")
    assert (done.exit, fake.agent.calls("SendMessage")) == (1, [])


@pytest.mark.parametrize(
    ("offered", "preferred", "used"),
    [
        (("JSONRPC", "HTTP+JSON"), (), "/rpc"),
        (("JSONRPC", "HTTP+JSON"), ("HTTP+JSON",), "/rest/message:send"),
        (("JSONRPC", "HTTP+JSON"), ("HTTP+JSON", "JSONRPC"), "/rest/message:send"),
        (("HTTP+JSON", "JSONRPC"), ("JSONRPC", "HTTP+JSON"), "/rpc"),
        (("JSONRPC",), ("HTTP+JSON",), "/rpc"),
        (("JSONRPC",), ("HTTP+JSON", "JSONRPC"), "/rpc"),
        (("JSONRPC", "HTTP+JSON"), ("GRPC", "HTTP+JSON"), "/rest/message:send"),
        (("JSONRPC", "HTTP+JSON"), ("GRPC",), "/rpc"),
    ],
)
def test_tx_002_the_callers_order_counts_first(offered, preferred, used):
    flags = [word for binding in preferred for word in ("--transport", binding)]
    fake = Fake(FakeAgent(bindings=offered))
    done = fake.run("send", "hello", *flags)
    assert done.exit == 0
    assert fake.paths()[1] == used
    assert "is skipped" not in done.err
    warning = f"Warning: --transport: the card does not offer {' or '.join(preferred)}; "
    is_replaced = bool(preferred) and not set(preferred) & set(offered)
    assert done.err == (f"{warning}{offered[0]} is used\n" if is_replaced else "")


def test_tx_002_a_transport_that_is_not_installed_is_skipped(monkeypatch):
    monkeypatch.setattr("holdfast._pipeline.grpc_extra.find_spec", lambda _module: None)
    fake = Fake(FakeAgent(bindings=("JSONRPC", "HTTP+JSON")))
    done = fake.run("send", "hello", "--transport", "grpc")
    assert (done.exit, fake.paths()[1]) == (0, "/rpc")
    assert '--transport GRPC is skipped: it needs an extra: install the extra "grpc"' in done.err


@pytest.mark.sdk
@pytest.mark.parametrize(
    ("binding", "path"), [("JSONRPC", "/rpc"), ("HTTP+JSON", "/rest/message:send")]
)
def test_tx_002_a_real_agent_is_called_as_the_caller_prefers(sdk_url, binding, path):
    agent = Sdk(sdk_url)
    assert agent.run("send", "echo hello", *SOON, "--transport", binding).exit == 0
    assert path in agent.paths()


@pytest.mark.sdk
def test_tx_001_the_order_of_a_real_card_counts(sdk_url):
    agent = Sdk(sdk_url)
    card = agent.run("card", "get", "-o", "json").json
    spoken = [one for one in card["supportedInterfaces"] if one["protocolBinding"] != "GRPC"]
    assert agent.run("send", "echo hello", *SOON).exit == 0
    assert any(spoken[0]["url"].endswith(path.split("/message")[0]) for path in agent.paths()[1:])


@pytest.mark.sdk
def test_tx_003_a_real_agent_gets_the_tenant_of_its_card(sdk_url, tmp_path):
    card = Sdk(sdk_url).run("card", "get", "-o", "json").json
    for interface in card["supportedInterfaces"]:
        interface["tenant"] = "acme"
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card))
    done = Sdk(sdk_url).run("send", "echo x", *SOON, "--debug", card=str(path))
    assert done.field("State") == "TASK_STATE_COMPLETED"
    assert re.search(r'^Debug: > .*"tenant":"acme"', done.err, re.MULTILINE)


@pytest.mark.parametrize("tenant", ["acme", None])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_tx_003_the_tenant_of_the_interface_is_in_every_request(binding, tenant):
    fake = Fake(FakeAgent(scripted, card=card_with(interface(binding, tenant=tenant))))
    fake.run("send", "slow 9 x")
    calls = [call for call in fake.agent.received if call.operation != "GetAgentCard"]
    assert len(calls) > 2
    for call in calls:
        in_path = f"/rest/{tenant}/" in call.url
        in_body = bool(call.body) and body(call).get("tenant") == tenant
        assert in_path or in_body if tenant else not (in_path or b"tenant" in call.body)


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_ver_001_the_version_is_on_every_request(agent, transport):
    agent.run("send", "slow 0.2 x", *SOON, "--transport", transport)
    assert agent.versions() == {"1.0"}


@pytest.mark.parametrize("version", ["1.1", "1.7"])
def test_ver_001_negotiates_down_within_1(version):
    fake = Fake(FakeAgent(card=card_with(interface(version=version))))
    assert fake.run("send", "hello").exit == 0
    assert fake.versions() == {"1.0"}


def test_ver_001_never_negotiates_a_version_that_it_does_not_speak():
    fake = Fake(FakeAgent(card=card_with(interface(version="2.0"))))
    done = fake.run("send", "hello", "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "VersionNotSupportedError")
    assert fake.agent.calls("SendMessage") == []


@pytest.mark.parametrize("words", [["send", "hello"], ["task", "get", "t"], ["card", "get"]])
@pytest.mark.parametrize("version", ["0.2", "1.1", "2.0"])
@pytest.mark.parametrize("by", ["flag", "environment"])
def test_ver_001_a_version_that_is_asked_for_is_not_replaced(fake, words, version, by):
    flags = ["--a2a-version", version] if by == "flag" else []
    env = {"A2ACLI_A2A_VERSION": version} if by == "environment" else {}
    done = fake.run(*words, *flags, "-o", "json", env=env)
    assert (done.exit, done.error["code"]) == (1, "VersionNotSupportedError")
    assert "1.0" in done.error["hint"]
    assert fake.agent.received == []


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("by", ["flag", "environment"])
def test_ver_001_an_older_version_is_spoken_when_asked_for(binding, by):
    fake = Fake(FakeAgent(versions=("0.3",), bindings=(binding,)))
    flags = ["--a2a-version", "0.3"] if by == "flag" else []
    env = {"A2ACLI_A2A_VERSION": "0.3"} if by == "environment" else {}
    sent = fake.run("send", "hello", *flags, "-o", "json", env=env)
    assert (sent.exit, sent.json["task"]["status"]["state"]) == (0, "TASK_STATE_COMPLETED")
    got = fake.run("task", "get", sent.json["task"]["id"], *flags, "-o", "json", env=env)
    assert got.json["artifacts"][0]["parts"] == [{"text": "hello"}]
    assert fake.versions() == {"0.3"}


@pytest.mark.parametrize("version", ["0.3.0", "0.3.5"])
def test_ver_001_a_patch_number_says_nothing(version):
    fake = Fake(FakeAgent(versions=("0.3",)))
    assert fake.run("send", "hello", "--a2a-version", version).exit == 0
    assert fake.versions() == {"0.3"}


_OLDER = (
    "Warning: the agent's card declares no protocol newer than 0.3, so the client uses 0.3; "
    "--a2a-version 1.0 refuses that\n"
)


@pytest.mark.parametrize("words", [["card", "get"], ["send", "hello"], ["send", "x", "--stream"]])
def test_ver_001_an_agent_of_0_3_is_spoken_to_with_one_warning(words):
    fake = Fake(FakeAgent(versions=("0.3",)))
    done = fake.run(*words)
    assert (done.exit, done.err) == (0, _OLDER)


def test_ver_001_the_card_of_an_older_agent_is_shown_where_1_0_is_asked_for():
    fake = Fake(FakeAgent(versions=("0.3",)))
    done = fake.run("card", "get", "--a2a-version", "1.0")
    assert (done.exit, "Fake agent" in done.out) == (0, True)
    assert "0.3.0, and not 1.0" in done.err
    assert "nothing was sent" not in done.err
    assert "--a2a-version 0.3" in done.err


@pytest.mark.parametrize("words", [["send", "hello"], ["card", "get"]])
def test_ver_001_an_older_version_that_no_card_declares_is_warned_of(words):
    fake = Fake(FakeAgent(versions=("0.3",), card=card_with(interface())))
    done = fake.run(*words, "--a2a-version", "0.3")
    assert done.exit == 0
    assert "--a2a-version 0.3 is used, but the card declares protocol 1.0" in done.err


@pytest.mark.parametrize("words", [["send", "hello"], ["task", "get", "t"]])
def test_ver_001_what_to_pass_to_an_older_agent_is_reported(words):
    fake = Fake(FakeAgent(versions=("0.3",)))
    done = fake.run(*words, "-o", "json", "--a2a-version", "1.0")
    assert (done.exit, done.error["code"]) == (1, "VersionNotSupportedError")
    assert "0.3.0, and not 1.0" in done.error["message"]
    assert done.error["hint"] == "if the agent speaks 0.3: --a2a-version 0.3"
    assert {call.operation for call in fake.agent.received} == {"GetAgentCard"}


def test_ver_001_agent_that_does_not_speak_the_version_of_its_card_is_reported():
    fake = Fake(FakeAgent(versions=("0.3",), card=card_with(interface())))
    done = fake.run("send", "hello", "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "MethodNotFoundError")
    assert "protocol_version" not in done.error["message"]
    assert done.error["hint"] == "if the agent speaks 0.3: --a2a-version 0.3"
    assert fake.run("send", "hello", "--a2a-version", "0.3").exit == 0


def test_ver_001_an_agent_of_both_versions_is_spoken_to_in_the_newer_one():
    fake = Fake(FakeAgent(versions=("1.0", "0.3")))
    assert fake.run("send", "hello").exit == 0
    assert fake.versions() == {"1.0"}


def test_ver_001_what_the_agent_says_of_the_version_is_reported(fake):
    error = {"code": -32009, "message": "not this one"}
    answer = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    json_type = {"content-type": "application/json"}
    fake.agent.inject(Respond(status=200, headers=json_type, body=answer), on="GetTask")
    done = fake.run("task", "get", "t", "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "VersionNotSupportedError")
    assert done.error["a2aCode"] == -32009


# ── DEFAULT ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [["send", "hello", "-v"], ["-v", "send", "hello"]])
def test_v_is_verbose_where_there_is_a_command(fake, words):
    assert "Sent message: " in fake.run(*words).out


def test_the_part_flags_have_their_newer_names_too(fake, tmp_path):
    (tmp_path / "a.json").write_text('{"k": 1}')
    words = ("--data-part", str(tmp_path / "a.json"), "--media-type", "application/x-k")
    fake.run("send", "--text-part", "a", *words, "--text", "b", "--file-part", "https://x.test/y")
    (sent,) = fake.agent.calls("SendMessage")
    parts = json.loads(sent.body)["params"]["message"]["parts"]
    assert [set(part) - {"filename"} for part in parts] == [
        {"text"}, {"data", "mediaType"}, {"text"}, {"url"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "path"),
    [("JsonRpc", "/rpc"), ("Rest", "/rest"), ("REST", "/rest"), ("http+json", "/rest")],
)
def test_an_endpoint_is_called_without_its_card(written, path):
    agent = FakeAgent(scripted, bindings=("JSONRPC", "HTTP+JSON"))
    words = ("-e", f"{AGENT}{path}", "--transport", written)
    sent = holdfast("send", "ask more", *words, card=None, agent=agent)
    assert sent.exit == 0, sent.err
    assert {call.operation for call in agent.received} == {"SendMessage"}
    assert f"<reply>' --endpoint {AGENT}{path}" in sent.err
    shown = holdfast("task", "get", sent.field("Task ID"), *words, card=None, agent=agent)
    assert shown.exit == 0
    streamed = holdfast("send", "x", "--stream", *words, card=None, agent=agent)
    assert (streamed.exit, streamed.err) == (0, "")
    assert agent.calls("GetAgentCard") == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["send", "x", "-e", AGENT],
            "--endpoint needs exactly one --transport, the binding of that address: jsonrpc, rest",
        ),
        (
            ["send", "x", "-e", AGENT, "--transport", "rest", "--transport", "grpc"],
            "needs exactly one",
        ),
        (["send", "x", "-e", AGENT, "--transport", "rest", "-a", AGENT], "contradict each other"),
        (["send", "x", "-e", "host:1", "--transport", "rest"], "begins with http:// or https://"),
        (["send", "x", "-e", "grpc://host:1", "--transport", "rest"], "pass --transport grpc"),
        (
            ["send", "x", "-e", "grpc://u:secret@host:1"],
            "'grpc://***@host:1' is not a gRPC address",
        ),
        (["send", "x", "-a", "grpc://host:1"], "pass it as --endpoint"),
        (["card", "get", "-e", AGENT, "--transport", "rest"], "use --agent-card"),
        (["doctor", "-e", AGENT, "--transport", "rest"], "use --agent-card"),
    ],
)
def test_an_endpoint_that_is_not_enough_is_a_usage_error(words, told):
    agent = FakeAgent()
    done = holdfast(*words, card=None, agent=agent)
    assert (done.exit, agent.received) == (2, [])
    assert told in done.err


def test_an_endpoint_by_flag_beats_a_card_in_the_environment():
    agent = FakeAgent()
    words = ("-e", f"{AGENT}/rpc", "--transport", "jsonrpc")
    env = {"A2ACLI_AGENT_CARD": "http://other.test"}
    assert holdfast("send", "x", *words, card=None, agent=agent, env=env).exit == 0
    words, env = ("-a", AGENT), {"A2ACLI_ENDPOINT": "http://other.test/rpc"}
    assert holdfast("send", "x", *words, card=None, agent=agent, env=env).exit == 0


def test_send_reads_its_text_from_standard_input(fake):
    assert fake.run("send", "-", stdin=b"first\nsecond\n").exit == 0
    (sent,) = fake.agent.calls("SendMessage")
    assert json.loads(sent.body)["params"]["message"]["parts"] == [{"text": "first\nsecond"}]


def test_send_reads_a_file_from_standard_input(fake):
    words = ("send", "hi", "--file", "-", "--media-type", "image/png")
    assert fake.run(*words, stdin=b"\xff\x00").exit == 0
    (sent,) = fake.agent.calls("SendMessage")
    assert json.loads(sent.body)["params"]["message"]["parts"] == [
        {"text": "hi"},
        {"raw": "/wA=", "mediaType": "image/png"},
    ]


@pytest.mark.parametrize(
    ("words", "stdin", "told"),
    [
        (["--file", "-"], b"", "Standard input is empty: there is no file"),
        (["-", "--file", "-"], b"x", "there are 'TEXT -' and '--file -'"),
        (["-"], b"", "Standard input is empty"),
        (["-"], b"\xff", "Standard input is not UTF-8"),
        (["-", "--data", "-"], b"{}", "there are 'TEXT -' and '--data -'"),
    ],
)
def test_standard_input_that_is_no_text_is_a_usage_error(fake, words, stdin, told):
    done = fake.run("send", *words, stdin=stdin)
    assert (done.exit, fake.agent.received) == (2, [])
    assert told in done.err


def test_default_001_transport_server_preference_order():
    fake = Fake(FakeAgent(bindings=("HTTP+JSON", "JSONRPC")))
    fake.run("send", "hello")
    fake.run("send", "hello", "--transport", "JSONRPC")
    assert [call.url for call in fake.agent.calls("SendMessage")] == [
        f"{AGENT}/rest/message:send",
        f"{AGENT}/rpc",
    ]


@pytest.mark.sdk
def test_default_001_a_real_agent_is_waited_for_and_shown_as_text(sdk_url):
    agent = Sdk(sdk_url)
    done = agent.run("send", "slow 0.2 x", "--poll-interval", "50ms")
    assert done.field("State") == "TASK_STATE_COMPLETED"
    assert agent.run("send", "slow 0.2 x", "--async", "-o", "json").json["task"]["id"]


def test_default_001_task_completion_wait_by_default(fake):
    assert fake.run("send", "slow 9 x").field("State") == "TASK_STATE_COMPLETED"
    assert fake.run("send", "slow 9 x", "--async").field("State") != "TASK_STATE_COMPLETED"
    waiting = fake.run("send", "slow 9 x", "--wait", env={"A2ACLI_ASYNC": "1"})
    assert waiting.field("State") == "TASK_STATE_COMPLETED"


def test_default_001_output_human_readable_text(fake):
    assert fake.run("send", "hello").out.startswith("Task ID: ")
    assert fake.run("send", "hello", "-o", "json").json["task"]
    back = fake.run("send", "hello", "-o", "text", env={"A2ACLI_OUTPUT": "json"})
    assert back.out.startswith("Task ID: ")


def test_default_001_detail_level_concise(fake):
    concise, verbose = fake.run("send", "hello"), fake.run("send", "hello", "--verbose")
    for label in ("Sent message: ", "Updated: ", "History message: "):
        assert label not in concise.out
        assert label in verbose.out


def test_default_001_protocol_version_highest_mutual(fake):
    assert fake.run("send", "hello").exit == 0
    assert fake.run("send", "hello", "--a2a-version", "1.0").exit == 0
    assert fake.versions() == {"1.0"}
    assert fake.run("send", "hello", "--a2a-version", "1.1").exit == 1


def test_default_001_transport_security_tls_on():
    asked = []

    def engine(*, verify):
        asked.append(verify)
        return FakeNetwork(FakeAgent())

    holdfast("card", "get", engine=engine)
    done = holdfast("card", "get", "--insecure", engine=engine)
    assert asked == [True, False]
    assert "Warning: --insecure" in done.err


@pytest.mark.parametrize(
    "shown",
    [
        "default: the card's order",
        "A2ACLI_WAIT; default: true]",
        "default: text",
        "default: the card's newest",
        "default: 15m",
        "default: 2s",
        "Do not verify TLS certificates; they are verified by default",
        "not only the outcome",
    ],
)
def test_default_001_help_shows_the_defaults(shown):
    assert shown in " ".join(holdfast("send", "--help", card=None).out.split())


# ── CONFIG, CLI, SKILL ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def home(tmp_path):
    """A home with a configuration, and the path of that."""
    path = tmp_path / ".config" / "a2a-cli" / ".env"
    path.parent.mkdir(parents=True)
    path.write_text(f"A2ACLI_BEARER={SECRET}\nA2ACLI_OUTPUT=json\n")
    path.chmod(0o600)
    return path


def in_home(home):
    return {"home": home.parents[2], "directory": home.parents[2]}


def test_config_001_settings_are_at_the_conventional_path(fake, home):
    done = fake.run("send", "hello", **in_home(home))
    assert done.json["task"]
    assert fake.agent.received[-1].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_config_001_a_secret_that_others_can_read_is_warned_of(fake, home):
    assert fake.run("send", "hello", **in_home(home)).err == PLAIN
    home.chmod(0o644)
    assert f"chmod 600 {home}" in fake.run("send", "hello", **in_home(home)).err


def test_config_001_config_show_tells_and_changes_nothing(home):
    before = home.read_text()
    done = holdfast("config", "show", "-o", "text", "--timeout", "5s", **in_home(home))
    assert done.field("bearer") == f"*** [{home}]"
    assert done.field("timeout") == "5s [flag]"
    assert home.read_text() == before
    home.unlink()
    assert holdfast("config", "show", **in_home(home)).field("bearer") == "(none) [default]"


def test_config_001_no_interaction_is_ever_recorded(agent, home):
    root, before = home.parents[2], home.read_text()
    asked = agent.run("send", "ask Which?", *SOON, **in_home(home))
    assert agent.run("task", "get", asked.json["task"]["id"], **in_home(home)).exit == 0
    assert [path for path in root.rglob("*") if path.is_file()] == [home]
    assert home.read_text() == before


@pytest.mark.parametrize(
    "words",
    [
        ["help"], ["--help"], ["-h"],
        *(
            asked
            for command in (
                ["send"], ["card"], ["card", "get"], ["task"], ["task", "get"],
                ["task", "cancel"], ["config"], ["config", "show"], ["completion"], ["help"],
            )
            for asked in ([*command, "--help"], [*command, "-h"], ["help", *command])
        ),
    ],
)  # fmt: skip
def test_cli_001_help_for_everything(words):
    done = holdfast(*words, card=None)
    assert (done.exit, done.err) == (0, "")
    assert done.out.startswith("Usage: holdfast")


@pytest.mark.parametrize("words", [["--version"], ["-v"], ["send", "--version"]])
def test_cli_001_the_version(words):
    done = holdfast(*words, card=None)
    assert (done.exit, done.out) == (0, f"holdfast {__version__}\n")


def test_cli_001_help_shows_what_is_in_effect():
    done = holdfast("send", "--help", card=None, env={"A2ACLI_TIMEOUT": "42s"})
    assert "default: 42s, from A2ACLI_TIMEOUT" in " ".join(done.out.split())


# ── Higher tiers, where something is there ───────────────────────────────────────────────────


def test_task_list_001_pages_and_filters(agent):
    context = agent.run("send", "echo one", *SOON).field("Context ID")
    for text in ("echo two", "fail three"):
        assert agent.run("send", text, *SOON, "--context-id", context).exit == 0
    mine = ("task", "list", "--context-id", context)
    first = agent.run(*mine, "--limit", "2", "-o", "json").json
    rest = agent.run(*mine, "--limit", "2", "--page-token", first["nextPageToken"], "-o", "json")
    assert (len(first["tasks"]), len(rest.json["tasks"])) == (2, 1)
    assert rest.json["nextPageToken"] == ""
    failed = agent.run(*mine, "--status", "failed")
    assert failed.field("State") == "TASK_STATE_FAILED"
    lines = json_lines(agent.run(*mine, "--all", "--limit", "1", "-o", "json", "--stream"))
    assert [task["id"] for task in lines] == [
        task["id"] for page in (first, rest.json) for task in page["tasks"]
    ]


def test_task_subscribe_001_follows_a_task(agent):
    task_id = begun(agent, "slow 0.5 done", "--async")
    lines = json_lines(agent.run("task", "subscribe", task_id, "--stream", "-o", "json"))
    assert lines[0]["task"]["id"] == task_id
    assert lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_task_subscribe_001_without_the_flag_gives_the_task_at_its_end(agent):
    task_id = begun(agent, "slow 0.5 done", "--async")
    task = agent.run("task", "subscribe", task_id, "-o", "json").json
    assert (task["id"], task["status"]["state"]) == (task_id, "TASK_STATE_COMPLETED")
    assert task["artifacts"][0]["parts"] == [{"text": "done"}]


def test_task_subscribe_002_a_stream_that_was_cut_is_resumed():
    fake = Fake(FakeAgent(streams("one ", "two ", "three", every=10)))
    fake.agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    fake.agent.inject(Cut(after_events=2), on="SubscribeToTask")
    done = fake.run("send", "x", "--stream")
    assert done.exit == 0
    assert dict(read_text_output(done.out))["Text"] == "one two three"
    assert "reconnected to task task-1" in done.err
    assert len(fake.agent.calls("SendStreamingMessage")) == 1


def test_ver_003_the_card_is_asked_before_a_stream():
    fake = Fake(FakeAgent(scripted, streaming=False))
    task_id = fake.run("send", "echo x", "--stream").out.split()[2]
    fake.run("task", "subscribe", task_id, "--stream")
    assert fake.agent.calls("SendStreamingMessage") == []
    assert fake.agent.calls("SubscribeToTask") == []


def test_ver_003_the_card_is_asked_before_push_configurations(agent, tmp_path):
    task_id = begun(agent, "echo x")
    card = agent.run("card", "get", "-o", "json").json
    card["capabilities"]["pushNotifications"] = False
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card))
    for words in (("create", task_id, "https://me.test"), ("list", task_id)):
        done = agent.run("task", "push-config", *words, "-o", "json", card=str(path))
        assert (done.exit, done.error["code"]) == (1, "PushNotificationNotSupportedError")
    assert not [path for path in agent.paths() if "pushNotificationConfigs" in path]
    if isinstance(agent, Fake):
        assert agent.agent.calls("CreateTaskPushNotificationConfig") == []
        assert agent.agent.calls("ListTaskPushNotificationConfigs") == []


PUSH_URL = "https://me.test/push"


def pushed(agent, *words, form="json"):
    done = agent.run("task", "push-config", *words, "-o", form)
    assert (done.exit, done.err) == (0, "")
    return done


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_push_001_configurations_are_made_shown_listed_and_deleted(agent, binding):
    task_id = begun(agent, "ask what?", "--transport", binding)
    flags = ("--push-token", SECRET, "--push-credentials", f"Basic {SECRET}", "--id", "mine")
    made = pushed(agent, "create", task_id, PUSH_URL, *flags).json
    assert made == {
        "id": "mine",
        "taskId": task_id,
        "url": PUSH_URL,
        "token": SECRET,
        "authentication": {"scheme": "Basic", "credentials": SECRET},
    }
    other = pushed(agent, "create", task_id, f"{PUSH_URL}/2", "--transport", binding).json
    assert pushed(agent, "get", task_id, "mine").json == made
    listed = pushed(agent, "list", task_id).json
    assert sorted(listed["configs"], key=lambda config: config["url"]) == [made, other]
    lines = json_lines(pushed(agent, "list", task_id, "--stream"))
    assert lines == listed["configs"]
    assert pushed(agent, "delete", task_id, "mine").json == {}
    assert pushed(agent, "list", task_id).json["configs"] == [other]


def test_push_001_text_shows_no_secret(agent):
    task_id = begun(agent, "ask what?")
    address = f"{PUSH_URL}?key={SECRET}"
    flags = ("--push-token", SECRET, "--push-credentials", f"Bearer {SECRET}", "--id", "mine")
    shown = [
        pushed(agent, "create", task_id, address, *flags, form="text"),
        pushed(agent, "get", task_id, "mine", form="text"),
        pushed(agent, "list", task_id, form="text"),
    ]
    for done in shown:
        assert done.field("Task ID") == task_id
        assert done.field("Config ID") == "mine"
        assert done.field("URL") == f"{PUSH_URL}?key=***"
        assert done.field("Token") == "***"
        assert done.field("Authentication") == "Bearer ***"
        assert SECRET not in done.out
    deleted = pushed(agent, "delete", task_id, "mine", form="text")
    assert deleted.out == f"Task ID: {task_id}\nDeleted config ID: mine\n"
    assert pushed(agent, "list", task_id, form="text").out == (
        "Configs: (none)\nNext page token: (none)\n"
    )


def test_push_001_secrets_come_from_the_environment_as_well(fake):
    task_id = begun(fake, "ask what?")
    env = {"A2ACLI_PUSH_TOKEN": SECRET, "A2ACLI_PUSH_CREDENTIALS": f"Bearer {SECRET}"}
    done = fake.run("task", "push-config", "create", task_id, PUSH_URL, "-o", "json", env=env)
    assert done.json["token"] == done.json["authentication"]["credentials"] == SECRET
    shown = holdfast("config", "show", env=env, card=None)
    assert shown.field("push-token") == shown.field("push-credentials") == "*** [environment]"


def test_push_001_a_bearer_token_may_be_left_to_the_agent(fake):
    task_id = begun(fake, "ask what?")
    words = ("create", task_id, PUSH_URL, "--push-credentials", "Bearer")
    assert pushed(fake, *words).json["authentication"] == {"scheme": "Bearer"}
    shown = pushed(fake, *words, form="text")
    assert shown.field("Authentication") == "Bearer"


@pytest.mark.parametrize("words", [("create", "nope", PUSH_URL), ("list", "nope")])
def test_push_001_a_task_that_is_not_known_is_an_error_of_the_protocol(agent, words):
    done = agent.run("task", "push-config", *words, "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "TaskNotFoundError")
    assert done.error["a2aCode"] == -32001


def test_push_001_a_configuration_that_is_not_known_is_an_error(agent):
    task_id = begun(agent, "ask what?")
    done = agent.run("task", "push-config", "get", task_id, "nope", "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "TaskNotFoundError")
    assert "of the configuration" in done.error["hint"]


def test_the_hint_of_a_delete_that_finds_nothing_names_both_ids(fake):
    done = fake.run(
        "task", "push-config", "delete", begun(fake, "ask what?"), "nope", "-o", "json"
    )
    assert (done.exit, done.error["code"]) == (1, "TaskNotFoundError")
    assert "of the configuration" in done.error["hint"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create", "t", "me.test/push"), "must begin with http"),
        (("create", "t", "ftp://me.test"), "must begin with http"),
        (("create", PUSH_URL, "task-1"), "'task-1' is not an address; the task's id comes before"),
        (("create", "t", f"https://me:{SECRET}@me.test"), "contains a user name or password"),
        (("create", "t", PUSH_URL, "--push-credentials", SECRET), "SCHEME CREDENTIALS"),
        (("create", "t", PUSH_URL, "--push-token", " "), "must not be empty"),
        (("create", "t"), "Missing argument 'URL'"),
        (("get", "t"), "Missing argument 'CONFIG_ID'"),
        (("delete", "t", ""), "must not be empty"),
        (("list", "t", "--limit", "0"), "0 is not in the range"),
        (("set", "t"), "No such command 'set'"),
    ],
    ids=str,
)
def test_push_001_what_cannot_be_right_is_a_usage_error(fake, words, says):
    done = fake.run("task", "push-config", *words, "-o", "json")
    assert (done.exit, done.error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert says in done.error["message"]
    assert SECRET not in done.out + done.err
    assert fake.paths() == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_push_001_no_diagnostic_shows_a_secret(agent, form):
    task_id = begun(agent, "ask what?")
    secrets = f'{SECRET}"1', f"Bearer {SECRET}2"
    flags = ("--push-token", secrets[0], "--push-credentials", secrets[1], "--id", "mine")
    for words in (
        ("create", task_id, PUSH_URL, *flags),
        ("create", "nope", f"{PUSH_URL}?key={SECRET}", *flags),
        ("list", task_id),
        ("get", task_id, "mine"),
    ):
        done = agent.run("task", "push-config", *words, "--debug", "-o", form)
        is_document = form == "json" and done.exit == 0  # which is what the agent said
        assert "Debug: > " in done.err
        assert SECRET not in (done.err if is_document else done.out + done.err)


def test_push_001_the_next_page_is_named(fake):
    task_id = begun(fake, "ask what?")
    page = b'{"configs":[],"nextPageToken":"a b"}'
    answers = Respond(status=200, headers={"content-type": "application/json"}, body=page)
    fake.agent.inject(answers, on="ListTaskPushNotificationConfigs")
    words = ("task", "push-config", "list", task_id, "--transport", "HTTP+JSON")
    first = fake.run(*words)
    assert first.field("Next page token") == "a b"
    assert "Hint: the next page: --page-token 'a b'" in first.err
    assert fake.run(*words, "--limit", "3", "--page-token", "a b").exit == 0
    (call,) = fake.agent.calls("ListTaskPushNotificationConfigs")
    assert call.url.endswith("/pushNotificationConfigs?pageSize=3&pageToken=a+b")


def test_download_001_saves_what_is_in_the_artifacts(agent, tmp_path):
    task_id = begun(agent, "file ../../x.bin", *SOON)
    done = agent.run("task", "download", task_id, "--to", str(tmp_path))
    assert (done.exit, done.err) == (0, "")
    assert done.field("Saved") == str(tmp_path / "x.bin")
    assert (tmp_path / "x.bin").read_bytes() == bytes(range(256))


def test_chat_001_carries_the_context_and_the_task_of_what_is_asked(agent):
    terminal = Typist("ask Which city?", "Paris", "echo bye")
    done = agent.run("chat", *SOON, terminal=terminal)
    assert done.exit == 0
    assert "Which city?\nreply> Paris\nParis\n> echo bye\nbye\n> \n" in done.out.replace(
        "echo Paris", "Paris"
    )
    context = resume_command(done)[2]
    made = agent.run("task", "list", "--context-id", context, "-o", "json").json["tasks"]
    assert len(made) == 2


def test_chat_001_the_command_that_continues_can_be_run_as_it_is_printed(agent):
    asked = agent.run("chat", *SOON, terminal=Typist("ask Which city?"))
    words = resume_command(asked)
    done = agent.run(*words, *SOON, card=None, terminal=Typist("Paris"))
    assert (done.exit, done.out.splitlines()[0]) == (0, "Which city?")
    task = agent.run("task", "get", words[words.index("--task-id") + 1], "-o", "json").json
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_chat_001_without_a_terminal_never_waits_for_input_and_writes_text(agent):
    asked = agent.run("chat", *SOON, stdin=b"echo never read\n")
    assert (asked.exit, asked.out) == (2, "")
    done = agent.run("chat", "echo hello", *SOON, stdin=b"echo never read\n")
    assert (done.exit, dict(read_text_output(done.out))["Text"]) == (0, "hello")


def test_tx_004_two_transports_do_the_same(agent):
    for binding in ("JSONRPC", "HTTP+JSON"):
        done = agent.run("send", "echo hello", *SOON, "--transport", binding)
        assert (done.exit, done.field("State")) == (0, "TASK_STATE_COMPLETED")


def test_config_002_precedence_and_sources(home):
    local = home.parents[2] / ".env"
    local.write_text("A2ACLI_TIMEOUT=12s\n")
    named = home.parents[2] / "agent.env"
    named.write_text("A2ACLI_TIMEOUT=21s\n")
    for flags, env, expected in (
        ([], {}, f"12s [{local}]"),
        (["--config", str(named)], {}, f"21s [{named}]"),
        (["--config", str(named)], {"A2ACLI_TIMEOUT": "13s"}, "13s [environment]"),
        (["--timeout", "14s"], {"A2ACLI_TIMEOUT": "13s"}, "14s [flag]"),
    ):
        done = holdfast("config", "show", "-o", "text", *flags, env=env, **in_home(home))
        assert done.field("timeout") == expected
        assert done.field("poll-interval") == "2s [default]"


def test_out_007_debug_shows_the_messages_of_the_wire(agent):
    done = agent.run("send", "echo hello", *SOON, "--debug", "-o", "json")
    assert re.search(r'^Debug: > POST .*"method":"SendMessage"', done.err, re.MULTILINE)
    assert re.search(r'^Debug: < 200 .*"TASK_STATE_COMPLETED"', done.err, re.MULTILINE)
    assert done.json["task"]


@pytest.mark.parametrize(
    ("shell", "registers"),
    [
        ("bash", "complete -o nosort -F _holdfast_completion holdfast"),
        ("zsh", "compdef _holdfast_completion holdfast"),
        ("fish", 'complete --no-files --command holdfast --arguments "(_holdfast_completion)"'),
    ],
)
def test_cli_002_a_completion_script_for_each_shell(shell, registers):
    done = holdfast("completion", shell, card=None)
    assert (done.exit, done.err) == (0, "")
    assert registers in done.out


def test_demo_server_001_a_server_to_practise_with_is_an_agent_over_sockets():
    """§7.1: it runs an echo demo; the two other things that it names stand behind an "or"."""
    with start("server", "--port", "0") as server:
        url = re.search(r"http://[0-9.:]+", server.stdout.readline())[0]
        agent = {"card": url, "on_sockets": True}
        assert holdfast("send", "hello", **agent).field("Artifact") == "artifact-1"
        assert holdfast("send", "--stream", "stream one two", **agent).exit == 0
        asked = holdfast("send", "ask who?", **agent)
        assert asked.field("State") == "TASK_STATE_INPUT_REQUIRED"
        server.send_signal(signal.SIGINT)
        assert server.wait(BOUND) == 130


def test_demo_server_001_an_agent_to_practise_with():
    served = holdfast("server", "--port", "0", card=None, on_sockets=True, stops=[0.01])
    assert (served.exit, served.err) == (130, "")
    assert "holdfast send -a http://127.0.0.1:" in served.out

    demo = Fake(DemoAgent((), log=lambda _line: None))
    for words, state in (
        (("send", "hello"), "TASK_STATE_COMPLETED"),
        (("send", "--stream", "stream one two"), "TASK_STATE_COMPLETED"),
        (("send", "ask who?"), "TASK_STATE_INPUT_REQUIRED"),
        (("send", "fail as asked"), "TASK_STATE_FAILED"),
    ):
        done = demo.run(*words)
        assert done.exit == 0
        assert f"State: {state}" in done.out
    task = demo.run("send", "--async", "forever", "-o", "json").json["task"]["id"]
    assert demo.run("task", "get", task).field("State") == "TASK_STATE_WORKING"
    assert demo.run("task", "cancel", task).field("State") == "TASK_STATE_CANCELED"


# ── The report ───────────────────────────────────────────────────────────────────────────────


def test_the_report_says_what_the_tests_show():
    for path, content in cli_compliance.report().items():
        assert path.read_text() == content, "run: python -m tests.cli_compliance"


def test_every_test_is_about_a_requirement_and_every_claim_has_a_test():
    known = {requirement.identifier for requirement in cli_compliance.REQUIREMENTS}
    shown = cli_compliance.tests_by_requirement()
    assert shown.keys() <= known
    for requirement in cli_compliance.REQUIREMENTS:
        if requirement.status == "pass":
            assert shown.get(requirement.identifier), requirement.identifier
        else:
            assert requirement.note, requirement.identifier
    for identifier, tests in shown.items():
        told = cli_compliance.outcomes()[identifier]
        assert told["functions"] == len(tests), "run: python -m tests.cli_compliance"
        assert told["failed"] == 0, identifier
    rows = {f"test_default_001_{row}" for row in cli_compliance.DEFAULTS}
    assert rows <= {name for _, name in shown["A2ACLI_DEFAULT_001"]}


# ── Requirements of higher tiers at the live agent ───────────────────────────────────────────


@pytest.mark.sdk
def test_card_get_001_the_card_of_a_real_agent_is_cached_and_revalidated(sdk_url, tmp_path):
    done = [
        holdfast("card", "get", "-o", "json", card=sdk_url, cache=tmp_path / "c", on_sockets=True)
        for _ in range(2)
    ]
    assert done[0].json == done[1].json
    assert len(list((tmp_path / "c").iterdir())) == 1


@pytest.mark.sdk
def test_card_get_002_the_card_of_a_real_agent_is_valid(sdk_url):
    done = Sdk(sdk_url).run("card", "get", "--validate")
    assert (done.exit, done.field("Name")) == (0, "SDK agent")


@pytest.mark.sdk
def test_card_get_005_a_real_agent_is_found_in_a_catalog(sdk_url, tmp_path):
    catalog = tmp_path / "agents.json"
    catalog.write_text(json.dumps({"agents": {"real": sdk_url}}))
    agent = Sdk(sdk_url)
    done = agent.run("send", "echo hello", *SOON, card=f"{catalog}#real")
    assert (done.exit, agent.executions()) == (0, 1)


@pytest.mark.sdk
def test_conform_001_a_real_agent_is_measured_by_the_kit(sdk_url, tmp_path):
    kit = kit_at(tmp_path / "a2a-tck", name="SDK agent")
    done = Sdk(sdk_url).run("conformance", "--tck", str(kit))
    assert (done.exit, done.field("Conformance")) == (0, "pass")
    assert done.field("Tests passed") == "2"
