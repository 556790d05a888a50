"""Push notifications: what the receiver takes, what it refuses, and whom it tells."""

import ast
import asyncio
import base64
import json
import logging
import textwrap
import tracemalloc

import msgspec
import pytest
from hypothesis import strategies as st
from tests.kit.asgi_client import JSON, body_of, post, request
from tests.kit.strategies import given

import holdfast.push
from holdfast import (
    A2AConnectionError,
    Artifact,
    DeadlineExceededError,
    Limits,
    Message,
    Part,
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
    connect,
)
from holdfast.errors import LimitExceededError, QueueFullError, TaskAuthRequiredError
from holdfast.push import JwtPolicy, PushReceiver
from holdfast.testing import (
    FakeAgent,
    FakeNetwork,
    Stall,
    asks,
    completes,
    needs_auth,
    run,
    streams,
    unavailable,
    works_forever,
)
from holdfast.types import (
    AuthenticationInfo,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)

URL = "https://me.example/push?from=agents"
WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED
INPUT_REQUIRED = TaskState.INPUT_REQUIRED


def task(state=WORKING, task_id="t-1", text=None):
    artifacts = (artifact(text),) if text else ()
    return Task(id=task_id, status=TaskStatus(state=state), artifacts=artifacts)


def artifact(text):
    return Artifact(artifact_id="a-1", parts=(Part(text=text),))


def status(state, task_id="t-1"):
    return TaskStatusUpdateEvent(task_id=task_id, status=TaskStatus(state=state))


def chunk(text, task_id="t-1"):
    return TaskArtifactUpdateEvent(task_id=task_id, artifact=artifact(text), append=True)


def expecting(task_id="t-1", **options):
    receiver = PushReceiver(URL, **options)
    return receiver, receiver.config(task_id)


def b64(content):
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


async def deliver(receiver, config, *events):
    for event in events:
        reply = await post(receiver, event, config)
        assert (reply.status, reply.text) == (200, "taken\n")


# ── Configurations ───────────────────────────────────────────────────────────────────────────


def test_a_configuration_has_secrets_of_its_own():
    receiver = PushReceiver(URL)

    one, other = receiver.config(), receiver.config("t-1")

    assert (one.url, one.task_id, other.task_id) == (URL, None, "t-1")
    found = {one.id, *one.secrets, other.id, *other.secrets}
    assert len(found) == 6
    assert all(len(secret) >= 32 for secret in found)


async def test_the_credentials_may_be_the_callers():
    receiver = PushReceiver(URL)
    own = AuthenticationInfo(scheme="Basic", credentials="YTpi")
    config = receiver.config("t-1", authentication=own)

    assert config.authentication == own
    assert (await post(receiver, task(), authorization="basic YTpi")).status == 200
    assert (await post(receiver, task(), authorization="Basic YTpj")).status == 401


async def test_credentials_may_be_those_of_several_configurations():
    receiver = PushReceiver(URL)
    own = AuthenticationInfo(scheme="Basic", credentials="YTpi")
    one, _, _ = (receiver.config(name, authentication=own) for name in ("t-1", "t-2", None))
    receiver.config("t-4")

    for task_id, status in (("t-1", 200), ("t-2", 200), ("t-3", 503), ("t-4", 404), ("", 404)):
        reply = await post(receiver, task(task_id=task_id), authorization="Basic YTpi")
        assert reply.status == status
    assert (await post(receiver, task(task_id="t-2"), one)).status == 404
    receiver.forget("t-1")
    other = task(COMPLETED, "t-2")
    assert (await post(receiver, other, authorization="Basic YTpi")).status == 200
    assert (await post(receiver, task(), authorization="Basic YTpi")).status == 503
    receiver.forget("t-2")
    assert receiver.expect(task(), receiver.config("t-1")) == task()


@pytest.mark.parametrize(
    "own", [AuthenticationInfo(scheme="Basic"), AuthenticationInfo(credentials="x")]
)
def test_credentials_that_are_not_whole_are_refused(own):
    with pytest.raises(ValueError, match="needs a scheme and credentials"):
        PushReceiver(URL).config(authentication=own)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"url": "me.example/push"}, ValueError, "the push address .* must begin with http"),
        ({"max_tasks": 0}, ValueError, "max_tasks must be at least 1"),
        ({"max_bytes": -1}, ValueError, "max_bytes must be at least 1"),
        ({"limits": 5}, TypeError, "limits must be Limits"),
        ({"env": 5}, TypeError, "env must have the methods"),
        ({"jwt": JwtPolicy()}, ValueError, "jwt needs keys="),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(options, error, match):
    with pytest.raises(error, match=match):
        PushReceiver(**{"url": URL, **options})


# ── What is taken ────────────────────────────────────────────────────────────────────────────


async def test_deliveries_become_the_task():
    receiver, config = expecting()

    await deliver(receiver, config, task(), chunk("to the "), chunk("moon"), status(COMPLETED))

    assert receiver.get_task("t-1").text == "to the moon"
    assert receiver.get_task("t-1").state is COMPLETED


async def test_the_credentials_prove_it_as_well_as_the_token():
    receiver, config = expecting()
    credentials = f"bearer  {config.authentication.credentials}"

    assert (await post(receiver, task(), authorization=credentials)).status == 200


async def test_unrequested_authorization_does_not_matter_beside_the_token():
    receiver, config = expecting()

    assert (await post(receiver, task(), config, authorization="Bearer x")).status == 200


async def test_a_body_comes_in_pieces_of_any_size():
    receiver, config = expecting()
    body = body_of(task(text="moon"))
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    headers = [*JSON.items(), ("X-A2A-Notification-Token", config.token)]

    reply = await request(receiver, *pieces, b"", headers=headers)

    assert reply.status == 200
    assert receiver.get_task("t-1").text == "moon"


async def test_a_delivery_that_comes_twice_is_acknowledged_and_counts_once():
    receiver, config = expecting()

    await deliver(receiver, config, chunk("moon"), chunk("moon"))

    assert receiver.get_task("t-1").text == "moon"


async def test_a_task_that_is_over_takes_late_news_without_moving():
    receiver, config = expecting()
    await deliver(receiver, config, status(COMPLETED))

    await deliver(receiver, config, status(WORKING), task(WORKING), status(TaskState.FAILED))

    assert receiver.get_task("t-1").state is COMPLETED


async def test_an_event_that_names_no_task_is_of_the_expected_one():
    receiver, config = expecting()

    await deliver(
        receiver, config, chunk("moon", ""), status(COMPLETED, ""), task(COMPLETED, "", "moon!")
    )

    assert receiver.get_task("t-1").id == "t-1"
    assert receiver.get_task("t-1").text == "moon!"


async def test_a_message_goes_into_the_history():
    receiver, config = expecting()
    message = Message(message_id="m-1", role=Role.AGENT, parts=(Part(text="hello"),))

    await deliver(receiver, config, message, task(), message)

    assert receiver.get_task("t-1").history == ()
    other = msgspec.structs.replace(message, message_id="m-2")
    await deliver(receiver, config, other)
    assert receiver.get_task("t-1").history == (other,)


async def test_what_comes_before_the_task_is_known_is_kept_for_it():
    receiver = PushReceiver(URL)
    config = receiver.config()
    await deliver(receiver, config, task(), chunk("moon"), status(COMPLETED))

    stands = receiver.expect(task(TaskState.SUBMITTED), config)

    assert stands.state is COMPLETED
    assert (await receiver.wait("t-1")).text == "moon"


async def test_what_came_early_of_another_task_is_thrown_away():
    receiver = PushReceiver(URL)
    config = receiver.config()
    await deliver(receiver, config, task(COMPLETED, "t-9", text="moon"))

    assert receiver.expect(task(), config) == task()
    assert (await post(receiver, task(COMPLETED, "t-9"), config)).status == 404


# ── What is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-a2a-notification-token": ""},
        {"x-a2a-notification-token": "wrong"},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": "wrong"},
        {"x-a2a-notification-token": "\xff\xfe"},
    ],
    ids=str,
)
async def test_who_proves_nothing_is_refused_before_the_body_is_read(headers):
    receiver, _ = expecting()

    reply = await request(receiver, headers={**JSON, **headers}.items(), end=None)

    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert receiver.get_task("t-1") is None


async def test_a_wrong_token_is_refused_whatever_else_is_right():
    receiver, config = expecting()
    credentials = f"Bearer {config.authentication.credentials}"

    reply = await post(
        receiver, task(), authorization=credentials, x_a2a_notification_token="wrong"
    )

    assert reply.status == 401


async def test_two_tokens_are_no_token():
    receiver, config = expecting()
    twice = [("x-a2a-notification-token", config.token)] * 2

    reply = await request(receiver, body_of(task()), headers=[*JSON.items(), *twice])

    assert reply.status == 401


async def test_another_task_than_the_expected_one_is_refused():
    receiver, config = expecting()

    for event in (task(task_id="t-2"), status(COMPLETED, "t-2"), chunk("moon", "t-2")):
        assert (await post(receiver, event, config)).status == 404
    assert receiver.get_task("t-1") is None


async def test_one_agent_cannot_speak_of_the_task_of_another():
    receiver, _ = expecting("t-1")
    theirs = receiver.config("t-2")

    assert (await post(receiver, status(COMPLETED, "t-1"), theirs)).status == 404
    unnamed = receiver.config()
    assert (await post(receiver, status(COMPLETED, "t-1"), unnamed)).status == 200

    assert receiver.get_task("t-1") is None
    with pytest.raises(ValueError, match="task t-1 already has another config"):
        receiver.expect(task(), unnamed)


async def test_a_further_configuration_of_a_task_is_as_good_as_the_first():
    receiver, first = expecting()
    second = receiver.config("t-1")

    await deliver(receiver, first, chunk("to the "))
    await deliver(receiver, second, chunk("moon"))

    assert receiver.expect("t-1", second).text == "to the moon"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_only_posts_are_taken(method):
    receiver, config = expecting()
    headers = {"x-a2a-notification-token": config.token}

    reply = await request(receiver, method=method, headers=headers.items())

    assert (reply.status, reply.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({"content-length": "many"}, 400),
        ({"content-length": "-1"}, 400),
        ({"content-length": "1" * 5000}, 413),
        ({"content-type": "application/json; charset=utf-8"}, 200),
        ({"content-encoding": "identity"}, 200),
    ],
)
async def test_a_body_must_be_plain_json(headers, status):
    receiver, config = expecting()

    assert (await post(receiver, task(), config, **headers)).status == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"moon",
        b"[]",
        b"null",
        b"{}",
        b'{"task":{}}',
        b'{"task":null}',
        b'{"task":{"id":1}}',
        b'{"statusUpdate":[]}',
        b'{"id":"t-1","kind":"poem","status":"done"}',
        b"\xff",
        b'{"task":' * 50_000,
        b"[" * 90,
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_a_body_that_is_no_event_is_refused(body):
    receiver, config = expecting()

    reply = await post(receiver, body, config)

    assert reply.status in {400, 413}
    assert receiver.get_task("t-1") is None


@pytest.mark.parametrize(
    "body",
    [
        {
            "id": "t-1",
            "contextId": "c",
            "kind": "task",
            "status": {"state": "completed"},
            "artifacts": [{"artifactId": "a-1", "parts": [{"kind": "text", "text": "moon"}]}],
        },
        {
            "kind": "artifact-update",
            "taskId": "t-1",
            "contextId": "c",
            "artifact": {"artifactId": "a-1", "parts": [{"kind": "text", "text": "moon"}]},
        },
    ],
    ids=["task", "artifact-update"],
)
async def test_agents_of_protocol_0_3_push_the_thing_itself(body):
    receiver, config = expecting()

    assert (await post(receiver, json.dumps(body).encode(), config)).status == 200

    assert receiver.get_task("t-1").text == "moon"
    if body["kind"] == "task":
        assert (await receiver.wait("t-1")).state is COMPLETED


_SAYS = {"messageId": "m-1", "role": "ROLE_AGENT"}
_DONE = {"id": "t-1", "status": {"state": "TASK_STATE_COMPLETED"}}
_FILE = {"fileWithBytes": b64(b64(b"moon")), "name": "moon.txt", "mimeType": "text/plain"}


@pytest.mark.parametrize(
    ("body", "state", "parts"),
    [
        (
            {
                "statusUpdate": {
                    "taskId": "t-1",
                    "status": {
                        "state": "TASK_STATE_CANCELLED",
                        "message": {**_SAYS, "content": [{"text": "moon"}]},
                    },
                    "final": True,
                }
            },
            TaskState.CANCELED,
            (Part(text="moon"),),
        ),
        (
            {
                "statusUpdate": {
                    "taskId": "t-1",
                    "status": {
                        "state": "TASK_STATE_COMPLETED",
                        "message": {**_SAYS, "content": [{"data": {"data": {"a": 1}}}]},
                    },
                }
            },
            COMPLETED,
            (Part(data={"a": 1}),),
        ),
        (
            {"task": {**_DONE, "status": {"state": "completed", "message": {
                **_SAYS, "role": "agent", "parts": [{"kind": "text", "text": "moon"}]}}}},
            COMPLETED,
            (Part(text="moon"),),
        ),
        (
            {"task": {**_DONE, "artifacts": [{"artifactId": "a-1", "parts": [{"file": _FILE}]}]}},
            COMPLETED,
            (Part(raw=b"moon", filename="moon.txt", media_type="text/plain"),),
        ),
        (
            {"task": {**_DONE, "history": [{**_SAYS, "content": [{"text": "moon"}]}]}},
            COMPLETED,
            (Part(text="moon"),),
        ),
    ],
    ids=["canceled", "content", "names", "file", "history"],
)  # fmt: skip
async def test_agents_of_protocol_0_3_push_protojson(body, state, parts):
    receiver, config = expecting()

    assert (await post(receiver, json.dumps(body).encode(), config)).status == 200

    task = receiver.get_task("t-1")
    said = [*task.history, *task.artifacts]
    if task.status.message is not None:
        said.append(task.status.message)
    assert task.state is state
    assert said[0].parts == parts
    assert all(message.role is Role.AGENT for message in said if isinstance(message, Message))


async def test_what_looks_like_protocol_0_3_only_in_unknown_members_is_not():
    receiver, config = expecting()
    part = {"text": "moon", "mediaType": "text/plain", "metadata": {"kind": "text"}}
    message = {**_SAYS, "parts": [part], "content": [{"text": "sun"}]}
    body = {"kind": "task", "id": "t-1", "task": {**_DONE, "history": [message]}, "final": True}

    assert (await post(receiver, json.dumps(body).encode(), config)).status == 200

    (said,) = receiver.get_task("t-1").history
    assert said.parts == (Part(text="moon", media_type="text/plain", metadata={"kind": "text"}),)


@given(body=st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["task", "statusUpdate", "artifactUpdate", "message", "id", "status",
                         "taskId", "artifact", "parts", "text", "state"]), inner, max_size=4,
    ), max_leaves=20).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_body_breaks_the_receiver(body):
    async def main():
        receiver, config = expecting()
        assert (await post(receiver, body, config)).status in {200, 400, 404}

    run(main())


async def test_a_body_that_says_that_it_is_too_large_is_not_read():
    receiver, config = expecting(limits=Limits(event=100))

    reply = await request(
        receiver,
        headers={
            **JSON,
            "x-a2a-notification-token": config.token,
            "content-length": "101",
        }.items(),
        end=None,
    )

    assert reply.status == 413


async def test_a_body_is_read_up_to_its_limit():
    receiver, config = expecting(limits=Limits(event=100))
    headers = [*JSON.items(), ("x-a2a-notification-token", config.token)]
    pieces = [b" " * 40] * 3

    assert (await request(receiver, *pieces, headers=headers, end=None)).status == 413


async def test_a_body_that_does_not_come_is_not_waited_for_without_end():
    receiver, config = expecting()
    headers = [*JSON.items(), ("x-a2a-notification-token", config.token)]

    began = asyncio.get_running_loop().time()
    reply = await request(receiver, b"{", headers=headers, end=asyncio.Event().wait)

    assert reply.status == 408
    assert asyncio.get_running_loop().time() == began + 30


async def test_a_sender_that_leaves_gets_no_answer():
    receiver, config = expecting()
    headers = [*JSON.items(), ("x-a2a-notification-token", config.token)]

    async def leaves():
        return {"type": "http.disconnect"}

    assert await request(receiver, body_of(task())[:9], headers=headers, end=leaves) is None
    assert receiver.get_task("t-1") is None


# ── What is kept ─────────────────────────────────────────────────────────────────────────────


async def test_task_that_becomes_too_large_is_refused_and_its_waiters_fail():
    receiver, config = expecting(limits=Limits(artifacts=1, event=1000))
    await deliver(receiver, config, chunk("moon"))
    waiting = asyncio.ensure_future(receiver.wait("t-1"))
    await asyncio.sleep(0)
    another = Artifact(artifact_id="a-2", parts=(Part(text="sun"),))

    reply = await post(receiver, TaskArtifactUpdateEvent(task_id="t-1", artifact=another), config)

    assert reply.status == 413
    with pytest.raises(LimitExceededError, match="more than 1 artifacts"):
        await waiting


async def test_tasks_that_are_over_make_room_for_new_ones():
    receiver = PushReceiver(URL, max_tasks=2)
    first, second = receiver.config("t-1"), receiver.config("t-2")
    await deliver(receiver, second, status(COMPLETED, "t-2"))
    await deliver(receiver, first, status(COMPLETED, "t-1"))

    receiver.config("t-3")

    assert receiver.get_task("t-1").state is COMPLETED
    with pytest.raises(ValueError, match="task t-2 is not expected"):
        receiver.get_task("t-2")
    assert (await post(receiver, status(COMPLETED, "t-2"), second)).status == 401


async def test_configurations_that_never_got_a_task_make_room_then():
    receiver = PushReceiver(URL, max_tasks=2)
    _, lost = receiver.config("t-1"), receiver.config()

    receiver.config("t-2")

    assert (await post(receiver, task(), lost)).status == 401
    with pytest.raises(QueueFullError, match="2 tasks are expected already") as caught:
        receiver.config()
    assert caught.value.executed is False


async def test_a_task_that_is_waited_for_is_not_forgotten():
    receiver = PushReceiver(URL, max_tasks=1)
    config = receiver.config("t-1")
    waiting = asyncio.ensure_future(receiver.wait("t-1", until=lambda _: False, timeout=5))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        receiver.config()
    await deliver(receiver, config, status(COMPLETED))
    assert (await waiting).state is COMPLETED


async def test_bytes_are_bounded_and_what_is_not_needed_goes_first():
    receiver = PushReceiver(URL, max_bytes=5000)
    over, going, further = (receiver.config(f"t-{number}") for number in (1, 2, 3))
    await deliver(receiver, over, task(COMPLETED, "t-1", "x" * 2000))
    await deliver(receiver, going, task(WORKING, "t-2", "x" * 2000))

    await deliver(receiver, further, task(WORKING, "t-3", "x" * 1000))
    reply = await post(receiver, chunk("x" * 2000, "t-3"), further)

    assert reply.status == 503
    assert "retry-after" in reply.headers
    with pytest.raises(ValueError, match="t-1 is not expected"):
        receiver.get_task("t-1")
    assert len(receiver.get_task("t-2").text) == 2000
    receiver.forget("t-2")
    await deliver(receiver, further, chunk("x" * 2000, "t-3"))


async def test_failed_read_takes_no_slot():
    receiver, config = expecting(max_bytes=3000)

    for _ in range(10):
        assert (await post(receiver, b" " * 2000, config)).status == 400
    assert (await post(receiver, task(text="x" * 100), config)).status == 200


async def test_what_is_replaced_again_and_again_takes_no_more_room():
    receiver, config = expecting(max_bytes=1_000_000)

    for number in range(200):
        piece = artifact(f"{number}" + "x" * 9000)
        event = TaskArtifactUpdateEvent(task_id="t-1", artifact=piece)
        await deliver(receiver, config, event)


async def test_what_is_forgotten_while_it_is_read_is_not_taken():
    receiver, config = expecting()
    headers = [*JSON.items(), ("x-a2a-notification-token", config.token)]
    body = body_of(task())

    async def rest():
        receiver.forget("t-1")
        return {"type": "http.request", "body": body[9:]}

    assert (await request(receiver, body[:9], headers=headers, end=rest)).status == 404


async def test_what_is_forgotten_is_no_longer_taken():
    receiver, config = expecting()
    waiting = asyncio.ensure_future(receiver.wait("t-1"))
    await asyncio.sleep(0)

    receiver.forget("t-1")
    receiver.forget("t-1")

    assert (await post(receiver, task(), config)).status == 401
    with pytest.raises(
        A2AConnectionError, match="the config was forgotten while waiting for task t-1"
    ):
        await waiting
    with pytest.raises(ValueError, match="another receiver, or forgotten"):
        receiver.expect("t-1", config)


# ── Waiting ──────────────────────────────────────────────────────────────────────────────────


async def test_a_wait_ends_with_the_delivery_that_ends_the_task():
    receiver, config = expecting()
    waiting = asyncio.ensure_future(receiver.wait("t-1"))

    await deliver(receiver, config, task(), chunk("moon"))
    await asyncio.sleep(10)
    assert not waiting.done()
    await deliver(receiver, config, status(COMPLETED))

    assert (await waiting).text == "moon"


@pytest.mark.parametrize("state", [state for state in TaskState if state.is_terminal])
async def test_a_task_is_given_however_it_ended(state):
    receiver, config = expecting()
    await deliver(receiver, config, status(state))

    assert (await receiver.wait("t-1")).state is state


async def test_a_question_ends_a_wait_until_it_is_answered():
    receiver, config = expecting()
    await deliver(receiver, config, task(INPUT_REQUIRED))
    assert (await receiver.wait("t-1")).state is INPUT_REQUIRED

    receiver.expect(task(WORKING))

    waiting = asyncio.ensure_future(receiver.wait("t-1"))
    await asyncio.sleep(10)
    assert not waiting.done()
    await deliver(receiver, config, status(COMPLETED))
    assert (await waiting).state is COMPLETED


async def test_a_wait_may_be_for_something_else():
    receiver, config = expecting()
    waiting = asyncio.ensure_future(receiver.wait("t-1", until=lambda task: bool(task.text)))

    await deliver(receiver, config, task(), task(INPUT_REQUIRED), chunk("moon"))

    assert (await waiting).text == "moon"


async def test_a_wait_ends_at_its_time_with_the_task_as_last_seen():
    receiver, config = expecting()
    await deliver(receiver, config, task(text="mo"))
    began = asyncio.get_running_loop().time()

    with pytest.raises(
        DeadlineExceededError, match="was last seen WORKING at the end of the wait timeout of 30 s"
    ) as caught:
        await receiver.wait("t-1", timeout=30)

    late = caught.value
    assert (late.deadline, late.timeout, late.executed) == ("wait", 30, True)
    assert late.task.text == "mo"
    assert asyncio.get_running_loop().time() == began + 30


async def test_wait_that_expires_counts_the_refused_deliveries_and_names_the_reason():
    receiver, _ = expecting()
    await post(receiver, task(), x_a2a_notification_token="before")

    waiting = asyncio.ensure_future(receiver.wait("t-1", timeout=30))
    await asyncio.sleep(1)
    for _ in range(2):
        assert (
            await post(receiver, task(), x_a2a_notification_token="of-another-process")
        ).status == 401
    counted = r"meanwhile the receiver refused 2 deliveries \(the last one: the token is wrong\)"
    with pytest.raises(DeadlineExceededError, match=counted):
        await waiting

    with pytest.raises(DeadlineExceededError) as late:
        await receiver.wait("t-1", timeout=30)
    assert "refused" not in late.value.message


async def test_a_wait_without_any_news_says_so():
    receiver, _ = expecting()

    with pytest.raises(
        DeadlineExceededError, match="was never seen at the end of the wait timeout of 1 s"
    ) as caught:
        await receiver.wait("t-1", timeout=1)
    assert (caught.value.task, caught.value.executed) == (None, None)


async def test_a_wait_for_an_authorization_says_what_it_was_for():
    receiver, config = expecting()
    await deliver(receiver, config, status(TaskState.AUTH_REQUIRED))

    with pytest.raises(TaskAuthRequiredError, match="the wait timeout of 5 s") as caught:
        await receiver.wait("t-1", timeout=5)
    assert caught.value.task.state is TaskState.AUTH_REQUIRED


@pytest.mark.parametrize("option", ["timeout", "poll_interval"])
async def test_a_wait_has_an_end(option):
    receiver, _ = expecting()
    for wrong in (0, -1, float("inf")):
        with pytest.raises(ValueError, match=f"{option} must be a positive number"):
            await receiver.wait("t-1", **{option: wrong})


async def test_a_task_that_is_not_expected_cannot_be_waited_for():
    receiver = PushReceiver(URL)
    unsent = receiver.config()

    with pytest.raises(ValueError, match="task t-1 is not expected"):
        await receiver.wait("t-1")
    with pytest.raises(ValueError, match="config that was sent is missing"):
        receiver.expect(task())
    with pytest.raises(ValueError, match="another receiver"):
        PushReceiver(URL).expect(task(), unsent)
    receiver.expect(task(), unsent)
    with pytest.raises(ValueError, match="task t-2 already has another config"):
        receiver.expect(task(task_id="t-2"), unsent)


async def test_closing_ends_every_wait():
    async with PushReceiver(URL) as receiver:
        config = receiver.config("t-1")
        waiting = asyncio.ensure_future(receiver.wait("t-1"))
        await asyncio.sleep(0)

    with pytest.raises(A2AConnectionError, match="the receiver was closed"):
        await waiting
    assert (await post(receiver, task(), config)).status == 503
    await receiver.close()


async def test_a_wait_that_is_cancelled_leaves_nothing_behind():
    receiver, config = expecting()
    waiting = asyncio.ensure_future(receiver.wait("t-1"))
    await asyncio.sleep(0)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    await deliver(receiver, config, status(COMPLETED))
    assert (await receiver.wait("t-1")).state is COMPLETED


# ── With the agent at hand ───────────────────────────────────────────────────────────────────


async def begun(behaviour, **options):
    """An agent with a task that it was told to push, the client and the receiver."""
    agent = FakeAgent(behaviour)
    client = connect(agent.url, engine=FakeNetwork(agent))
    receiver = PushReceiver(URL, **options)
    config = receiver.config()
    sent = await client.send_message(
        "go", push_notification_config=config, return_immediately=True
    )
    receiver.expect(sent, config)
    return client, receiver, config, sent.id


async def test_the_agent_is_asked_for_what_was_lost():
    client, receiver, config, task_id = await begun(streams("to the ", "moon", every=1))

    await asyncio.sleep(10)
    await deliver(receiver, config, chunk("moon", task_id), status(COMPLETED, task_id))
    done = await receiver.wait(task_id, client=client)

    assert done == await client.get_task(task_id)
    assert done.text == "to the moon"
    assert receiver.get_task(task_id) == done


async def test_a_task_of_which_nothing_comes_is_looked_at():
    client, receiver, _, task_id = await begun(completes("moon", after=100))

    done = await receiver.wait(task_id, client=client)

    assert done.text == "moon"
    assert asyncio.get_running_loop().time() < 130


async def test_a_look_that_fails_for_a_while_ends_no_wait():
    agent = FakeAgent(completes("moon", after=100))
    client = connect(agent.url, engine=FakeNetwork(agent))
    receiver = PushReceiver(URL)
    config = receiver.config()
    sent = await client.send_message(
        "go", push_notification_config=config, return_immediately=True
    )
    receiver.expect(sent, config)
    agent.inject(unavailable(), on="GetTask", times=4)

    assert (await receiver.wait(sent.id, client=client)).text == "moon"


async def test_a_task_that_the_agent_does_not_know_ends_the_wait():
    agent = FakeAgent()
    client = connect(agent.url, engine=FakeNetwork(agent))
    receiver, _ = expecting("nope")

    with pytest.raises(TaskNotFoundError):
        await receiver.wait("nope", client=client)


@pytest.mark.parametrize("behaviour", [works_forever(), asks("how far?")])
async def test_an_end_that_the_agent_does_not_confirm_is_waited_for(behaviour):
    client, receiver, config, task_id = await begun(behaviour)
    await deliver(receiver, config, status(COMPLETED, task_id))

    with pytest.raises(DeadlineExceededError, match="last seen COMPLETED"):
        await receiver.wait(task_id, client=client, timeout=30)


async def test_a_task_that_is_being_confirmed_is_not_forgotten():
    client, receiver, config, task_id = await begun(completes("moon", after=20), max_tasks=1)
    await deliver(receiver, config, status(COMPLETED, task_id))
    waiting = asyncio.ensure_future(receiver.wait(task_id, client=client))
    await asyncio.sleep(5)

    with pytest.raises(QueueFullError):
        receiver.config()
    assert (await waiting).text == "moon"
    receiver.config()


async def test_a_question_that_was_answered_meanwhile_ends_no_wait():
    def behaviour(turn):
        return asks("how far?") if turn.task is None else completes("moon", after=50)

    client, receiver, config, task_id = await begun(behaviour)
    await asyncio.sleep(1)
    question = await client.get_task(task_id)
    assert question.state is INPUT_REQUIRED
    await deliver(receiver, config, question)
    await client.send_message("very", task_id=task_id, return_immediately=True)

    done = await receiver.wait(task_id, client=client)

    assert done.state is COMPLETED


async def test_a_task_that_waits_for_an_authorization_is_waited_for():
    client, receiver, _, task_id = await begun(needs_auth("sign in"))

    with pytest.raises(TaskAuthRequiredError):
        await receiver.wait(task_id, client=client, timeout=100)


STEPS = 4


@given(
    order=st.permutations(range(STEPS + 2)),
    lost=st.sets(st.integers(0, STEPS + 1)),
    twice=st.sets(st.integers(0, STEPS + 1)),
)
def test_whatever_is_lost_or_late_or_repeated_the_task_is_the_agents(order, lost, twice):
    async def main():
        words = [f"{number} " for number in range(STEPS)]
        client, receiver, config, task_id = await begun(streams(*words, every=1))
        sent = receiver.get_task(task_id)
        events = [sent, *(chunk(word, task_id) for word in words), status(COMPLETED, task_id)]
        waiting = asyncio.ensure_future(receiver.wait(task_id, client=client))
        over = False
        for number in order:
            await asyncio.sleep(1)
            if number in lost:
                continue
            for _ in range(1 + (number in twice)):
                await deliver(receiver, config, events[number])
                state = receiver.get_task(task_id).state
                assert not over or state is COMPLETED
                over = state.is_terminal
        done = await waiting
        assert done == await client.get_task(task_id)
        assert done.text == "".join(words)
        await deliver(receiver, config, *events)
        assert receiver.get_task(task_id) == done

    run(main())


# ── Races ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seconds", [0, 20], ids=["confirming", "looking"])
@pytest.mark.parametrize("ends", ["close", "forget"])
async def test_a_wait_ends_with_its_receiver_while_the_agent_is_asked(seconds, ends):
    agent = FakeAgent(works_forever())
    client = connect(agent.url, engine=FakeNetwork(agent))
    receiver, _ = expecting(None)
    config = receiver.config()
    sent = await client.send_message("go", return_immediately=True)
    receiver.expect(sent, config)
    agent.inject(Stall(), on="GetTask", times=9)
    if not seconds:
        await deliver(receiver, config, status(COMPLETED, sent.id))
    waiting = asyncio.ensure_future(receiver.wait(sent.id, client=client, poll_interval=10))
    await asyncio.sleep(seconds or 1)
    began = asyncio.get_running_loop().time()

    await receiver.close() if ends == "close" else receiver.forget(sent.id)

    with pytest.raises(A2AConnectionError, match=r"closed|forgotten") as caught:
        await waiting
    assert caught.value.failure == "closed"
    assert asyncio.get_running_loop().time() == began


class Answering:
    """A client whose agent answers when it is told to."""

    def __init__(self):
        self.asked = asyncio.Queue()

    async def wait(self, task_id, *, until, timeout):
        while not until(found := await self.get_task(task_id, timeout=timeout)):
            pass
        return found

    async def get_task(self, task_id, *, timeout):
        answer = asyncio.get_running_loop().create_future()
        await self.asked.put(answer)
        return await answer


@pytest.mark.parametrize("looking", [False, True])
async def test_what_is_forgotten_just_as_the_agent_answers_is_not_kept(looking):
    receiver, config = expecting()
    await deliver(receiver, config, task() if looking else status(COMPLETED))
    client = Answering()
    waiting = asyncio.ensure_future(receiver.wait("t-1", client=client, poll_interval=1))
    answer = await client.asked.get()

    answer.set_result(task(COMPLETED))
    receiver.forget("t-1")

    with pytest.raises(A2AConnectionError, match="the config was forgotten"):
        await waiting


async def test_an_end_that_is_delivered_while_the_agent_is_asked_stays():
    receiver, config = expecting()
    await deliver(receiver, config, task(INPUT_REQUIRED))
    client = Answering()
    waiting = asyncio.ensure_future(receiver.wait("t-1", client=client))
    answer = await client.asked.get()

    await deliver(receiver, config, task(COMPLETED, text="moon"))
    answer.set_result(task(INPUT_REQUIRED))
    (await client.asked.get()).set_result(task(COMPLETED, text="moon"))

    assert (await waiting).text == "moon"
    assert receiver.get_task("t-1").state is COMPLETED


async def test_a_question_that_the_agent_dates_earlier_is_taken_all_the_same():
    receiver, config = expecting()
    later = TaskStatus(state=INPUT_REQUIRED, timestamp="2026-01-01T00:00:02Z")
    await deliver(receiver, config, Task(id="t-1", status=later))
    client = Answering()
    waiting = asyncio.ensure_future(receiver.wait("t-1", client=client))
    earlier = msgspec.structs.replace(later, timestamp="2026-01-01T00:00:01Z")

    (await client.asked.get()).set_result(Task(id="t-1", status=earlier))

    assert (await waiting).status == earlier


async def test_an_end_that_turns_out_to_be_an_authorization_names_the_time_that_was_given():
    client, receiver, config, task_id = await begun(needs_auth("sign in"))
    waiting = asyncio.ensure_future(receiver.wait(task_id, client=client, timeout=30))
    await asyncio.sleep(10)
    await deliver(receiver, config, status(COMPLETED, task_id))

    with pytest.raises(TaskAuthRequiredError, match="the wait timeout of 30 s") as caught:
        await waiting
    late = caught.value.__cause__
    assert (late.timeout, late.task.state) == (30, TaskState.AUTH_REQUIRED)
    assert caught.value.task == late.task


async def test_an_agent_is_not_looked_at_before_it_wants_to_be():
    receiver, _ = expecting()
    client, loop = Answering(), asyncio.get_running_loop()
    waiting = asyncio.ensure_future(
        receiver.wait("t-1", client=client, timeout=300, poll_interval=10)
    )
    busy = A2AConnectionError("busy", failure="disconnected", transient=True, retry_after=100)

    (await client.asked.get()).set_exception(busy)
    assert loop.time() == 10
    (await client.asked.get()).set_result(task())
    assert loop.time() == 110
    (await client.asked.get()).set_exception(busy)
    assert loop.time() == 120
    (await client.asked.get()).set_exception(busy)
    with pytest.raises(DeadlineExceededError):
        await waiting
    assert (loop.time(), client.asked.qsize()) == (300, 0)


async def test_deadline_error_of_a_wait_has_the_last_failure():
    agent = FakeAgent(works_forever())
    client = connect(agent.url, engine=FakeNetwork(agent))
    receiver, _ = expecting()
    agent.inject(unavailable(), on="GetTask", times=99)

    with pytest.raises(DeadlineExceededError, match="never seen") as caught:
        await receiver.wait("t-1", client=client, timeout=30)
    assert caught.value.__cause__ is not None
    assert caught.value.attempts == caught.value.__cause__.attempts != ()


async def test_what_is_read_while_the_receiver_is_closed_is_not_acknowledged():
    receiver, config = expecting()
    headers = [*JSON.items(), ("x-a2a-notification-token", config.token)]
    body = body_of(task())

    async def rest():
        await receiver.close()
        return {"type": "http.request", "body": body[9:]}

    assert (await request(receiver, body[:9], headers=headers, end=rest)).status == 503
    assert receiver.get_task("t-1") is None


async def test_two_deliveries_at_once_count_both():
    receiver, config = expecting()
    gate = asyncio.Event()
    headers = [*JSON.items(), ("x-a2a-notification-token", config.token)]
    slow = body_of(chunk("moon"))

    async def rest():
        await gate.wait()
        return {"type": "http.request", "body": slow[9:]}

    first = asyncio.ensure_future(request(receiver, slow[:9], headers=headers, end=rest))
    await asyncio.sleep(0)
    await deliver(receiver, config, status(COMPLETED))
    gate.set()

    assert (await first).status == 200
    assert (receiver.get_task("t-1").state, receiver.get_task("t-1").text) == (COMPLETED, "moon")


async def test_a_message_that_comes_behind_the_whole_task_adds_nothing():
    receiver, config = expecting()
    message = Message(message_id="m-9", role=Role.AGENT, parts=(Part(text="late"),))
    await deliver(receiver, config, task(COMPLETED, text="moon"))

    await deliver(receiver, config, message)

    assert receiver.get_task("t-1") == task(COMPLETED, text="moon")


async def test_an_early_message_may_name_the_task():
    receiver = PushReceiver(URL)
    config = receiver.config()
    message = Message(message_id="m-1", task_id="t-1", role=Role.AGENT, parts=(Part(text="hm"),))

    await deliver(receiver, config, message, status(COMPLETED))

    assert receiver.expect("t-1", config).state is COMPLETED


async def test_delivery_that_may_be_early_is_deferred():
    receiver = PushReceiver(URL)
    own = AuthenticationInfo(scheme="Basic", credentials="YTpi")
    receiver.config("t-1", authentication=own)
    pending = receiver.config(authentication=own)

    early = await post(receiver, task(task_id="t-2"), authorization="Basic YTpi")
    assert (early.status, early.headers["retry-after"]) == (503, "1")
    assert (await post(receiver, task(task_id=""), authorization="Basic YTpi")).status == 404
    receiver.expect("t-2", pending)
    assert (await post(receiver, task(task_id="t-2"), authorization="Basic YTpi")).status == 200
    assert (await post(receiver, task(task_id="t-3"), authorization="Basic YTpi")).status == 404


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────


async def test_what_early_deliveries_of_another_task_broke_is_forgotten_with_them():
    receiver = PushReceiver(URL, limits=Limits(artifacts=1))
    config = receiver.config()
    two = tuple(Artifact(artifact_id=name, parts=(Part(text="x"),)) for name in "ab")
    theirs = Task(id="t-9", artifacts=two[:1])
    await deliver(receiver, config, theirs)
    further = TaskArtifactUpdateEvent(task_id="t-9", artifact=two[1])
    assert (await post(receiver, further, config)).status == 413

    receiver.expect("t-1", config)
    await deliver(receiver, config, task(COMPLETED))

    assert (await receiver.wait("t-1")).state is COMPLETED


async def test_a_configuration_that_takes_no_room_makes_none():
    receiver = PushReceiver(URL, max_bytes=3000)
    config, pending = receiver.config("t-1"), receiver.config()
    await deliver(receiver, config, task(text="x" * 1000))

    assert (await post(receiver, chunk("x" * 2000), config)).status == 503

    await deliver(receiver, pending, task(task_id="t-2"))
    assert receiver.expect("t-2", pending) == task(task_id="t-2")


async def test_what_could_never_be_kept_is_not_put_off():
    receiver, config = expecting(max_bytes=1000)

    assert (await post(receiver, task(text="x" * 2000), config)).status == 413


async def test_what_is_known_again_takes_room_as_well():
    receiver, config = expecting(max_bytes=5000)
    await deliver(receiver, config, task(COMPLETED))
    other = receiver.config("t-2")

    for number in range(60):
        late = TaskStatusUpdateEvent(
            task_id="t-1", status=TaskStatus(state=WORKING), metadata={"number": number}
        )
        if (await post(receiver, late, config)).status != 200:
            break
    await deliver(receiver, other, task(task_id="t-2", text="x" * 2000))

    with pytest.raises(ValueError, match="t-1 is not expected"):
        receiver.get_task("t-1")


async def test_pieces_without_anything_leave_others_their_turn():
    receiver, config = expecting()
    headers = [*JSON.items(), ("x-a2a-notification-token", config.token)]
    others = asyncio.ensure_future(asyncio.sleep(0))
    empty = 0

    async def nothing():
        nonlocal empty
        empty += 1
        assert empty < 1000
        return {"type": "http.request", "more_body": not others.done()}

    assert (await request(receiver, headers=headers, end=nothing)).status == 400


async def test_pieces_of_a_byte_take_no_more_room_than_the_whole():
    receiver, config = expecting(limits=Limits(event=1_000_000))
    headers = [*JSON.items(), ("x-a2a-notification-token", config.token)]
    left = 100_000

    async def byte():
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": bytes([32, 32]), "more_body": left > 0}

    tracemalloc.start()
    try:
        assert (await request(receiver, headers=headers, end=byte)).status == 400
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000


@pytest.mark.parametrize("sending", ["breaks", "hangs"])
async def test_an_answer_that_cannot_be_sent_is_lost(sending):
    receiver, _ = expecting()
    scope = {"type": "http", "method": "GET", "path": "/push", "headers": []}

    async def send(message):
        if sending == "breaks":
            raise ConnectionResetError
        await asyncio.Event().wait()

    await receiver(scope, None, send)


# ── Closed ───────────────────────────────────────────────────────────────────────────────────


async def test_a_closed_receiver_makes_nothing_and_waits_for_nothing():
    receiver, config = expecting()
    await deliver(receiver, config, task(COMPLETED))
    await receiver.close()

    with pytest.raises(A2AConnectionError, match="the receiver is closed") as caught:
        receiver.config()
    assert (caught.value.failure, caught.value.executed) == ("closed", False)
    with pytest.raises(A2AConnectionError, match="the receiver is closed: task t-2"):
        receiver.expect("t-2", config)
    with pytest.raises(A2AConnectionError, match="the receiver is closed: task t-1"):
        await receiver.wait("t-1")
    assert receiver.get_task("t-1").state is COMPLETED


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("https://me.example/push#here", "the push address .* has a fragment"),
        ("https://me.example/push#", "the push address .* has a fragment"),
        ("https:///push", "name a host"),
        ("ftp://me.example/push", "must begin with http"),
        ("/push", r"the push address '/push' must begin with http.* and name a host\Z"),
        (
            "https://user:pw@me.example/push",
            r"user name or password; pass config\(\) an authentication instead\Z",
        ),
        ("https://me@me.example/push", "contains a user name"),
    ],
)
def test_an_address_that_no_agent_could_deliver_to_is_refused(url, match):
    with pytest.raises(ValueError, match=match):
        PushReceiver(url)


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("https://me.example/push?key=canary", False),
        ("http://127.0.0.1:8000/push?key=canary", False),
        ("http://localhost/push", False),
        ("http://me.example/push?key=canary", True),
        ("http://10.0.0.1/push", True),
    ],
)
def test_an_address_without_tls_is_warned_of(url, warned, caplog):
    PushReceiver(url)

    assert ("is not https" in caplog.text) is warned
    assert "canary" not in caplog.text


def test_an_engine_that_would_fetch_nothing_is_refused():
    with pytest.raises(ValueError, match="engine needs keys="):
        PushReceiver(URL, engine=FakeNetwork(FakeAgent()))


# ── What the server asks besides ─────────────────────────────────────────────────────────────


async def speak(app, kind, *messages):
    queue, sent = list(messages), []

    async def receive():
        return {"type": queue.pop(0)}

    async def send(message):
        sent.append(message["type"])

    await app({"type": kind}, receive, send)
    return sent


async def test_a_server_may_start_and_stop_it():
    receiver = PushReceiver(URL)

    assert await speak(receiver, "lifespan", "lifespan.startup", "lifespan.shutdown") == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


async def test_a_websocket_is_closed():
    receiver = PushReceiver(URL)

    assert await speak(receiver, "websocket", "websocket.connect") == ["websocket.close"]


async def test_what_no_server_should_ask_is_an_error():
    with pytest.raises(ValueError, match="does not serve 'mqtt'"):
        await speak(PushReceiver(URL), "mqtt")


# ── The example ──────────────────────────────────────────────────────────────────────────────


async def test_the_example_runs():
    agent = FakeAgent(completes("moon", after=100))
    names = {
        "PushReceiver": PushReceiver,
        "agent": connect(agent.url, engine=FakeNetwork(agent)),
    }
    example = textwrap.dedent(holdfast.push.__doc__.split("\n\n")[2])

    await eval(compile(example, "push", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)

    assert names["done"].text == "moon"


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────


async def test_no_secret_is_shown_or_kept(caplog):
    caplog.set_level(logging.DEBUG)
    own = AuthenticationInfo(scheme="Bearer", credentials="canary-credentials")
    receiver = PushReceiver(f"{URL}&key=canary-query", max_tasks=1)
    config = receiver.config("t-1", authentication=own)
    shown = [repr(receiver), repr(config), str(config)]
    shown += [
        str(await post(receiver, event, config, x_extra="canary-header"))
        for event in (task(), task(task_id="t-2"), b"canary-body", b"")
    ]
    shown.append(str(await post(receiver, task(), x_a2a_notification_token="canary-wrong")))
    shown.append(str(await post(receiver, task(), authorization="Bearer canary-wrong")))
    for attempt in (receiver.config, lambda: PushReceiver(URL).expect("t-1", config)):
        with pytest.raises((ValueError, QueueFullError)) as caught:
            attempt()
        shown += [str(caught.value), repr(caught.value)]
    with pytest.raises(DeadlineExceededError) as late:
        await receiver.wait("t-1", timeout=1)
    shown += [str(late.value), repr(vars(late.value)), caplog.text]

    said = "\n".join(shown)
    assert "canary" not in said
    assert config.token not in said
    kept = repr([vars(receiver._watches), *(vars(watch) for watch in receiver._watches._all)])
    assert config.token not in kept
    assert "canary" not in kept


async def test_wait_polls_the_agent_once_more_before_its_deadline_error():
    agent = FakeAgent(completes("moon", after=1))  # which delivers nothing
    receiver, config = expecting(None)
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        task = await client.send_message("hi", return_immediately=True)
        receiver.expect(task, config)
        assert (await receiver.wait(task.id, client=client, timeout=5)).text == "moon"


async def test_what_cannot_be_waited_for_is_reported_at_once():
    receiver, config = expecting()
    answer = Message(message_id="m", role=Role.AGENT, parts=(Part(text="moon"),))

    with pytest.raises(TypeError, match="the arguments are in the wrong order"):
        receiver.expect(receiver.config(), "t-1")
    with pytest.raises(TypeError, match="answered with a message: there is no task to expect"):
        receiver.expect(answer, config)
    with pytest.raises(TypeError, match="authentication must be AuthenticationInfo, not str"):
        receiver.config(authentication="Bearer x")
    for wrong, said in (
        ({"client": "x"}, "client must have the methods"),
        ({"until": "x"}, "until must be a function, not str"),
    ):
        with pytest.raises(TypeError, match=said):
            await receiver.wait("t-1", **wrong)
