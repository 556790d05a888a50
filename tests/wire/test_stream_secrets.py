"""The canary of `tests.wire.test_secrets` on streams of agents that echo their requests."""

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


def error(secret):
    encoded = base64.b64encode(secret.encode()).decode()
    return {"code": -32602, "message": f"you sent {secret}", "data": [{secret: encoded}]}


def status(secret, state, envelope):
    parts = [{"text": f"you sent {secret}"}]
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}
    task_status = {"state": f"TASK_STATE_{state}", "message": message}
    return event(
        envelope({"statusUpdate": {"taskId": "task-1", "contextId": "c", "status": task_status}})
    )


ENDINGS = {
    "rpc error event": lambda secret, _: event({"id": None, "error": error(secret)}, "error"),
    "rpc error": lambda secret, _: event({"jsonrpc": "2.0", "id": None, "error": error(secret)}),
    "rest error event": lambda secret, _: event(
        {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": secret}}, "error"
    ),
    "text error event": lambda secret, _: event(" ".join(secret.split()).encode(), "error"),
    "no JSON": lambda secret, _: event(" ".join(secret.split()).encode()),
    "wrong shape": lambda secret, envelope: event(
        envelope({"task": {"id": [secret], secret: secret}})
    ),
    "another task": lambda secret, envelope: event(
        envelope({"task": {**TASK, "id": " ".join(secret.split())}})
    ),
    "failed": lambda secret, envelope: status(secret, "FAILED", envelope),
    "rejected": lambda secret, envelope: status(secret, "REJECTED", envelope),
    "authorization": lambda secret, envelope: status(secret, "AUTH_REQUIRED", envelope),
    "chunk of another task": lambda secret, envelope: event(
        envelope(
            {
                "artifactUpdate": {
                    "taskId": " ".join(secret.split()),
                    "contextId": "c",
                    "artifact": {"artifactId": "a", "parts": [{"text": secret}]},
                }
            }
        )
    ),
    "cut": lambda secret, _: b"data: " + " ".join(secret.split()).encode(),
}


class Echo(FakeNetwork):
    """An agent that begins a stream, echoes the request, and refuses all later requests."""

    def __init__(self, ending, card):
        self.agent = FakeAgent(card=card)
        super().__init__(self.agent)
        self.ending = ending
        self.carried = []

    def stream(self, request):
        secret = "\n".join(
            [request.method, request.url, *(f"{n}: {v}" for n, v in request.headers.items())]
        )
        if request.method == "GET" and ".json" in request.url:
            return super().stream(request)
        self.carried.append(secret)

        def envelope(result):
            if b'"jsonrpc"' not in request.body:
                return result
            return {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": result}

        if b"SendStreaming" in request.body or "message:stream" in request.url:
            body = event(envelope({"task": TASK})) + self.ending(secret, envelope)
            self.agent.inject(Respond(status=200, headers=EVENTS, body=body))
        else:
            body = f"you sent {secret}".encode()
            self.agent.inject(Respond(status=403, headers={"server": secret}, body=body))
        return super().stream(request)


def forget_task(error):
    """Return the task as the agent sent it."""
    while error is not None:
        vars(error).pop("_task", None)
        error = error.__cause__


@crossed(
    "carrier, ending", [name for name in PLACES if name != "query of the card"], ENDINGS, turns=2
)
async def test_a_credential_is_redacted_on_a_stream(carrier, ending, caplog, capfd):
    caplog.set_level(1)
    options = await options_for(carrier)
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
    listening, observations, observed = Listening(), [], []
    asked_for = options.pop("interceptors", [])
    for binding, listens in itertools.product(("JSONRPC", "HTTP+JSON"), (True, False)):
        client = connect(
            HOST,
            engine=network,
            resilience=brisk(),
            bindings=[binding],
            observers=[observations.append],
            interceptors=[*asked_for, *[listening] * listens],
            **options,
        )
        stream = client.stream_message("hello", timeout=50, **call)
        with pytest.raises(A2AError) as caught:
            async with stream as events:
                await events.result()
        forget_task(caught.value)
        observed += everything_in(caught.value)
        observed += everything_in(caught.value.facts())
        observed += [repr(stream), repr(client), *listening.seen]

    assert shown(observed) == []
    assert shown(everything_in(observations)) == []
    assert shown([caplog.text, *(repr(record.__dict__) for record in caplog.records)]) == []
    assert shown(capfd.readouterr()) == []
    assert any(shown([secret]) for secret in network.carried), "the canary was not even sent"
