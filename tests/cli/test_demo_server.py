"""``holdfast demo-server``: the words, the faults, and the server itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from tests.kit.cli_harness import holdfast

from holdfast import TaskFailedError, TaskState, connect, text_part
from holdfast._cli.demo_agent import FAULTS, SETS, WORDS, DemoAgent, read_faults
from holdfast._server.host_check import host_rules
from holdfast.errors import PushNotificationNotSupportedError, TaskRejectedError
from holdfast.extend import HttpRequest
from holdfast.testing import (
    Cut,
    Delay,
    Duplicate,
    Fail,
    FakeNetwork,
    Garbage,
    Reset,
    Stall,
    bad_gateway,
    rate_limited,
    unavailable,
)
from holdfast.types import TaskPushNotificationConfig

LINES = []


def demo(faults=""):
    """A demo agent, and a client of it."""
    LINES.clear()
    agent = DemoAgent(read_faults(faults), log=LINES.append)
    return agent, connect(agent.url, engine=FakeNetwork(agent))


# ── Words ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("echo hello there", "hello there"),
        ("echo hello", "hello"),
        ("  Echo hello ", "hello"),
        ("stream one two", "one two "),
        ("stream", "one word after the other "),
        ("slow 3 well", "well"),
        ("slow 3", "That took 3 s."),
        ("slow well", "well"),
        ("auth", "authorized"),
        ("message hi", "hi"),
    ],
)
async def test_a_word_says_what_is_done(text, answer):
    _, client = demo()

    assert (await client.ask(text)).text == answer


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("How far is the MOON?", "384,400 km away"),
        ("hello there", "Hello! I am the Holdfast demo agent."),
        ("three little words", "“three little words”, 3 words and 18 characters"),
        ("one", "“one”, 1 word and 3 characters"),
        ("", "Your message has no text"),
    ],
)
async def test_another_message_is_answered_word_by_word(text, says):
    _, client = demo()

    async with client.stream_message([text_part(text)]) as events:
        pieces = [piece async for piece in events.text_deltas()]

    assert says in "".join(pieces)
    assert len(pieces) > 10


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("fail no paper", TaskFailedError, "no paper"),
        ("reject no paper", TaskRejectedError, "no paper"),
        ("slow nan", TaskRejectedError, "between 0 and 3600"),
        ("slow 1e9", TaskRejectedError, "between 0 and 3600"),
    ],
)
async def test_a_task_that_does_not_go_well(text, error, why):
    _, client = demo()

    with pytest.raises(error, match=why):
        await client.ask(text)


async def test_demo_agent_declares_no_push_notifications_and_no_configuration_is_created():
    agent = DemoAgent((), log=LINES.append)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        card = await client.agent_card()
        assert card.capabilities.push_notifications is False
        config = TaskPushNotificationConfig(task_id="task-1", url="http://127.0.0.1:8000/push")
        with pytest.raises(PushNotificationNotSupportedError):
            await client.create_task_push_notification_config(config)


async def test_a_question_and_its_answer():
    _, client = demo()

    asked = await client.ask("ask Your name?")
    answer = await client.ask("Ada", task_id=asked.task_id)

    assert (asked.question, answer.text) == ("Your name?", "You said: Ada")


async def test_request_of_the_how_to_pages_is_answered_with_a_question():
    _, client = demo()

    assert (
        await client.ask("Book a table for two.")
    ).question == "When shall I book a table for two?"


async def test_a_server_that_is_started_again_gives_no_task_the_id_of_one_before():
    made = []
    for _ in range(2):
        _, client = demo()
        async with client:
            made.append(await client.send_message("hello"))
    one, another = made

    assert one.id != another.id
    assert one.context_id != another.context_id


async def test_files_and_objects_are_sent_and_sent_back():
    _, client = demo()

    file = (await client.ask("file a.txt")).task.artifacts[0].parts[0]
    value = (await client.ask('data {"n": [1]}')).task.artifacts[0].parts[0]
    back = (await client.ask(["hello", file, value])).task.artifacts[0].parts

    assert (file.filename, file.raw) == ("a.txt", b"This is a.txt.\n")
    assert value.data == {"n": [1]}
    assert [part.text or part.raw or part.data for part in back] == ["hello", file.raw, value.data]
    with pytest.raises(TaskRejectedError, match="JSON"):
        await client.ask("data {")


async def test_what_takes_for_ever_can_be_canceled():
    _, client = demo()
    task = await client.send_message("forever", return_immediately=True)

    canceled = await client.cancel_task(task.id)

    assert canceled.state is TaskState.CANCELED


async def test_what_takes_long_says_how_far_it_is():
    _, client = demo()
    async with client.stream_message("slow 8 done") as events:
        statuses = [event.status async for event in events if hasattr(event, "status")]
        said = [status.message.text for status in statuses if status.message is not None]

    assert said == ["0 %", "25 %", "50 %", "75 %"]


async def test_the_card_and_the_help_tell_every_word():
    _, client = demo()

    card = await client.agent_card()
    lines = (await client.ask("help")).text.splitlines()

    assert [skill.id for skill in card.skills] == list(WORDS)
    assert [line.split()[0] for line in lines] == list(WORDS)
    assert card.name == "Holdfast demo agent"
    assert {i.protocol_binding for i in card.supported_interfaces} == {"JSONRPC", "HTTP+JSON"}
    extended = await client.get_extended_agent_card()
    assert extended.skills == card.skills


# ── Faults ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "faults"),
    [
        ("", []),
        ("ok", [None]),
        ("rate-limit, unavailable:7", [rate_limited(1), unavailable(7)]),
        ("2xreset,lost", [Reset(), Reset(), Reset(after_execution=True)]),
        ("cut,end:0", [Cut(after_events=2), Cut(after_events=0, clean=True)]),
        ("3xcut:1", [Cut(after_events=1)] * 3),
        ("stall:1,twice", [Stall(phase="idle", after_events=1), Duplicate(event=2)]),
        ("delay,garbage", [Delay(seconds=3), Garbage()]),
        ("bad-gateway,error", [bad_gateway(), Fail(code=-32603)]),
        ("error:32001,error:-32001", [Fail(code=-32001)] * 2),
    ],
)
def test_how_faults_are_written(written, faults):
    assert [each.fault for each in read_faults(written)] == faults


@pytest.mark.parametrize("name", [*FAULTS, *SETS])
def test_every_name_can_be_written(name):
    assert read_faults(name)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("fire", "'fire' is not a fault; faults are ok, rate-limit"),
        ("cut:many", "'cut:many' is not a fault"),
        ("reset*2", "'reset\\*2' is not a fault; .* as in cut:3 or 2xreset"),
        ("reset:2", "reset takes no number"),
        ("twice:0", "'twice:0': the number must be at least 1"),
        ("delay:999999", "'delay:999999': the number must be between 0 and 3600"),
        ("3xcut:-1", "'3xcut:-1': the number must be at least 0"),
        ("600xok,600xok", "at most 1000 faults are allowed \\(1200 given\\)"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(written, why):
    with pytest.raises(ValueError, match=why):
        read_faults(written)

    done = holdfast("demo-server", "--faults", written, card=None)
    assert done.exit == 2
    assert "Code: A2ACLI_ERR_USAGE" in done.err


async def test_a_body_that_is_no_message_meets_nothing_new():
    agent, client = demo("ok")
    await client.ask("hello")
    network = FakeNetwork(agent)
    for body in (b"[1]", b"{", b'{"params": []}', b'{"message": 1}', b'{"message": {}}'):
        request = HttpRequest(method="POST", url=f"{agent.url}/rpc", body=body)
        assert (await network.request(request)).status < 500

    assert sum("fault:" in line for line in LINES) == 1


async def test_each_message_meets_the_faults_anew_and_survives_them():
    _, client = demo("rate-limit,cut:3,reset")

    answers = [(await client.ask(text)).text for text in ("stream a b c", "stream d e f")]

    assert answers == ["a b c ", "d e f "]
    met = [line.split() for line in LINES if "fault:" in line]
    assert (
        met
        == [
            ["SendStreamingMessage", "fault:", "rate-limit"],
            ["SendStreamingMessage", "fault:", "cut:3"],
            ["SubscribeToTask", "fault:", "reset"],
        ]
        * 2
    )
    assert LINES[0] == "GetAgentCard"


async def test_a_message_that_is_sent_again_over_http_json_meets_the_next_fault():
    agent = DemoAgent(read_faults("rate-limit,ok,reset"), log=LINES.append)
    client = connect(agent.url, engine=FakeNetwork(agent), bindings=["HTTP+JSON"])
    LINES.clear()

    task = await client.send_message("hello")
    await client.get_task(task.id)

    met = [line.split()[-1] for line in LINES if "fault:" in line]
    assert met == ["rate-limit", "ok", "reset"]


# ── The server ───────────────────────────────────────────────────────────────────────────────


def test_it_is_there_until_ctrl_c():
    done = holdfast(
        "demo-server", "--port", "0", "--faults", "cut", card=None, on_sockets=True, stops=[0.05]
    )

    assert (done.exit, done.err) == (130, "")
    assert done.out.startswith("The demo agent listens at http://127.0.0.1:")
    assert "Ctrl-C stops it.\nThe requests of each new message meet the faults" in done.out
    assert "In another terminal:\n\n  holdfast send" in done.out


def test_a_port_that_is_taken_is_reported():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = holdfast("demo-server", "--port", str(port), card=None, on_sockets=True)

    assert done.exit == 1
    assert f"cannot listen at 127.0.0.1, port {port}" in done.err
    assert "Code: HOLDFAST_ERR_LISTEN" in done.err
    assert "Hint: --port 0 takes a free port" in done.err


def test_an_address_that_is_not_here_is_reported():
    done = holdfast(
        "demo-server", "--host", "192.0.2.1", "--port", "0", card=None, on_sockets=True
    )

    assert done.exit == 1
    assert "Hint: check --host, an address of this machine" in done.err


def test_no_address_is_not_every_address():
    done = holdfast("demo-server", "--port", "0", "--host", "", card=None, on_sockets=True)

    assert done.exit == 2
    assert "0.0.0.0 for every address" in done.err


def test_the_help_tells_words_and_faults():
    done = holdfast("demo-server", "--help", card=None)

    assert done.exit == 0
    for name in (*WORDS, *FAULTS, *SETS):
        assert f"\n  {name}" in done.out


def status(url, **headers):
    """The status of a request with headers as a browser sends them."""
    request = urllib.request.Request(f"{url}/.well-known/agent-card.json", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def test_what_a_page_sends_that_had_its_name_lead_here_is_refused_and_meets_no_fault():
    rules = host_rules(
        "http://127.0.0.1", listens_on="127.0.0.1", allowed_hosts=None, allowed_origins=None
    )
    agent = DemoAgent(read_faults("reset"), log=LINES.append, rules=rules)
    network = FakeNetwork(agent)
    send = {"message": {"messageId": "a", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    LINES.clear()
    replies = [
        await network.request(
            HttpRequest(
                method="POST",
                url=f"{agent.url}/message:send",
                headers={"host": host, "a2a-version": "1.0"},
                body=json.dumps(send).encode(),
            )
        )
        for host in ("rebound.example", "localhost.rebound.example")
    ]

    assert [reply.status for reply in replies] == [421, 421]
    assert b"'rebound.example'" in replies[0].body
    assert (len(LINES), agent.executions, agent.pending_faults) == (2, {}, ())


def test_process_serves_until_it_is_asked_to_end():
    command = [sys.executable, "-m", "holdfast", "demo-server", "--port", "0"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(60, served.kill)
    watchdog.start()
    try:
        first = served.stdout.readline()
        url = first.split()[5].rstrip(";")
        refused = [status(url, host="rebound.example"), status(url, origin="https://page.example")]
        misnamed = holdfast(
            "card", "get", card=url.replace("127.0.0.1", "0.0.0.0"), on_sockets=True
        )
        done = holdfast("send", "stream a b", card=url, on_sockets=True)
        while "Message" not in (out := served.stdout.readline()):
            assert out
        served.stdout.close()  # as ``| head`` does
        again = holdfast("send", "echo still there", card=url, on_sockets=True)
        os.kill(served.pid, signal.SIGTERM)
        with served.stderr:
            err = served.stderr.read()
    finally:
        watchdog.cancel()
        served.kill()
        served.wait()

    assert refused == [421, 403]
    assert "is not allowed; call the server as localhost" in misnamed.err
    assert done.exit == 0
    assert "a b" in done.out
    assert (again.exit, "still there" in again.out) == (0, True)
    assert (served.returncode, err) == (143, "")
