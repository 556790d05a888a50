"""Redaction of credentials, tested with a canary in every carrier of credentials.

After every kind of failure, from agents that echo their requests, the tests search logs, errors
with their facts and causes, observations, `repr`, tracebacks, pickles and the terminal.
"""

import asyncio
import base64
import html
import json
import pickle
from urllib.parse import quote

import pytest
from tests.kit.canary import (
    CANARY,
    HOST,
    PLACES,
    Listening,
    brisk,
    everything_in,
    options_for,
    shown,
)
from tests.kit.effort import crossed
from tests.kit.raw_server import always, head, reply, serve

from holdfast import (
    A2AError,
    AiohttpEngine,
    SchemeCredentials,
    connect,
)
from holdfast._wire.redaction import redact
from holdfast.extend import HttpReply
from holdfast.testing import FakeAgent, FakeNetwork


class Echo(FakeNetwork):
    """An agent that echoes its requests; `answer` makes the reply."""

    def __init__(self, answer, card, *, from_the_card_on):
        super().__init__(FakeAgent())
        self.answer = answer
        self.card = card
        self.from_the_card_on = from_the_card_on
        self.carried = []

    async def request(self, request):
        secret = "\n".join(
            [request.method, request.url, *(f"{n}: {v}" for n, v in request.headers.items())]
        )
        is_card = request.method == "GET" and ".json" in request.url
        if is_card and not self.from_the_card_on:
            return HttpReply(status=200, body=json.dumps(self.card).encode())
        self.carried.append(secret)
        request.progress.sent = True
        return self.answer(request, secret)


def page(status, content_type="text/html", **headers):
    def answer(request, secret):
        body = f"<html>you sent {html.escape(secret)} or {secret}</html>".encode()
        headers_too = {n: v.format(heard=" ".join(secret.split())) for n, v in headers.items()}
        return HttpReply(
            status=status, headers={"content-type": content_type, **headers_too}, body=body
        )

    return answer


def rpc_error(request, secret):
    error = {
        "code": -32603,
        "message": f"failed on {secret}",
        "data": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": secret,
                "metadata": {secret: secret},
            },
            {"deep": [secret, {"b64": base64.b64encode(secret.encode()).decode()}]},
        ],
    }
    rpc_request = json.loads(request.body) if request.body else {}
    document = {"jsonrpc": "2.0", "id": rpc_request.get("id"), "error": error}
    return HttpReply(status=200, body=json.dumps(document).encode())


def rest_error(request, secret):
    error = {"code": 500, "status": "INTERNAL", "message": secret, "details": [{"x": secret}]}
    return HttpReply(status=500, body=json.dumps({"error": error}).encode())


def problem(request, secret):
    document = {"type": "about:blank", "title": secret, "status": 400, "detail": secret}
    headers = {"content-type": "application/problem+json"}
    return HttpReply(status=400, headers=headers, body=json.dumps(document).encode())


def wrong_shape(request, secret):
    rpc_request = json.loads(request.body) if request.body else {}
    result = {"task": {"id": [secret], secret: secret}, "name": secret, "skills": [secret]}
    document = {"id": rpc_request.get("id"), "result": result, **result}
    return HttpReply(status=200, body=json.dumps(document).encode())


def redirect(request, secret):
    there = f"http://elsewhere.test/{quote(' '.join(secret.split()))}?{request.url}"
    return HttpReply(status=307, headers={"location": there}, body=secret.encode())


ANSWERS = {
    "401": page(401, **{"www-authenticate": "Bearer realm={heard}"}),
    "403": page(403, server="{heard}"),
    "404": page(404),
    "429": page(429, **{"retry-after": "{heard}", "x-request-id": "{heard}"}),
    "500": page(500, "text/plain", via="{heard}"),
    "503": page(503, **{"retry-after": "0"}),
    "200 html": page(200),
    "rpc error": rpc_error,
    "rest error": rest_error,
    "problem": problem,
    "wrong shape": wrong_shape,
    "redirect": redirect,
}


async def misfortune(client, listening, call):
    """Return all output of a failing call that a program or a person can read."""
    observed = []
    for attempt in (client.ask, client.get_task):
        try:
            await attempt("hello", **call)
        except A2AError as error:
            observed += everything_in(error)
            observed += everything_in(error.facts())
            observed.append(pickle.dumps(error).decode("latin-1"))
    return [*observed, *listening.seen, repr(client), repr(vars(client))]


@pytest.mark.rule("P27")
@crossed("carrier, answer, from_the_card_on", PLACES, ANSWERS, [False, True], turns=4)
async def test_a_credential_is_redacted_everywhere(
    carrier, answer, from_the_card_on, caplog, capfd
):
    caplog.set_level(1)
    options = await options_for(carrier)
    call = options.pop("call", {})
    interfaces = [
        {"url": f"{HOST}/rpc", "protocolBinding": "JSONRPC"},
        {"url": f"{HOST}/rest", "protocolBinding": "HTTP+JSON"},
    ]
    card = {"name": "Echo", "supportedInterfaces": interfaces, **options.pop("card", {})}
    network = Echo(ANSWERS[answer], card, from_the_card_on=from_the_card_on)
    listening, observations = Listening(), []
    asked_for = options.pop("interceptors", [])
    for binding in ("JSONRPC", "HTTP+JSON"):
        client = connect(
            options.pop("agent", HOST),
            engine=network,
            resilience=brisk(),
            bindings=[binding],
            observers=[observations.append],
            interceptors=[*asked_for, listening],
            **options,
        )
        observed = await misfortune(client, listening, call)

        assert shown(observed) == []
    auth = options.get("auth")
    hooks = asked_for if isinstance(auth, str | dict) else [auth, *asked_for]
    assert shown([repr(observations), repr(hooks), *getattr(auth, "refused", [])]) == []
    assert shown([caplog.text, *(repr(record.__dict__) for record in caplog.records)]) == []
    assert shown(capfd.readouterr()) == []
    if not from_the_card_on and carrier != "query of the card":
        assert any(shown([secret]) for secret in network.carried), "the canary was not even sent"


CARDS = {
    "binding": lambda secret: {"supportedInterfaces": [{"url": HOST, "protocolBinding": secret}]},
    "version": lambda secret: {
        "supportedInterfaces": [
            {"url": HOST, "protocolBinding": "JSONRPC", "protocolVersion": f"9 {secret}"}
        ]
    },
    "name": lambda secret: {"name": secret, "supportedInterfaces": []},
    "place": lambda secret: {
        "supportedInterfaces": [{"url": f"http://0.0.0.0/{secret}", "protocolBinding": "JSONRPC"}]
    },
    "host": lambda secret: {
        "supportedInterfaces": [
            {"url": f"http://{quote(secret.lower(), safe='')}.test", "protocolBinding": "JSONRPC"}
        ]
    },
}


@pytest.mark.rule("P27")
@pytest.mark.parametrize("card", CARDS)
async def test_a_credential_echoed_in_a_card_is_redacted(card, caplog):
    caplog.set_level(1)

    def answer(request, secret):
        sent = request.headers["authorization"].partition(" ")[2]
        document = {"name": "Echo", **CARDS[card](sent)}
        return HttpReply(status=200, body=json.dumps(document).encode())

    network = Echo(answer, {}, from_the_card_on=True)
    client = connect(HOST, engine=network, auth=f"Bearer {CANARY}")

    observed = await misfortune(client, Listening(), {})

    assert shown([*observed, caplog.text]) == []


TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_FAILED"}}


def says(state, secret):
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": secret}]}
    return {**TASK, "status": {"state": state, "message": message}}


def task_that_repeats(state):
    def answer(request, secret):
        rpc_request = json.loads(request.body)
        task = says(state, secret)
        result = task if rpc_request["method"] == "GetTask" else {"task": task}
        return HttpReply(
            status=200, body=json.dumps({"id": rpc_request["id"], "result": result}).encode()
        )

    return answer


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED", "AUTH_REQUIRED"])
@pytest.mark.parametrize("carrier", ["authorization", "static", "headers", "headers of a call"])
async def test_a_credential_echoed_in_a_failed_task_is_redacted(state, carrier, caplog):
    caplog.set_level(1)
    options = PLACES[carrier]()
    call = {"timeout": 5, **options.pop("call", {})}
    card = {
        "name": "Echo",
        "supportedInterfaces": [{"url": f"{HOST}/rpc", "protocolBinding": "JSONRPC"}],
    }
    network = Echo(task_that_repeats(f"TASK_STATE_{state}"), card, from_the_card_on=False)
    client = connect(HOST, engine=network, **options)

    with pytest.raises(A2AError) as caught:
        await client.ask("hello", **call)

    error = caught.value
    assert "***" in str(error)
    assert CANARY in error.task.to_json(), "the task stays as the agent sent it"
    del vars(error)["_task"]
    if error.__cause__ is not None:
        vars(error.__cause__).pop("_task", None)
    assert shown([*everything_in(error), caplog.text]) == []


async def test_a_credential_echoed_in_an_extended_card_is_redacted(caplog):
    caplog.set_level(1)

    def answer(request, secret):
        rpc_request = json.loads(request.body)
        interfaces = [{"url": f"{HOST}/rpc", "protocolBinding": "JSONRPC"}]
        card = {"name": f"Echo {CANARY}", "supportedInterfaces": interfaces}
        document = {"id": rpc_request["id"], "result": card}
        return HttpReply(status=200, body=json.dumps(document).encode())

    own = {
        "name": "Echo",
        "supportedInterfaces": [{"url": f"{HOST}/rpc", "protocolBinding": "JSONRPC"}],
        "capabilities": {"extendedAgentCard": True},
    }
    network = Echo(answer, {}, from_the_card_on=True)
    client = connect(own, engine=network, auth=f"Bearer {CANARY}")
    await client.get_extended_agent_card()

    with pytest.raises(A2AError, match="does not declare an extended card") as caught:
        await client.get_extended_agent_card()

    assert shown([*everything_in(caught.value), caplog.text]) == []


async def test_an_unsatisfied_requirement_shows_no_credential(caplog):
    caplog.set_level(1)

    def answer(request, secret):
        card = {
            "name": secret,
            "supportedInterfaces": [{"url": f"{HOST}/rpc", "protocolBinding": "JSONRPC"}],
            "securitySchemes": {secret: {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
            "securityRequirements": [{"schemes": {secret: {"list": []}}}],
        }
        return HttpReply(status=200, body=json.dumps(card).encode())

    network = Echo(answer, {}, from_the_card_on=True)
    client = connect(
        HOST, engine=network, headers={"x-own": CANARY}, auth=SchemeCredentials({"it": "x"})
    )

    observed = await misfortune(client, Listening(), {})

    assert len(observed) > 10
    assert shown([*observed, caplog.text]) == []


# ── On real sockets ──────────────────────────────────────────────────────────────────────────


def echo(connection_answer):
    async def script(connection):
        while (request := await connection.request()) is not None:
            await connection.send(connection_answer(request))

    return script


async def not_tls(connection):
    await connection.first_bytes()
    await connection.send(head(status="400 This Is Plain HTTP"))


WIRES = {
    "echoed": echo(lambda request: reply(request, status="500 Failed")),
    "garbage": echo(lambda request: request),
    "header": echo(lambda request: head("X-\x00bad: " + request[:2000].hex(), request.decode())),
    "status": echo(lambda request: b"HTTP/1.1 " + request),
    "gzip": echo(lambda request: reply(request, "Content-Encoding: gzip")),
    "closed": None,
    "tls": not_tls,
}


@pytest.mark.rule("P27")
@pytest.mark.real_time
@crossed("carrier, wire", [name for name in PLACES if "query of" not in name], WIRES, turns=2)
async def test_a_credential_is_redacted_on_a_socket(carrier, wire, caplog, capfd):
    caplog.set_level(1)
    asyncio.get_running_loop().set_debug(True)
    options = await options_for(carrier)
    call, listening = options.pop("call", {}), Listening()
    engine = AiohttpEngine()
    async with serve(WIRES[wire] or always()) as server:
        url = server.url.replace("http:", "https:") if wire == "tls" else server.url
        url = "http://127.0.0.1:1" if wire == "closed" else url
        interfaces = [{"url": url, "protocolBinding": "HTTP+JSON"}]
        card = {"name": "Echo", "supportedInterfaces": interfaces, **options.pop("card", {})}
        client = connect(
            card,
            engine=engine,
            resilience=brisk(),
            interceptors=[*options.pop("interceptors", []), listening],
            **options,
        )
        observed = await misfortune(client, listening, call)
        await engine.close()

    assert shown(observed) == []
    assert shown([caplog.text]) == []
    assert shown(capfd.readouterr()) == []


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        ("http", "407 Denied"),
        ("http", "500 Failed"),
        ("http", "200 OK"),
        ("https", "407 Denied"),
        ("https", "500 Failed"),
    ],
)
async def test_the_password_of_a_proxy_is_redacted(scheme, answer, monkeypatch, caplog):
    caplog.set_level(1)
    async with serve(echo(lambda request: reply(request, status=answer))) as proxy:
        named = proxy.url.replace("//", f"//user:{quote(CANARY, safe='')}@")
        monkeypatch.setenv("HTTP_PROXY", named)
        monkeypatch.setenv("HTTPS_PROXY", named)
        monkeypatch.setenv("NO_PROXY", "")
        engine = AiohttpEngine()
        client = connect(f"{scheme}://agent.test", engine=engine, resilience=brisk())

        observed = await misfortune(client, Listening(), {})
        await engine.close()

    assert shown(observed) == []
    assert shown([caplog.text]) == []


def escaped(form, text=CANARY):
    return "".join(form.format(ord(letter)) for letter in text)


ENCODED = {
    "hex": CANARY.encode().hex(),
    "hex in capitals": CANARY.encode().hex().upper(),
    "all percent": escaped("%{:02x}"),
    "some percent": quote(CANARY, safe="").lower().replace("kanari", "k%41nari"),
    "percent twice": quote(escaped("%{:02X}"), safe=""),
    "JSON": escaped("\\u{:04x}"),
    "JSON in JSON": escaped("\\\\u{:04X}"),
    "JSON of PHP": CANARY.replace("/", "\\/"),
    "program": escaped("\\x{:02x}"),
    "HTML": escaped("&#{};"),
    "HTML in hex": escaped("&#x{:x};"),
    "HTML of a query": html.escape(escaped("%{:02x}") + "&"),
    **{
        f"base64 after {n}": base64.b64encode(b"-" * n + f"{CANARY} sent".encode()).decode()
        for n in range(3)
    },
    "URL-safe base64": base64.urlsafe_b64encode(f"~~~?{CANARY}~~~?".encode()).decode(),
}


@pytest.mark.rule("P27")
@pytest.mark.parametrize("encoded", ENCODED.values(), ids=ENCODED)
async def test_an_echoed_credential_in_another_encoding_is_redacted(encoded):
    def answer(request, secret):
        error = {"code": -32603, "message": f"for {encoded} it", "data": [{"deep": [encoded]}]}
        document = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "error": error}
        return HttpReply(status=200, body=json.dumps(document).encode())

    card = {"name": "E", "supportedInterfaces": [{"url": HOST, "protocolBinding": "JSONRPC"}]}
    auth = {"authorization": CANARY}
    client = connect(HOST, engine=Echo(answer, card, from_the_card_on=False), auth=auth)

    with pytest.raises(A2AError) as caught:
        await client.get_task("task-1")

    error = caught.value
    assert encoded[6:-6] not in "".join(everything_in(error)).replace("\\\\", "\\")
    assert "for " in str(error)
    assert str(error).count("***") == 1
    assert " it" in str(error)
    assert "***" in str(error.details)


def test_text_without_a_credential_keeps_its_escapes():
    error = A2AError("50%25 of \\u0041 &amp; co", details=[{"path": "a%2Fb"}])

    redact(error, [CANARY])

    assert error.message == "50%25 of \\u0041 &amp; co"
    assert error.details == ({"path": "a%2Fb"},)


def test_data_too_large_or_too_deep_to_search_is_omitted():
    deep = [CANARY]
    for _ in range(60):
        deep = [deep]
    error = A2AError("no", details=[{"deep": deep}, {"long": " " * 200_000, "next": CANARY}])

    redact(error, [CANARY])

    assert shown(everything_in(error)) == []
    assert "***" in str(error.details)


@pytest.mark.rule("P27")
def test_the_search_of_this_test_finds_secrets():
    error = A2AError("visible", details=[{"a": [quote(CANARY)]}])
    error.__context__ = ValueError(f"hidden {CANARY}")

    secrets_shown = shown(everything_in(error))

    assert any("hidden" in text for text in secrets_shown)
    assert len(shown([base64.b64encode(CANARY.encode()).decode()])) == 1
