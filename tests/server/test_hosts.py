"""Protection against DNS rebinding: which hosts and origins a served agent accepts."""

import json

import httpx
import pytest
from tests.kit.ports import reserve_port
from tests.kit.real_agents import LIMIT
from tests.kit.served_agents import echo

import holdfast
from holdfast.server import A2AServer

CARD = "/.well-known/agent-card.json"
ASKED = {"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "no"}}


async def call(app, method, path, document=None, **headers):
    """One request with exactly these headers; gives the status and the JSON of the answer."""
    body = b"" if document is None else json.dumps(document).encode()
    sent = []
    pieces = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return pieces.pop() if pieces else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    raw = [(b"content-type", b"application/json"), (b"a2a-version", b"1.0")]
    for name, values in headers.items():
        raw += [
            (name.encode(), v.encode()) for v in ([values] if isinstance(values, str) else values)
        ]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": raw}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(m.get("body", b"") for m in sent[1:]))


async def status_of(app, **headers):
    return (await call(app, "GET", CARD, **headers))[0]


def local(url="http://127.0.0.1:9999", **options):
    return A2AServer(echo, **options).app(url=url)


@pytest.mark.rule("P16")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9999", 200),
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("agent.localhost:3000", 200),
        ("[::1]:9999", 200),
        ("127.9.9.9", 200),
        ("[::ffff:127.0.0.1]", 200),
        ("rebound.example:9999", 421),
        ("localhost.rebound.example", 421),
        ("0.0.0.0:9999", 421),
        ("127.1", 421),
        ("192.168.0.1", 421),
        ("127.0.0.1@rebound.example", 400),
        ("127.0.0.1:80:80", 400),
        ("[::1", 400),
        ("", 400),
        (["127.0.0.1", "rebound.example"], 400),
        ([], 400),
    ],
)
async def test_a_local_agent_accepts_only_names_of_this_machine(host, status):
    assert await status_of(local(), host=host) == status


@pytest.mark.rule("P16")
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("https://127.0.0.1", 200),
        ("https://rebound.example", 403),
        ("http://localhost.rebound.example", 403),
        ("http://localhost@rebound.example", 403),
        ("null", 403),
        ("file://localhost", 403),
        ("", 403),
        (["http://localhost", "https://rebound.example"], 403),
    ],
)
async def test_a_local_agent_accepts_only_pages_of_this_machine(origin, status):
    assert await status_of(local(), host="localhost", origin=origin) == status


@pytest.mark.rule("P16")
async def test_more_hosts_and_origins_can_be_allowed():
    app = local(
        allowed_hosts=["Agent.Example", "*.dev.example", "::2"],
        allowed_origins=["https://App.example:8443", "null"],
    )
    hosts = ["agent.example:1", "a.dev.example", "[::2]", "dev.example", "xdev.example"]
    origins = ["https://app.example:8443", "null", "http://agent.example", "https://app.example"]

    assert [await status_of(app, host=host) for host in hosts] == [200, 200, 200, 421, 421]
    assert [await status_of(app, host="localhost", origin=origin) for origin in origins] == [
        200,
        200,
        200,
        403,
    ]


async def test_everything_can_be_allowed():
    app = local(allowed_hosts=["*"])

    assert await status_of(app, host="any.example", origin="https://any.example") == 200


async def test_an_agent_that_is_not_local_checks_what_it_is_given_to_check():
    url = "https://agents.example/one"
    anything = {"host": "any.example", "origin": "https://any.example"}

    assert await status_of(local(url), **anything) == 200
    listed = local(url, allowed_hosts=[])
    assert await status_of(listed, host="agents.example") == 200
    assert await status_of(listed, host="localhost") == 421
    pages = local(url, allowed_origins=["https://app.example"])
    assert await status_of(pages, host="any.example", origin="https://app.example") == 200
    assert await status_of(pages, host="any.example", origin="https://agents.example") == 200
    assert await status_of(pages, **anything) == 403


@pytest.mark.parametrize(
    ("method", "path", "document"),
    [("POST", "/", ASKED), ("GET", "/tasks/x", None), ("GET", CARD, None)],
)
async def test_a_refusal_has_the_form_of_its_binding_and_a_hint(method, path, document, caplog):
    status, answer = await call(local(), method, path, document, host="rebound.example")

    assert (status, answer.get("id")) == (421, 7 if document else None)
    error = answer["error"]
    assert error["code"] == (-32000 if document else 421)
    for text in (error["message"], caplog.text):
        assert "'rebound.example'" in text
        assert "allowed_hosts=" in text


@pytest.mark.rule("P16")
async def test_a_refused_request_never_reaches_middleware_or_agent():
    reached = []

    def noting(app):
        async def serve(scope, receive, send):
            reached.append(scope["path"])
            await app(scope, receive, send)

        return serve

    app = local(middleware=[noting])
    await call(app, "POST", "/", ASKED, host="rebound.example")
    await call(app, "POST", "/", ASKED, host="localhost", origin="https://rebound.example")

    assert reached == []


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"allowed_hosts": "a.example"}, TypeError, "pass a list"),
        ({"allowed_hosts": [""]}, ValueError, "must not be empty"),
        ({"allowed_hosts": ["http://a.example"]}, ValueError, "a host alone"),
        ({"allowed_hosts": ["a.example:80"]}, ValueError, "a host alone"),
        ({"allowed_origins": ["a.example"]}, ValueError, "is not an origin"),
        ({"allowed_origins": ["https://a.example/"]}, ValueError, "is not an origin"),
    ],
)
def test_a_name_that_could_never_match_is_an_error(options, kind, says):
    with pytest.raises(kind, match=says):
        A2AServer(echo, **options)


# ── On sockets ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_where_it_listens_decides_and_the_host_of_its_address_is_accepted():
    server = A2AServer(echo, card={"name": "echo"})
    url = "https://agents.example/echo"
    async with httpx.AsyncClient(trust_env=False, timeout=LIMIT) as http:
        port = reserve_port()
        async with server.serving(port=port, url=url):
            statuses = [
                (
                    await http.get(f"http://127.0.0.1:{port}{CARD}", headers={"host": host})
                ).status_code
                for host in ("127.0.0.1", "agents.example", "rebound.example")
            ]
        async with server.serving() as running, holdfast.connect(running.url) as client:
            answer = await client.ask("hello")

    assert statuses == [200, 200, 421]
    assert answer.text == "You said hello"
