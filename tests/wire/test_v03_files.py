"""Files over HTTP+JSON and gRPC of protocol 0.3, in both forms (`holdfast._wire.files`)."""

import base64

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from tests.kit.grpc_agent import grpc_agent

from holdfast import A2AHTTPError, AgentCard, Part, Resilience, RetryPolicy, connect
from holdfast._wire.files import sends_base64
from holdfast.testing import FakeAgent, FakeNetwork, Stall, completes, unavailable
from holdfast.types import AgentCapabilities, AgentInterface

BASE64 = base64.b64encode(b"a file that is base64 text itself!")
FILES = [b"", b"a", b"ab", b"abc", b"\x00\xff", b"true", b"dGV4", BASE64, BASE64 + b"\n"]
LARGE = bytes(range(256)) * 1200
OF_A2A = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "TASK_NOT_FOUND",
    "domain": "a2a-protocol.org",
}
forms = pytest.mark.parametrize("form", ["base64", "bytes"])


class Agent(FakeAgent):
    """An agent that stores received files, and answers with files."""

    def __init__(self, form, own=(), **options):
        self.files = []
        self.own = [Part(raw=raw, filename="own.bin") for raw in own] or ["done"]
        super().__init__(
            self.answered,
            versions=("0.3",),
            bindings=("HTTP+JSON",),
            v03_file_encoding=form,
            **options,
        )

    def answered(self, turn):
        self.files += [part.raw for part in turn.message.parts if part.raw is not None]
        return completes(*self.own)

    @property
    def questions(self):
        """Return the requests that were made to determine the form."""
        return [
            each.url for each in self.received if each.url.partition("?")[0].endswith("-files")
        ]


def parts_of(files):
    return [Part(raw=raw, filename="a.bin") for raw in files]


def raws(task):
    return [part.raw for artifact in task.artifacts for part in artifact.parts]


@forms
async def test_files_are_sent_and_received_unchanged(form):
    own = [raw[::-1] for raw in FILES if raw] + [b"null"]
    agent = Agent(form, own)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        answer = await client.ask(parts_of([*FILES, LARGE]))
        sent = await client.send_message(parts_of([LARGE[:-1], LARGE[:-2]]))
        task = await client.get_task(answer.task.id)

    assert agent.files == [*FILES, LARGE, LARGE[:-1], LARGE[:-2]]
    assert raws(answer.task) == raws(sent) == raws(task) == own
    assert [part.raw for part in task.history[0].parts] == [*FILES, LARGE]
    assert len(agent.questions) == 1


@forms
@pytest.mark.parametrize("streams", [True, False])
async def test_files_in_replies_are_read_in_either_form(form, streams):
    agent = Agent(form, [b"true", b"data"])
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        if streams:
            async with client.stream_message("go") as events:
                async for _ in events:
                    pass
                task = events.task
        else:
            task = await client.send_message("go")

    assert raws(task) == [b"true", b"data"]


@pytest.mark.parametrize("timeout", [2, 60])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_received_reply_is_not_lost_if_the_form_is_unknown(streams, timeout):
    agent = Agent("bytes", [b"dGV4"])
    agent.inject(Stall(), on="GetTask", times=9)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        if streams:
            async with client.stream_message("go", timeout=timeout) as events:
                task = (await events.result()).task
        else:
            task = await client.send_message("go", timeout=timeout)

    assert raws(task) == [b"dGV4"]


async def test_the_form_is_not_requested_for_messages_without_files():
    agent = Agent("base64")
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.ask("hello")

    assert agent.questions == []


async def test_no_file_is_sent_until_the_form_is_known():
    agent = Agent("base64")
    agent.inject(unavailable(0.1), on="GetTask", times=2)
    prompt = Resilience(retry=RetryPolicy(max_retries=1))
    async with connect(agent.url, engine=FakeNetwork(agent), resilience=prompt) as client:
        with pytest.raises(A2AHTTPError) as caught:
            await client.send_message(parts_of([b"abc"]))
        assert caught.value.executed is False
        assert len(caught.value.attempts) == 2
        assert "SendMessage" not in {each.operation for each in agent.received}

        await client.send_message(parts_of([b"abc"]))

    assert agent.files == [b"abc"]


async def test_the_request_for_the_form_is_retried_like_the_call_that_needs_it():
    agent = Agent("bytes")
    agent.inject(unavailable(0.1), on="GetTask")
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.ask(parts_of([b"true"]))

    assert agent.files == [b"true"]


@pytest.mark.parametrize(
    ("error", "form"),
    [
        ({"message": "Task not found"}, True),
        ({"message": "Not Found"}, None),
        ({"error": "io.a2a.spec.TaskNotFoundError", "message": "Task not found"}, True),
        ({"error": "not_found", "message": "No route"}, None),
        ({"code": -32001, "message": "Task not found: t"}, False),
        ({"error": {"code": 404, "status": "NOT_FOUND", "message": "x"}}, False),
        ({"error": {"code": 404, "details": [OF_A2A]}}, True),
        ({"error": {"code": 404, "details": [{**OF_A2A, "domain": "x.test"}]}}, False),
        ("TaskNotFoundError: Task not found", True),
        ("failed to get task: task not found", True),
        ("Task not found: t", False),
        ("", None),
        ([], None),
        (None, None),
    ],
)
def test_the_form_is_determined_by_the_error_of_an_unknown_task(error, form):
    assert sends_base64(error) is form


# ── gRPC ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
@forms
async def test_files_over_grpc_are_sent_and_received_unchanged(form):
    arrived = []
    is_text = form == "base64"

    async def send(body, _):
        message = pb.SendMessageRequest.FromString(body).request
        for part in message.content:
            raw = part.file.file_with_bytes
            arrived.append(base64.b64decode(raw.decode()) if is_text else raw)
        own = [base64.b64encode(b"true") if is_text else b"true"]
        parts = [pb.Part(file=pb.FilePart(file_with_bytes=raw)) for raw in own]
        reply_message = pb.Message(message_id="r", role=pb.ROLE_AGENT, content=parts)
        return pb.SendMessageResponse(msg=reply_message).SerializeToString()

    async def get(_, context):
        text = "TaskNotFoundError: Task not found" if is_text else "Task not found: t"
        await context.abort(grpc.StatusCode.NOT_FOUND, text)

    async with grpc_agent(SendMessage=send, GetTask=get) as (port, calls, _):
        url = f"http://127.0.0.1:{port}"
        interface = AgentInterface(url=url, protocol_binding="GRPC", protocol_version="0.3")
        card = AgentCard(
            name="agent", supported_interfaces=(interface,), capabilities=AgentCapabilities()
        )
        async with connect(card) as client:
            reply = await client.send_message(parts_of([*FILES, LARGE]))
            await client.send_message(parts_of([b"ab"]))

    assert arrived == [*FILES, LARGE, b"ab"]
    assert [part.raw for part in reply.parts] == [b"true"]
    assert [method.rpartition("/")[2] for method, _ in calls].count("GetTask") == 1
