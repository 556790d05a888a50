"""How options are read, and what is refused before anything is sent (a2a-cli 6.5, 7.2, 12)."""

import json
import re

import msgspec
import pytest
from tests.kit.cli_harness import AGENT, holdfast

from holdfast import data_part
from holdfast._cli.agent.reference import read_reference
from holdfast._cli.agent.wire_log import LoggedEngine
from holdfast._cli.app import app
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.values import read_duration, shown_duration
from holdfast.errors import A2AConnectionError
from holdfast.extend import HttpRequest
from holdfast.testing import Fail, FakeAgent, FakeNetwork, Respond, asks, completes, works_forever
from holdfast.types import (
    AgentCard,
    AgentInterface,
    APIKeySecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

SECRET = "s3cret-value-of-mine"


def parts(agent):
    body = json.loads(agent.calls("SendMessage")[0].body)
    return body["params"]["message"]["parts"]


def refused(*words, agent=None, **more):
    """A usage error: exit code 2, in both forms, and nobody was called."""
    agent = FakeAgent() if agent is None else agent
    shown = holdfast(*words, agent=agent, **more)
    assert (shown.exit, shown.out) == (2, "")
    assert "Code: A2ACLI_ERR_USAGE\nHint: holdfast" in shown.err
    assert "Traceback" not in shown.err
    done = holdfast(*words, "-o", "json", agent=agent, **more)
    assert done.exit == 2
    assert done.err == ""
    assert done.error["code"] == "A2ACLI_ERR_USAGE"
    assert done.error["a2aCode"] is None
    assert [call.operation for call in agent.received if call.operation != "GetAgentCard"] == []
    return done.error["message"]


@pytest.mark.parametrize(
    ("words", "named"), [(["send", "hi"], "send"), (["task", "list"], "task list")]
)
def test_without_an_agent_the_hint_says_how_to_name_one_and_where_to_get_one(words, named):
    done = holdfast(*words, card=None)

    assert (done.exit, done.out) == (2, "")
    assert done.err == (
        "Error: Missing option '--agent-card' / '-a': name the agent.\nCode: A2ACLI_ERR_USAGE\n"
        f"Hint: holdfast {named} -a URL, or set A2ACLI_AGENT_CARD=URL; "
        "holdfast demo-server starts an agent to try, at localhost:9999\n"
    )


# ── Bad input ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["send"], "nothing to send"),
        (["send", ""], "empty"),
        (["send", "   "], "empty"),
        (["send", "--text", ""], "empty"),
        (["send", "two", "words"], "quotes"),
        (["send", "--file", "/no/such/file.pdf"], "/no/such/file.pdf cannot be read"),
        (["send", "--file", "/"], "/ cannot be read"),
        (["send", "--file", ""], "cannot be read"),
        (["send", "--file", "https://e.test/a b"], "space"),
        (["send", "--data", "/no/such/data.json"], "/no/such/data.json cannot be read"),
        (["send", "--data", "-"], "standard input cannot be sent: not JSON"),
        (["send", "--data", "-", "--data", "-"], "two '--data -'"),
        (["send", "hello", "--media-type", "text/plain"], "must follow the --text"),
        (["send", "--media-type", "text/plain", "--text", "x"], "must follow the --text"),
        (
            ["send", "--text", "x", "--media-type", "a/b", "--media-type", "c/d"],
            "must follow the --text",
        ),
        (["send", "--text", "x", "--media-type", "nonsense"], "not a media type"),
        (["send", "--text", "x", "--media-type", "a/b\r\nX: 1"], "not a media type"),
        (["send", "hello", "--metadata", "{nope"], "not JSON"),
        (["send", "hello", "--metadata", "[1]"], "must be a JSON object"),
        (["send", "hello", "--metadata", '{"n": NaN}'], "NaN"),
        (["send", "hello", "--svc-param", "nocolon"], "name:value"),
        (["send", "hello", "--svc-param", ":v"], "name:value"),
        (["send", "hello", "--svc-param", "x:a\r\nEvil: 1"], "line break"),
        (["send", "hello", "--svc-param", "x y:1"], "not the name of an HTTP header"),
        (["send", "hello", "--svc-param", "Host:evil"], "--agent-card"),
        (["send", "hello", "--svc-param", "A2A-Version:0.3"], "--a2a-version"),
        (["send", "hello", "--svc-param", "x:1", "--svc-param", "X:2"], "twice"),
        (["send", "hello", "--transport", "PIGEON"], "JSONRPC, HTTP+JSON"),
        (["send", "hello", "--timeout", "-5"], "not a duration"),
        (["send", "hello", "--timeout=-5s"], "not a duration"),
        (["send", "hello", "--timeout", "0"], "greater than 0 and finite; write 500ms, 30s"),
        (["send", "hello", "--timeout", "0s"], "to wait very long, write 1000h"),
        (["send", "hello", "--poll-interval", "0"], "greater than 0 and finite"),
        (["send", "hello", "--timeout", "soon"], "not a duration"),
        (["send", "hello", "--timeout", "9" * 400], "greater than 0 and finite"),
        (["send", "hello", "--poll-interval", "-1s"], "not a duration"),
        (["send", "hello", "--a2a-version", "v0.3"], "write it as 1.0 or 0.3"),
        (["send", "hello", "--a2a-version", "1.0.1.2"], "not a protocol version"),
        (["send", "hello", "--bearer", ""], "empty"),
        (["send", "hello", "--bearer", "a\nb"], "line break"),
        (["send", "hello", "--task-id", ""], "empty"),
        (["send", "hello", "--context-id", " "], "empty"),
        (["send", "hello", "--wait", "--async"], "contradict"),
        (["send", "hello", "--nope"], "--nope"),
        (["send", "hello", "--stream", "--async"], "--stream and --async contradict"),
        (["send", "hello", "--stream=yes"], "--stream"),
        (["task", "subscribe"], "TASK_ID"),
        (["task", "subscribe", "t", "--async"], "--async"),
        (["task", "list", "--status", "busy"], "the states are submitted, working"),
        (["task", "list", "--status", "unspecified"], "not a task state"),
        (["task", "list", "--since", "yesterday"], "not a time"),
        (["task", "list", "--limit", "101"], "101"),
        (["task", "list", "--limit", "0"], "0"),
        (["task", "list", "--all", "--page-token", "x"], "--all and --page-token contradict"),
        (["task", "download"], "TASK_ID"),
        (["task", "download", "t", "--to", ""], "empty"),
        (["task", "get"], "TASK_ID"),
        (["task", "get", "t", "--history", "-1"], "-1"),
        (["task", "get", "t", "--history", "many"], "many"),
        (["task", "nope"], "nope"),
        (["nope"], "nope"),
    ],
)
def test_a_command_line_that_cannot_be_right(words, says):
    assert says in refused(*words)


def test_a_format_that_there_is_not():
    done = holdfast("send", "hello", "-o", "xml")
    assert done.exit == 2
    assert done.err.startswith("Error: ")
    assert "xml" in done.err


@pytest.mark.parametrize(
    "reference",
    ["ftp://e.test", "file://elsewhere/card.json", "two words", "http://", "http://e.test:port",
     "http://user:pw@e.test", "user:pw@e.test", "http://user:p/w@e.test", "http://e.test/\x07",
     "e.test:port", "?"],
)  # fmt: skip
def test_a_reference_that_cannot_be_one(reference):
    assert "--agent-card" in refused("card", "get", "-a", reference, card=None)


def test_the_agent_must_be_named():
    assert "--agent-card" in refused("send", "hello", card=None)


def test_text_that_is_no_text():
    assert "not UTF-8" in refused("send", "caf\udce9")


def test_a_usage_error_shows_no_secret():
    done = holdfast("send", "hello", "--bearer", f"{SECRET}\n{SECRET}")
    assert done.exit == 2
    assert SECRET not in done.err


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (f"Bearer {SECRET}", "pass it without the word 'Bearer'"),
        (f"{SECRET} b", "it has a character that tokens cannot contain"),
        (f"{SECRET}=b", "it has a character that tokens cannot contain"),
        (f'"{SECRET}"', "it has a character that tokens cannot contain"),
        (f"é{SECRET}", "it has a character that tokens cannot contain"),
        ("Bearer ", "the name of the scheme without a token"),
        ("bearer", "the name of the scheme without a token"),
        ("None", "a missing value"),
        (" ", "must not be empty"),
    ],
)
@pytest.mark.parametrize("by", ["flag", "environment", "file"])
def test_a_bearer_token_is_the_token_alone(tmp_path, token, says, by):
    if by == "flag":
        message = refused("send", "hello", "--bearer", token)
        named = "'--bearer'"
    elif by == "environment":
        message = refused("send", "hello", env={"A2ACLI_BEARER": token})
        named = "A2ACLI_BEARER"
    else:
        file = tmp_path / ".config" / "a2a-cli" / ".env"
        file.parent.mkdir(parents=True)
        file.write_text(f"A2ACLI_BEARER='{token}'\n")
        file.chmod(0o600)
        message = refused("send", "hello", home=tmp_path)
        named = f"A2ACLI_BEARER in {file}, line 1"
    assert says in message
    assert named in message
    assert SECRET not in message


@pytest.mark.parametrize("token", ["a", "abc-._~+/09==", f"  {SECRET} "])
def test_a_bearer_token_of_the_letters_that_there_are(token):
    agent = FakeAgent()
    assert holdfast("send", "hello", "--bearer", token, agent=agent).exit == 0
    assert agent.received[-1].headers["authorization"] == f"Bearer {token.strip()}"


@pytest.mark.parametrize(
    "words",
    [["-o", "json", "send"], ["-ojson", "send"], ["send", "--output=json"],
     ["send", "--output", "JSON"], ["--output", "json"]],
)  # fmt: skip
def test_a_usage_error_has_the_form_that_was_asked_for(words):
    done = holdfast(*words, card=None)
    assert done.exit == 2
    assert done.error["code"] == "A2ACLI_ERR_USAGE"


def test_a_usage_error_has_the_form_that_the_environment_asks_for():
    assert holdfast("send", card=None, env={"A2ACLI_OUTPUT": "json"}).error["message"]


@pytest.mark.parametrize("words", [[], ["card"], ["task"]])
def test_a_bare_command_shows_its_help_as_it_stands(words):
    done = holdfast(*words, card=None)
    assert (done.exit, done.out) == (2, "")
    assert done.err == holdfast(*words, "--help", card=None).out


@pytest.mark.parametrize("words", [[], ["card"], ["task"]])
def test_a_bare_command_is_a_short_usage_error_in_json(words):
    for done in (
        holdfast(*words, "-o", "json", card=None),
        holdfast(*words, card=None, env={"A2ACLI_OUTPUT": "json"}),
    ):
        assert (done.exit, done.err) == (2, "")
        assert done.error == {
            "code": "A2ACLI_ERR_USAGE",
            "message": "Missing command.",
            "hint": f"{' '.join(['holdfast', *words])} --help",
            "a2aCode": None,
        }


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize(
    "words",
    [["task", "get"], ["task", "cancel"], ["send", "hi", "--task-id"],
     ["send", "hi", "--context-id"]],
)  # fmt: skip
def test_an_empty_id_is_refused_before_anything_is_fetched(words, empty):
    agent = FakeAgent()
    assert "must not be empty" in refused(*words, empty, agent=agent)
    assert agent.received == []


# ── Parts ────────────────────────────────────────────────────────────────────────────────────


def test_parts_keep_the_order_of_their_flags(tmp_path):
    report = tmp_path / "report.bin"
    report.write_bytes(b"\x00\x01")
    data = tmp_path / "d.json"
    data.write_text('{"big": 123456789012345678901234567890}')
    agent = FakeAgent()
    done = holdfast(
        "send", "first", "--data", str(data), "--text", "second", "--file", str(report),
        "--media-type", "application/pdf", "--text", "third", "--media-type", "text/markdown",
        "--data", "-", agent=agent, stdin=b"[1, null]",
    )  # fmt: skip
    assert done.exit == 0
    assert parts(agent) == [
        {"text": "first"},
        {"data": {"big": 123456789012345678901234567890}},
        {"text": "second"},
        {"raw": "AAE=", "filename": "report.bin", "mediaType": "application/pdf"},
        {"text": "third", "mediaType": "text/markdown"},
        {"data": [1, None]},
    ]


def test_other_options_may_stand_between_a_part_and_its_media_type():
    agent = FakeAgent()
    holdfast("send", "--text", "x", "--timeout", "9s", "--media-type", "text/csv", agent=agent)
    assert parts(agent) == [{"text": "x", "mediaType": "text/csv"}]


def test_the_media_type_of_a_file_is_guessed_only_if_none_is_given(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    (tmp_path / "b").write_bytes(b"")
    agent = FakeAgent()
    holdfast("send", "--file", str(tmp_path / "a.pdf"), "--file", str(tmp_path / "b"), agent=agent)
    assert [part.get("mediaType") for part in parts(agent)] == ["application/pdf", None]


def test_a_url_is_passed_on_and_not_fetched():
    agent = FakeAgent()
    url = "https://elsewhere.test/x/report.pdf?sig=1"
    done = holdfast("send", "--file", url, "--file", "s3://bucket/key", agent=agent)
    assert done.exit == 0
    assert parts(agent) == [
        {"url": url, "filename": "report.pdf", "mediaType": "application/pdf"},
        {"url": "s3://bucket/key", "filename": "key"},
    ]


def test_a_file_url_is_a_file_of_this_machine(tmp_path):
    path = tmp_path / "a b.txt"
    path.write_text("hi")
    agent = FakeAgent()
    holdfast("send", "--file", path.as_uri(), agent=agent)
    assert parts(agent)[0]["filename"] == "a b.txt"


def test_verbose_shows_what_is_sent_before_what_comes_back(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF")
    data = tmp_path / "d.json"
    data.write_text('{"n": 1}')
    words = ["send", "look", "--file", str(path), "--data", str(data), "--async", "--verbose"]
    done = holdfast(*words)
    sent, _, received = done.out.partition("Task ID: ")
    assert re.fullmatch(
        r"Sent message: [0-9a-f-]{36}\nText:\nlook\n\n"
        r"File: a\.pdf\nMedia type: application/pdf\nSize: 4 bytes\n"
        r'Data:\n\{\n  "n": 1\n\}\n\n',
        sent,
    )
    assert received.startswith("task-1\n")
    assert "Sent message" not in holdfast("send", "look").out
    assert list(holdfast("send", "look", "--verbose", "-o", "json").json) == ["task"]


def test_text_may_begin_with_a_dash():
    agent = FakeAgent()
    holdfast("send", "--text", "-1 apples", agent=agent)
    assert parts(agent) == [{"text": "-1 apples"}]


# ── Where values come from ───────────────────────────────────────────────────────────────────


def test_a_flag_beats_the_environment_which_beats_the_default():
    agent = FakeAgent()
    environment = {"A2ACLI_TRANSPORT": "HTTP+JSON", "A2ACLI_OUTPUT": "json"}
    assert holdfast("send", "hi", agent=agent, env=environment).json["task"]
    holdfast("send", "hi", "--transport", "JSONRPC", "-o", "text", agent=agent, env=environment)
    holdfast("send", "hi", agent=agent)
    paths = [call.url.removeprefix(AGENT) for call in agent.calls("SendMessage")]
    assert paths == ["/rest/message:send", "/rpc", "/rpc"]


@pytest.mark.parametrize(
    ("variable", "value", "holds"),
    [
        ("AGENT_CARD", AGENT, lambda agent: agent.received),
        (
            "TASK_ID",
            "task-9",
            lambda agent: b'"taskId":"task-9"' in agent.calls("SendMessage")[0].body,
        ),
        (
            "CONTEXT_ID",
            "c-9",
            lambda agent: b'"contextId":"c-9"' in agent.calls("SendMessage")[0].body,
        ),
        (
            "METADATA",
            '{"k":9}',
            lambda agent: b'"metadata":{"k":9}' in agent.calls("SendMessage")[0].body,
        ),
        ("A2A_VERSION", "1.0", lambda agent: agent.received[-1].headers["a2a-version"] == "1.0"),
        ("TRANSPORT", "HTTP+JSON,JSONRPC", lambda agent: "/rest" in agent.received[-1].url),
        ("SVC_PARAM", "x-a:1 2\nx-b:3", lambda agent: agent.received[-1].headers["x-a"] == "1 2"),
        ("SVC_PARAM", "x-a:1 2\nx-b:3", lambda agent: agent.received[-1].headers["x-b"] == "3"),
        ("ASYNC", "1", lambda agent: not agent.calls("GetTask")),
        ("WAIT", "true", lambda agent: agent.calls("GetTask")),
        (
            "BEARER",
            SECRET,
            lambda agent: agent.received[-1].headers["authorization"] == f"Bearer {SECRET}",
        ),
        ("API_KEY", SECRET, lambda agent: agent.received[-1].headers["x-api-key"] == SECRET),
    ],
)
def test_options_come_from_the_environment(variable, value, holds):
    agent = FakeAgent(lambda _: completes("done", after=3))
    card = None if variable == "AGENT_CARD" else AGENT
    holdfast("send", "hello", agent=agent, card=card, env={f"A2ACLI_{variable}": value})
    assert agent.calls("SendMessage")
    assert holds(agent)


def test_timeout_and_poll_interval_come_from_the_environment():
    agent = FakeAgent(lambda _: works_forever(), streaming=False)
    environment = {"A2ACLI_TIMEOUT": "40s", "A2ACLI_POLL_INTERVAL": "8s"}
    done = holdfast("send", "hello", agent=agent, env=environment)
    assert done.exit == 5
    assert "40s" in done.err
    looks = [call.at for call in agent.calls("GetTask")]
    assert looks[-1] - looks[-2] == 8


def test_history_comes_from_the_environment():
    agent = FakeAgent()
    holdfast("task", "get", "t", agent=agent, env={"A2ACLI_HISTORY": "4"})
    assert b'"historyLength":4' in agent.received[-1].body


@pytest.mark.parametrize("variable", ["TIMEOUT", "OUTPUT", "INSECURE", "TRANSPORT", "METADATA"])
def test_a_bad_variable_is_a_usage_error(variable):
    done = holdfast("send", "hello", env={f"A2ACLI_{variable}": "<garbage>"})
    assert done.exit == 2
    assert "Code: A2ACLI_ERR_USAGE" in done.err


@pytest.mark.parametrize(
    ("flags", "environment", "waits"),
    [
        ([], {}, True),
        (["--async"], {}, False),
        (["--wait"], {"A2ACLI_ASYNC": "1"}, True),
        (["--async"], {"A2ACLI_WAIT": "1"}, False),
        ([], {"A2ACLI_ASYNC": "1"}, False),
        ([], {"A2ACLI_ASYNC": "0"}, True),
    ],
)
def test_a_flag_overrides_a_configured_wait(flags, environment, waits):
    agent = FakeAgent(lambda _: completes("done", after=3))
    done = holdfast("send", "hello", *flags, agent=agent, env=environment)
    assert done.exit == 0
    assert bool(agent.calls("GetTask")) is waits


def test_variables_that_contradict_each_other_are_named(tmp_path):
    environment = {"A2ACLI_WAIT": "1", "A2ACLI_ASYNC": "1"}
    said = refused("send", "hello", env=environment)
    assert said == "A2ACLI_WAIT and A2ACLI_ASYNC contradict each other."
    (tmp_path / ".env").write_text("A2ACLI_WAIT=1\nA2ACLI_ASYNC=1\n")
    said = refused("send", "hello", directory=tmp_path)
    file = tmp_path / ".env"
    assert said == f"A2ACLI_WAIT and A2ACLI_ASYNC in {file} contradict each other."
    said = refused("send", "hello", "--wait", "--no-wait", env=environment, directory=tmp_path)
    assert said == "--wait and --async contradict each other."


def test_a_variable_can_make_task_get_wait_and_a_flag_can_undo_it():
    agent = FakeAgent(lambda _: completes("done", after=3))
    network = FakeNetwork(agent)
    holdfast("send", "hello", "--async", engine=lambda **_: network)
    environment = {"A2ACLI_WAIT": "1"}
    holdfast("task", "get", "task-1", "--async", engine=lambda **_: network, env=environment)
    assert len(agent.calls("GetTask")) == 1
    done = holdfast("task", "get", "task-1", engine=lambda **_: network, env=environment)
    assert done.field("State") == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize(
    "words",
    [["-o", "json", "task", "get", "t"], ["task", "-o", "json", "get", "t"],
     ["task", "get", "-o", "json", "t"], ["task", "get", "t", "-o", "json"]],
)  # fmt: skip
def test_an_option_may_stand_anywhere(words):
    assert holdfast(*words).error["code"] == "TaskNotFoundError"


def test_the_option_nearest_to_the_end_counts_and_repeated_ones_add_up():
    agent = FakeAgent()
    done = holdfast(
        "-o", "json", "--svc-param", "x-a:1", "send", "hello", "-o", "text",
        "--svc-param", "x-b:2", agent=agent, env={"A2ACLI_OUTPUT": "json"},
    )  # fmt: skip
    assert done.field("State") == "TASK_STATE_COMPLETED"
    headers = agent.calls("SendMessage")[0].headers
    assert (headers["x-a"], headers["x-b"]) == ("1", "2")


def test_an_option_before_the_command_beats_the_environment():
    done = holdfast("-o", "json", "task", "get", "t", env={"A2ACLI_OUTPUT": "text"})
    assert done.error["code"] == "TaskNotFoundError"


def test_an_invalid_value_is_reported_under_the_name_that_was_written():
    by_flag = holdfast("send", "hello", "--timeout", "soon")
    assert by_flag.err.startswith("Error: Invalid value for '--timeout': 'soon' is not")
    by_variable = holdfast("send", "hello", env={"A2ACLI_TIMEOUT": "soon"})
    assert by_variable.err.startswith("Error: Invalid value for A2ACLI_TIMEOUT in the environment")


def test_help_shows_what_is_in_effect():
    plain = " ".join(holdfast("send", "--help", card=None).out.split())
    for default in ("default: text", "default: 15m", "default: 2s",
                    "default: the card's order"):  # fmt: skip
        assert default in plain
    told = holdfast("send", "--help", card=None, env={"A2ACLI_TIMEOUT": "7s"})
    assert "default: 7s, from A2ACLI_TIMEOUT" in " ".join(told.out.split())


def test_help_names_every_variable_and_shows_no_secret():
    environment = {"A2ACLI_BEARER": SECRET, "A2ACLI_API_KEY": SECRET,
                   "A2ACLI_SVC_PARAM": f"x:{SECRET}"}  # fmt: skip
    shared = {"agent-card", "output", "transport", "a2a-version", "timeout"}
    parts = {"text-part", "file-part", "data-part", "media-type", "part-metadata"}
    parts |= {"key", "journal", "on-unknown"}  # of one message, so no variable names them
    for words in (["send"], ["task", "get"], ["task", "cancel"], ["card", "get"], ["options"]):
        told = holdfast("help", *words, card=None, env=environment)
        assert SECRET not in told.out + told.err
        assert "A2ACLI_BEARER; default: ***, from A2ACLI_BEARER" in " ".join(told.out.split())
        flags = set(re.findall(r"--([a-z0-9-]+) [A-Z\[]", told.out)) - parts
        flags -= set() if words == ["options"] else shared
        wanted = {f"A2ACLI_{flag.upper().replace('-', '_')}" for flag in flags}
        assert wanted <= set(re.findall(r"A2ACLI_[A-Z0-9_]+", told.out))
        assert words != ["options"] or shared < flags


def test_help_describes_the_options_of_all_commands_once():
    page = holdfast("help", "options", card=None).out
    told = " ".join(page.split())
    assert told.count("shows in the process table") == 2
    assert not [param.opts[0] for param in app.params if f" {param.opts[0]} " not in told]
    sent = holdfast("send", "--help", card=None).out
    assert "holdfast help options" in sent
    assert not re.findall(r"\n  --(?:bearer|config|card-keys|debug)", sent)
    assert sent.count("\n") < 100


# ── Credentials ──────────────────────────────────────────────────────────────────────────────


def guarded(location="", name="", url=f"{AGENT}/rpc"):
    """An agent whose card wants an API key somewhere."""
    interface = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    scheme = SecurityScheme(
        api_key_security_scheme=APIKeySecurityScheme(location=location, name=name)
    )
    card = AgentCard(
        name="Guarded",
        supported_interfaces=(interface,),
        security_schemes={"key": scheme} if location else {},
        security_requirements=(SecurityRequirement(schemes={"key": StringList()}),),
    )
    return FakeAgent(card=card)


def test_a_bearer_token_goes_with_each_call_and_not_to_the_card():
    agent = FakeAgent(lambda _: completes("done", after=3), token=SECRET)
    done = holdfast("send", "hello", "--bearer", SECRET, agent=agent)
    assert done.exit == 0
    for call in agent.received:
        expected = None if call.operation == "GetAgentCard" else f"Bearer {SECRET}"
        assert call.headers.get("authorization") == expected


def test_a_card_that_asks_for_a_bearer_token_gets_it_only_from_those_who_name_its_origin():
    class Recording(FakeNetwork):
        async def request(self, request):
            seen.append(request.headers.get("authorization"))
            return await super().request(request)

    challenge = {"www-authenticate": 'Bearer realm="x"'}
    for origins, shown in (
        ([], [None]),
        (["--credential-origin", "http://other.test"], [None]),
        (["--credential-origin", AGENT], [None, f"Bearer {SECRET}"]),
    ):
        agent, seen = FakeAgent(), []
        network = Recording(agent)
        agent.inject(Respond(status=401, headers=challenge), on="GetAgentCard")
        words = ("card", "get", "--bearer", SECRET, *origins)
        done = holdfast(*words, engine=lambda *, verify: network)  # noqa: B023
        assert (done.exit, seen) == (4 if len(shown) == 1 else 0, shown)
        hint = f"if you trust this server: --credential-origin {AGENT}"
        assert (hint in done.err) is (len(shown) == 1)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            [],
            (
                f"set A2ACLI_BEARER (or --bearer) together with --credential-origin {AGENT}, if "
                "you trust this server; otherwise no credential is sent before the card declares "
                "a scheme for it"
            ),
        ),
        (["--credential-origin", AGENT], "set A2ACLI_BEARER (or --bearer)"),
        (
            ["--bearer", SECRET, "--credential-origin", AGENT],
            "check the credentials: the agent does not accept them",
        ),
    ],
    ids=["nothing", "origin", "refused"],
)
def test_a_guarded_card_says_in_one_go_what_it_takes(words, hint):
    agent = FakeAgent()
    refusal = Respond(status=401, headers={"www-authenticate": "Bearer"})
    agent.inject(refusal, on="GetAgentCard", times=9)
    assert f"Hint: {hint}\n" in holdfast("card", "get", *words, agent=agent).err


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--auth", "--bearer or --api-key does that."),
        ("--bearer-token", "--bearer does that."),
        ("--token", "--bearer does that."),
        ("--header", "--svc-param does that."),
        ("-H", "--svc-param does that."),
    ],
)
def test_an_option_of_other_tools_leads_to_the_one_that_does_it(option, meant):
    assert refused("send", "hello", option, "x") == f"No such option '{option}'. {meant}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["task", "push-config", "create", "task-1", "--url", "http://x/"],
            (
                "No such option '--url'. URL is the second argument: holdfast task push-config "
                "create TASK_ID URL"
            ),
        ),
        (
            ["task", "get", "--task-id", "task-1"],
            "No such option '--task-id'. TASK_ID is an argument: holdfast task get TASK_ID",
        ),
    ],
)
def test_an_argument_that_is_passed_as_an_option_is_named(words, message):
    assert refused(*words) == message


def test_json_in_place_of_a_file_and_a_file_in_place_of_json_are_explained(tmp_path):
    for given in ('{"k": 1}', "[1]"):
        told = refused("send", "--data", given)
        assert "--data takes a file, and this looks like JSON" in told
        assert given not in told
    path = tmp_path / "d.json"
    path.write_text("{}")
    for flag in ("--metadata", "--message-metadata"):
        told = refused("send", "x", flag, f"@{path}")
        assert f'it takes JSON itself, not a file: "$(cat {path})"' in told
    assert "cat" not in refused("send", "x", "--metadata", "{oops")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"password=s3cret", "has 15 bytes of text"),
        (b"-----BEGIN PRIVATE KEY-----\ns3cret", "is a key or a certificate (PEM)"),
        (b"<!DOCTYPE html>s3cret", "is an HTML page"),
        (b"s3cret\xff\xfe", "has 8 bytes of binary data"),
        (b" ", "is empty"),
    ],
)
@pytest.mark.parametrize("words", [["send", "hello"], ["card", "get"], ["doctor"]])
def test_a_file_that_is_not_a_card_is_not_shown(tmp_path, content, kind, words):
    (tmp_path / "x").write_bytes(content)
    done = holdfast(*words, card=str(tmp_path / "x"))
    assert done.exit == 1
    assert "s3cret" not in done.out + done.err
    assert f"the file {kind}" in " ".join((done.out + done.err).split())


@pytest.mark.parametrize("words", [["task", "get", "t"], ["card", "get"]])
def test_an_option_that_is_not_much_like_another_is_not_taken_for_it(words):
    assert refused(*words, "--follow") == "No such option '--follow'."
    assert "Did you mean '--timeout'?" in refused(*words, "--timout", "3s")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (f"Bearer {SECRET}", "is not a bearer token: pass it without the word 'Bearer'"),
        (
            "a b",
            "is not a bearer token: it has a character that tokens cannot contain (RFC 6750)",
        ),
    ],
)
def test_what_is_wrong_with_a_token_is_reported(token, why):
    assert refused("send", "hello", "--bearer", token).endswith(why)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("BEARER", "a b", "is not a bearer token"),
        ("TIMEOUT", "soon", "'soon' is not a duration"),
        ("OUTPUT", "yaml", "'yaml' is not one of"),
        ("INSECURE", "maybe", "'maybe' is neither true nor false; write 1 or 0"),
    ],
)
def test_a_wrong_variable_is_reported_by_its_own_name(name, value, says):
    message = refused("send", "hello", env={f"A2ACLI_{name}": value})
    assert message.startswith(f"Invalid value for A2ACLI_{name} in the environment: {says}")


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_is_out_of_order_is_not_taken_for_a_wrong_address(status):
    agent = FakeAgent()
    agent.inject(Respond(status=status), on="GetAgentCard", times=9)
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert (done.exit, done.error["code"]) == (3, "A2ACLI_ERR_CARD_NOT_FOUND")
    assert done.error["hint"] == "try again later"


@pytest.mark.parametrize(
    ("headers", "hint"),
    [({"retry-after": "2"}, "try again in 2s"), ({}, "try again later")],
)
def test_who_is_busy_to_the_end_may_be_tried_later(headers, hint):
    agent = FakeAgent()
    agent.inject(Respond(status=503, headers=headers), on="GetTask", times=9)
    done = holdfast("task", "get", "t", "-o", "json", agent=agent)
    assert (done.error["code"], done.error["hint"]) == ("HOLDFAST_ERR_HTTP", hint)


def test_an_interval_gets_no_advice_about_waiting_without_end():
    message = refused("send", "hello", "--poll-interval", "0")
    assert "write 500ms, 30s or 1m30s" in message
    assert "without end" not in message


@pytest.mark.parametrize("header", [{}, {"www-authenticate": "Basic"}])
def test_a_card_that_asks_for_something_else_gets_nothing(header):
    agent = FakeAgent()
    agent.inject(Respond(status=401, headers=header), on="GetAgentCard", times=9)
    done = holdfast("card", "get", "-o", "json", "--bearer", SECRET, agent=agent)
    assert done.exit == 4
    assert done.error["code"] == "A2ACLI_ERR_AUTH_FAILED"


def test_a_message_that_is_refused_is_not_sent_again_with_the_same_token():
    agent = FakeAgent()
    challenge = {"www-authenticate": "Bearer"}
    agent.inject(Respond(status=401, headers=challenge), on="SendMessage")
    done = holdfast("send", "hello", "--bearer", SECRET, agent=agent)
    assert done.exit == 4
    assert agent.calls("SendMessage") == []


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ([], "A2ACLI_ERR_CREDENTIALS_MISSING"),
        (["--bearer", SECRET], "A2ACLI_ERR_AUTH_FAILED"),
        (["--api-key", SECRET], "A2ACLI_ERR_AUTH_FAILED"),
    ],
)
def test_credentials_that_are_missing_or_wrong(flags, code):
    agent = FakeAgent()
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", *flags, agent=agent)
    assert done.exit == 4
    assert (done.error["code"], done.error["a2aCode"]) == (code, 401)


BEARER_FLAG, KEY_FLAG = "A2ACLI_BEARER (or --bearer)", "A2ACLI_API_KEY (or --api-key)"
NOT_TAKEN = "check the credentials: the agent does not accept them"
NOT_PERMITTED = (
    "the credentials are valid, and do not permit this: ask the agent's operator for the "
    "permission, or use other credentials"
)
CERTIFICATE = (
    "the agent asks for the client certificate 'mtls' and the bearer token 'bearer'; the command "
    "line does not support that"
)
NONE_OF_THESE = (
    "the agent asks for the HTTP credential 'digest' (scheme 'Digest'), or the client certificate "
    "'mtls'; the command line supports none of these"
)
LOG_IN = f"log in: holdfast auth login --client-id CLIENT_ID --agent-card {AGENT}"
PARAM_FLAG = "A2ACLI_SVC_PARAM (or --svc-param) to"
BASIC_PARAM = f"{PARAM_FLAG} 'Authorization:Basic <user:password in base64>'"
KEY_PARAM = f"{PARAM_FLAG} 'X-Other:<key>'"
ONE_KEY = (
    "the agent asks for the API key 'key' (header 'X-Key') and the API key 'second' (cookie "
    "'sid'); the command line sends only one API key"
)


def asking(*requirements):
    """An agent whose card asks for one of these, each a list of names."""
    members = {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        "basic": {"httpAuthSecurityScheme": {"scheme": "basic"}},
        "oauth": {"oauth2SecurityScheme": {"flows": {}}},
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "second": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
        "other": {"apiKeySecurityScheme": {"location": "header", "name": "X-Other"}},
        "digest": {"httpAuthSecurityScheme": {"scheme": "Digest"}},
        "mtls": {"mtlsSecurityScheme": {}},
    }
    wanted = [{"schemes": {name: {"list": []} for name in names}} for names in requirements]
    interface = {"url": f"{AGENT}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return FakeAgent(
        card={
            "name": "Asking",
            "supportedInterfaces": [interface],
            "securitySchemes": members,
            "securityRequirements": wanted,
        }
    )


@pytest.mark.parametrize(
    ("requirements", "flags", "hint"),
    [
        ([["bearer"]], [], f"set {BEARER_FLAG}"),
        ([["oauth"]], [], f"{LOG_IN}, or set {BEARER_FLAG}"),
        (
            [["oauth", "key"]],
            [],
            f"set {KEY_FLAG} and {BEARER_FLAG}: the agent asks for both together",
        ),
        ([["key"]], [], f"set {KEY_FLAG}"),
        ([["key"]], ["--bearer"], f"set {KEY_FLAG}"),
        ([["key"]], ["--api-key"], NOT_TAKEN),
        ([["key"], ["bearer"]], [], f"set {KEY_FLAG}, or {BEARER_FLAG}"),
        ([["key"], ["bearer"]], ["--bearer"], NOT_TAKEN),
        ([[], ["key"]], [], f"set {KEY_FLAG}"),
        (
            [["key", "bearer"]],
            [],
            f"set {KEY_FLAG} and {BEARER_FLAG}: the agent asks for both together",
        ),
        (
            [["key", "bearer"]],
            ["--bearer"],
            f"set {KEY_FLAG} as well: the agent asks for both together",
        ),
        ([["key", "bearer"]], ["--bearer", "--api-key"], NOT_TAKEN),
        ([["key", "second"]], [], ONE_KEY),
        ([["key", "second"]], ["--api-key"], ONE_KEY),
        ([["key", "second"], ["bearer"]], ["--api-key"], f"set {BEARER_FLAG}"),
        ([["basic"]], ["--bearer"], f"set {BASIC_PARAM}"),
        ([["basic"], ["key"]], [], f"set {KEY_FLAG}, or {BASIC_PARAM}"),
        (
            [["key", "other"]],
            [],
            f"set {KEY_FLAG} and {KEY_PARAM}: the agent asks for both together",
        ),
        (
            [["key", "other"]],
            ["--api-key"],
            f"set {KEY_PARAM} as well: the agent asks for both together",
        ),
        (
            [["key", "other", "bearer"]],
            ["--api-key"],
            f"set {BEARER_FLAG} and {KEY_PARAM} as well: the agent asks for all together",
        ),
        ([["mtls", "bearer"]], [], CERTIFICATE),
        ([["mtls"], ["digest"]], [], NONE_OF_THESE),
        (
            [],
            [],
            f"{LOG_IN}, or set {KEY_FLAG}, or {BEARER_FLAG}, or {BASIC_PARAM}, or {KEY_PARAM}",
        ),
        ([], ["--bearer"], NOT_TAKEN),
    ],
)
def test_the_hint_of_a_401_is_what_the_card_asks_for(requirements, flags, hint):
    agent = asking(*requirements)
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    given = [word for flag in flags for word in (flag, SECRET)]
    done = holdfast("send", "hello", "-o", "json", *given, agent=agent)
    assert done.error["hint"] == hint
    code = "A2ACLI_ERR_AUTH_FAILED" if hint == NOT_TAKEN else "A2ACLI_ERR_CREDENTIALS_MISSING"
    assert (done.exit, done.error["code"]) == (4, code)


@pytest.mark.parametrize(
    ("requirements", "params", "hint"),
    [
        ([["bearer"]], ["Authorization:x"], NOT_TAKEN),
        ([["key"]], ["x-key:x"], NOT_TAKEN),
        ([["second"]], ["cookie:sid=x"], NOT_TAKEN),
        ([["key", "other"]], ["x-key:x", "x-other:y"], NOT_TAKEN),
        (
            [["key", "other"]],
            ["x-other:x"],
            f"set {KEY_FLAG} as well: the agent asks for both together",
        ),
        ([["key"]], ["x-trace:7"], f"set {KEY_FLAG}"),
        ([["digest"]], ["Authorization:x"], NOT_TAKEN),
    ],
)
def test_what_service_parameters_carry_counts_as_given(requirements, params, hint):
    agent = asking(*requirements)
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    given = [word for param in params for word in ("--svc-param", param)]
    done = holdfast("send", "hello", "-o", "json", *given, agent=agent)
    assert done.error["hint"] == hint


@pytest.mark.parametrize(
    ("param", "hint"),
    [("x-my-token:x", NOT_TAKEN), ("x-trace:7", f"set {KEY_FLAG}, or {BEARER_FLAG}")],
)
def test_where_the_card_says_nothing_a_secret_parameter_counts_as_given(param, hint):
    agent = FakeAgent()
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", "--svc-param", param, agent=agent)
    assert done.error["hint"] == hint


def test_a_401_for_a_credential_in_a_service_parameter_says_that_it_was_not_taken():
    agent = asking(["bearer"])
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    words = ["--svc-param", f"Authorization:Bearer {SECRET}", "-o", "json"]
    done = holdfast("send", "hello", *words, agent=agent)
    assert "did not accept the header authorization" in done.error["message"]


def test_a_token_and_a_password_cannot_both_be_given():
    agent = asking(["basic", "bearer"])
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.error["hint"].endswith("the command line does not support that")


def test_a_403_without_credentials_has_no_words_for_programs():
    agent = asking(["bearer"])
    agent.inject(Respond(status=403), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert "no credentials were sent" in done.error["message"]
    assert "auth=" not in done.error["message"]


def test_the_hint_of_a_401_has_an_end():
    agent = asking(*([f"nowhere-{number}"] for number in range(1000)))
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    for flags in ([], ["--bearer", SECRET]):
        done = holdfast("send", "hello", "-o", "json", *flags, agent=agent)
        assert len(done.error["hint"]) < 500
        assert done.error["hint"].endswith("the command line supports none of these")
        assert len(done.error["message"]) < 1500


def test_the_hint_of_a_401_has_an_end_where_each_key_has_a_header_of_its_own():
    agent = asking(*([f"key-{number}"] for number in range(1000)))
    agent.card["securitySchemes"] |= {
        f"key-{n}": {"apiKeySecurityScheme": {"location": "header", "name": f"X-Key-{n}"}}
        for n in range(1000)
    }
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.error["hint"].startswith(f"set {KEY_FLAG}, or {PARAM_FLAG}")
    assert len(done.error["hint"]) < 500


def test_a_401_says_what_the_card_asks_for_without_words_for_programs():
    agent = asking(["bearer"])
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.error["message"].startswith(
        "HTTP 401 Unauthorized; agent 'Asking' requires the bearer token 'bearer' (agent"
    )
    assert "auth=" not in done.error["message"]


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--api-key", SECRET], NOT_PERMITTED),
        (["--svc-param", f"authorization:{SECRET}"], NOT_PERMITTED),
        (
            [],
            f"the agent does not permit this with the credentials that were sent: set {KEY_FLAG}",
        ),
    ],
)
def test_a_403_is_about_a_permission(flags, hint):
    agent = asking(["key"])
    agent.inject(Respond(status=403), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", *flags, agent=agent)
    assert (done.exit, done.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    assert (done.error["a2aCode"], done.error["hint"]) == (403, hint)


def test_a_403_for_the_card_is_not_about_credentials_that_were_not_sent():
    agent = FakeAgent()
    agent.inject(Respond(status=403), on="GetAgentCard", times=9)
    done = holdfast("send", "hello", "-o", "json", "--bearer", SECRET, agent=agent)
    assert (done.exit, done.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    assert done.error["hint"] == (
        "check the address; a card that you have saved can be passed as a file with --agent-card"
    )


def test_the_hint_names_the_credential_that_the_card_declares():
    agent = guarded("header", "X-Key")
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.error["hint"] == "set A2ACLI_API_KEY (or --api-key)"


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--bearer", SECRET], "A2ACLI_ERR_CREDENTIALS_MISSING"),
        (["--api-key", SECRET], "A2ACLI_ERR_AUTH_FAILED"),
        (["--svc-param", f"authorization:{SECRET}"], "A2ACLI_ERR_AUTH_FAILED"),
    ],
)
def test_a_credential_that_the_card_does_not_declare_leaves_the_declared_one_missing(flags, code):
    agent = guarded("header", "X-Key")
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    done = holdfast("send", "hello", "-o", "json", *flags, agent=agent)
    assert (done.exit, done.error["code"]) == (4, code)
    missing = code == "A2ACLI_ERR_CREDENTIALS_MISSING"
    assert ("set A2ACLI_API_KEY" in done.error["hint"]) is missing


@pytest.mark.parametrize(
    ("location", "name", "where"),
    [
        ("header", "X-Agent-Key", lambda call: call.headers["x-agent-key"]),
        ("Header", "X-Agent-Key", lambda call: call.headers["x-agent-key"]),
        ("cookie", "session", lambda call: call.headers["cookie"].removeprefix("session=")),
        ("query", "k e", lambda call: call.url.partition("?k%20e=")[2]),
        ("", "", lambda call: call.headers["x-api-key"]),
    ],
)
def test_an_api_key_goes_where_the_card_wants_it(location, name, where):
    agent = guarded(location, name)
    assert holdfast("send", "hello", "--api-key", SECRET, agent=agent).exit == 0
    assert where(agent.calls("SendMessage")[0]) == SECRET
    (card,) = agent.calls("GetAgentCard")
    assert SECRET not in f"{card.url}{dict(card.headers)}"


def test_an_api_key_joins_the_query_that_is_there():
    agent = guarded("query", "key", url=f"{AGENT}/rpc?v=2")
    holdfast("send", "hello", "--api-key", SECRET, agent=agent)
    assert agent.calls("SendMessage")[0].url == f"{AGENT}/rpc?v=2&key={SECRET}"


@pytest.mark.parametrize(
    ("location", "name"), [("trailer", "x"), ("header", ""), ("header", "a b"), ("header", "Host")]
)
def test_a_card_that_wants_its_key_where_it_cannot_be(location, name):
    agent = guarded(location, name)
    done = holdfast("send", "hello", "-o", "json", "--api-key", SECRET, agent=agent)
    assert done.exit == 1
    assert done.error["code"] == "A2ACLI_ERR_CARD_INVALID"
    assert agent.calls("SendMessage") == []


def test_a_key_that_no_cookie_can_hold():
    agent = guarded("cookie", "session")
    message = refused("send", "hello", "--api-key", f"{SECRET}; admin=1", agent=agent)
    assert "cookie" in message
    assert SECRET not in message


def test_a_credential_stays_with_the_origin_of_the_card():
    agent = guarded("header", "X-Key", url="http://elsewhere.test/rpc")
    elsewhere = FakeAgent(url="http://elsewhere.test")
    network = FakeNetwork(agent, elsewhere)
    for location in ("header", "query", "cookie"):
        agent.card = guarded(location, "key", url="http://elsewhere.test/rpc").card
        done = holdfast(
            "send", "hi", "-o", "json", "--api-key", SECRET, engine=lambda **_: network
        )
        assert done.exit == 1
        assert done.error["code"] == "HOLDFAST_ERR_CREDENTIAL_ORIGIN"
        assert "http://elsewhere.test" in done.error["message"]
        assert "card get -o json" in done.error["hint"]
    assert elsewhere.received == []


def test_a_card_leads_no_further_inside_the_network():
    inside = guarded("header", "X-Key", url="http://inside.test/rpc")
    network = FakeNetwork(
        inside, FakeAgent(url="http://inside.test"), addresses={"inside.test": "10.0.0.7"}
    )
    done = holdfast("send", "hi", "-o", "json", engine=lambda **_: network)
    assert done.exit == 1
    assert done.error["code"] == "HOLDFAST_ERR_NETWORK_POLICY"
    assert "http://inside.test/rpc resolves to 10.0.0.7" in done.error["message"]
    assert "allowed_networks" not in done.error["message"]
    assert "card get -o json" in done.error["hint"]


def test_reply_beyond_the_limits_is_reported_in_words_for_people():
    deep = {"a": "x"}
    for _ in range(200):
        deep = {"a": deep}
    agent = FakeAgent(card={"name": "Deep", "supportedInterfaces": [], "x": deep})
    done = holdfast("card", "get", "-o", "json", agent=agent)
    assert done.exit == 1
    assert done.error["code"] == "HOLDFAST_ERR_LIMIT"
    assert "nested deeper than 100 levels" in done.error["message"]
    assert "Limits(" not in done.error["message"]


def test_a_message_whose_reply_is_over_a_limit_is_named():
    deep = {"a": "x"}
    for _ in range(200):
        deep = {"a": deep}
    agent = FakeAgent(lambda _turn: completes(data_part(deep)))
    done = holdfast("send", "hi", "-o", "json", agent=agent)
    assert done.exit == 1
    assert done.error["code"] == "HOLDFAST_ERR_LIMIT"
    sent = json.loads(agent.calls("SendMessage")[0].body)["params"]["message"]["messageId"]
    said = f"message {sent} was sent, and may have been executed"
    assert said in done.error["message"]
    assert done.error["hint"].startswith(f"search for message {sent} with holdfast task list ")
    assert "Limits(" not in done.error["message"]


PAGE = b"\n<!doctype html><html><body>Welcome</body></html>"


@pytest.mark.parametrize(
    ("fault", "binding", "told"),
    [
        (Respond(status=200, body=PAGE), "JSONRPC", "the reply is an HTML page, not JSON; "),
        (Respond(status=200, body=PAGE), "HTTP+JSON", " an HTML page, not JSON; "),
        (
            Respond(status=200, body=b'{"result": {}}'),
            "JSONRPC",
            "has the id of another request; ",
        ),
        (Fail(code=-32603), "JSONRPC", "the agent may have executed it"),
    ],
)
@pytest.mark.parametrize("words", [["send", "hi"], ["send", "--stream", "hi"]])
def test_a_message_that_may_have_been_executed_has_the_command_that_searches(
    words, fault, binding, told
):
    agent = FakeAgent(bindings=(binding,))
    for operation in ("SendMessage", "SendStreamingMessage"):
        agent.inject(fault, on=operation)
    done = holdfast(*words, agent=agent)

    assert done.exit == 1
    assert told in done.err
    assert "Expecting value" not in done.err
    assert "Hint: search for message " in done.err
    search = f"with holdfast task list --all --history 10 -o json --agent-card {AGENT}"
    assert f"{search}; send it again only if running it twice does no harm\n" in done.err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["send", "hi"], Fail(code=-32602)),
        (["task", "get", "t1"], Respond(status=200, body=PAGE)),
    ],
)
def test_without_a_message_that_may_have_been_executed_there_is_nothing_to_search(words, fault):
    agent = FakeAgent()
    for operation in ("SendMessage", "GetTask"):
        agent.inject(fault, on=operation, times=9)
    done = holdfast(*words, agent=agent)

    assert done.exit == 1
    assert "search for message" not in done.err


def test_names_of_this_machine_are_one_origin():
    interface = AgentInterface(
        url="http://127.0.0.1:8000/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    card = AgentCard(name="Here", supported_interfaces=(interface,))
    network = FakeNetwork(
        FakeAgent(url="http://localhost:8000", card=card),
        FakeAgent(url="http://127.0.0.1:8000", token=SECRET),
    )
    done = holdfast("send", "hi", "-a", "localhost:8000", "--bearer", SECRET, card=None,
                    engine=lambda **_: network)  # fmt: skip
    assert done.exit == 0


def test_service_parameters_go_with_each_call():
    agent = FakeAgent(lambda _: completes("done", after=3))
    holdfast("send", "hi", "--svc-param", "X-Trace-Id: a:b", agent=agent)
    calls = [call for call in agent.received if call.operation != "GetAgentCard"]
    assert len(calls) > 1
    assert {call.headers["x-trace-id"] for call in calls} == {"a:b"}


class Echoing:
    """An engine whose agent says everything that it was told, in an error."""

    async def request(self, request):
        if request.url.endswith(".json"):
            return await FakeNetwork(guarded("query", "key")).request(request)
        told = f"{request.url} {request.headers}"
        raise A2AConnectionError(told, failure="refused", executed=False)

    def stream(self, request):
        raise NotImplementedError

    async def close(self):
        pass


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "flags",
    [["--bearer", SECRET], ["--api-key", SECRET], ["--svc-param", f"authorization:{SECRET}"],
     ["--svc-param", f"x-other:{SECRET}"]],
)  # fmt: skip
def test_no_diagnostic_shows_a_credential(form, flags):
    done = holdfast("send", "hi", "-o", form, "--debug", "--verbose", *flags,
                    engine=lambda **_: Echoing())  # fmt: skip
    assert done.exit == 3
    assert SECRET not in done.out + done.err
    assert "***" in done.out + done.err


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_diagnostic_shows_a_key_as_the_query_spells_it(form):
    key = "s3cret+/=value"
    done = holdfast("send", "hi", "-o", form, "--api-key", key, engine=lambda **_: Echoing())
    assert done.exit == 3
    assert "key=***" in done.out + done.err
    assert "s3cret" not in done.out + done.err


# ── Diagnostics ──────────────────────────────────────────────────────────────────────────────


def test_debug_tells_on_stderr_how_it_goes_and_leaves_the_document_alone():
    agent = FakeAgent(lambda _: completes("done", after=3), streaming=False)
    agent.inject(Respond(status=503), on="GetTask")
    done = holdfast("send", "hello", "--debug", "-o", "json", agent=agent)
    assert done.json["task"]["id"] == "task-1"
    assert "by JSONRPC, protocol 1.0" in done.err
    assert re.search(r"Debug: SendMessage .* attempt 1 started\n", done.err)
    assert not re.search(r"choice of the interface \S+ to .*: attempt", done.err)
    assert re.search(r"Debug: GetTask .* attempt 1 failed .* 503", done.err)
    assert re.search(r"Debug: GetTask .* attempt 2 follows in", done.err)
    assert re.search(r"Debug: .* succeeded after \d.* \(attempts: 2\)", done.err)


def test_debug_tells_what_goes_over_the_wire():
    agent = FakeAgent()
    done = holdfast("task", "get", "nope", "--debug", agent=agent)
    sent, received = agent.received[-1].body.decode(), '"code":-32001'
    assert f"Debug: > GET {AGENT}/.well-known/agent-card.json accept: application/json" in done.err
    (asked,) = (line for line in done.err.splitlines() if line.startswith("Debug: > POST"))
    assert asked.startswith(f"Debug: > POST {AGENT}/rpc ")
    assert asked.endswith(f"; {sent}")
    (answered,) = (line for line in done.err.splitlines() if received in line)
    assert answered.startswith("Debug: < 200 content-type: application/json")


def test_debug_tells_the_beginning_of_what_is_very_long():
    done = holdfast("send", "x" * 200_000, "--debug", "--async")
    (asked,) = (line for line in done.err.splitlines() if line.startswith("Debug: > POST"))
    assert re.search(r"; the first 50000 of 2\d+ characters: \{.*xxx$", asked)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_reply_that_comes_in_pieces_is_logged_as_it_comes(caplog, whole):
    caplog.set_level("DEBUG", "holdfast.cli.wire")
    agent = FakeAgent()
    request = HttpRequest(method="GET", url=f"{AGENT}/.well-known/agent-card.json")
    async with LoggedEngine(FakeNetwork(agent)).stream(request) as stream:
        if whole:
            body = await stream.read()
        else:
            body = b"".join([chunk async for chunk in stream.chunks()])
    asked, answered, *pieces = [record.getMessage() for record in caplog.records]
    assert asked.startswith(f"> GET {AGENT}/.well-known/agent-card.json")
    assert answered.startswith("< 200 content-type: application/json")
    assert "".join(piece.removeprefix("< ") for piece in pieces) == body.decode()


async def test_a_reply_that_comes_in_pieces_is_logged_in_whole_lines(caplog):
    class Pieces:
        status, headers = 200, {}

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pass

        async def chunks(self):
            for piece in (b"data: sec", b"ret\n\ndata", b": x\r\n", b"data: y\rend"):
                yield piece

        def stream(self, _request):
            return self

    caplog.set_level("DEBUG", "holdfast.cli.wire")
    engine = LoggedEngine(Pieces())
    async with engine.stream(HttpRequest(method="GET", url=AGENT)) as stream:
        assert len([chunk async for chunk in stream.chunks()]) == 4
    _, _, *lines = [record.getMessage().rstrip() for record in caplog.records]
    assert lines == ["< data: secret", "< data: x", "< data: y", "< end"]


def test_without_debug_only_the_wait_before_a_retry_is_reported():
    agent = FakeAgent(lambda _: completes("done", after=3))
    agent.inject(Respond(status=503), on="GetTask")
    done = holdfast("send", "hello", agent=agent)
    assert (done.exit, done.last_word) == (0, "")
    assert done.err.count("\n") == 1


def test_debug_shows_where_something_broke():
    class Broken(Echoing):
        async def request(self, request):
            raise ZeroDivisionError

    done = holdfast("send", "hello", "--debug", engine=lambda **_: Broken())
    assert "Traceback" in done.err
    assert "ZeroDivisionError" in done.err


def test_insecure_turns_verification_off_and_warns():
    asked = []
    network = FakeNetwork(FakeAgent())

    def engine(*, verify):
        asked.append(verify)
        return network

    holdfast("send", "hello", engine=engine)
    done = holdfast("send", "hello", "--insecure", "-o", "json", engine=engine)
    assert asked == [True, False]
    assert done.json["task"]
    assert "Warning: --insecure" in done.err
    assert "SECURITY" not in done.err


@pytest.mark.parametrize(
    "flags",
    [["--bearer", SECRET], ["--api-key", SECRET], ["--svc-param", f"X-Auth-Token:{SECRET}"],
     ["--svc-param", "X-Session:7"]],
)  # fmt: skip
def test_insecure_with_a_credential_warns_of_that(flags):
    done = holdfast("card", "get", *flags, env={"A2ACLI_INSECURE": "1"})
    assert "Warning: SECURITY: a credential" in done.err


def test_insecure_with_a_key_in_the_cards_address_warns_of_that():
    done = holdfast("card", "get", "--insecure", card=f"{AGENT}/card.json?key={SECRET}")
    assert "Warning: SECURITY: a credential" in done.err
    harmless = holdfast("card", "get", "--insecure", card=f"{AGENT}/card.json?v=1")
    assert "SECURITY" not in harmless.err


def test_a_failure_inside_shows_no_service_parameter():
    class Broken(Echoing):
        async def request(self, request):
            if request.url.endswith(".json"):
                return await super().request(request)
            raise ZeroDivisionError(str(request.headers))

    done = holdfast("send", "hi", "--debug", "--svc-param", f"x-my-key:{SECRET}",
                    engine=lambda **_: Broken())  # fmt: skip
    assert "ZeroDivisionError: " in done.err
    assert SECRET not in done.err


@pytest.mark.rule("P28")
def test_what_steers_a_terminal_does_not_get_through():
    evil = (
        "\x1b[31mred\x1b[0m\x1b]0;title\x07 \x9b2J\r\x08\u202eend\x00\ud800\u061c\u200b\U000e0041"
    )
    agent = FakeAgent(lambda _: asks(evil))
    done = holdfast("send", "hello", agent=agent)
    assert "red" in done.out
    assert "end" in done.out
    hidden = "\x1b\x9b\x07\x08\u202e\x00\u061c\u200b\U000e0041"
    assert not set(done.out + done.err) & {*hidden, "\r"}
    assert r"\x1b[31mred\x1b[0m" in done.out
    document = holdfast("send", "hello", "-o", "json", agent=FakeAgent(lambda _: asks(evil)))
    assert document.json["task"]["status"]["message"]["parts"][0]["text"] == evil
    assert not set(document.out) & set(hidden)


WORDS = "Größe 日本 😀"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_a_document_loses_nothing_in_any_encoding(encoding):
    done = holdfast("send", WORDS, "-o", "json", encoding=encoding)
    assert done.json["task"]["artifacts"][0]["parts"] == [{"text": WORDS}]
    assert (WORDS in done.out) == (encoding == "utf-8")


def test_text_tells_what_its_encoding_cannot():
    agent = FakeAgent(lambda _: completes(WORDS))
    done = holdfast("send", "hello", agent=agent, encoding="ascii")
    assert "Text:\nGr\\xf6\\xdfe \\u65e5\\u672c \\U0001f600\n" in done.out


def test_a_diagnostic_tells_what_its_encoding_cannot():
    done = holdfast("send", WORDS, "日本", encoding="ascii")
    assert "\\u65e5\\u672c" in done.err


# ── Values ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("1m30s", 90), ("500ms", 0.5), ("2h", 7200), ("1.5m", 90),
     (" 5s ", 5), ("0.25", 0.25), ("1h0m1s", 3601)],
)  # fmt: skip
def test_durations(text, seconds):
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "1d", "1 s", "1s1", "1e3", "inf", "nan", "0", "0s", "٣s", "1m30"]
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match=r"duration|must be greater"):
        read_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(900, "15m"), (2, "2s"), (90, "1m30s"), (0.5, "500ms"), (7200, "2h"), (1.5, "1.5s"),
     (0.0001, "1ms")],
)  # fmt: skip
def test_durations_are_shown_as_people_write_them(seconds, text):
    assert shown_duration(seconds) == text


@pytest.mark.parametrize(
    ("reference", "meaning"),
    [
        ("agent.example.com", "https://agent.example.com"),
        ("agent.example.com:8443", "https://agent.example.com:8443"),
        ("b\u00fccher.example", "https://b\u00fccher.example"),
        ("b\u00fccher.example:8443/x", "https://b\u00fccher.example:8443/x"),
        ("agent.example.com/agents/x", "https://agent.example.com/agents/x"),
        ("agent.example.com/card.json", "https://agent.example.com/card.json"),
        ("10.0.0.7:8000", "https://10.0.0.7:8000"),
        ("localhost", "http://localhost"),
        ("LOCALHOST:8000", "http://LOCALHOST:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("[2001:db8::1]", "https://[2001:db8::1]"),
        ("http://agent.example.com", "http://agent.example.com"),
        ("HTTPS://agent.example.com/x", "HTTPS://agent.example.com/x"),
    ],
)
def test_references_to_hosts(reference, meaning):
    assert read_reference(reference) == meaning


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ("card.json", "card.json"),
        ("./x", "x"),
        ("/etc/card", "/etc/card"),
        ("../card.json", "../card.json"),
        ("file:///tmp/a%20b.json", "/tmp/a b.json"),
        ("file://localhost/tmp/c.json", "/tmp/c.json"),
    ],
)
def test_references_to_files(reference, path):
    assert str(read_reference(reference)) == path


@pytest.mark.parametrize(
    ("reference", "shown"),
    [
        ("https://e.test/agents/@me", "https://e.test/agents/@me"),
        ("https://e.test:8443/agents/@me", "https://e.test:8443/agents/@me"),
        ("https://me:pw@e.test/x", "https://***@e.test/x"),
        ("https://me:p/w@e.test/x", "https://***@e.test/x"),
        ("me:pw@e.test", "***@e.test"),
        ("https://e.test/c.json?key=a&b=c", "https://e.test/c.json?key=***&b=***"),
        ("https://e.test/c.json?secret", "https://e.test/c.json?***"),
        ("https://e.test/c.json?c2VjcmV0==", "https://e.test/c.json?***"),
        ("/home/@me/card.json", "/home/@me/card.json"),
        ("e.test", "e.test"),
    ],
)
def test_references_are_shown_without_what_may_be_secret(reference, shown):
    assert masked_reference(reference) == shown


@pytest.mark.parametrize("scheme", ["", "https://"])
def test_a_host_of_other_letters_is_called_by_its_ascii_form_or_refused(scheme):
    network = FakeNetwork(FakeAgent(url="https://xn--bcher-kva.example"))
    given = {"engine": lambda **_: network}
    assert holdfast("send", "hello", card=f"{scheme}b\u00fccher.example", **given).exit == 0
    done = holdfast("send", "hello", card=f"{scheme}\u0440\u0430ypal.example", **given)
    assert (done.exit, "mixes Cyrillic and Latin letters" in done.err) == (2, True)


def test_a_file_of_the_working_directory_does_not_stand_in_for_a_host(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cards").mkdir()
    hosts = ("agent", "agent.example", "localhost", "agent.example:443", "b\u00fccher.example")
    for name in (*hosts, "cards/agent"):
        (tmp_path / name).write_text("{}")
    assert str(read_reference("cards/agent")) == "cards/agent"
    assert str(read_reference("./agent.example")) == "agent.example"
    assert read_reference("other") == "https://other"
    for name in hosts:
        with pytest.raises(ValueError, match=f"write https?://{name} or ./{name}"):
            read_reference(name)


# ── What to do next ──────────────────────────────────────────────────────────────────────────


def offering(url, binding="JSONRPC", version="1.0"):
    """An agent whose card has one interface."""
    interface = AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
    return FakeAgent(card=AgentCard(name="a", version="1", supported_interfaces=(interface,)))


ENDPOINT = "--endpoint URL --transport BINDING in place of --agent-card"
PAST_CARD = f"to call another address: {ENDPOINT}"


@pytest.mark.parametrize(
    ("agent", "message", "hint"),
    [
        (
            offering("ftp://agent.test/rpc"),
            (
                "supportedInterfaces[0].url begins with ftp://, but the binding JSONRPC needs "
                "http:// or https:// (agent http://agent.test/.well-known/agent-card.json"
            ),
            f"the card's author has to correct the card; {PAST_CARD}",
        ),
        (
            offering(f"{AGENT}/nope"),
            "HTTP 404 Not Found",
            (
                f"the address comes from the agent's card: holdfast card get --agent-card {AGENT} "
                f"shows it; {PAST_CARD}"
            ),
        ),
        (
            offering(f"{AGENT}/rpc", version="2.0"),
            "speaks protocol 2.0; this client speaks 1.0 and 0.3",
            f"the agent's card offers 2.0; holdfast speaks 1.0 and 0.3; {PAST_CARD}",
        ),
        (
            offering("ws://agent.test/", "WEBSOCKET"),
            "offers only WEBSOCKET; this client speaks JSONRPC, HTTP+JSON",
            f"if the agent has an address for JSONRPC, HTTP+JSON or GRPC: {ENDPOINT}",
        ),
    ],
    ids=["scheme", "path", "version", "binding"],
)
def test_a_card_that_leads_nowhere_is_named_with_what_to_do(agent, message, hint):
    done = holdfast("send", "hi", "-o", "json", agent=agent)
    assert done.exit == 1
    assert message in done.error["message"]
    assert done.error["hint"] == hint


def test_a_card_file_with_a_wrong_address_is_to_be_corrected(tmp_path):
    agent, path = offering("ftp://agent.test/rpc"), tmp_path / "card.json"
    path.write_bytes(msgspec.json.encode(agent.card))
    done = holdfast("send", "hi", "-o", "json", card=str(path))
    assert done.error["hint"] == f"correct the interface in {path}"


def test_an_endpoint_without_an_agent_names_the_card_that_has_the_path():
    words = ["--endpoint", f"{AGENT}/nope", "--transport", "jsonrpc", "-o", "json"]
    done = holdfast("send", "hi", *words, card=None)
    assert done.error["hint"] == (
        "check the path of --endpoint; the agent's card names the right one: holdfast card get "
        f"--agent-card {AGENT}"
    )


def test_a_refused_version_is_named_with_those_of_the_card():
    agent = FakeAgent()
    agent.inject(Fail(code=-32009, message="no"), on="SendMessage")
    error = holdfast("send", "hi", "-o", "json", agent=agent).error
    assert "protocol 1.0 was used, and the card declares 1.0" in error["message"]
    assert error["hint"] == "if the agent speaks 0.3: --a2a-version 0.3"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["send", "hi", "--transport", "jsonrcp"], "jsonrpc"),
        (["send", "hi", "--transport", "HTTP-JSON"], "HTTP+JSON"),
        (["send", "hi", "--output", "jsn"], "json"),
        (["task", "list", "--status", "Input_requierd"], "input-required"),
        (["task", "list", "--status", "TASK_STATE_WORKNG"], "working"),
        (["auth", "login", "--flow", "devicecode"], "device-code"),
        (["send", "hi", "--output", "yaml"], None),
    ],
)
def test_a_misspelt_value_is_reported_with_the_one_that_is_meant(words, meant):
    done = holdfast(*words)
    error = done.err.splitlines()[0]
    assert (done.exit, error.startswith("Error: Invalid value for ")) == (2, True)
    assert error.endswith(f"; did you mean {meant}?") if meant else "did you mean" not in error
