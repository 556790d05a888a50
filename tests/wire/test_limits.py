"""Limits of a client: each by its name, and the memory that they bound."""

import contextlib
import gzip
import json
import tracemalloc
import zlib
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.answering_network import Answering, rpc
from tests.kit.effort import crossed
from tests.kit.raw_server import LAST_CHUNK, chunk, head, reply, serve

from holdfast import A2AError, AiohttpEngine, Limits, Resilience, connect
from holdfast._wire import limits as machine
from holdfast._wire.inflating import Inflater
from holdfast._wire.limits import check_json_size, limit_error
from holdfast.errors import (
    A2AConnectionError,
    A2AHTTPError,
    InvalidAgentResponseError,
    LimitExceededError,
)
from holdfast.extend import HttpReply
from holdfast.testing import FakeAgent, FakeNetwork


@pytest.mark.parametrize("name", Limits.__struct_fields__)
@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (0, ValueError, "at least 1"),
        (-1, ValueError, "at least 1"),
        (1.5, TypeError, "a whole number, not float"),
        (True, TypeError, "a whole number, not bool"),
        ("10", TypeError, "a whole number, not str"),
        (None, TypeError, "a whole number, not NoneType"),
    ],
)
def test_a_limit_must_be_a_positive_integer(name, value, kind, message):
    with pytest.raises(kind, match=f"the limit {name} must be {message}"):
        Limits(**{name: value})


def test_limits_are_checked_by_their_names():
    with pytest.raises(TypeError, match="limits must be Limits"):
        connect("http://agent.test", limits={"body": 10})


# ── Checks before JSON is decoded ────────────────────────────────────────────────────────────

TEXTS = st.text(alphabet='a,[]{}"\\é😀\n', max_size=8)
DOCUMENTS = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def depth_of(value):
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, inner), default=0) if isinstance(value, dict | list) else 0


def size_of(value):
    """Return an upper bound of the number of values: separators and opening brackets."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(len(value) - 1, 0) + sum(map(size_of, inner))


def refusal(body, **limits):
    try:
        check_json_size(body, Limits(**limits))
    except LimitExceededError as error:
        return error.which
    return None


@given(DOCUMENTS, st.booleans(), st.integers(1, 64))
def test_depth_and_number_of_values_are_counted(value, escaped, window):
    body = json.dumps(value, ensure_ascii=escaped).encode()
    depth, size = depth_of(value), 1 + size_of(value)
    before, machine._WINDOW = machine._WINDOW, window
    try:
        assert refusal(body, json_depth=max(depth, 1)) is None
        assert refusal(body, json_values=max(size, 1)) is None
        if depth > 1:
            assert refusal(body, json_depth=depth - 1) == "json_depth"
        if size > 1:
            assert refusal(body, json_values=size - 1) == "json_values"
    finally:
        machine._WINDOW = before


@given(st.binary(max_size=200))
def test_a_body_that_is_not_json_is_left_to_the_decoder(body):
    assert refusal(body, json_depth=1000) is None
    assert refusal(b"<" + body, json_depth=1, json_values=1) is None


async def test_an_html_page_keeps_its_status():
    page = b"<script>" + b"{" * 1000 + b"</script>"
    error = await refused(Fixed(page, status=502), A2AHTTPError)

    assert error.http_status == 502


# ── Each limit by its name ───────────────────────────────────────────────────────────────────


class Fixed(FakeNetwork):
    """A network that answers every call with the same result, or the same body."""

    def __init__(self, answer, status=200):
        super().__init__(FakeAgent())
        self.answer = answer
        self.status = status

    async def request(self, request):
        if request.method == "GET":
            return await super().request(request)
        request.progress.sent = True
        body = self.answer
        if not isinstance(body, bytes):
            called = json.loads(request.body)
            body = json.dumps({"id": called["id"], "result": body}).encode()
        if len(body) > request.limits.body:
            raise limit_error("body", request.limits, "too large", agent=request.url)
        return HttpReply(status=self.status, body=body)


async def refused(network, kind=LimitExceededError, call=None, **limits):
    client = connect(
        "http://agent.test",
        engine=network,
        limits=Limits(**limits),
        resilience=Resilience.off(),
    )
    call = call or (lambda client: client.get_task("task"))
    with pytest.raises(kind) as caught:
        await call(client)
    return caught.value


def task(**members):
    return {"id": "task", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}, **members}


def message(parts=1, **members):
    return {
        "messageId": "m",
        "role": "ROLE_AGENT",
        "parts": [{"text": "x"}] * parts,
        **members,
    }


def artifact(parts=1):
    return {"artifactId": "a", "parts": [{"text": "x"}] * parts}


def get(client):
    return client.get_task("task")


def send(client):
    return client.send_message("hello")


def page(client):
    return client.list_tasks()


@pytest.mark.parametrize(
    ("call", "result", "which"),
    [
        (get, task(artifacts=[artifact(3)]), "parts"),
        (get, task(history=[message(3)]), "parts"),
        (get, task(status={"state": "TASK_STATE_WORKING", "message": message(3)}), "parts"),
        (get, task(artifacts=[artifact()] * 3), "artifacts"),
        (get, task(history=[message()] * 3), "history"),
        (send, {"message": message(3)}, "parts"),
        (send, {"task": task(history=[message()] * 3)}, "history"),
        (page, {"tasks": [task(), task(artifacts=[artifact()] * 3)]}, "artifacts"),
    ],
)
async def test_a_task_that_exceeds_a_limit_is_refused(call, result, which):
    error = await refused(Fixed(result), call=call, **{which: 2})

    assert (error.which, error.bound, error.executed) == (which, 2, True)
    assert f"Limits({which}=…)" in str(error)
    await call(connect("http://agent.test", engine=Fixed(result), limits=Limits(**{which: 3})))


@pytest.mark.rule("P24")
@pytest.mark.parametrize(
    ("which", "bound", "metadata"),
    [
        ("json_depth", 9, {"a": [[[[[[[]]]]]]]}),
        ("json_values", 30, {"a": [1] * 30}),
    ],
)
async def test_json_that_exceeds_depth_or_values_is_refused(which, bound, metadata):
    error = await refused(Fixed(task(metadata=metadata)), **{which: bound})

    assert (error.which, error.bound, error.executed) == (which, bound, None)
    assert error.agent == "http://agent.test/rpc"
    assert error.attempts[0].error is not None


CARD = {
    "name": "Large",
    "supportedInterfaces": [{"url": "http://agent.test/rpc", "protocolBinding": "JSONRPC"}],
    "capabilities": {"extendedAgentCard": True},
}


async def test_a_card_has_its_own_limit():
    agent = FakeAgent(card=CARD | {"description": "x" * 5000})
    error = await refused(FakeNetwork(agent), card=5000)
    assert (error.which, error.bound, error.executed) == ("card", 5000, False)
    assert error.agent == "http://agent.test/.well-known/agent-card.json"
    assert "Limits(card=…)" in str(error)
    assert (await refused(FakeNetwork(agent), card=50_000, body=10)).which == "body"


async def test_an_extended_card_has_the_limit_of_cards():
    network = Fixed(CARD | {"description": "x" * 5000})
    client = connect(CARD, engine=network, limits=Limits(card=5000))

    with pytest.raises(LimitExceededError) as caught:
        await client.get_extended_agent_card()

    assert (caught.value.which, caught.value.bound) == ("card", 5000)
    assert caught.value.agent == "http://agent.test/rpc"


@pytest.mark.parametrize("document", [{"a": [[[[[]]]]]}, {"a": [1] * 50}], ids=["deep", "full"])
async def test_a_card_file_is_checked_like_any_other(tmp_path, document):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(document), "utf-8")
    client = connect(path, limits=Limits(json_depth=5, json_values=50))

    with pytest.raises(LimitExceededError) as caught:
        await client.agent_card()

    assert caught.value.which in {"json_depth", "json_values"}
    assert caught.value.executed is False


# ── Limits of headers and compression on a socket ────────────────────────────────────────────


@contextlib.asynccontextmanager
async def serving(*pieces):
    """Yield a client of an agent that answers each call with the same bytes."""

    async def script(connection):
        while await connection.request() is not None:
            await connection.send(*pieces)

    engine = AiohttpEngine()
    async with serve(script) as server:
        card = {
            "name": "Hostile",
            "supportedInterfaces": [{"url": server.url, "protocolBinding": "HTTP+JSON"}],
        }

        def client(**limits):
            return connect(
                card, engine=engine, limits=Limits(**limits), resilience=Resilience.off()
            )

        try:
            yield client
        finally:
            await engine.close()


TASK = json.dumps(task()).encode()
PACKED = "Content-Encoding: gzip"


@pytest.mark.real_time
@pytest.mark.parametrize(
    "headers",
    [
        ["X-Large: " + "a" * 3000],
        [f"X-{number}: {'a' * 100}" for number in range(30)],
        [f"X-{number}: a" for number in range(200)],
    ],
    ids=["long", "together", "many"],
)
async def test_headers_have_a_limit(headers):
    async with serving(reply(TASK, *headers)) as client:
        with pytest.raises(LimitExceededError) as caught:
            await client(headers=2500).get_task("task")

        assert (caught.value.which, caught.value.bound) == ("headers", 2500)
        assert caught.value.executed is None
        if len(headers) < 100:
            await client(headers=4000).get_task("task")


@pytest.mark.rule("P24")
@pytest.mark.real_time
async def test_a_body_is_not_inflated_beyond_the_ratio():
    spaces = b" " * 3_000_000
    async with serving(reply(gzip.compress(TASK + spaces), PACKED)) as client:
        with pytest.raises(LimitExceededError) as caught:
            await client().get_task("task")
        assert (caught.value.which, caught.value.bound) == ("inflation_ratio", 100)

        with pytest.raises(LimitExceededError) as caught:
            await client(inflation_ratio=2000, body=2_000_000).get_task("task")
        assert (caught.value.which, caught.value.bound) == ("body", 2_000_000)

        assert (await client(inflation_ratio=2000).get_task("task")).id == "task"


@pytest.mark.real_time
async def test_a_truncated_compressed_body_is_truncated():
    packed = gzip.compress(TASK)
    async with serving(reply(packed[:-4], PACKED)) as client:
        with pytest.raises(A2AConnectionError) as caught:
            await client().get_task("task")

        assert (caught.value.failure, caught.value.transient) == ("truncated", True)


@pytest.mark.real_time
@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "deflate", "identity", ""])
async def test_supported_codings(coding):
    pack = {"deflate": zlib.compress, "identity": bytes, "": bytes}.get(coding, gzip.compress)
    async with serving(reply(pack(TASK), f"Content-Encoding: {coding}")) as client:
        assert (await client().get_task("task")).id == "task"


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
)
def test_inflating_does_not_depend_on_the_chunks(members, steps):
    packed = b"".join(map(gzip.compress, members))
    ends = list(accumulate(len(gzip.compress(member)) for member in members))
    inflater, inflated, start = Inflater("gzip", Limits()), b"", 0
    for step in steps * len(packed):
        inflated += inflater.feed(packed[start : start + step])
        start += step
        assert inflater.is_cut == (0 < min(start, len(packed)) not in ends)

    assert inflated == b"".join(members)
    assert not inflater.is_cut


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"x") + b"garbage", b"no gzip", gzip.compress(b"") * 101],
    ids=["behind", "instead", "members"],
)
def test_broken_compression_is_an_invalid_response(data):
    with pytest.raises(InvalidAgentResponseError, match="its compression is broken"):
        Inflater("gzip", Limits()).feed(data)


def test_a_compressed_body_without_output_ends():
    inflater = Inflater("deflate", Limits(body=1000))
    packer = zlib.compressobj()
    inflater.feed(packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH))

    empty = b"\x00\x00\x00\xff\xff"
    for _ in range(190):
        assert inflater.feed(empty) == b""

    with pytest.raises(LimitExceededError) as caught:
        inflater.feed(empty * 10)
    assert caught.value.which == "body"


# ── Memory ───────────────────────────────────────────────────────────────────────────────────

BODY, VALUES = 1024 * 1024, 10_000
PROMISED = 12 * BODY + 350 * VALUES
ALWAYS_THERE = 2 * 1024 * 1024
"""Return the memory that does not depend on the body: headers, socket buffers, loaded code."""

WHOLE_TASK = b'{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},'


def items(before, item, after):
    return lambda size: before + b",".join([item] * (size // (len(item) + 1))) + after


def text(before, character, after):
    return lambda size: before + character * (size // len(character)) + after


RAW = WHOLE_TASK + b'"artifacts":[{"artifactId":"a","parts":[{"raw":"'

SHAPES = {
    "objects": items(WHOLE_TASK + b'"metadata":{"a":[', b"{}", b"]}}"),
    "members": items(WHOLE_TASK + b'"metadata":{"a":[', b'{"a":1}', b"]}}"),
    "lists": items(WHOLE_TASK + b'"metadata":{"a":[', b"[]", b"]}}"),
    "strings": items(WHOLE_TASK + b'"metadata":{"a":[', b'"ab"', b"]}}"),
    "parts": items(
        WHOLE_TASK + b'"artifacts":[{"artifactId":"a","parts":[', b'{"text":""}', b"]}]}"
    ),
    "repaired": items(WHOLE_TASK + b'"history":null,"artifacts":[', b'{"artifactId":"a"}', b"]}"),
    "messages": items(
        WHOLE_TASK + b'"history":[', b'{"messageId":"m","role":2,"parts":[]}', b"]}"
    ),
    "depth": lambda size: (
        WHOLE_TASK + b'"metadata":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}"
    ),
    "open": text(b"", b"[", b""),
    "quotes": text(b'{"a":[', b'""', b""),
    "backslashes": text(b'{"a":"', b"\\\\", b'"}'),
    "text": text(WHOLE_TASK + b'"metadata":{"a":"', b"x", b'"}}'),
    "wide": text(WHOLE_TASK + b'"metadata":{"a":"' + "😀".encode(), b"x", b'"}}'),
    "spaced raw": text(RAW, b"AB ", b'"}]}]}'),
    "wide raw": text(RAW + "😀".encode(), b"AB ", b'"}]}]}'),
    "error": text(b'{"error":{"code":500,"message":"', b"x", b'"}}'),
    "html": text(b"<html>", b"{", b""),
}


def pieces_of(data):
    """Split data into chunks for the socket, so that the server itself needs no memory."""
    return [data[start : start + 16384] for start in range(0, len(data), 16384)]


ENCODINGS = {
    "plain": lambda body: [reply(body)],
    "chunked": lambda body: [
        head("Transfer-Encoding: chunked"),
        *(chunk(body[start : start + 65536]) for start in range(0, len(body), 65536)),
        LAST_CHUNK,
    ],
    "packed": lambda body: [reply(gzip.compress(body), PACKED)],
    "failed": lambda body: [reply(body, status="500 Internal Server Error")],
    "headers": lambda body: [head(*(f"X-{n}: {'a' * 16_000}" for n in range(120))), body],
}


@pytest.mark.rule("P24")
@pytest.mark.real_time
@crossed("shape, size, encoding", SHAPES, [BODY - 200, 4 * BODY], ENCODINGS, turns=2)
async def test_memory_is_bounded_for_any_reply(shape, size, encoding):
    pieces = pieces_of(b"".join(ENCODINGS[encoding](SHAPES[shape](size))))
    async with serving(*pieces) as client:
        hostile = client(body=BODY, json_values=VALUES)
        await hostile.agent_card()
        tracemalloc.start()
        try:
            with contextlib.suppress(A2AError):
                await hostile.get_task("task")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak < PROMISED + ALWAYS_THERE


# ── Encodings ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P24")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-be", "utf-16", "utf-32-be", "utf-32"])
@pytest.mark.parametrize(
    ("metadata", "limits"),
    [
        ({"a": [{}] * 1000}, Limits(json_values=100)),
        (json.loads('{"a":' + "[" * 200 + "]" * 200 + "}"), Limits(json_depth=20)),
    ],
    ids=["values", "depth"],
)
async def test_json_limits_apply_to_every_encoding(encoding, metadata, limits):
    def answer(request):
        refused_reply = rpc(
            request,
            result={
                "id": "t",
                "contextId": "c",
                "status": {"state": "TASK_STATE_WORKING"},
                "metadata": metadata,
            },
        )
        text = json.dumps(json.loads(refused_reply.body))
        return HttpReply(status=200, body=text.encode(encoding))

    client = connect(
        "http://agent.test",
        engine=Answering(answer),
        limits=limits,
        resilience=Resilience.off(),
    )
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert isinstance(caught.value, LimitExceededError) or encoding != "utf-8"
