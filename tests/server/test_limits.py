"""What one request, and all of them together, may cost a served agent."""

import asyncio
import json

import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import ParseDict
from tests.kit.served_agents import URL, echo, post

import holdfast
from holdfast._server.json_requests import exceeds_json_values
from holdfast.server import A2AServer
from holdfast.testing import AsgiNetwork

KIB = 1024


def sending(*parts, **members):
    message = {"messageId": "a", "role": "ROLE_USER", "parts": list(parts), **members}
    return {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": message}}


def rest(*parts):
    return sending(*parts)["params"]


class Asked:
    """A request to an application, whose body comes in pieces when they are sent."""

    def __init__(self, app, *pieces, path="/", method="POST", **headers):
        named = {"content-type": "application/json", "a2a-version": "1.0", **headers}
        self.pieces = asyncio.Queue()
        self.sent = []
        self.taken = 0
        for piece in pieces:
            self.pieces.put_nowait(piece)
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        self.done = asyncio.ensure_future(app(scope, self.receive, self.send))

    async def receive(self):
        piece = await self.pieces.get()
        self.taken += len(piece or b"")
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": piece != b""}

    async def send(self, message):
        self.sent.append(message)

    @property
    def status(self):
        return self.sent[0]["status"] if self.sent else None

    @property
    def headers(self):
        return dict(self.sent[0]["headers"])

    @property
    def answer(self):
        return json.loads(b"".join(message.get("body", b"") for message in self.sent[1:]))


# ── One message ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P14")
@pytest.mark.parametrize(
    ("path", "status", "document"),
    [("/", 200, sending), ("/message:send", 400, rest), ("/message:stream", 400, rest)],
)
async def test_a_message_may_have_so_many_parts(path, status, document):
    server = A2AServer(echo, max_parts=3)

    refused, answer = await post(server, document(*[{"text": "a"}] * 4), path)
    await server.close()

    assert refused == status
    assert "more than 3 parts" in json.dumps(answer)


async def test_as_many_parts_as_allowed_are_taken():
    server = A2AServer(echo, max_parts=3)

    status, answer = await post(server, sending(*[{"text": "a"}] * 3))
    await server.close()

    assert (status, "result" in answer) == (200, True)


@pytest.mark.rule("P14")
@pytest.mark.parametrize("path", ["/", "/message:send"])
@pytest.mark.parametrize("data", [[0] * 100, {str(n): 0 for n in range(100)}, [[]] * 100])
async def test_a_request_may_hold_so_many_values(path, data):
    server = A2AServer(echo, max_json_values=100)
    document = (sending if path == "/" else rest)({"data": data})

    status, answer = await post(server, document, path)

    assert status == 413
    assert "more than 100 JSON values" in answer["error"]["message"]


async def test_commas_and_brackets_in_a_text_are_no_values():
    server = A2AServer(echo, max_json_values=100)

    _, answer = await post(server, sending({"text": ',[{"\\' * 1000}))
    await server.close()

    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
async def test_json_in_another_encoding_is_not_read(encoding):
    body = json.dumps(sending({"text": "a"})).encode(encoding)

    status, answer = await post(A2AServer(echo), body)

    assert (status, answer["error"]["code"]) == (200, -32700)


@pytest.mark.rule("P14")
@pytest.mark.parametrize(
    ("path", "status", "code"), [("/", 200, -32602), ("/message:send", 400, 400)]
)
@pytest.mark.parametrize("depth", [101, 5000])
async def test_a_request_may_be_nested_so_deeply(path, status, code, depth):
    inner = b"[" * depth + b"]" * depth
    document = (sending if path == "/" else rest)({"data": "?"})
    body = json.dumps(document).encode().replace(b'"?"', inner)
    if path == "/" and depth == 5000:  # Python's own parser does not get as far as the id
        code = -32700

    refused, answer = await post(A2AServer(echo, versions=("1.0", "0.3")), body, path)

    assert (refused, answer["error"]["code"]) == (status, code)
    assert "nested deeper than 100 levels" in answer["error"]["message"]


@pytest.mark.rule("P14")
@pytest.mark.parametrize(
    ("parts", "members", "values"),
    [
        ([{"text": "a"}], {}, 0),
        ([{"data": 1}], {}, 0),
        ([{"data": [1, {"a": [2, None]}]}], {}, 5),
        ([{"text": "a", "metadata": {"b": [1]}}], {"metadata": {"c": {}}}, 3),
    ],
)
def test_values_of_a_message_over_grpc_are_counted(parts, members, values):
    request = ParseDict(sending(*parts, **members)["params"], a2a_pb2.SendMessageRequest())

    assert not exceeds_json_values(request, values)
    assert values == 0 or exceeds_json_values(request, values - 1)


# ── All bodies together ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P14")
async def test_bodies_that_come_at_once_are_bounded_in_memory():
    server = A2AServer(echo, max_body=1024 * KIB, max_body_memory=1024 * KIB)
    app = server.app(url=URL)
    piece = b" " * 512 * KIB
    large = [Asked(app, piece) for _ in range(3)]
    await asyncio.sleep(0.1)
    refused = large[2]
    small = Asked(app, json.dumps(sending({"text": "small"})).encode(), b"")
    await asyncio.gather(refused.done, small.done)

    assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
    assert "result" in small.answer  # what is small gets through all the same
    assert [asked.status for asked in large[:2]] == [None, None]

    large[0].pieces.put_nowait(None)  # its client leaves
    await large[0].done
    again = Asked(app, piece, json.dumps(sending({"text": "again"})).encode(), b"")
    await again.done
    assert "result" in again.answer

    large[1].pieces.put_nowait(b"")
    await large[1].done
    assert large[1].answer["error"]["code"] == -32700
    await server.close()


async def test_bodies_may_fill_the_memory_to_the_last_byte():
    server = A2AServer(echo, max_body=1024 * KIB, max_body_memory=1024 * KIB)
    app = server.app(url=URL)
    piece = b" " * (64 + 512) * KIB  # the first 64 KiB of each body do not count
    large = [Asked(app, piece) for _ in range(2)]
    await asyncio.sleep(0.1)
    refused = Asked(app, b" " * (64 * KIB + 1))
    await refused.done

    assert (refused.status, [asked.status for asked in large]) == (503, [None, None])

    for asked in large:
        asked.pieces.put_nowait(None)
        await asked.done
    await server.close()


async def test_a_body_counts_until_its_response_begins():
    server = A2AServer(echo, max_body=300 * KIB, max_body_memory=300 * KIB)
    app = server.app(url=URL)
    body = json.dumps(sending({"text": "a" * 200 * KIB})).encode()
    for _ in range(3):  # one after the other, which is no matter
        asked = Asked(app, body, b"")
        await asked.done
        assert "result" in asked.answer

    stream = json.dumps({**sending({"text": "a" * 200 * KIB}), "method": "SendStreamingMessage"})
    both = [Asked(app, stream.encode(), b"") for _ in range(2)]
    await asyncio.gather(*(asked.done for asked in both))
    assert sorted(asked.status for asked in both) in ([200, 200], [200, 503])
    await server.close()


async def test_a_client_tries_again_where_there_was_no_memory():
    server = A2AServer(echo, max_body=1024 * KIB, max_body_memory=1024 * KIB)
    app = server.app(url=URL)
    filling = Asked(app, b" " * 1000 * KIB)
    await asyncio.sleep(0)
    network = AsgiNetwork({URL: app})
    async with holdfast.connect(URL, engine=network) as client:
        asking = asyncio.create_task(client.ask("a" * 500 * KIB))
        await asyncio.sleep(0.5)
        filling.pieces.put_nowait(None)
        answer = await asking
        assert len((await client.list_tasks()).tasks) == 1
    await server.close()

    assert answer.text.startswith("You said a")


def test_the_memory_has_room_for_the_largest_body():
    with pytest.raises(ValueError, match="max_body_memory must be at least 1000"):
        A2AServer(echo, max_body=1000, max_body_memory=999)


# ── Authentication comes first ───────────────────────────────────────────────────────────────


def guarded(app):
    """Middleware that reads no body."""

    async def serve(scope, receive, send):
        if b"authorization" in dict(scope["headers"]):
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    return serve


@pytest.mark.rule("P14")
async def test_middleware_refuses_before_the_body_is_read():
    app = A2AServer(echo, middleware=[guarded]).app(url=URL)
    silent = Asked(app)
    sending_on = Asked(app, *[b" " * 64 * KIB] * 100)
    await asyncio.gather(silent.done, sending_on.done)

    assert (silent.status, sending_on.status) == (401, 401)
    assert sending_on.taken == 64 * KIB  # to find the id to answer to
    assert asyncio.get_running_loop().time() < 1


@pytest.mark.parametrize(("pieces", "status"), [([b" " * 2000, b""], 413), ([b" "], 408)])
async def test_middleware_that_reads_the_body_itself_gets_none_that_is_refused(pieces, status):
    seen = []

    def reading(app):
        async def serve(scope, receive, send):
            seen.append((await receive())["type"])
            await app(scope, receive, send)

        return serve

    app = A2AServer(echo, middleware=[reading], max_body=1000, body_timeout=2).app(url=URL)
    asked = Asked(app, *pieces)
    await asked.done

    assert (seen, asked.status) == (["http.disconnect"], status)
