"""A reader of event streams for tests, written apart from the client's."""

import json

RPC_ID = "call-1"


def frames_of(body):
    """The events of a body: the type and the data of each, and comments as ``(":", text)``."""
    text = body.decode().replace("\r\n", "\n").replace("\r", "\n")
    *blocks, rest = text.split("\n\n")
    assert rest == "", f"the body ends inside an event: {rest!r}"
    return [_frame(block.split("\n")) for block in blocks]


def _frame(lines):
    kind, data = "message", []
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            return ":", value
        if name == "event":
            kind = value
        else:
            assert name == "data", f"a line of {name!r}"
            data.append(value)
    return kind, json.loads("\n".join(data))


def results_of(body, binding):
    """The events without their envelopes; comments are left out."""
    found = []
    for kind, document in frames_of(body):
        if kind == ":":
            continue
        result = document
        if binding == "JSONRPC":
            assert (document["jsonrpc"], document["id"]) == ("2.0", RPC_ID)
            assert ("result" in document) != ("error" in document)
            result = document.get("result", document)
        assert (kind == "error") <= ("error" in result)
        found.append(result)
    return found


def event_summary(result):
    """One event in short: what it says."""
    ((name, value),) = result.items() if "error" not in result else [("error", result["error"])]
    match name:
        case "task":
            text = "".join(p["text"] for a in value.get("artifacts", ()) for p in a["parts"])
            return f"task {_state(value)} {text}".rstrip()
        case "statusUpdate":
            return f"status {_state(value)}"
        case "artifactUpdate":
            text = "".join(part["text"] for part in value["artifact"]["parts"])
            how = "append" if value.get("append") else "artifact"
            return f"{how} {text}{' last' * bool(value.get('lastChunk'))}"
        case "message":
            return f"message {value['parts'][0]['text']}"
        case _:
            return f"error {value['code']} {value['message']}"


def _state(value):
    return value["status"]["state"].removeprefix("TASK_STATE_")
