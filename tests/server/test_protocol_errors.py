"""Around an agent's application: whatever goes wrong, a client gets an error of the protocol."""

import asyncio
import json
import logging
import tracemalloc

import pytest

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    AgentCard,
    AgentCardResolutionError,
    AuthenticationError,
    NotEnoughResultsError,
    RateLimitedError,
    Resilience,
    TaskNotFoundError,
    connect,
)
from holdfast._wire.bindings import codec_for
from holdfast._wire.status import REFUSALS
from holdfast.client import AgentResult
from holdfast.errors import (
    InternalError,
    InvalidParamsError,
    PermissionDeniedError,
    wrap_downstream,
)
from holdfast.extend import HttpReply
from holdfast.protocol import GET_TASK, SEND_MESSAGE
from holdfast.server import ProtocolErrors
from holdfast.testing import AsgiNetwork
from holdfast.types import AgentCapabilities, AgentInterface

RPC = b'{"jsonrpc":"2.0","id":"r-1","method":"SendMessage","params":{"message":{"id":"not this"}}}'
REST = b'{"message":{"messageId":"m-1","parts":[{"text":"hello"}]}}'
BOTH = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
SECRET = "the password is hunter2, in /home/me/agent.py"


class Exchange:
    """What a server does with an application, and what came of it."""

    def __init__(self, app, *, binding="JSONRPC", body=None, **scope):
        is_rpc = binding == "JSONRPC"
        self.binding = binding
        self.sent = []
        self.asked = 0
        self.pieces = [RPC if is_rpc else REST] if body is None else body
        headers = scope.pop("headers", {})
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/rpc" if is_rpc else "/rest/message:send",
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in headers.items()],
            **scope,
        }
        self.app = app

    async def receive(self):
        self.asked += 1
        if self.pieces is None:
            return {"type": "http.disconnect"}
        if not self.pieces:
            await asyncio.Event().wait()
        piece = self.pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self.pieces)}

    async def send(self, message):
        self.sent.append(message)

    async def run(self):
        await self.app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def headers(self):
        return {n.decode(): v.decode() for n, v in self.sent[0]["headers"]}

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def error(self):
        """What a Holdfast client makes of it."""
        operation = SEND_MESSAGE if self.scope["method"] == "POST" else GET_TASK
        reply = HttpReply(status=self.status, headers=self.headers, body=self.body)
        with pytest.raises(A2AError) as caught:
            codec_for(self.binding, "1.0").decode(
                operation, "r-1", reply, now=0, refusals=REFUSALS
            )
        return caught.value


async def served(app, *, agent="me", nested=False, **options):
    return await Exchange(ProtocolErrors(app, agent=agent, nested=nested), **options).run()


def raising(failure):
    async def app(scope, receive, send):
        await receive()
        raise failure

    return app


def answering(status, body, kind="text/plain", **headers):
    async def app(scope, receive, send):
        named = {"content-type": kind, "content-length": str(len(body)), **headers}
        raw = [(n.replace("_", "-").encode(), v.encode()) for n, v in named.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body[:3], "more_body": True})
        await send({"type": "http.response.body", "body": body[3:]})

    return app


def detail(reply, name):
    """A typed detail of the error in a reply."""
    error = json.loads(reply.body)["error"]
    details = error["data"] if reply.binding == "JSONRPC" else error["details"]
    [found] = [
        each for each in details if each["@type"] == f"type.googleapis.com/google.rpc.{name}"
    ]
    return found


# ── Exceptions ───────────────────────────────────────────────────────────────────────────────


async def test_an_exception_is_a_json_rpc_error_under_the_requests_id():
    reply = await served(raising(ValueError(SECRET)))

    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-length"] == str(len(reply.body))
    members = json.loads(reply.body)
    assert (members["jsonrpc"], members["id"]) == ("2.0", "r-1")
    assert (members["error"]["code"], members["error"]["message"]) == (-32603, "internal error")


async def test_an_exception_is_a_status_object_over_http_json():
    reply = await served(raising(ValueError(SECRET)), binding="HTTP+JSON")

    assert reply.status == 500
    error = json.loads(reply.body)["error"]
    assert (error["code"], error["status"]) == (500, "INTERNAL")
    assert error["message"] == "internal error"


@pytest.mark.rule("P12")
@BOTH
async def test_nothing_of_an_exception_is_reported_and_all_of_it_is_logged(binding, caplog):
    reply = await served(
        raising(ValueError(SECRET)), binding=binding, headers={"x-request-id": "abc-7"}
    )

    assert "hunter2" not in str(reply.sent)
    assert "agent.py" not in str(reply.sent)
    [record] = caplog.records
    assert (record.name, record.levelno) == ("holdfast.server", logging.ERROR)
    assert record.getMessage().startswith("request abc-7 to me (POST /")
    assert "ValueError: the password is hunter2" in record.getMessage()
    assert (record.request_id, record.agent) == ("abc-7", "me")
    assert "Traceback" in caplog.text
    assert reply.headers["x-request-id"] == "abc-7"
    assert detail(reply, "RequestInfo")["requestId"] == "abc-7"


@pytest.mark.parametrize("named", [None, "", "a b", "x" * 129, "a\u00e9", "a\x1b[2J"])
async def test_a_request_without_a_usable_id_gets_one(named, caplog):
    headers = {} if named is None else {"x-request-id": named}

    replies = [await served(raising(ValueError()), headers=headers) for _ in range(2)]

    ids = [reply.headers["x-request-id"] for reply in replies]
    assert len({*ids, named}) == 3
    assert [detail(reply, "RequestInfo")["requestId"] for reply in replies] == ids
    assert all(request_id in caplog.text for request_id in ids)


@BOTH
async def test_an_error_of_the_protocol_says_what_it_says(binding):
    error = InvalidParamsError("a city is needed", executed=False)

    reply = await served(raising(error), binding=binding)

    assert reply.status == (200 if binding == "JSONRPC" else 400)
    assert type(reply.error) is InvalidParamsError
    assert "a city is needed" in str(reply.error)


@BOTH
async def test_when_to_try_again_is_reported_in_the_header_as_well(binding):
    reply = await served(raising(InternalError("busy", transient=True, retry_after=2.5)))

    assert reply.headers["retry-after"] == "3"
    assert (reply.error.transient, reply.error.retry_after) == (True, 2.5)


@BOTH
@pytest.mark.parametrize("grouped", [False, True])
async def test_the_error_of_another_agent_tells_where_the_chain_broke(binding, grouped):
    below = TaskNotFoundError(
        "the agent answered -32001: gone", code=-32001, agent="http://b.test", request_id="r-9"
    )
    failure = ExceptionGroup("tasks", [ExceptionGroup("more", [below])]) if grouped else below

    reply = await served(raising(failure), binding=binding)

    assert type(reply.error) is InternalError
    assert reply.error.hops == ("http://b.test",)
    assert "agent http://b.test failed: gone" in str(reply.error)


@BOTH
async def test_an_error_that_is_wrapped_already_is_not_wrapped_again(binding):
    below = A2AConnectionError("refused", failure="refused", transient=True, retry_after=9)
    wrapped = wrap_downstream(below, agent="B", current="another name of mine")

    reply = await served(raising(wrapped), binding=binding)

    assert reply.error.hops == ("B",)
    assert (reply.error.transient, reply.error.retry_after) == (True, 9)


@BOTH
async def test_the_error_of_too_few_agents_names_those_that_failed(binding):
    results = [AgentResult(agent=name, error=InternalError("no")) for name in ("news", "weather")]
    failure = NotEnoughResultsError("0 of 2 have answered", results=results)

    error = (await served(raising(failure), binding=binding)).error

    assert error.hops == ("news, weather",)
    assert "agent news, weather failed: 0 of 2 have answered" in str(error)


@BOTH
@pytest.mark.parametrize("agent", ["", "\x00", "\ud800", "me"])
async def test_an_error_that_names_no_other_agent_says_what_it_says(binding, agent):
    reply = await served(raising(InternalError("busy", agent=agent)), binding=binding)

    assert "busy" in str(reply.error)


@pytest.mark.parametrize("nested", [False, True])
async def test_whatever_another_agent_answered_can_be_passed_on(nested):
    below = {"code": 2**80, "message": "\ud800", "data": {"retryAfter": 1e308, "detail": {}}}
    data = {"downstreamAgent": "\ud800", "downstreamError": below, "retryable": True}
    error = A2AError.from_jsonrpc({"code": -32603, "message": "no", "data": data})
    error.agent, error.request_id = "http://b.test", "r-9"

    found = (await served(raising(error), nested=nested)).error

    assert found.hops == ("http://b.test", "?")
    assert found.transient is True


async def test_the_older_dialect_is_written_on_request():
    below = A2AConnectionError("refused", failure="refused", transient=True)
    wrapped = wrap_downstream(below, agent="B", current="me")

    reply = await served(raising(wrapped), nested=True)

    data = json.loads(reply.body)["error"]["data"]
    assert (data["currentAgent"], data["downstreamAgent"]) == ("me", "B")
    assert (data["retryable"], data["requestId"]) == (True, reply.headers["x-request-id"])


async def test_time_that_is_over_may_be_tried_again():
    assert (await served(raising(TimeoutError()))).error.transient is True


async def test_an_application_that_answers_nothing_is_answered_for(caplog):
    async def app(scope, receive, send):
        await receive()

    reply = await served(app)

    assert reply.error.code == -32603
    assert "returned without an answer" in caplog.text


# ── Answers that are no errors of the protocol ───────────────────────────────────────────────

PAGE = b"<html><body><h1>Oops</h1> hunter2 in /srv/agent.py</body></html>"
# Status -> type, executed, transient; for each body that says nothing.
STATUSES = [
    (400, (A2AHTTPError, None, False)),
    (401, (AuthenticationError, False, False)),
    (403, (PermissionDeniedError, False, False)),
    (404, (A2AHTTPError, False, False)),
    (405, (A2AHTTPError, False, False)),
    (413, (A2AHTTPError, False, False)),
    (415, (A2AHTTPError, False, False)),
    (429, (RateLimitedError, False, True)),
    (500, (InternalError, None, False)),
    (502, (A2AHTTPError, None, True)),
    (503, (A2AHTTPError, False, True)),
]


@BOTH
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", PAGE),
        ("text/plain", b"Internal Server Error"),
        ("application/json", b'{"error":"hunter2"}'),
        ("application/json", b'{"errors":[{"loc":"hunter2"}]}'),
        ("application/json", b"[1]"),
        ("application/json", b"{hunter2"),
        ("text/html", PAGE * 10_000),
        ("text/html", b""),
    ],
)
@pytest.mark.parametrize(("status", "facts"), STATUSES)
async def test_a_page_is_an_error_with_the_same_status_and_meaning(
    binding, kind, body, status, facts
):
    reply = await served(answering(status, body, kind, retry_after="7"), binding=binding)

    assert reply.status == status
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-length"] == str(len(reply.body))
    assert reply.headers["retry-after"] == "7"
    assert "hunter2" not in str(reply.sent)
    assert "html" not in str(reply.sent)
    error = reply.error
    assert (type(error), error.executed, error.transient) == facts
    assert (error.http_status, error.retry_after) == (status, 7)
    if binding == "JSONRPC":
        assert json.loads(reply.body)["id"] == "r-1"


async def test_a_page_of_any_size_is_not_kept():
    async def app(scope, receive, send):
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        for more in [True] * 500 + [False]:
            await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": more})

    tracemalloc.start()
    try:
        reply = await served(app)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4_000_000
    assert reply.error.http_status == 404


@BOTH
async def test_a_status_means_the_same_to_the_client_as_without_the_page(binding):
    for status, _ in STATUSES:
        if status == 500:
            continue
        dressed = (await served(answering(status, PAGE, "text/html"), binding=binding)).error
        bare = Exchange(answering(status, PAGE, "text/html"), binding=binding)
        plain = (await bare.run()).error
        assert type(dressed) is type(plain)
        for fact in ("executed", "transient", "retry_after", "http_status"):
            assert getattr(dressed, fact) == getattr(plain, fact), (status, fact)


@BOTH
async def test_headers_that_belong_to_the_status_are_kept(binding):
    app = answering(
        401,
        PAGE,
        "text/html",
        www_authenticate='Bearer realm="a"',
        access_control_allow_origin="*",
        content_encoding="gzip",
        etag='"1"',
    )

    headers = (await served(app, binding=binding)).headers

    assert headers["www-authenticate"] == 'Bearer realm="a"'
    assert headers["access-control-allow-origin"] == "*"
    assert not headers.keys() & {"content-encoding", "etag"}


@BOTH
async def test_what_a_framework_says_of_the_clients_mistake_is_reported(binding):
    body = b'{"detail":"the city is unknown, see /home/me/cities.txt"}'

    error = (await served(answering(422, body, "application/json"), binding=binding)).error

    assert "HTTP 422" in str(error)
    assert "the city is unknown, see (path)" in str(error)


PROPER = [
    ("JSONRPC", 200, b'{"jsonrpc":"2.0","id":"r-1","error":{"code":-32001,"message":"no"}}'),
    ("JSONRPC", 400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'),
    ("JSONRPC", 500, b'{"jsonrpc":"2.0","id":"r-1","error":{"code":-32603,"message":"no"}}'),
    ("JSONRPC", 200, b'{"jsonrpc":"2.0","id":"r-1","result":{}}'),
    ("JSONRPC", 299, b"<html>"),
    ("HTTP+JSON", 404, b'{"error":{"code":404,"status":"NOT_FOUND","message":"no"}}'),
    ("HTTP+JSON", 500, b'{"error":{"code":500,"status":"INTERNAL","message":"no"}}'),
    ("HTTP+JSON", 400, b'{"code":-32602,"message":"no"}'),
    ("HTTP+JSON", 404, b'{"message":"no such task"}'),
    ("HTTP+JSON", 304, b""),
    ("HTTP+JSON", 302, b"moved"),
    ("HTTP+JSON", 500, b'{"error":{"code":500,"message":"%s"}}' % (b"x" * 100_000)),
]


@pytest.mark.parametrize(("binding", "status", "body"), PROPER)
async def test_a_proper_answer_passes_untouched(binding, status, body, caplog):
    app = answering(status, body, "application/json", x_own="1")

    reply = await served(app, binding=binding)
    bare = await Exchange(app, binding=binding).run()

    assert (reply.status, reply.body) == (bare.status, bare.body)
    assert {**bare.headers, "x-request-id": reply.headers["x-request-id"]} == reply.headers
    assert caplog.records == []


async def test_the_log_of_a_replaced_response_begins_with_its_error(caplog):
    await served(answering(401, PAGE, "text/html"))

    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith(
        "failed: HTTP 401 Unauthorized (a protocol error replaces the application's response)"
    )


async def test_a_problem_of_http_passes_untouched():
    body = b'{"type":"https://a.test/task-not-found","title":"no"}'

    reply = await served(answering(404, body, "application/problem+json"), binding="HTTP+JSON")

    assert reply.body == body
    assert type(reply.error) is TaskNotFoundError


async def test_the_id_that_an_application_gives_itself_is_kept():
    reply = await served(answering(200, b"{}", "application/json", x_request_id="own"))

    assert reply.headers["x-request-id"] == "own"


@BOTH
@pytest.mark.parametrize("body", [PAGE, b""])
async def test_what_is_raised_behind_a_page_tells_more_than_the_page(binding, body):
    async def app(scope, receive, send):
        await answering(500, body, "text/html")(scope, receive, send)
        raise InternalError("overloaded", transient=True, retry_after=4)

    error = (await served(app, binding=binding)).error

    assert (error.transient, error.retry_after) == (True, 4)
    assert "overloaded" in str(error)


async def test_what_is_raised_behind_a_whole_answer_is_logged_only(caplog):
    async def app(scope, receive, send):
        await answering(200, b"{}", "application/json")(scope, receive, send)
        raise ValueError("in the background")

    reply = await served(app)

    assert (reply.status, reply.body) == (200, b"{}")
    assert "in the background" in caplog.text


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


def streaming(*pieces, failure=None, **headers):
    async def app(scope, receive, send):
        await receive()
        named = {"content-type": "text/event-stream", **headers}
        raw = [(n.replace("_", "-").encode(), v.encode()) for n, v in named.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if failure is not None:
            raise failure
        await send({"type": "http.response.body", "body": b""})

    return app


GZIP = {"content_encoding": "gzip"}
EVENT = b'data: {"jsonrpc":"2.0","id":"r-1","result":{}}\n\n'


@pytest.mark.parametrize("pieces", [[], [EVENT], [EVENT[:9], EVENT[9:-1], EVENT[-1:]]], ids=len)
async def test_a_stream_that_fails_ends_with_the_error_as_an_event(pieces):
    below = InternalError("busy", transient=True, agent="http://b.test", request_id="r-9")

    reply = await served(streaming(*pieces, failure=below))

    assert reply.body.startswith(b"".join(pieces))
    last = reply.body[len(b"".join(pieces)) :]
    assert last.startswith(b"data: ")
    assert last.endswith(b"\n\n")
    members = json.loads(last[6:])
    assert members["id"] == "r-1"
    found = A2AError.from_jsonrpc(members["error"])
    assert (found.transient, found.hops) == (True, ("http://b.test",))
    assert reply.sent[-1].get("more_body", False) is False


async def test_over_http_json_the_event_is_named_an_error():
    body = (await served(streaming(failure=ValueError(SECRET)), binding="HTTP+JSON")).body

    assert body.startswith(b'event: error\ndata: {"error":{"code":500,')
    assert b"hunter2" not in body


@pytest.mark.parametrize(
    ("piece", "headers"), [(EVENT[:9], {}), (EVENT, GZIP)], ids=["half", "gzip"]
)
async def test_a_stream_that_can_have_no_other_event_is_cut_off(piece, headers):
    app = streaming(piece, failure=ValueError("x"), **headers)
    exchange = Exchange(ProtocolErrors(app, agent="me"))

    with pytest.raises(ValueError, match="x"):
        await exchange.run()

    assert exchange.body == piece


async def test_another_answer_in_flight_is_cut_off():
    async def app(scope, receive, send):
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"result":', "more_body": True})
        raise ValueError("x")

    exchange = Exchange(ProtocolErrors(app, agent="me"))

    with pytest.raises(ValueError, match="x"):
        await exchange.run()
    assert exchange.body == b'{"result":'


async def test_an_answer_that_only_began_is_replaced():
    async def app(scope, receive, send):
        headers = [(b"content-type", b"application/json"), (b"x-own", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        raise InvalidParamsError("no")

    reply = await served(app)

    assert type(reply.error) is InvalidParamsError


async def test_events_pass_at_once_and_so_does_the_beginning():
    seen = []
    exchange = Exchange(None)

    async def app(scope, receive, send):
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        seen.append(len(exchange.sent))
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
        seen.append(len(exchange.sent))
        await send({"type": "http.response.body", "body": b""})

    exchange.app = ProtocolErrors(app, agent="me")
    await exchange.run()

    assert seen == [1, 2]


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "rpc_id"),
    [
        ([RPC], "r-1"),
        ([RPC[:30], RPC[30:]], "r-1"),
        ([b'{"params":{},"method":"x","id":7}'], 7),
        ([b'{"id":"r-1","method":"x","params":{"text":"', b"x" * 1_000_000, b'"}}'], "r-1"),
        ([b'{"method":"x","params":{"text":"', b"x" * 1_000_000, b'"},"id":"late"}'], None),
        ([b'{"jsonrpc":"2.0","id":true}'], None),
        ([b'{"jsonrpc":"2.0","id":1e999}'], None),
        ([b'{"jsonrpc":"2.0","id":%d}' % 2**80], None),
        ([b'{"jsonrpc":"2.0","id":"\\ud800"}'], "\ud800"),
        ([b'{"jsonrpc":"2.0","id":{"a":1}}'], None),
        ([b'{"jsonrpc":"2.0"}'], None),
        ([b'{"jsonrpc":"2.0","id":"r-1","params":' + b"[" * 200_000], "r-1"),
        ([b"\xef\xbb\xbf" + RPC], "r-1"),
    ],
)
@pytest.mark.parametrize("reads", [0, 1, 9])
async def test_id_is_found_however_the_body_arrives_and_is_read(body, rpc_id, reads):
    async def app(scope, receive, send):
        for _ in range(reads):
            if not (await receive())["more_body"]:
                break
        raise ValueError(SECRET)

    members = json.loads((await served(app, body=list(body))).body)

    assert (members["jsonrpc"], members["id"]) == ("2.0", rpc_id)
    assert members["error"]["code"] == -32603


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/rest/tasks/t-1", [b""]),
        ("GET", "/.well-known/agent-card.json", [b""]),
        ("DELETE", "/tasks/t/pushNotificationConfigs/c", [b""]),
        ("POST", "/rest/tasks/t-1:cancel", [b""]),
        ("POST", "/message:stream", [b"not JSON"]),
        ("POST", "/message:send", [REST]),
        ("POST", "/v1/message:send", [b'{"message":']),
        ("POST", "/health", [b""]),
        ("POST", "/webhook", [b"a=b"]),
        ("POST", "/webhook", [b'{"event":"paid"}']),
        ("POST", "/rpc", [b"[]"]),
        ("POST", "/rpc", [b"not JSON"]),
    ],
)
async def test_what_is_no_json_rpc_is_answered_as_http_json(method, path, body):
    reply = await served(raising(ValueError(SECRET)), method=method, path=path, body=body)

    assert reply.status == 500
    assert json.loads(reply.body)["error"]["code"] == 500


@pytest.mark.parametrize("reads", [True, False])
async def test_a_large_upload_is_not_kept(reads):
    pieces = [RPC[:40], *[b"x" * 100_000] * 300]

    async def app(scope, receive, send):
        while reads and (await receive())["more_body"]:
            pass
        raise ValueError(SECRET)

    exchange = Exchange(ProtocolErrors(app, agent="me"), body=pieces)
    tracemalloc.start()
    try:
        await exchange.run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4_000_000
    assert exchange.asked == (301 if reads else 4)  # 256 KB are enough


async def test_a_body_that_does_not_come_is_not_waited_for_long():
    async def app(scope, receive, send):
        raise ValueError(SECRET)

    reply = await served(app, body=[])

    assert json.loads(reply.body)["error"]["code"] == 500


async def test_the_application_gets_the_body_as_it_came():
    seen = []

    async def app(scope, receive, send):
        seen.extend([await receive(), await receive()])
        await answering(200, b"{}", "application/json")(scope, receive, send)

    await served(app, body=[RPC[:10], RPC[10:]])

    assert [(message["body"], message["more_body"]) for message in seen] == [
        (RPC[:10], True),
        (RPC[10:], False),
    ]


@pytest.mark.parametrize("kind", ["lifespan", "websocket", "another"])
async def test_what_is_no_http_passes_as_it_is(kind):
    seen = []

    async def app(*arguments):
        seen.extend(arguments)
        raise ValueError("as it is")

    scope, receive, send = {"type": kind}, object(), object()

    with pytest.raises(ValueError, match="as it is"):
        await ProtocolErrors(app, agent="me")(scope, receive, send)
    assert [*map(id, seen)] == [*map(id, (scope, receive, send))]


async def test_a_head_is_answered_without_a_body():
    reply = await served(answering(404, PAGE, "text/html"), method="HEAD", path="/", body=[b""])

    assert (reply.status, reply.body) == (404, b"")
    assert reply.headers["content-type"] == "application/json"


async def test_a_client_that_leaves_is_no_error(caplog):
    async def app(scope, receive, send):
        assert (await receive())["type"] == "http.disconnect"
        raise RuntimeError("the client has left")

    with caplog.at_level(logging.INFO):
        exchange = Exchange(ProtocolErrors(app, agent="me"))
        exchange.pieces = None
        await exchange.run()

    assert exchange.sent == []
    assert [record.levelno for record in caplog.records] == [logging.INFO]


@pytest.mark.parametrize(
    "app", [raising(ValueError()), answering(404, PAGE), answering(200, b""), streaming(EVENT)]
)
@pytest.mark.parametrize("kind", ["http.response.start", "http.response.body"])
async def test_a_client_that_leaves_while_it_is_answered_is_no_error(app, kind, caplog):
    async def send(message):
        if message["type"] == kind:
            raise BrokenPipeError

    exchange = Exchange(ProtocolErrors(app, agent="me"))
    exchange.send = send
    await exchange.run()

    assert "BrokenPipe" not in caplog.text


async def test_a_cancellation_passes():
    async def app(scope, receive, send):
        await asyncio.Event().wait()

    exchange = Exchange(ProtocolErrors(app, agent="me"))
    task = asyncio.create_task(exchange.run())
    await asyncio.sleep(1)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert exchange.sent == []


def test_a_name_is_needed():
    with pytest.raises(ValueError, match="agent must not be empty"):
        ProtocolErrors(raising(ValueError()), agent="")
    with pytest.raises(TypeError, match="agent must be str"):
        ProtocolErrors(raising(ValueError()), agent=7)


def test_an_application_is_needed():
    with pytest.raises(TypeError, match="app must be an ASGI application, not str"):
        ProtocolErrors("app", agent="me")


# ── With Holdfast at both ends ───────────────────────────────────────────────────────────────


def agent_of(url, work, *, binding="JSONRPC", outside=ProtocolErrors, **options):
    """An agent that does its work in an application of its own, with a card."""
    card = AgentCard(
        name="Agent",
        capabilities=AgentCapabilities(streaming=True),
        supported_interfaces=(
            AgentInterface(url=f"{url}/rpc", protocol_binding=binding, protocol_version="1.0"),
        ),
    ).to_json()

    async def app(scope, receive, send):
        if scope["path"] == "/.well-known/agent-card.json":
            await answering(200, card.encode(), "application/json")(scope, receive, send)
        elif scope["path"].startswith("/rpc"):
            await work(scope, receive, send)
        else:
            await answering(404, PAGE, "text/html")(scope, receive, send)

    return outside(app, agent=url, **options)


@BOTH
@pytest.mark.parametrize("nested", [False, True])
async def test_the_user_of_a_chain_of_three_sees_where_it_broke(binding, nested):
    network = AsgiNetwork()

    def passing_on(to):
        async def work(scope, receive, send):
            client = connect(to, engine=network, resilience=Resilience.off())
            await client.send_message("go on")

        return work

    async def overloaded(scope, receive, send):
        raise InternalError("the model is overloaded", transient=True, retry_after=30)

    works = {"a": passing_on("http://b.test"), "b": passing_on("http://c.test"), "c": overloaded}
    for name, work in works.items():
        url = f"http://{name}.test"
        network.add(url, agent_of(url, work, binding=binding, nested=nested))
    user = connect("http://a.test", engine=network, resilience=Resilience.off())

    with pytest.raises(InternalError) as caught:
        await user.send_message("hello")

    error = caught.value
    assert error.hops == ("http://b.test/rpc", "http://c.test/rpc")
    assert (error.transient, error.retry_after, error.executed) == (True, 30, None)
    assert str(error) == (
        "the agent answered -32603: agent http://b.test/rpc failed: agent http://c.test/rpc "
        "failed: the model is overloaded (agent http://a.test/rpc; retry after 30 s; not "
        "retried: the agent may have executed it)"
    )
    assert network.crashes == []


@BOTH
async def test_the_user_of_a_stream_sees_where_it_broke(binding):
    network = AsgiNetwork()
    task = {"task": {"id": "t-1", "status": {"state": "TASK_STATE_WORKING"}}}

    async def work(scope, receive, send):
        request = json.loads((await receive())["body"])
        event = task
        if binding == "JSONRPC":
            event = {"jsonrpc": "2.0", "id": request["id"], "result": task}
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = f"data: {json.dumps(event)}\n\n".encode()
        await send({"type": "http.response.body", "body": body, "more_body": True})
        below = InternalError("the model is overloaded", transient=True)
        raise wrap_downstream(below, agent="B", current="A")

    network.add("http://a.test", agent_of("http://a.test", work, binding=binding))
    client = connect("http://a.test", engine=network, resilience=Resilience.off())

    async with client.stream_message("hello") as events:
        with pytest.raises(A2AError, match="agent B failed: the model is overloaded") as caught:
            await events.result()

    assert caught.value.hops == ("B",)
    assert network.crashes == []


@BOTH
async def test_agents_that_call_each_other_get_a_loop_error(binding):
    network = AsgiNetwork()
    urls = ["http://a.test", "http://b.test"]
    calls = []

    def passing_on(to):
        async def work(scope, receive, send):
            calls.append(to)
            if len(calls) > 3:
                raise InternalError("enough")
            await connect(to, engine=network, resilience=Resilience.off()).send_message("go on")

        return work

    for url, other in zip(urls, reversed(urls), strict=True):
        network.add(url, agent_of(url, passing_on(other), binding=binding))
    user = connect(urls[0], engine=network, resilience=Resilience.off())

    with pytest.raises(InternalError) as caught:
        await user.send_message("hello")

    assert caught.value.loop == "http://b.test/rpc"
    assert "http://b.test/rpc occurs twice in the chain" in str(caught.value)


@BOTH
async def test_what_a_limiter_in_the_application_refuses_is_sent_again(binding):
    refusals = [answering(429, b"slow down", retry_after="5")] * 2
    done = b'{"task":{"id":"t-1","status":{"state":"TASK_STATE_COMPLETED"}}}'

    async def work(scope, receive, send):
        if refusals:
            await refusals.pop()(scope, receive, send)
            return
        request = json.loads((await receive())["body"])
        body = (
            done
            if binding != "JSONRPC"
            else json.dumps(
                {"jsonrpc": "2.0", "id": request["id"], "result": json.loads(done)}
            ).encode()
        )
        await answering(200, body, "application/json")(scope, receive, send)

    network = AsgiNetwork({"http://a.test": agent_of("http://a.test", work, binding=binding)})

    reply = await connect("http://a.test", engine=network).send_message("hello")

    assert reply.id == "t-1"
    assert refusals == []


@BOTH
async def test_a_card_that_is_not_there_is_not_there(binding):
    network = AsgiNetwork({"http://a.test": agent_of("http://a.test", None)})

    with pytest.raises(AgentCardResolutionError, match="no agent card was found"):
        await connect("http://a.test/elsewhere/", engine=network).agent_card()


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_client_that_does_not_read_is_disconnected(kind, caplog):
    class Full(Exchange):
        async def send(self, message):
            await super().send(message)
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

    caplog.set_level(logging.INFO, "holdfast.server")
    app = ProtocolErrors(answering(200, b"data: 1\n\n", kind), agent="me")
    exchange = await Full(app).run()
    app = ProtocolErrors(raising(ValueError(SECRET)), agent="me")
    failed = await Full(app).run()

    assert [message["type"] for message in exchange.sent] == [
        "http.response.start",
        "http.response.body",
    ]
    assert len(failed.sent) == 2
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR", "INFO"]


@pytest.mark.parametrize(("status", "seconds"), [(503, 5), (408, 0)])
async def test_a_body_that_does_not_come_is_waited_for_once(status, seconds):
    exchange = Exchange(ProtocolErrors(answering(status, b"too slow"), agent="me"), body=[])
    began = asyncio.get_running_loop().time()
    await exchange.run()

    assert exchange.status == status
    assert asyncio.get_running_loop().time() - began == seconds


@pytest.mark.rule("P12")
@pytest.mark.parametrize("status", [422, 500, 503])
@pytest.mark.parametrize(
    "page",
    [
        b"<html>" + b"Traceback (most recent call last)<br>" * 3000,
        b'{"detail": "' + b"Traceback (most recent call last), " * 3000 + b'"}',
        b'{"detail": "' + b"Traceback (most recent call last), " * 50_000 + b'"}',
    ],
    ids=["html", "json", "more json"],
)
async def test_an_error_page_of_the_application_is_not_passed_on_however_long_it_is(status, page):
    sent = []

    async def app(_scope, _receive, send):
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for at in range(0, len(page), 10_000):
            piece, rest = page[at : at + 10_000], at + 10_000 < len(page)
            await send({"type": "http.response.body", "body": piece, "more_body": rest})

    async def receive():
        body = b'{"jsonrpc": "2.0", "id": 7, "method": "GetTask"}'
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/rpc", "headers": []}
    await ProtocolErrors(app, agent="agent")(scope, receive, send)

    told = b"".join(message.get("body", b"") for message in sent)
    assert b"Traceback" not in told
    reply = json.loads(told)
    assert (sent[0]["status"], reply["id"]) == (status, 7)
    assert A2AError.from_jsonrpc(reply["error"]).code is not None
