"""``holdfast conformance``, with stand-ins for both generations of the TCK.

The stand-ins take the arguments that the real runners take (a2aproject/a2a-tck, branches 1.0-dev
and main), run pytest in a process of their own as those do, and fetch the card of the agent.
"""

import json
import os
import select
import signal
import sys
from contextlib import contextmanager

import pytest
from tests.kit.cli_harness import AGENT, holdfast
from tests.kit.cli_process import BOUND, served, start
from tests.kit.tck import kit_at

from holdfast._cli.conformance.tck import find_kit, read_report
from holdfast.testing import FakeAgent, Refuse

SECRET = "s3cret-value-of-mine"


@pytest.fixture
def kit(tmp_path):
    return kit_at(tmp_path / "a2a-tck")


@pytest.fixture
def agent():
    return FakeAgent()


def conformance(agent, directory, *words, **more):
    """Runs the command over sockets."""
    with served(agent) as url:
        return holdfast(
            "conformance", "--tck", str(directory), *words, card=url, on_sockets=True, **more
        )


# ── What is measured ─────────────────────────────────────────────────────────────────────────


def test_conform_001_an_agent_that_passes(agent, kit):
    done = conformance(agent, kit)
    assert (done.exit, done.err) == (0, "")
    assert done.out.splitlines() == [
        "Conformance: pass",
        f"Agent: {done.field('Agent')}",
        f"TCK: {kit}",
        "TCK protocol: 1.0",
        "Level: must",
        "Tests passed: 2",
        "Tests failed: 0",
        "Tests failed as expected: 0",
        "Tests skipped: 1",
    ]


def test_conform_001_an_agent_that_fails_is_no_failure_of_the_tool(agent, tmp_path):
    kit = kit_at(tmp_path / "a2a-tck", name="another")
    done = conformance(agent, kit, "-o", "json")
    found = done.json["conformance"]
    assert (done.exit, found["status"], found["note"]) == (0, "fail", None)
    assert found["tests"] == {"passed": 1, "failed": 1, "expected": 0, "skipped": 1}
    (failed,) = found["failed"]
    assert failed["test"] == "tests.compatibility.test_requirements::test_CARD_MUST_001"
    assert "the name is" in failed["why"]
    assert "Warning: the agent fails 1 of the TCK's tests" in done.err


def test_conform_001_what_it_only_should_do_is_distinguished(agent, kit):
    done = conformance(agent, kit, "--level", "should")
    assert (done.exit, done.field("Conformance"), done.field("Tests failed as expected")) == (
        0,
        "partial",
        "1",
    )


def test_conform_001_the_kit_of_the_older_protocol_and_credentials_in_its_environment(tmp_path):
    agent = FakeAgent(token=SECRET)
    kit = kit_at(tmp_path / "a2a-tck", older=True)
    words = ("--svc-param", "x-trace:1", "--transport", "HTTP+JSON", "--debug")
    done = conformance(agent, kit, *words, env={"A2ACLI_BEARER": SECRET})

    assert (done.exit, done.field("TCK protocol")) == (0, "0.3")
    assert done.field("Tests passed") == "2"
    given = json.loads((kit / "environment.json").read_text())
    assert json.loads(given["A2A_AUTH_HEADERS"]) == {
        "authorization": f"Bearer {SECRET}",
        "x-trace": "1",
    }
    assert not [name for name in given if name.startswith("A2ACLI_")]
    command = (kit / "command.txt").read_text()
    assert "--category mandatory --transports rest" in command
    assert SECRET not in command + done.out + done.err


def test_conform_001_a_kit_that_takes_no_credentials_is_given_none(kit):
    agent = FakeAgent()
    done = conformance(agent, kit, "--bearer", SECRET)
    assert done.exit == 0
    assert "Warning: this TCK sends no credentials" in done.err
    assert SECRET not in (kit / "environment.json").read_text() + (kit / "command.txt").read_text()


# ── What is not ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [(), ("--tck", "/no/such/directory"), ("--tck", "/")])
def test_conform_001_without_the_kit_nothing_is_measured_and_it_says_how_to_get_it(words):
    agent = FakeAgent()
    done = holdfast("conformance", "-o", "json", *words, agent=agent)
    assert done.exit == 1
    assert done.json["conformance"]["status"] == "not_measured"
    assert done.json["conformance"]["tests"]["passed"] == 0
    assert done.error["code"] == "HOLDFAST_ERR_NOT_MEASURED"
    assert "git clone" in done.error["hint"]
    assert "A2ACLI_TCK" in done.error["hint"]
    assert agent.received == []


def test_conform_001_text_says_not_measured_as_well():
    done = holdfast("conformance")
    assert (done.exit, done.field("Conformance")) == (1, "not measured")
    assert "Code: HOLDFAST_ERR_NOT_MEASURED" in done.err


def test_conform_001_an_agent_that_is_not_there_is_an_error_of_its_own(kit):
    agent = FakeAgent()
    agent.inject(Refuse(), on="GetAgentCard", times=99)
    done = holdfast("conformance", "--tck", str(kit), "--timeout", "5s", agent=agent)
    assert done.exit == 3
    assert not (kit / "command.txt").exists()


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("import nothing_of_this_name", "exited with 2 before its run was complete"),
        ("def test_nothing(): import pytest; pytest.skip('so')", "completed no test"),
        ("import os; os._exit(7)", "ended with 7, and it wrote no report"),
    ],
)
def test_conform_001_a_kit_that_does_not_run_is_no_pass(agent, tmp_path, tests, why):
    kit = kit_at(tmp_path / "a2a-tck", tests=tests)
    done = conformance(agent, kit, "--level", "all", "-o", "json")
    assert (done.exit, done.json["conformance"]["status"]) == (1, "not_measured")
    assert why in done.error["message"]


@pytest.mark.parametrize(
    ("words", "card", "why"),
    [
        (("--level", "may"), AGENT, "has only must"),
        ((), f"{AGENT}/?key={SECRET}", "name the agent by its host or origin"),
        ((), "card.json", "name the agent by its host or origin"),
    ],
)
def test_what_the_kit_cannot_be_asked_for(tmp_path, words, card, why):
    kit = kit_at(tmp_path / "a2a-tck", older=True)
    done = holdfast("conformance", "--tck", str(kit), *words, card=card)
    assert (done.exit, done.field("Conformance")) == (1, "not measured")
    assert why in done.err
    assert SECRET not in done.out + done.err


def test_an_interpreter_that_is_not_there(agent, kit):
    done = conformance(agent, kit, "--python", "/no/such/python", "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "HOLDFAST_ERR_NOT_MEASURED")
    assert "/no/such/python cannot be started" in done.error["message"]


# ── Its end ──────────────────────────────────────────────────────────────────────────────────

FOREVER = """
    import time

    def test_forever():
        with open("lifeline", "w") as file:
            file.write("up")
            file.flush()
            time.sleep(600)
"""


@contextmanager
def lifeline(kit):
    """What the innermost process of the kit holds open as long as it lives, and how to read it."""
    os.mkfifo(kit / "lifeline")
    end = os.open(kit / "lifeline", os.O_RDONLY | os.O_NONBLOCK)

    def read():
        ready, _, _ = select.select([end], [], [], BOUND)
        assert ready
        return os.read(end, 100)

    try:
        yield read
    finally:
        os.close(end)


def test_conform_001_the_time_is_bounded(agent, tmp_path):
    kit = kit_at(tmp_path / "a2a-tck", tests=FOREVER)
    os.mkfifo(kit / "lifeline")  # nobody reads it
    done = conformance(agent, kit, "--level", "all", "--timeout", "1s", "-o", "json")
    assert (done.exit, done.error["code"]) == (5, "A2ACLI_ERR_TIMEOUT")
    assert done.json["conformance"]["status"] == "not_measured"


def test_conform_001_ctrl_c_ends_the_kit_and_all_that_it_started(agent, tmp_path):
    kit = kit_at(tmp_path / "a2a-tck", tests=FOREVER)
    words = ("conformance", "--tck", str(kit), "--level", "all", "--python", sys.executable)
    with lifeline(kit) as read, served(agent) as url, start(*words, "-a", url) as process:
        assert read() == b"up"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=BOUND)
        assert read() == b""  # nobody holds it any more
    assert process.returncode == 130
    assert "Traceback" not in err


# ── Reports ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("content", ["", "<testsuites>", "no xml", "\x00"])
def test_a_report_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "report.xml"
    path.write_text(content)
    with pytest.raises(ValueError, match="cannot be read"):
        read_report(path)


def test_a_test_that_fails_in_itself_and_after_it_counts_once(tmp_path):
    path = tmp_path / "report.xml"
    path.write_text(
        '<testsuites><testsuite><testcase classname="a" name="b"><failure message="x"/>'
        '<error message="y"/></testcase><testcase name="c"/></testsuite></testsuites>'
    )
    report = read_report(path)
    assert (report.counts.failed, report.counts.passed) == (1, 1)
    assert report.status == "fail"


def test_a_kit_is_known_by_its_layout(tmp_path):
    assert find_kit(tmp_path) is None
    (tmp_path / "run_tck.py").write_text("")
    assert find_kit(tmp_path) is None
    (tmp_path / "tests" / "mandatory").mkdir(parents=True)
    assert find_kit(tmp_path).layout.version == "0.3"
    (tmp_path / "tests" / "compatibility").mkdir()
    assert find_kit(tmp_path).layout.version == "1.0"
