"""The canary of `tests.wire.test_secrets` on streams, whose agents repeat what they were sent."""

import base64
import itertools
import json

import pytest
from tests.kit.canary import HOST, PLACES, Listening, brisk, everything_in, options_for, shown
from tests.kit.effort import crossed

from holdfast import A2AError, connect
from holdfast.testing import FakeAgent, FakeNetwork, Respond

EVENTS = {"content-type": "text/event-stream"}
TASK = {"id": "task-1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}


def event(document, kind="message"):
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b"".join([f"event: {kind}\n".encode(), b"data: ", data, b"\n\n"])


def error(heard):
    encoded = base64.b64encode(heard.encode()).decode()
    return {"code": -32602, "message": f"you sent {heard}", "data": [{heard: encoded}]}


def status(heard, state, envelope):
    parts = [{"text": f"you sent {heard}"}]
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}
    told = {"state": f"TASK_STATE_{state}", "message": message}
    return event(
        envelope({"statusUpdate": {"taskId": "task-1", "contextId": "c", "status": told}})
    )


ENDINGS = {
    "rpc error event": lambda heard, _: event({"id": None, "error": error(heard)}, "error"),
    "rpc error": lambda heard, _: event({"jsonrpc": "2.0", "id": None, "error": error(heard)}),
    "rest error event": lambda heard, _: event(
        {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": heard}}, "error"
    ),
    "text error event": lambda heard, _: event(" ".join(heard.split()).encode(), "error"),
    "no JSON": lambda heard, _: event(" ".join(heard.split()).encode()),
    "wrong shape": lambda heard, envelope: event(
        envelope({"task": {"id": [heard], heard: heard}})
    ),
    "another task": lambda heard, envelope: event(
        envelope({"task": {**TASK, "id": " ".join(heard.split())}})
    ),
    "failed": lambda heard, envelope: status(heard, "FAILED", envelope),
    "rejected": lambda heard, envelope: status(heard, "REJECTED", envelope),
    "authorization": lambda heard, envelope: status(heard, "AUTH_REQUIRED", envelope),
    "chunk of another task": lambda heard, envelope: event(
        envelope(
            {
                "artifactUpdate": {
                    "taskId": " ".join(heard.split()),
                    "contextId": "c",
                    "artifact": {"artifactId": "a", "parts": [{"text": heard}]},
                }
            }
        )
    ),
    "cut": lambda heard, _: b"data: " + " ".join(heard.split()).encode(),
}


class Echo(FakeNetwork):
    """An agent that begins to stream, repeats what it was sent, and refuses all that follows."""

    def __init__(self, ending, card):
        self.agent = FakeAgent(card=card)
        super().__init__(self.agent)
        self.ending = ending
        self.carried = []

    def stream(self, request):
        heard = "\n".join(
            [request.method, request.url, *(f"{n}: {v}" for n, v in request.headers.items())]
        )
        if request.method == "GET" and ".json" in request.url:
            return super().stream(request)
        self.carried.append(heard)

        def envelope(result):
            if b'"jsonrpc"' not in request.body:
                return result
            return {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": result}

        if b"SendStreaming" in request.body or "message:stream" in request.url:
            body = event(envelope({"task": TASK})) + self.ending(heard, envelope)
            self.agent.inject(Respond(status=200, headers=EVENTS, body=body))
        else:
            body = f"you sent {heard}".encode()
            self.agent.inject(Respond(status=403, headers={"server": heard}, body=body))
        return super().stream(request)


def forget_task(error):
    """The task stays as the agent sent it."""
    while error is not None:
        error.task = None
        error = error.__cause__


@crossed(
    "place, ending", [name for name in PLACES if name != "query of the card"], ENDINGS, turns=2
)
async def test_a_credential_is_redacted_on_a_stream(place, ending, caplog, capfd):
    caplog.set_level(1)
    options = await options_for(place)
    call = options.pop("call", {})
    interfaces = [
        {"url": f"{HOST}/rpc", "protocolBinding": "JSONRPC"},
        {"url": f"{HOST}/rest", "protocolBinding": "HTTP+JSON"},
    ]
    card = {
        "name": "Echo",
        "supportedInterfaces": interfaces,
        "capabilities": {"streaming": True},
        **options.pop("card", {}),
    }
    network = Echo(ENDINGS[ending], card)
    listening, told, seen = Listening(), [], []
    asked_for = options.pop("interceptors", [])
    for binding, listens in itertools.product(("JSONRPC", "HTTP+JSON"), (True, False)):
        client = connect(
            HOST,
            engine=network,
            resilience=brisk(),
            bindings=[binding],
            observers=[told.append],
            interceptors=[*asked_for, *[listening] * listens],
            **options,
        )
        stream = client.stream_message("hello", timeout=50, **call)
        with pytest.raises(A2AError) as caught:
            async with stream as events:
                await events.result()
        forget_task(caught.value)
        seen += everything_in(caught.value)
        seen += everything_in(caught.value.facts())
        seen += [repr(stream), repr(client), *listening.seen]

    assert shown(seen) == []
    assert shown(everything_in(told)) == []
    assert shown([caplog.text, *(repr(record.__dict__) for record in caplog.records)]) == []
    assert shown(capfd.readouterr()) == []
    assert any(shown([heard]) for heard in network.carried), "the canary was not even sent"
