"""The bytes that every benchmark works on, the same for every client.

- `TASK`: a finished task of about 1.3 kB: a status, one artifact with text and data, the question
  and one turn of history. It is what the static agent answers to each SendMessage.
- `LARGE_TASK`: a finished task of about 1 MB: 1,800 artifacts of the same make.
- `QUESTION`: the text that is sent.
- `PACED`: asks for a stream that brings `PACED_EVENT` once a second, and does not end.
- `STREAMS`: what is streamed, by the text that asks for it: a task, then pieces of an artifact in
  events of 200 bytes or 20 kB, then that the task is completed.

Only the standard library is needed, so that every Python can import this.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

QUESTION = "How far is the moon, and how do we know?"
TASK_ID = "5c1f0d9e-7a34-4f0a-9d0b-2f3f0f9f6a11"
CONTEXT_ID = "0b7ce4a2-55c0-4d0e-8a4f-9a1d2f5f3c77"
TOKEN = "Bearer 2f8a6c1d9b7e4f30"  # noqa: S105  made up, so that clients have a header to send

_ANSWER = (
    "The moon is 384,400 km away on average. Its orbit is an ellipse, so the distance varies "
    "between about 363,300 km and 405,500 km. We know it to the millimetre: observatories fire "
    "laser pulses at reflectors that were left there, and time how long the light takes to return."
)


def _message(number: int, role: str, text: str) -> dict[str, Any]:
    return {
        "messageId": f"9d3b1c52-0000-4000-8000-{number:012d}",
        "contextId": CONTEXT_ID,
        "taskId": TASK_ID,
        "role": role,
        "parts": [{"text": text}],
    }


def _artifact(number: int) -> dict[str, Any]:
    return {
        "artifactId": f"artifact-{number}",
        "name": "answer",
        "description": "What the agent found out",
        "parts": [
            {"text": _ANSWER, "mediaType": "text/plain"},
            {
                "data": {"kilometres": 384400, "range": [363300, 405500], "sources": ["laser"]},
                "mediaType": "application/json",
            },
        ],
        "metadata": {"confidence": 0.99, "round": number},
    }


def _task(artifacts: int) -> dict[str, Any]:
    return {
        "id": TASK_ID,
        "contextId": CONTEXT_ID,
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-03-01T12:00:00.000Z"},
        "artifacts": [_artifact(number) for number in range(artifacts)],
        "history": [
            _message(1, "ROLE_USER", QUESTION),
            _message(
                2,
                "ROLE_AGENT",
                "On average, or right now? I take it that you mean both, and the extremes too.",
            ),
        ],
    }


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


TASK = _json(_task(1))
LARGE_TASK = _json(_task(1800))

PAYLOADS = {"1.3 kB": TASK, "1 MB": LARGE_TASK}
"""Documents to decode, by their size in the report."""


def reply(request_id: bytes) -> bytes:
    """The JSON-RPC reply to SendMessage.

    Args:
        request_id: The id of the request as JSON text, with its quotes.
    """
    return b'{"jsonrpc":"2.0","id":%b,"result":{"task":%b}}' % (request_id, TASK)


SHORT_EVENTS, LONG_EVENTS, HELD, PACED = "200 B", "20 kB", "held", "paced"

STREAMS = {SHORT_EVENTS: (200, 4000), LONG_EVENTS: (20_000, 400)}
"""How many bytes of data an event has, and how many pieces there are, by the text that asks."""

_STREAMED = {"taskId": "moon", "contextId": "sky"}
_UUID = len(TASK_ID) + 2  # of an id of a request, with its quotes
_PLACE = b'"?"'  # where that goes


def _event(result: dict[str, Any]) -> bytes:
    data = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_PLACE, _json(result))
    return b"data: %b\r\n\r\n" % data


def _piece(size: int, *, append: bool) -> bytes:
    """An event with so many bytes of data."""

    def of(text: str) -> bytes:
        artifact = {"artifactId": "answer", "parts": [{"text": text}]}
        return _event({"artifactUpdate": {**_STREAMED, "artifact": artifact, "append": append}})

    room = size - (len(of("")) - len(b"data: \r\n\r\n") - len(_PLACE) + _UUID)
    assert room > 0
    return of((_ANSWER * (room // len(_ANSWER) + 1))[:room])


def _opening() -> bytes:
    status = {"state": "TASK_STATE_WORKING"}
    return _event({"task": {"id": "moon", "contextId": "sky", "status": status}})


def _stream(size: int, pieces: int) -> list[bytes]:
    status = {"state": "TASK_STATE_COMPLETED"}
    closing = _event({"statusUpdate": {**_STREAMED, "status": status}})
    first, more = _piece(size, append=False), _piece(size, append=True)
    return [_opening(), first, *[more] * (pieces - 1), closing]


_EVENTS = {text: _stream(*made) for text, made in STREAMS.items()}

_PACED_SIZE = 200


@cache
def _chunked(text: str, room: int) -> bytes:
    """Each event of a stream as a chunk of HTTP, in which the id that goes into it has room."""
    events = _EVENTS.get(text, [_opening()])
    growth = room - len(_PLACE)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event) + growth, event) for event in events)
    return chunks + b"0\r\n\r\n" if text in STREAMS else chunks


def stream(text: str, request_id: bytes) -> bytes:
    """The body of the reply to SendStreamingMessage, in chunks.

    Args:
        text: What was asked for: one of `STREAMS`, or `HELD` or `PACED` for one that does not end.
        request_id: The id of the request as JSON text, with its quotes.
    """
    return _chunked(text, len(request_id)).replace(_PLACE, request_id)


def paced_event(request_id: bytes) -> bytes:
    """The event of 200 bytes that a paced stream brings once a second, as a chunk of HTTP."""
    event = _piece(_PACED_SIZE, append=True).replace(_PLACE, request_id)
    return b"%x\r\n%b\r\n" % (len(event), event)


def events_of(text: str) -> int:
    """How many events a stream has."""
    return STREAMS[text][1] + 2


def no_task(request_id: bytes) -> bytes:
    """The JSON-RPC reply to GetTask of an agent that keeps no tasks."""
    error = _json({"code": -32001, "message": "Task not found"})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, error)


def card(url: str) -> bytes:
    """The card of an agent that speaks JSON-RPC at an address and streams."""
    return _json(
        {
            "name": "static",
            "description": "Answers every message with the same task",
            "version": "1.0.0",
            "supportedInterfaces": [
                {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "moon", "name": "moon", "description": "Moon", "tags": ["moon"]}],
        }
    )


REQUEST = _json(
    {
        "id": "3e0f6a52-6f0c-4a62-9d55-7a1c3a8f2b10",
        "method": "SendMessage",
        "params": {
            "message": {
                "messageId": "a1b2c3d4-8f61-4c0f-8a3c-5b0e2f7d9c44",
                "role": "ROLE_USER",
                "parts": [{"text": QUESTION}],
            }
        },
        "jsonrpc": "2.0",
    }
)
"""The request as Holdfast writes it, for clients that send ready-made bytes."""

STREAMING_REQUESTS = {
    text: REQUEST.replace(b'"SendMessage"', b'"SendStreamingMessage"').replace(
        _json(QUESTION), _json(text)
    )
    for text in (*STREAMS, HELD, PACED)
}
"""The same for streams, by the text that asks for them."""

HEADERS = {
    "authorization": TOKEN,
    "a2a-version": "1.0",
    "user-agent": "benchmark",
    "content-type": "application/json",
    "accept": "application/json",
}
