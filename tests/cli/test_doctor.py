"""``holdfast doctor``: what is shown, in which form, and which exit code it ends with."""

import json
import os
import pty
import re
import signal
import ssl
import subprocess
import sys
import threading

import msgspec
import pytest
import trustme
from tests.kit.cli_canary import CANARY, PLACES, guarded
from tests.kit.cli_harness import AGENT, holdfast
from tests.kit.cli_process import BOUND, environment, served, start
from tests.kit.doctor_facts import TABLE
from tests.kit.effort import crossed
from tests.kit.raw_server import serve_in_thread

from holdfast._cli.output.doctor_text import Paper, render_diagnosis
from holdfast._doctor.checks import run_checks
from holdfast.doctor import Diagnosis, Finding
from holdfast.testing import FakeAgent, FakeNetwork, Respond, Stall, streams
from holdfast.types import AgentCard, AgentInterface

FORMS = pytest.mark.parametrize("form", ["text", "json"])


def card_at(url, **members):
    interface = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    return AgentCard(name="Agent", supported_interfaces=(interface,), **members)


# ── What is shown ────────────────────────────────────────────────────────────────────────────


def test_text_is_fields_and_blocks():
    done = holdfast("doctor")

    assert done.exit == 0
    assert done.field("Agent") == "Fake agent"
    assert done.field("Address") == AGENT
    assert done.field("Result").startswith("0 problems, ")
    lines = done.out.splitlines()
    titles = [line for line in lines if re.fullmatch(r"[A-Z][A-Za-z ]*:", line)]
    assert titles == [
        "Card:", "Connection:", "Authentication:", "Interface:", "Interface:", "Streams:",
        "Not measured:", "Problems and warnings:",
    ]  # fmt: skip
    for title in titles:  # each block ends with an empty line
        start = lines.index(title)
        assert "" in lines[start:]
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in done.out


def test_what_means_little_is_not_explained_unless_that_is_asked_for():
    brief, whole = holdfast("doctor"), holdfast("doctor", "--verbose")

    assert "  ok       found at" in brief.out
    assert "  ok       card.found: found at" in whole.out
    assert "means" in brief.out  # of what is no more than worth knowing, too


def test_json_is_one_document():
    done = holdfast("doctor", "-o", "json")

    assert done.exit == 0
    assert list(done.json) == ["diagnosis"]
    found = done.json["diagnosis"]
    assert found["agent"] == AGENT
    assert found["healthy"] is True
    assert {"check", "level", "saw"} <= set(found["findings"][0])


@pytest.mark.parametrize("with_problem", [False, True])
def test_problems_shows_problems_and_warnings_only(with_problem):
    scene = wants_token() if with_problem else {}
    whole, wrong = (holdfast("doctor", *words, **scene) for words in ((), ("--problems",)))
    document = holdfast("doctor", "--problems", "-o", "json", **scene).json["diagnosis"]

    assert wrong.exit == whole.exit
    assert wrong.field("Result") == whole.field("Result")
    levels = set(re.findall(r"(?m)^  (ok|info|warning|problem) ", wrong.out))
    assert levels == ({"warning", "problem"} if with_problem else {"warning"})
    assert levels == {finding["level"] for finding in document["findings"]}
    assert "Not measured:" not in wrong.out
    assert "Hint: --send" not in wrong.err


def test_json_lines_is_one_line():
    assert holdfast("doctor", "-o", "json", "--stream").out.count("\n") == 1


def test_without_a_message_the_hint_names_the_option():
    done = holdfast("doctor")

    assert done.err == "Hint: --send TEXT checks more; the agent executes the text, once\n"


def test_where_no_call_works_no_message_is_advised():
    done = holdfast("doctor", **wants_token())

    assert "--send" not in done.err
    assert "--bearer" in done.err


def test_what_will_be_sent_is_said_before():
    agent = FakeAgent()

    done = holdfast("doctor", "--send", "hello", agent=agent)

    assert done.exit == 0
    assert done.err == "Sending: the message is sent once, and the agent executes it\n"
    assert [len(made) for made in agent.executions.values()] == [1]
    assert done.field("Message ID") in agent.executions
    assert "Messages:\n" in done.out


def test_twice_is_two_times():
    agent = FakeAgent()

    done = holdfast("doctor", "--send", "hello", "--twice", agent=agent)

    assert "Sending: the message is sent 2 times" in done.err
    assert [len(made) for made in agent.executions.values()] == [2]
    assert done.field("Message ID")


def test_text_of_the_agent_steers_no_terminal():
    agent = FakeAgent(
        card=card_at(f"{AGENT}/rpc", description="x").to_dict() | {"name": "\x1b[2J"}
    )

    assert "\x1b" not in holdfast("doctor", agent=agent).out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--twice"], "--send TEXT"),
        (["--send", ""], "no text"),
        (["--stream"], "-o json"),
        (["one"], "unexpected extra argument"),
    ],
)
def test_options_that_cannot_be_right(words, why):
    done = holdfast("doctor", *words, "-o", "text")

    assert (done.exit, done.out) == (2, "")
    assert why in done.err


def test_help_says_what_is_sent_and_what_the_exit_codes_are():
    told = " ".join(holdfast("doctor", "--help", card=None).out.split())

    assert "Nothing is sent that the agent would execute" in told
    assert "Exit codes: 0 if there is no problem" in told


# ── Exit codes ───────────────────────────────────────────────────────────────────────────────


def nobody():
    return {"engine": lambda **_: FakeNetwork()}


def without_card():
    agent = FakeAgent()
    agent.inject(Respond(status=404), on="GetAgentCard", times=9)
    return {"agent": agent}


def wants_token():
    agent = FakeAgent()
    challenge = Respond(status=401, headers={"www-authenticate": "Bearer"})
    agent.inject(challenge, times=99)
    return {"agent": agent}


def stalls():
    agent = FakeAgent()
    agent.inject(Stall(), on="ListTasks", times=9)
    return {"agent": agent}


def says_localhost():
    return {"agent": FakeAgent(card=card_at("http://localhost/rpc"))}


CASES = {
    "nobody is there": (nobody, [], 3, "A2ACLI_ERR_UNREACHABLE"),
    "there is no card": (without_card, [], 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
    "the card is none": (lambda: {"agent": FakeAgent(card=[])}, [], 1, "A2ACLI_ERR_CARD_INVALID"),
    "credentials are missing": (wants_token, [], 4, "A2ACLI_ERR_CREDENTIALS_MISSING"),
    "credentials are wrong": (wants_token, ["--bearer", "x1"], 4, "A2ACLI_ERR_AUTH_FAILED"),
    "the time is over": (stalls, ["--timeout", "10s"], 5, "A2ACLI_ERR_TIMEOUT"),
    "the card is wrong": (says_localhost, [], 1, "HOLDFAST_ERR_UNHEALTHY"),
    "a version that is not spoken": (
        dict,
        ["--a2a-version", "7.0"],
        1,
        "VersionNotSupportedError",
    ),
}


@pytest.mark.parametrize(("given", "words", "code", "name"), CASES.values(), ids=CASES)
@FORMS
def test_the_exit_code_says_what_keeps_calls_from_working(given, words, code, name, form):
    done = holdfast("doctor", *words, "-o", form, **given())

    assert done.exit == code
    if form == "json":
        assert done.error["code"] == name
        if "version" not in name.lower():
            assert done.json["diagnosis"]["findings"]
    else:
        assert f"\nCode: {name}\n" in done.err


def test_what_was_found_until_the_time_was_over_is_shown():
    done = holdfast("doctor", "--timeout", "10s", **stalls())

    assert done.field("Result").partition("; ")[2].startswith("incomplete: ")
    assert "Card:\n  ok       found at" in done.out
    assert "the time limit of 10 s expired" in done.out


def test_warnings_change_no_exit_code():
    done = holdfast("doctor", agent=FakeAgent(lists_tasks=False))

    assert "  warning  " in done.out
    assert done.exit == 0


# ── Settings ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("location", ["header", "query", "cookie"])
def test_credentials_go_where_the_card_wants_them(location):
    agent = guarded(location)

    done = holdfast("doctor", "--api-key", "the-own-key", agent=agent)

    assert done.exit == 0
    with_key = [r for r in agent.received if "the-own-key" in f"{r.url} {dict(r.headers)}"]
    bare = [r for r in agent.received if r.operation == "GetTask" and r not in with_key]
    assert {r.operation for r in with_key} >= {"GetTask", "ListTasks", "SubscribeToTask"}
    assert len(bare) == 1  # what callers without credentials are answered
    assert "the-own-key" not in done.out + done.err


def test_service_parameters_go_along():
    agent = FakeAgent(bindings=("JSONRPC",))

    holdfast("doctor", "--svc-param", "x-own:mine", agent=agent)

    assert any(received.headers.get("x-own") == "mine" for received in agent.calls("ListTasks"))


def test_the_message_goes_out_in_the_version_that_is_asked_for():
    agent = FakeAgent(versions=("0.3",))

    assert "1.0 was requested" in " ".join(
        holdfast("doctor", "--send", "x", "--a2a-version", "1.0", agent=agent).out.split()
    )
    assert agent.executions == {}

    assert holdfast("doctor", "--send", "x", "--a2a-version", "0.3", agent=agent).exit == 0
    assert len(agent.executions) == 1


def test_the_message_goes_over_the_transport_that_is_preferred():
    agent = FakeAgent()

    holdfast("doctor", "--send", "x", "--transport", "HTTP+JSON", agent=agent)

    assert "/rest" in agent.calls("SendStreamingMessage")[0].url


def test_a_card_can_be_a_file(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(card_at(f"{AGENT}/rpc").to_json())

    done = holdfast("doctor", card=str(path))

    assert done.exit == 0
    assert f"read from {path}" in " ".join(done.out.split())


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────


def echoing():
    agent = FakeAgent(bindings=("JSONRPC",))
    told = Respond(
        status=401,
        headers={"www-authenticate": f"Bearer realm={CANARY}", "ratelimit-limit": CANARY},
        body=f'{{"error": "no {CANARY}"}}'.encode(),
    )
    agent.inject(told, on="GetTask", times=9)
    return agent


@crossed("place, form, agent", PLACES, ["text", "json"], [FakeAgent, echoing], turns=2)
def test_no_credential_is_shown(tmp_path, place, form, agent):
    place = PLACES[place]
    own = tmp_path / ".config" / "a2a-cli" / ".env"
    own.parent.mkdir(parents=True)
    own.write_text(place.file)
    own.chmod(0o600)

    done = holdfast(
        "doctor", "--send", "hello", "--verbose", "--debug", *place.words, "-o", form,
        card=place.card or None, env=place.env, home=tmp_path, agent=agent(),
    )  # fmt: skip

    for piece in ("canary", "4bd1f0a7"):
        assert piece not in done.out
        assert piece not in done.err


# ── As a process ─────────────────────────────────────────────────────────────────────────────


@FORMS
def test_ctrl_c_shows_what_was_found_so_far(form):
    arrived = threading.Event()

    def goes_on(_turn):
        arrived.set()
        return streams("one", "two", every=3000)

    agent = FakeAgent(goes_on)
    with served(agent) as url, start("doctor", "--send", "go", "-a", url, "-o", form) as process:
        assert arrived.wait(BOUND)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "Hint: holdfast task" in err or "was in flight" in err
    if form == "json":
        found = json.loads(out)["diagnosis"]
        assert found["messageIds"] == list(agent.executions)
        assert (found["complete"], found["healthy"]) == (False, False)
        assert found["stopped"] == "the examination was interrupted"
    else:
        assert "Card:\n  ok       found at" in out
        assert out.endswith("; incomplete: the examination was interrupted\n")
        assert "no list of tasks" not in out
    assert agent.calls("CancelTask") == []


def on_a_terminal(*words, **more):
    """What somebody sees at a terminal of 60 columns."""
    mine, other = pty.openpty()
    subprocess.run(["stty", "cols", "60"], stdin=other, check=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], stdin=other, stdout=other, stderr=other,
        env=environment(TERM="xterm", **more),
    )  # fmt: skip
    os.close(other)
    seen = b""
    try:
        while piece := os.read(mine, 65536):
            seen += piece
    except OSError:
        pass  # how Linux says that nobody has the other end any more
    assert process.wait(BOUND) == 0
    os.close(mine)
    return seen.decode()


def test_a_terminal_shows_colours_and_progress():
    with served(FakeAgent()) as url:
        seen = on_a_terminal("doctor", "-a", url)

    assert "\x1b[32mok\x1b[0m" in seen
    assert f"examining {url}" in seen
    shown = re.sub(r"\x1b\[[0-9;]*[mK]", "", seen.rpartition("\r\x1b[K")[2])
    words = [line for line in shown.splitlines() if "http" not in line and "Hint" not in line]
    assert max(map(len, words)) <= 80
    assert len([line for line in words if len(line) > 60]) <= 2  # fields are not wrapped


def test_a_terminal_without_colours_shows_none():
    with served(FakeAgent()) as url:
        seen = on_a_terminal("doctor", "-a", url, NO_COLOR="1")

    assert "\x1b[3" not in seen


def test_a_certificate_that_is_unknown_is_a_problem_also_where_it_is_not_verified():
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    with serve_in_thread(ssl=context) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        refused = holdfast("doctor", card=url, on_sockets=True)
        looked = holdfast("doctor", "--insecure", "-o", "json", card=url, on_sockets=True)

    assert refused.exit == 3
    assert "is not trusted: " in refused.out
    checks = {f["check"]: f for f in looked.json["diagnosis"]["findings"]}
    assert checks["tls.certificate"]["level"] == "problem"
    assert "Warning: --insecure" in looked.err


# ── Rendering ────────────────────────────────────────────────────────────────────────────────


def rendered(*findings, columns=80):
    on = Paper(columns)
    return list(render_diagnosis(Diagnosis(agent="x", name="", findings=findings), on))


def test_what_is_not_measured_is_reported_in_words_by_its_reason():
    assert rendered(
        Finding("streaming.begins", "not measured", "no message"),
        Finding("list.time", "not measured", "a proxy", about="one"),
        Finding("recording.task", "not measured", "no message"),
        Finding("list.time", "not measured", "a proxy", about="other"),
        Finding("tls.version", "not measured", "a proxy"),
        columns=100,
    ) == [
        "Address: x",
        "Not measured:",
        "  whether streams begin, and whether a task keeps its message (2 checks): no message",
        "  the list of tasks by time, and TLS (3 checks): a proxy",
        "",
        "Result: 0 problems, 5 checks not measured",
    ]


def test_checks_that_belong_together_are_reported_together():
    done = holdfast("doctor")

    assert (
        "  streams, subscriptions, and messages (11 checks): no test message was passed\n"
        in done.out
    )
    unmeasured = done.out.partition("Not measured:\n")[2].partition("\n\n")[0]
    assert not re.search(r"[a-z]\.[a-z]", unmeasured)


def test_unmeasured_check_is_not_reported_by_its_name():
    found = [finding for row in TABLE for finding in run_checks(row[0], now=0.0)]
    unmeasured = [
        msgspec.structs.replace(finding, saw=f"why {number}")
        for number, finding in enumerate(found)
        if finding.level == "not measured"
    ]

    told = " ".join(rendered(*unmeasured))
    assert len(unmeasured) > 100
    assert [finding.check for finding in unmeasured if finding.check in told] == []


def test_problems_and_warnings_of_a_long_report_are_reported_again_at_its_end():
    fine = [Finding("card.found", "ok", f"fine {number}") for number in range(30)]
    lines = rendered(
        Finding("card.type", "warning", "odd", "m", "d"),
        Finding("bindings.answers", "problem", "nobody", "m", "d", "one"),
        Finding("bindings.answers", "problem", "nobody", "m", "d", "other"),
        Finding("versions.spoken", "problem", "word " * 200, "m", "d", "one"),
        *fine,
        Finding("tls.version", "not measured", "a proxy"),
    )

    last = lines[lines.index("Problems and warnings:") :]
    assert last[:2] == ["Problems and warnings:", "  problem  nobody (2 times)"]
    assert last[2].startswith("  problem  word word")
    assert last[3].startswith(" " * 11 + "word")
    assert last[3].endswith(" …")
    assert last[4:] == [
        "  warning  odd", "", "Result: 3 problems, 1 warning, 30 ok, 1 check not measured",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80


def test_lines_about_an_interface_name_its_binding_and_version():
    older = {"about": "JSONRPC 0.3 http://x", "binding": "JSONRPC", "version": "0.3"}
    newer = {"about": "JSONRPC 1.0 http://x", "binding": "JSONRPC", "version": "1.0"}
    lines = rendered(
        Finding("errors.task", "warning", "odd", "m", **newer),
        Finding("errors.task", "warning", "odd", "m", **older),
        Finding("sending.answer", "ok", "a task", **newer),
        Finding("list.time", "not measured", "a proxy", **older),
        Finding("list.time", "not measured", "a proxy", **newer),
        *[Finding("card.found", "ok", "fine")] * 20,
    )

    assert lines.count("  JSONRPC 1.0 http://x") == 1
    assert lines.count("  JSONRPC 0.3 http://x") == 1
    assert lines.count("  warning  JSONRPC 1.0: odd") == 2  # and again at the end
    assert lines.count("  warning  JSONRPC 0.3: odd") == 2
    assert lines[lines.index("Messages:") + 1] == "  ok       JSONRPC 1.0: a task"
    assert "  the list of tasks by time (JSONRPC 0.3; 1 check): a proxy" in lines
    assert "  the list of tasks by time (JSONRPC 1.0; 1 check): a proxy" in lines


def test_problems_on_one_screen_are_reported_once():
    assert "Problems and warnings:" not in rendered(Finding("card.type", "warning", "odd"))
    fine = [Finding("card.found", "ok", "fine")] * 30
    assert "Problems and warnings:" not in rendered(*fine)


def test_long_lines_are_wrapped_below_each_other():
    findings = (Finding("card.members", "warning", "a b " * 20, "c d " * 20, "e f " * 20),)
    on = Paper(40)
    lines = list(render_diagnosis(Diagnosis(agent="x", name="", findings=findings), on))

    block = lines[lines.index("Card:") + 1 : -2]
    assert all(len(line) <= 40 for line in block)
    assert block[0].startswith("  warning  a b")
    assert block[1].startswith("           b a")
    assert [line[11:18] for line in block if line[11:].startswith(("means", "do"))] == [
        "means  ",
        "do     ",
    ]


def test_every_group_has_a_block():
    from holdfast._cli.output.doctor_text import _ORDER, _TITLES

    assert set(_TITLES.values()) == {title for title in _ORDER if title}
