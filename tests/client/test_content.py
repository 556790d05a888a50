"""Content of messages: text, parts, messages, dicts, files, addresses, data."""

import errno
import json
import os
import re

import msgspec
import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.strategies import shown

from holdfast import Message, Part, Role, connect, data_part, file_part, text_part, url_part
from holdfast import protocol as op
from holdfast._client.content import to_message
from holdfast.compat import create_text_message_object
from holdfast.errors import InvalidParamsError
from holdfast.testing import Fail, FakeAgent, FakeNetwork, completes
from holdfast.types import (
    AgentExtension,
    AuthenticationInfo,
    GetTaskRequest,
    SendMessageRequest,
    TaskPushNotificationConfig,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
HI = Part(text="hi")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("hi", (HI,)),
        (HI, (HI,)),
        ([HI, "there"], (HI, Part(text="there"))),
        (("hi",), (HI,)),
        ((part for part in ("hi", "there")), (HI, Part(text="there"))),
        (Message(parts=(HI,)), (HI,)),
        ({"parts": [{"text": "hi"}]}, (HI,)),
        ({"role": "ROLE_USER", "parts": [{"data": None}]}, (Part(data=None),)),
        (Part(text=""), (Part(text=""),)),
        (Part(raw=b""), (Part(raw=b""),)),
        (Part(data=None), (Part(data=None),)),
        (Part(data=False), (Part(data=False),)),
    ],
    ids=shown,
)
def test_each_kind_of_content_becomes_a_message_of_the_user(content, parts):
    message = to_message(content, new_id="m-1")

    assert message == Message(message_id="m-1", role=Role.USER, parts=parts)


@pytest.mark.parametrize(
    "content", ["", [], (), {}, {"parts": []}, {"parts": None}, Message(), Message(message_id="m")]
)
def test_a_message_needs_content(content):
    with pytest.raises(ValueError, match="at least one part"):
        to_message(content, new_id="m-1")


@pytest.mark.parametrize(
    "part",
    [
        Part(),
        Part(text="a", url="https://a.test"),
        Part(raw=b"", text=""),
        Part(data=None, text="a"),
        Part(metadata={"a": 1}),
    ],
    ids=repr,
)
def test_a_part_has_exactly_one_content(part):
    with pytest.raises(ValueError, match="part 2 must have exactly one"):
        to_message(["fine", part], new_id="m-1")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "NoneType"),
        (7, "int"),
        (b"bytes", "bytes"),
        (bytearray(b"bytes"), "bytearray"),
        ([b"bytes"], "bytes"),
        ([None], "NoneType"),
        ([["hi"]], "list"),
        ([{"text": "hi"}], "dict"),
    ],
    ids=repr,
)
def test_content_that_cannot_be_sent_is_named(content, named):
    with pytest.raises(TypeError, match=named):
        to_message(content, new_id="m-1")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"parts": "hi"}, "parts"),
        ({"parts": [{"text": 7}]}, r"parts\[.*\]\.text"),
        ({"parts": [{"text": "hi"}], "role": []}, "role"),
    ],
)
def test_a_dict_that_is_not_a_message_names_the_member(content, named):
    with pytest.raises(ValueError, match=rf"^the message is not valid: .* at {named}$") as caught:
        to_message(content, new_id="m-1")

    assert caught.type is ValueError  # what the codec raises is its own


def test_a_message_keeps_its_members():
    own = Message(
        message_id="own",
        role=Role.USER,
        parts=(HI,),
        task_id="t",
        context_id="c",
        metadata={"a": 1},
        extensions=("urn:x",),
        reference_task_ids=("r",),
    )

    assert to_message(own, new_id="m-1") == own
    assert to_message(own, new_id="m-1", task_id="t", context_id="c") == own
    assert to_message(own.to_dict(), new_id="m-1") == own


def test_the_callers_objects_are_not_changed():
    own = Message(parts=(HI,))
    document = {"parts": [{"text": "hi"}]}

    to_message(own, new_id="m-1", task_id="t")
    to_message(document, new_id="m-1", task_id="t")

    assert own == Message(parts=(HI,))
    assert document == {"parts": [{"text": "hi"}]}


@pytest.mark.parametrize("name", ["task_id", "context_id"])
def test_ids_that_contradict_the_message_are_refused(name):
    message = Message(parts=(HI,), **{name: "one"})

    with pytest.raises(ValueError, match=f"{name} 'one', but 'two'"):
        to_message(message, new_id="m-1", **{name: "two"})


@pytest.mark.parametrize(
    ("name", "media_type", "filename", "expected"),
    [
        ("notes.txt", "text/plain", {}, "notes.txt"),
        ("picture.png", "image/png", {}, "picture.png"),
        ("unknown.qqq", None, {}, "unknown.qqq"),
        ("notes.txt", "text/x-own", {"media_type": "text/x-own"}, "notes.txt"),
        ("notes.txt", "text/plain", {"filename": "other"}, "other"),
    ],
)
def test_file_part_reads_and_names_the_file(tmp_path, name, media_type, filename, expected):
    path = tmp_path / name
    path.write_bytes(b"\x00\xff")

    parts = [file_part(path, **filename), file_part(str(path), **filename)]
    path.unlink()

    assert parts == [Part(raw=b"\x00\xff", filename=expected, media_type=media_type)] * 2


def test_file_part_of_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        file_part(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("path", "options", "kind", "reason"),
    [
        (b"x", {}, TypeError, "path must be str or Path, not bytes; pass .* Part\\(raw=…\\)"),
        (None, {}, TypeError, "path must be str or Path, not NoneType"),
        (7, {}, TypeError, "path must be str or Path, not int"),
        ("", {}, ValueError, "path must not be empty"),
        ("a\0b", {}, ValueError, "path has a NUL character"),
        ("a\udce9.txt", {}, ValueError, "filename= can replace, has an unpaired surrogate"),
        ("x", {"filename": 7}, TypeError, "filename must be str, not int"),
        ("x", {"media_type": b"a/b"}, TypeError, "media_type must be str, not bytes"),
        ("x", {"max_bytes": "1"}, TypeError, "max_bytes must be a whole number, not str"),
        ("..", {}, IsADirectoryError, "directory: '..'"),
    ],
)
def test_file_part_names_an_invalid_path(path, options, kind, reason):
    with pytest.raises(kind, match=f"(?i){reason}"):
        file_part(path, **options)


def test_file_part_accepts_files_from_empty_to_max_bytes(tmp_path):
    path = tmp_path / "large"
    path.touch()
    assert file_part(path, max_bytes=0).raw == b""

    with path.open("r+b") as file:
        file.truncate(1024**3 + 1)  # which takes no room on the disk
    with pytest.raises(
        OSError, match="1073741825 bytes, more than max_bytes=1073741824"
    ) as caught:
        file_part(path)

    assert caught.value.errno == errno.EFBIG


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_file_part_refuses_a_fifo_or_device_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")

    for path in (tmp_path / "fifo", "/dev/zero"):
        with pytest.raises(OSError, match="it is not a regular file"):
            file_part(path)


def test_part_functions_return_parts():
    assert text_part("hi") == HI
    assert text_part("# hi", media_type="text/markdown").media_type == "text/markdown"
    assert url_part(
        "https://a.test/b.pdf", filename="b.pdf", media_type="application/pdf"
    ) == Part(url="https://a.test/b.pdf", filename="b.pdf", media_type="application/pdf")
    assert data_part(None).data is None
    assert text_part("hi").data is msgspec.UNSET


@both_bindings
@pytest.mark.parametrize(
    "parts",
    [
        [text_part("a\u2028b\x85c")],
        [Part(raw=bytes(range(256)), filename="b", media_type="x/y")],
        [url_part("https://a.test/?q=1&r=ü")],
        [data_part({"n": 1, "deep": [None, True, 2**53 + 1, 1.5]})],
        [data_part(None)],
        [Part(text="x", metadata={"k": ["v"]})],
        ["several", data_part(0), text_part("")],
    ],
    ids=repr,
)
async def test_parts_are_received_as_they_were_sent(binding, parts):
    agent = FakeAgent(lambda turn: completes(*turn.message.parts))
    client = connect(agent.url, engine=FakeNetwork(agent), bindings=[binding])

    answer = await client.ask(parts)

    returned = [part for artifact in answer.task.artifacts for part in artifact.parts]
    assert returned == [Part(text=p) if isinstance(p, str) else p for p in parts]


@both_bindings
async def test_ids_and_metadata_are_sent(binding):
    agent = FakeAgent(extensions=[AgentExtension(uri="urn:a"), AgentExtension(uri="urn:b")])
    client = connect(agent.url, engine=FakeNetwork(agent), bindings=[binding])
    metadata = {"trace": {"n": 1}}

    await client.send_message(
        "hello", context_id="c-1", metadata=metadata, extensions=["urn:a", "urn:b"]
    )

    (received,) = agent.calls("SendMessage")
    body = json.loads(received.body)
    request = body.get("params", body)
    assert request["message"]["contextId"] == "c-1"
    assert request["message"]["role"] == "ROLE_USER"
    assert request["metadata"] == metadata
    assert received.headers["a2a-extensions"] == "urn:a,urn:b"


async def test_ask_returns_immediately_and_the_raw_operation_blocks():
    agent = FakeAgent(lambda _turn: completes("done", after=30), streaming=False)
    client = connect(agent.url, engine=FakeNetwork(agent))

    await client.ask("hello")
    await client.send_message("hello")
    await client.send_message("hello", return_immediately=True, history_length=0)

    sent = [json.loads(r.body)["params"].get("configuration") for r in agent.calls("SendMessage")]
    assert sent == [
        {"returnImmediately": True},
        None,
        {"returnImmediately": True, "historyLength": 0},
    ]


@given(st.lists(st.text() | st.builds(Part, text=st.text()), min_size=1), st.text(min_size=1))
def test_any_parts_make_a_message(parts, new_id):
    message = to_message(parts, new_id=new_id)

    assert len(message.parts) == len(parts)
    assert (message.message_id, message.role) == (new_id, Role.USER)
    assert to_message(message, new_id="another") == message


@pytest.mark.parametrize(
    ("part", "subject"),
    [
        (Part(text=b"x"), "the text of part 1 must be str, not bytes"),
        (Part(raw="x"), "the raw of part 1 must be bytes, not str"),
        (Part(url=5), "the url of part 1 must be str, not int"),
        (Part(raw=b"", filename=5), "the filename of part 1 must be str, not int"),
        (Part(text="", media_type=b"a/b"), "the media_type of part 1 must be str, not bytes"),
    ],
)
def test_a_part_of_the_wrong_type_is_refused(part, subject):
    with pytest.raises(TypeError, match=subject):
        to_message(part, new_id="m")


HALF = "a\ud800b"
ITSELF = {"list": []}
ITSELF["list"].append(ITSELF["list"])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": [1.5, float("nan")]}, '["a"][1] is nan, which is not JSON'),
        ({"a": float("inf")}, '["a"] is inf, which is not JSON'),
        ({"a": {1, 2}}, '["a"] must be JSON, not set'),
        ({"deep": [{"x": b"raw"}]}, '["deep"][0]["x"] must be JSON, not bytes'),
        ({"a": object()}, '["a"] must be JSON, not object'),
        ({"a": Part(text="x")}, '["a"] must be JSON, not Part'),
        ({"a": 10**5000}, '["a"] is a number of more than 4,000 digits'),
        ({"a": {1: 2}}, '["a"] has a key that is int, but JSON keys must be str'),
        ({None: 2}, " has a key that is NoneType, but JSON keys must be str"),
        (ITSELF, '["list"][0] contains itself'),
        ({"a": HALF}, r'["a"] has an unpaired surrogate (\ud800 at index 1), which UTF-8'),
        ({"é": {HALF: 1}}, r'["\u00e9"] has a key with an unpaired surrogate (\ud800 at'),
    ],
)
async def test_metadata_and_data_that_are_not_json_are_refused_with_the_path(value, reason):
    agent = FakeAgent()
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        with pytest.raises(ValueError, match=f"^{re.escape('metadata' + reason)}"):
            await client.send_message("hi", metadata=value)
        with pytest.raises(ValueError, match=f"^{re.escape('message_metadata' + reason)}"):
            await client.ask("hi", message_metadata=value)
        with pytest.raises(ValueError, match=f"^{re.escape('metadata' + reason)}"):
            await client.cancel_task("t", metadata=value)
    for part in (Part(text="x", metadata=value), data_part(value)):
        name = "data" if part.metadata is None else "metadata"
        path = f"message.parts[1].{name}{reason}"
        with pytest.raises(ValueError, match=f"^{re.escape(path)}"):
            to_message(["hi", part], new_id="m")
    with pytest.raises(ValueError, match=f"^{re.escape('message.metadata' + reason)}"):
        to_message(Message(parts=(HI,), metadata=value), new_id="m")

    assert agent.received == []


def test_valid_json_is_accepted():
    value = {"a": [1, (2, None), 2**70, 1.5, True, Role.USER], "": {"é\U0001f600": "\U0001f600"}}
    value["twice"] = [value["a"], value["a"]]

    assert to_message(data_part(value), new_id="m").parts[0].data == value


def test_too_deep_nesting_is_refused():
    value = {}
    for _ in range(5000):
        value = {"a": value}

    with pytest.raises(ValueError, match="message is nested too deeply"):
        to_message(data_part(value), new_id="m")


# ── Text that UTF-8 cannot encode ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (HALF, "message.parts[0].text"),
        (["hi", HALF], "message.parts[1].text"),
        (Part(raw=b"", filename=HALF), "message.parts[0].filename"),
        (Part(text="x", media_type=HALF), "message.parts[0].media_type"),
        (Part(url=f"http://x.test/{HALF}"), "the url of part 1"),
        (Message(parts=(HI,), message_id=HALF), "message.message_id"),
        (Message(parts=(HI,), context_id=HALF), "message.context_id"),
        (Message(parts=(HI,), extensions=("urn:a", HALF)), "message.extensions[1]"),
        (Message(parts=(HI,), reference_task_ids=[HALF]), "message.reference_task_ids[0]"),
        ({"parts": [{"text": HALF}]}, "message.parts[0].text"),
    ],
    ids=repr,
)
def test_a_message_that_utf8_cannot_encode_is_refused_with_the_path(content, path):
    pattern = (
        rf"^{re.escape(path)} has an unpaired surrogate \(\\ud800 at index \d+\), which UTF-8"
    )
    with pytest.raises(ValueError, match=pattern):
        to_message(content, new_id="m")


class Markup(str):
    """Text of a subclass of str, as template engines return it; codecs reject it."""

    __slots__ = ()


@pytest.mark.parametrize("content", [Markup("x"), [Markup("x")], Part(text=Markup("x"))])
def test_a_text_of_a_subclass_is_refused_before_the_codec(content):
    with pytest.raises(TypeError, match=r"^message.parts\[0\].text must be str, not Markup"):
        to_message(content, new_id="m")


PUSH = {"task_id": "t", "url": "http://push.test/"}


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda c: c.ask("hi", context_id=HALF), "context_id"),
        (lambda c: c.send_message("hi", task_id=HALF), "task_id"),
        (lambda c: c.send_message("hi", tenant=HALF), "tenant"),
        (lambda c: c.send_message("hi", extensions=[HALF]), "one of extensions"),
        (lambda c: c.ask("hi", accepted_output_modes=[HALF]), "one of accepted_output_modes"),
        (lambda c: c.get_task(HALF), "task_id"),
        (lambda c: c.wait(HALF), "task_id"),
        (lambda c: c.cancel_task(HALF), "task_id"),
        (lambda c: c.list_tasks(HALF), "context_id"),
        (lambda c: c.list_tasks(page_token=HALF), "params.page_token"),
        (lambda c: c.get_task_push_notification_config("t", HALF), "config_id"),
        (
            lambda c: c.create_task_push_notification_config(
                TaskPushNotificationConfig(**PUSH, token=HALF)
            ),
            "config.token",
        ),
        (
            lambda c: c.ask(
                "hi",
                push_notification_config=TaskPushNotificationConfig(
                    **PUSH, authentication=AuthenticationInfo(scheme="Bearer", credentials=HALF)
                ),
            ),
            "the push notification config.authentication.credentials",
        ),
        (lambda c: c.call(op.GET_TASK, GetTaskRequest(id=HALF)), "params.id"),
        (
            lambda c: c.call(
                op.SEND_MESSAGE,
                SendMessageRequest(message=Message(message_id="m", parts=(Part(text=HALF),))),
            ),
            "params.message.parts[0].text",
        ),
    ],
)
async def test_a_call_with_a_text_that_utf8_cannot_encode_sends_nothing(call, path):
    agent = FakeAgent()
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        with pytest.raises(ValueError, match=rf"^{re.escape(path)} has an unpaired surrogate"):
            await call(client)
        with pytest.raises(ValueError, match="the header x-a has"):
            await client.ask("hi", headers={"x-a": HALF})
    with pytest.raises(ValueError, match=r"^tenant has an unpaired surrogate"):
        connect(agent.url, tenant=HALF)

    assert agent.received == []


@pytest.mark.parametrize(
    "url", ["foo", "moon.txt", "/moon.txt", "example.com/moon.txt", "https://"]
)
def test_url_part_without_an_absolute_url_is_refused(url):
    with pytest.raises(ValueError, match=f"url must be an absolute URL, .*{url}.* use file_part"):
        url_part(url)


@pytest.mark.parametrize("url", ["https://a.test/ü.pdf", "S3://bucket/moon", "data:,moon"])
def test_url_part_accepts_absolute_urls_of_any_scheme(url):
    assert url_part(url).url == url


def test_url_part_refuses_an_empty_address():
    with pytest.raises(ValueError, match="the url of part 1 must not be empty"):
        to_message(Part(url=""), new_id="m")


@pytest.mark.parametrize("name", ["task_id", "context_id"])
@pytest.mark.parametrize(("value", "kind"), [("", ValueError), (5, TypeError)])
def test_an_invalid_id_is_refused(name, value, kind):
    with pytest.raises(kind, match=name):
        to_message("hi", new_id="m", **{name: value})


async def test_metadata_and_push_config_must_have_their_types():
    agent = FakeAgent()
    client = connect(agent.url, engine=FakeNetwork(agent))

    for message in ("hi", Message(parts=(HI,))):
        with pytest.raises(TypeError, match=r"^metadata must be a dict, not str"):
            await client.send_message(message, metadata="x")
    with pytest.raises(TypeError, match=r"^message.metadata must be a dict, not str"):
        await client.send_message(Message(parts=(HI,), metadata="x"))
    with pytest.raises(TypeError, match=r"^config must be TaskPushNotificationConfig, not dict"):
        await client.create_task_push_notification_config(PUSH)
    assert agent.received == []


# ── Values of the official SDK ───────────────────────────────────────────────────────────────


def test_create_text_message_object_creates_an_id():
    first = create_text_message_object(content="hello")
    second = create_text_message_object(Role.AGENT, "hello")

    assert (first.role, first.text, second.role) == (Role.USER, "hello", Role.AGENT)
    assert first.message_id
    assert first.message_id != second.message_id
    assert create_text_message_object().parts == (Part(text=""),)


@pytest.mark.parametrize("arguments", [("user", "hello"), (Role.USER, 7), (Role.USER, None)])
def test_create_text_message_object_takes_a_role_and_text(arguments):
    with pytest.raises(TypeError):
        create_text_message_object(*arguments)


@pytest.mark.parametrize("message", [{"text": "x"}, {"role": "ROLE_USER", "text": "x"}])
def test_a_dict_with_content_in_the_wrong_member_names_the_right_one(message):
    expected = r"""'text' is not a member of the message; write {"parts": \[{"text": …}\]}"""
    with pytest.raises(ValueError, match=expected):
        to_message(message, new_id="m-1")


@pytest.mark.parametrize(
    ("members", "instead"),
    [({"DESCRIPTOR": None}, "MessageToDict"), ({"model_dump": None}, "model_dump")],
)
def test_an_sdk_value_is_named_with_what_to_pass(members, instead):
    foreign = type("Message", (), {"__module__": "a2a.types", **members})()

    with pytest.raises(TypeError, match=rf"not a2a\.types\.Message of .*{instead}"):
        to_message(foreign, new_id="m")
    with pytest.raises(TypeError, match=rf"not a2a\.types\.Message of .*{instead}"):
        connect(foreign)


# ── Metadata ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["ask", "send_message", "stream_message", "conversation"])
async def test_metadata_of_the_message_and_of_the_request_are_separate(how):
    agent = FakeAgent()
    message = Message(parts=(HI,), metadata={"own": 1, "both": 1})
    both = {"metadata": {"of": "request"}, "message_metadata": {"both": 2}}
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        if how == "conversation":
            await client.conversation().ask(message, **both)
        elif how == "stream_message":
            async with client.stream_message(message, **both) as events:
                await events.result()
        else:
            await getattr(client, how)(message, **both)
        with pytest.raises(TypeError, match="message_metadata must be a dict"):
            await client.send_message("hi", message_metadata=7)

    (received,) = agent.calls("SendMessage") or agent.calls("SendStreamingMessage")
    sent = json.loads(received.body)["params"]
    assert sent["metadata"] == {"of": "request"}
    assert sent["message"]["metadata"] == {"own": 1, "both": 2}


# ── Dicts of every version ───────────────────────────────────────────────────────────────────

FILE = Part(raw=b"\x00\xff", filename="a.bin", media_type="a/b")


@pytest.mark.parametrize(
    ("part", "read"),
    [
        ({"type": "text", "text": "hi"}, Part(text="hi")),
        ({"kind": "text", "text": "hi", "metadata": {"n": 1}}, Part(text="hi", metadata={"n": 1})),
        ("hi", Part(text="hi")),
        (Part(text="hi"), Part(text="hi")),
        ({"kind": "file", "file": {"bytes": "AP8=", "name": "a.bin", "mimeType": "a/b"}}, FILE),
        ({"type": "file", "file": {"bytes": "AP8=", "name": "a.bin", "mimeType": "a/b"}}, FILE),
        ({"file": {"fileWithBytes": "AP8=", "name": "a.bin", "mimeType": "a/b"}}, FILE),
        ({"raw": "AP8=", "filename": "a.bin", "mediaType": "a/b"}, FILE),
        ({"raw": "AP8=", "filename": "a.bin", "media_type": "a/b"}, FILE),
        ({"kind": "file", "file": {"uri": "http://x.test/"}}, Part(url="http://x.test/")),
        ({"file": {"fileWithUri": "http://x.test/"}}, Part(url="http://x.test/")),
        ({"kind": "data", "data": {"data": {"n": 1}}}, Part(data={"data": {"n": 1}})),
        ({"data": {"data": {"n": 1}}}, Part(data={"data": {"n": 1}})),
        (
            {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}},
            Part(data=[1]),
        ),
    ],
)
@pytest.mark.parametrize("role", ["user", "ROLE_USER", None])
def test_a_dict_of_any_version_becomes_a_message(part, read, role):
    written = {"kind": "message", "role": role, "parts": [part]}

    assert to_message(written, new_id="m") == Message(
        message_id="m", role=Role.USER, parts=(read,)
    )


def test_a_dict_of_proto_json_of_0_3_becomes_a_message():
    written = {
        "message_id": "m",
        "role": "ROLE_USER",
        "content": [{"data": {"data": {"n": 1}}}, {"text": "hi"}],
        "context_id": "c",
    }

    assert to_message(written, new_id="other") == Message(
        message_id="m",
        role=Role.USER,
        parts=(Part(data={"n": 1}), Part(text="hi")),
        context_id="c",
    )


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"role": "assistant", "parts": ["hi"]}, 'must be "user"'),
        ({"kind": "task", "parts": ["hi"]}, "not a message"),
        ({"parts": [{"type": "input_text", "text": "hi"}]}, 'write {"text": …}'),
        ({"parts": [{"type": "text", "content": "hi"}]}, 'has no "text"'),
        ({"parts": ["hi", {"kind": "file", "file": "AP8="}]}, "the file of part 2"),
        ({"parts": [{"file": {"bytes": "AP8=", "uri": "http://x.test/"}}]}, "either its content"),
        (
            {"parts": ["hi"], "taskid": "t"},
            "'taskid' is not a member of the message; did you mean 'taskId'?",
        ),
        ({"parts": ["hi"], "context_ID": "c"}, "did you mean 'contextId'?"),
        (
            {"parts": ["hi"], 7: "c"},
            "7 is not a member of the message; there are messageId, role,",
        ),
        ({"parts": ["hi"], "content": ["hi"]}, "'content' is not a member of the message"),
        ({"parts": ["hi"], "taskId": "a", "task_id": "b"}, "the message has 'taskId' twice"),
        (
            {"parts": ["hi", {"text": "x", "medaType": "a/b"}]},
            "'medaType' is not a member of part 2; did you mean 'mediaType'?",
        ),
        (
            {"kind": "message", "parts": [{"kind": "text", "text": "x", "metdata": {}}]},
            "'metdata' is not a member of part 1; did you mean 'metadata'?",
        ),
        (
            {"parts": [{"kind": "file", "file": {"bytes": "AP8=", "mimetype": "a/b"}}]},
            "'mimetype' is not a member of the file of part 1; did you mean 'mimeType'?",
        ),
    ],
)
async def test_a_dict_that_cannot_be_converted_is_refused_before_anything_is_sent(
    written, message
):
    agent = FakeAgent()
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        with pytest.raises(ValueError, match=re.escape(message)):
            await client.send_message(written)

    assert agent.received == []


BAD_REQUEST = {
    "@type": "type.googleapis.com/google.rpc.BadRequest",
    "fieldViolations": [{"field": "message.role", "description": "unknown\nrole"}],
}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([BAD_REQUEST], "message.role: unknown role"),
        ([{"loc": ["message", "parts", 0], "msg": "Field required"}], "message.parts.0: Field"),
        ("the role is unknown", "the role is unknown"),
        ({"reason": "the role is unknown"}, "the role is unknown"),
        ({"detail": "the role is unknown"}, "the role is unknown"),
        ("x" * 5000, "x" * 400),
        ([{"fieldViolations": 7}, 7, {"loc": 1, "msg": None}], "Invalid params (agent"),
    ],
)
async def test_invalid_params_contain_the_reason_from_the_data(data, reason):
    agent = FakeAgent()
    agent.inject(Fail(code=-32602, message="Invalid params", data=data))
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        with pytest.raises(InvalidParamsError) as caught:
            await client.send_message("hi")

    assert reason in str(caught.value)
    assert len(str(caught.value)) < 1500
    assert "\n" not in str(caught.value)


async def test_a_reason_in_the_data_is_shown_without_the_secrets_that_were_sent():
    agent = FakeAgent()
    agent.inject(Fail(code=-32602, message="Invalid params", data="not with s3cr3t-t0ken"))
    options = {"engine": FakeNetwork(agent), "auth": "Bearer s3cr3t-t0ken"}
    async with connect(agent.url, **options) as client:
        with pytest.raises(InvalidParamsError) as caught:
            await client.send_message("hi")

    assert "Invalid params: not with" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def sdk_of_0_3(name, document):
    """Return a value of the SDK for 0.3: a pydantic model of its module."""

    def model_dump(_self, **options):
        assert options == {"mode": "json", "by_alias": True, "exclude_none": True}
        return document

    return type(name, (), {"__module__": "a2a.types", "model_dump": model_dump})()


def test_a_message_of_the_official_sdk_is_accepted():
    sdk_message = a2a_pb2.Message(message_id="m-7", role=a2a_pb2.ROLE_USER, context_id="c-1")
    sdk_message.parts.add(text="hello")
    sdk_message.parts.add().data.struct_value["count"] = 3
    older = {"kind": "message", "messageId": "m-8", "role": "user"}
    older["parts"] = [{"kind": "text", "text": "hello"}]

    message = to_message(sdk_message, new_id="m")
    before = to_message(sdk_of_0_3("Message", older), new_id="m")

    assert (message.message_id, message.context_id, message.role) == ("m-7", "c-1", Role.USER)
    assert message.parts == (Part(text="hello"), Part(data={"count": 3}))
    assert isinstance(message.parts[1].data["count"], int)
    assert (before.message_id, before.role, before.text) == ("m-8", Role.USER, "hello")
    assert to_message(sdk_message.parts[0], new_id="m").text == "hello"
    assert to_message([sdk_message.parts[0], "you"], new_id="m").parts == (
        Part(text="hello"),
        Part(text="you"),
    )


@pytest.mark.parametrize(
    ("name", "document", "part"),
    [
        ("Part", {"kind": "text", "text": "hello"}, Part(text="hello")),
        ("TextPart", {"kind": "text", "text": "hello"}, Part(text="hello")),
        ("DataPart", {"kind": "data", "data": {"n": 1}}, Part(data={"n": 1})),
        (
            "FilePart",
            {"kind": "file", "file": {"bytes": "AP8=", "name": "a.bin", "mimeType": "a/b"}},
            Part(raw=b"\x00\xff", filename="a.bin", media_type="a/b"),
        ),
    ],
)
def test_a_part_of_the_official_sdk_for_0_3_is_accepted(name, document, part):
    of_sdk = sdk_of_0_3(name, document)

    assert to_message(of_sdk, new_id="m").parts == (part,)
    assert to_message([of_sdk, "you"], new_id="m").parts == (part, Part(text="you"))


@pytest.mark.parametrize("older", [False, True])
async def test_a_card_of_the_official_sdk_is_accepted(older):
    agent = FakeAgent()
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.agent_card()
        document = client.card_document
    card = sdk_of_0_3("AgentCard", document)
    if not older:
        card = json_format.ParseDict(document, a2a_pb2.AgentCard())

    async with connect(card, engine=FakeNetwork(agent)) as client:
        assert (await client.ask("hello")).text == "hello"


def test_an_sdk_value_that_cannot_be_sent_is_named():
    with pytest.raises(TypeError, match="Task of the official SDK"):
        to_message(a2a_pb2.Task(id="t"), new_id="m")
    with pytest.raises(TypeError, match="Message of the official SDK"):
        connect(a2a_pb2.Message())
