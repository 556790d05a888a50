"""``holdfast task push-config receive``, on sockets: the test plays what the agent pushes."""

import json
import signal
import socket
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from tests.kit.cli_harness import holdfast
from tests.kit.cli_process import BOUND, served, start

from holdfast.testing import FakeAgent, works_forever

TASK = "task-1"


def status(state, text=None):
    said = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}}
    update = {"taskId": TASK, "contextId": "context-2", "status": {"state": f"TASK_STATE_{state}"}}
    if text:
        update["status"] |= said
    return {"statusUpdate": update}


def artifact(text, *, append=False):
    piece = {"artifactId": "a", "name": "report", "parts": [{"text": text}]}
    update = {"taskId": TASK, "contextId": "context-2", "artifact": piece, "append": append}
    return {"artifactUpdate": update}


def config_of(agent):
    (call,) = [
        one for one in agent.received if one.operation == "CreateTaskPushNotificationConfig"
    ]
    return json.loads(call.body)["params"]


def push(config, event, *, token=None, **headers):
    """Posts an event, as the agent would; gives the status of the answer."""
    headers |= {
        "content-type": "application/json",
        "x-a2a-notification-token": token or config["token"],
    }
    request = urllib.request.Request(config["url"], json.dumps(event).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=BOUND) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


class Running:
    """The command as it listens, and its agent."""

    def __init__(self, process, agent, url):
        self.process, self.agent, self._url = process, agent, url
        self.first = process.stderr.readline()
        self.config = config_of(agent)

    def push(self, event, **how):
        return push(self.config, event, **how)

    def cancel(self):
        done = holdfast("task", "cancel", TASK, "--async", card=self._url, on_sockets=True)
        assert done.field("State") == "TASK_STATE_CANCELED"

    def end(self):
        return self.process.communicate(timeout=BOUND)


@contextmanager
def receiving(*words):
    """The command, once it listens."""
    agent = FakeAgent(lambda _: works_forever())
    with served(agent) as url:
        sent = holdfast("send", "hello", "--async", card=url, on_sockets=True)
        assert sent.field("Task ID") == TASK
        with start("task", "push-config", "receive", TASK, *words, "-a", url) as process:
            yield Running(process, agent, url)


def kinds(out):
    return [next(iter(json.loads(line))) for line in out.splitlines()]


def test_push_002_each_event_is_a_line_and_the_last_one_carries_the_state():
    with receiving("--stream", "-o", "json") as run:
        assert run.first.startswith(
            f"Listening: the agent sends push notifications of task {TASK} to http://"
        )
        assert run.push(status("WORKING", "thinking")) == 200
        assert json.loads(run.process.stdout.readline()) == status("WORKING", "thinking")
        assert run.push(artifact("Hello")) == 200
        assert run.push(artifact("Hello")) == 200  # delivered twice, shown once
        assert run.push({}, token="wrong") == 401
        assert run.push(artifact("Hello"), host="rebound.example") == 421
        run.cancel()
        assert run.push(status("CANCELED")) == 200
        out, err = run.end()
    assert run.process.returncode == 0, err
    assert kinds(out) == ["artifactUpdate", "statusUpdate"]
    assert json.loads(out.splitlines()[-1]) == status("CANCELED")
    assert len(run.agent.calls("DeleteTaskPushNotificationConfig")) == 1
    assert run.config["token"] not in out + err + run.first


def test_push_002_what_was_never_delivered_is_asked_for():
    with receiving("--stream", "-o", "json") as run:
        run.cancel()
        assert run.push(artifact("Hello")) == 200
        assert run.push(status("FAILED")) == 200  # the agent knows better
        out, err = run.end()
    assert run.process.returncode == 0, err
    assert kinds(out) == ["artifactUpdate", "statusUpdate", "task"]
    assert json.loads(out.splitlines()[-1])["task"]["status"]["state"] == "TASK_STATE_CANCELED"


def test_push_002_without_stream_it_is_the_task_at_the_end():
    with receiving() as run:
        run.push(artifact("Hello"))
        run.cancel()
        run.push(status("CANCELED"))
        out, err = run.end()
    assert run.process.returncode == 0
    assert out.startswith(f"Task ID: {TASK}\nContext ID: context-2\n")
    assert out.count("State: TASK_STATE_CANCELED\n") == 1
    assert "Warning: task task-1 was canceled" in err


def test_push_002_an_interruption_ends_it_and_deletes_the_configuration():
    with receiving("--stream") as run:
        run.process.send_signal(signal.SIGTERM)
        _, err = run.end()
        with pytest.raises(urllib.error.URLError):
            run.push(status("WORKING"))
    assert run.process.returncode == 143
    assert "Traceback" not in err
    assert "holdfast task subscribe --stream task-1" in err
    assert len(run.agent.calls("DeleteTaskPushNotificationConfig")) == 1


def test_an_agent_that_sends_nothing_is_reported_until_the_timeout():
    with receiving("--timeout", "5s") as run:
        _, err = run.end()
    assert run.process.returncode == 5
    waits = f"Progress: waiting for valid push notifications of task {TASK}; listening at http://"
    assert waits in err
    assert "; none has arrived for 3s\n" in err
    assert "the timeout of 5s expired" in err


def test_push_002_address_that_cannot_be_listened_on():
    with socket.create_server(("127.0.0.1", 0)) as taken, served(FakeAgent()) as url:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ("task", "push-config", "receive", TASK, "--listen", where, "-o", "json")
        done = holdfast(*words, card=url, on_sockets=True)
    assert (done.exit, done.error["code"]) == (1, "HOLDFAST_ERR_LISTEN")
    assert where in done.error["message"]


def test_push_002_an_agent_that_does_not_push_is_reported_by_the_protocols_name():
    words = ("task", "push-config", "receive", TASK, "-o", "json")
    with served(FakeAgent(versions=("1.0",))) as url:
        done = holdfast(*words, card=url, on_sockets=True)
    assert done.exit == 1
    assert done.error["code"] in {"TaskNotFoundError", "PushNotificationNotSupportedError"}


@pytest.mark.parametrize("where", ["", "8080", "localhost", "localhost:", ":80", "h:65536", "h:x"])
def test_an_address_that_cannot_be_one_is_a_usage_error(where):
    words = ("task", "push-config", "receive", TASK, "--listen", where, "-o", "json")
    done = holdfast(*words)
    assert (done.exit, done.error["code"]) == (2, "A2ACLI_ERR_USAGE")


def test_an_address_beyond_this_machine_without_tls_is_warned_of():
    words = ("--url", "http://me.example/push", "--timeout", "5s")
    with served(FakeAgent()) as url:
        done = holdfast("task", "push-config", "receive", TASK, *words, card=url, on_sockets=True)
    assert "http://me.example/push is not https" in done.err
