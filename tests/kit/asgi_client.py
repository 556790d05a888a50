"""Speaks ASGI 3 to an application, as a server does: for tests that need no socket."""

from dataclasses import dataclass

from holdfast import Task
from holdfast.types import StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

__all__ = ["JSON", "Reply", "body_of", "post", "request"]

JSON = {"content-type": "application/a2a+json"}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    text: str


def body_of(event):
    """An event as it is pushed."""
    match event:
        case Task():
            response = StreamResponse(task=event)
        case TaskStatusUpdateEvent():
            response = StreamResponse(status_update=event)
        case TaskArtifactUpdateEvent():
            response = StreamResponse(artifact_update=event)
        case _:
            response = StreamResponse(message=event)
    return response.to_json().encode()


async def request(app, *pieces, method="POST", headers=(), end=None):
    """Sends a body in pieces; gives what came back, None for nothing.

    Args:
        app: The application.
        pieces: Of the body.
        method: Of the request.
        headers: Pairs; names may come twice.
        end: What comes in place of the end of the body: a coroutine function.
    """
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if end is None:
        messages = messages or [{"type": "http.request"}]
        messages[-1] = {**messages[-1], "more_body": False}

    async def receive():
        if messages:
            return messages.pop(0)
        assert end is not None, "read beyond the end of the body"
        return await end()

    sent = []

    async def send(message):
        sent.append(message)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": method, "path": "/push", "headers": raw}
    await app(scope, receive, send)
    if not sent:
        return None
    start, body = sent
    assert (start["type"], body["type"]) == ("http.response.start", "http.response.body")
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert headers["content-length"] == str(len(body["body"]))
    return Reply(start["status"], headers, body["body"].decode())


async def post(app, event, config=None, **headers):
    """Delivers an event, or bytes, with the token of a configuration."""
    token = {} if config is None else {"x-a2a-notification-token": config.token}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    all_headers = {**JSON, **token, **named}
    body = event if isinstance(event, bytes) else body_of(event)
    return await request(app, body, headers=all_headers.items())
